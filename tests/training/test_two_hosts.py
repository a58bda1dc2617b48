"""Two hosts that train one model: network namespaces with a cable between them, which a test can cut."""

import os
import shutil
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest

pytestmark = pytest.mark.skipif(
    "SASGP_SLOW_TESTS" not in os.environ, reason="waits for two minutes: SASGP_SLOW_TESTS=1 runs it"
)

FIT = ("--batch-size", "32", "--active-set-size", "8", "--random-state", "0", "--device", "cpu")

EPOCHS = 250  # enough to cut the cable meanwhile
NO_NAMES = {"RES_OPTIONS": "timeout:1 attempts:1"}  # no server for names can be reached


def run(*command, **options):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)


class Host:
    """A network namespace with an address of its own."""

    def __init__(self, number, token):
        self.number, self.name, self.link = number, f"sasgp{token}{number}", f"sv{token}{number}"

    def ip(self, *command):
        done = run("ip", "-n", self.name, *command)
        assert done.returncode == 0, done.stderr

    def start(self, *tokens):
        """The command line under torchrun, one process on each of two hosts."""
        group = ("--nnodes", 2, "--nproc-per-node", 1, "--node-rank", self.number)
        group += ("--master-addr", "10.77.0.1", "--master-port", 29500)
        command = (
            "ip",
            "netns",
            "exec",
            self.name,
            sys.executable,
            "-m",
            "torch.distributed.run",
            *group,
            "-m",
            "sasgp",
        )
        environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": self.link, **NO_NAMES}
        return subprocess.Popen(
            [*map(str, command), *map(str, tokens)], env=environment, stderr=subprocess.PIPE, text=True
        )


@pytest.fixture
def hosts():
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need iproute2")
    token = f"{os.getpid() % 100_000}"
    pair = [Host(number, token) for number in (0, 1)]
    try:
        for host in pair:
            made = run("ip", "netns", "add", host.name)
            if made.returncode:
                pytest.skip(f"network namespaces are not allowed here: {made.stderr.strip()}")
        first, second = pair
        made = run(
            "ip", "-n", first.name, *f"link add {first.link} type veth peer {second.link} netns".split(), second.name
        )
        if made.returncode:
            pytest.skip(f"virtual cables are not allowed here: {made.stderr.strip()}")
        for host in pair:
            host.ip("addr", "add", f"10.77.0.{host.number + 1}/24", "dev", host.link)
            host.ip("link", "set", host.link, "up")
            host.ip("link", "set", "lo", "up")
        yield pair
    finally:
        for host in pair:
            run("ip", "netns", "del", host.name)


@pytest.fixture
def data(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", X)
    return tmp_path / "x.npy"


def latents(folder):
    return pl.read_csv(folder / "embedding.csv").select("z0", "z1").to_numpy()


def test_two_hosts_train_as_one_does(hosts, data, tmp_path):
    started = [host.start("fit", data, "--out", tmp_path / "two", "--max-epochs", 3, *FIT) for host in hosts]
    for process in started:
        _, error = process.communicate(timeout=120)
        assert process.returncode == 0, error
    group = ("-m", "torch.distributed.run", "--nproc-per-node", 2, "-m", "sasgp")
    one = run(sys.executable, *group, "fit", data, "--out", tmp_path / "one", "--max-epochs", 3, *FIT)
    assert one.returncode == 0, one.stderr
    np.testing.assert_allclose(latents(tmp_path / "two"), latents(tmp_path / "one"), rtol=1e-5, atol=1e-6)


def test_a_cut_cable_ends_both_and_one_host_goes_on(hosts, data, tmp_path):
    out = tmp_path / "run"
    started = [host.start("fit", data, "--out", out, "--max-epochs", EPOCHS, *FIT) for host in hosts]
    deadline = time.monotonic() + 60
    while not (out / "unfinished" / "checkpoint.pt").exists():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    hosts[1].ip("link", "set", hosts[1].link, "down")
    cut = time.monotonic()
    errors = [process.communicate(timeout=100)[1] for process in started]
    assert time.monotonic() - cut < 60
    for process, error in zip(started, errors, strict=True):
        assert process.returncode != 0
        assert error.count("sasgp: error: ") == 1, error
        assert "cannot be reached" in error
    assert "Continue it with `sasgp fit --resume" in errors[0]
    resumed = run(sys.executable, "-m", "sasgp", "fit", "--resume", out)
    assert resumed.returncode == 0, resumed.stderr
    assert len(latents(out)) == 200
