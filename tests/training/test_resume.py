"""What survives: an interrupted run ends in the same bits, and its checkpoint is whole at every moment."""

import hashlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from gpytorch.constraints import GreaterThan, Positive
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from memory import Memory
from processes import Process, wait_for
from torch import nn

from sasgp import SASGP, cli
from sasgp.errors import InputError
from sasgp.estimators import storage
from sasgp.training import checkpoint, fit_encoder, loop
from sasgp.training.checkpoint import CheckpointWarning, Interrupted
from sasgp.training.fingerprint import described
from sasgp.training.loop import DivergedError, Training


class Line(nn.Module):
    """½ E‖w − x − ε‖², with noise of its own; from `bad` on, steps give no finite loss."""

    def __init__(self, bad=()):
        super().__init__()
        self.w, self.bad, self.n = nn.Parameter(torch.zeros(3, dtype=torch.float64)), set(bad), 0

    def forward(self, X, index, n_total, generator):
        self.n += 1
        noise = 0.3 * torch.randn(X.shape, generator=generator, dtype=X.dtype)
        loss = 0.5 * (self.w - X - noise).square().sum(1).mean()
        return loss * math.nan if self.n - 1 in self.bad else loss

    def diagnose(self, X, rows):
        return {"w0": self.w[0].item(), "noise": 0.25}


@pytest.fixture
def X(rng):
    return torch.randn(23, 3, generator=rng, dtype=torch.float64)


def training(model, X, **options):
    groups = [{"params": list(model.parameters()), "lr": 0.1}]
    return Training(model, Memory(X), groups, **{"batch_size": 8, "max_epochs": 5, "seed": 7, **options})


# ---------------------------------------------------------------------------------------------------- the loop


@pytest.mark.parametrize("stop", range(1, 15))
def test_the_loop_goes_on_to_the_same_bits_from_any_step(X, tmp_path, stop):
    whole = Line()
    records = [epoch.loss for epoch in training(whole, X)]
    half = Line()
    run = training(half, X, pause=lambda: run.position.step + 1 == stop)
    seen = []
    for epoch in run:
        if epoch is not None:
            seen.append(epoch.loss)
        if run.position.step == stop:
            break
    checkpoint.write(tmp_path / "c.pt", run.state_dict())
    again = training(other := Line(), X)
    again.load_state_dict(checkpoint.read(tmp_path / "c.pt"))
    seen += [epoch.loss for epoch in again]
    assert torch.equal(other.w, whole.w)
    assert seen == records  # a mean over an epoch that was cut in two is the same number, too


def test_a_bad_step_is_dropped_and_counted(X):
    # Steps 4 and 7 of 15 are NaN: the others are those of a run whose model does not move there
    model = Line(bad=[4, 7])
    epochs = list(training(model, X))
    assert [epoch.dropped for epoch in epochs] == [0, 1, 1, 0, 0]
    assert all(math.isfinite(epoch.loss) for epoch in epochs)
    assert torch.isfinite(model.w).all()


def test_a_gradient_that_is_not_finite_counts_as_well(X):
    class Root(Line):
        def forward(self, X, index, n_total, generator):
            return super().forward(X, index, n_total, generator) + (self.w - self.w).sum().abs().sqrt()  # ∞ · 0 at 0

    with pytest.raises(DivergedError, match="The gradient of w was not finite"):
        list(training(Root(), X, max_epochs=10))


def test_after_several_in_a_row_the_last_good_state_comes_back_with_a_lower_rate(X, monkeypatch):
    monkeypatch.setattr(loop, "GOOD_STEPS", 3)
    model = Line(bad=range(7, 12))  # the good state is the one after six steps
    run = training(model, X, schedule=lambda progress: 1.0, pause=lambda: True)
    states, steps = {}, 0
    for epoch in run:
        if epoch is None:
            steps += 1
            states[steps] = model.w.detach().clone()
    assert torch.equal(states[12], states[6])
    assert not torch.equal(states[11], states[6])
    assert run.position.factor == loop.LOWER
    assert run.optimiser.param_groups[0]["lr"] == pytest.approx(0.1 * loop.LOWER)


def test_going_on_amid_trouble_is_exact_too(X, tmp_path, monkeypatch):
    # The checkpoint falls between bad steps: it must know how many they were, and the good state to return to
    monkeypatch.setattr(loop, "GOOD_STEPS", 3)
    bad = range(7, 12)
    whole = Line(bad=bad)
    list(training(whole, X))
    half = Line(bad=bad)
    run = training(half, X, pause=lambda: True)
    for _ in run:
        if run.position.step == 9:
            break
    checkpoint.write(tmp_path / "c.pt", run.state_dict())
    other = Line(bad=bad)
    other.n = 9
    again = training(other, X)
    again.load_state_dict(checkpoint.read(tmp_path / "c.pt"))
    list(again)
    assert torch.equal(other.w, whole.w)


def test_hopeless_training_stops_with_a_diagnosis(X):
    with pytest.raises(DivergedError) as error:
        list(training(Line(bad=range(3, 1000)), X, max_epochs=100))
    for words in ("loss was nan", "returned to an earlier state 4 times", "noise 0.25", "dtype='float64'"):
        assert words in str(error.value)


def test_an_arithmetic_error_of_the_model_is_one_bad_step(X):
    class Once(Line):
        def forward(self, *arguments):
            if self.n == 2:
                self.n += 1
                raise ArithmeticError("no factor")
            return super().forward(*arguments)

    assert sum(epoch.dropped for epoch in training(Once(), X)) == 1


# ---------------------------------------------------------------------------------------------------- the estimator


@pytest.fixture(scope="module")
def data():
    t = np.linspace(-2, 2, 90)
    noise = 0.05 * np.random.default_rng(0).standard_normal((90, 4))
    return (np.stack([np.sin(t), np.cos(t), t, t**2], 1) + noise).astype(np.float32)


@pytest.fixture(autouse=True)
def _short_start(monkeypatch):
    monkeypatch.setattr(fit_encoder, "FIT_STEPS", 20)


SETTINGS = {"max_epochs": 6, "batch_size": 32, "active_set_size": 12, "random_state": 3}


class HaltError(Exception):
    pass


def stopped(data, path, after, **settings):
    """A fit that fails after an epoch, as late as a checkpoint of that epoch can be."""

    def callback(model, record):
        if record["epoch"] == after + 1:
            raise HaltError

    with pytest.raises(HaltError):
        SASGP(**SETTINGS | settings).fit(data, checkpoint=path, callback=callback)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"latents": "point", "dtype": "float64"},
        {"encoder": "table"},
        {"early_stopping": 2, "max_epochs": 12, "learning_rate": 0.1},
        {"kernel": "matern32", "random_state": None},
    ],
    ids=lambda settings: "-".join(settings) or "default",
)
def test_fit_goes_on_to_the_same_bits(data, tmp_path, settings, monkeypatch):
    monkeypatch.setattr(checkpoint, "SHARE", math.inf)  # save after every epoch, however short
    stopped(data, tmp_path, 2, **settings)
    saved = checkpoint.read(tmp_path / checkpoint.NAME)
    assert saved["training"]["position"]["epoch"] == len(saved["history"]) == 2
    again = SASGP(**SETTINGS | settings).fit(data, resume=tmp_path)
    assert not list(tmp_path.iterdir())  # a fit that succeeds leaves no checkpoint
    seed = again.seed_ if settings.get("random_state", 3) is None else None
    whole = SASGP(**SETTINGS | settings)
    if seed is not None:  # it was drawn by the first fit; the second takes it from the file
        monkeypatch.setattr("sasgp.estimators.base.seed_of", lambda _: seed)
    whole.fit(data)
    for name, value in whole.model_.state_dict().items():
        assert torch.equal(value, again.model_.state_dict()[name]), name
    np.testing.assert_array_equal(again.embedding_, whole.embedding_)
    np.testing.assert_array_equal(again.score_samples(data), whole.score_samples(data))
    timeless = [
        [{k: v for k, v in record.items() if k != "seconds"} for record in model.history_] for model in (whole, again)
    ]
    assert timeless[0] == timeless[1]


def test_going_on_with_other_data_or_settings_says_which_differ(data, tmp_path):
    stopped(data, tmp_path / "c.pt", 2)

    def message(X, **settings):
        with pytest.raises(InputError) as error:
            SASGP(**SETTINGS | settings).fit(X, resume=tmp_path / "c.pt")
        return str(error.value)

    other = data.copy()
    other[0, 0] += 1
    assert "values of data" in message(other)
    assert "rows of data: 90 in the checkpoint, 80 now" in message(data[:80])
    assert "type of data: 'float32' in the checkpoint, 'float64' now" in message(data.astype(float))
    text = message(data, learning_rate=0.01, kernel="matern12")
    assert "learning_rate: None in the checkpoint, 0.01 now" in text
    assert "kernel" in text
    SASGP(**SETTINGS, verbose=True).fit(data, resume=tmp_path / "c.pt")  # what changes nothing may change


def test_every_row_of_the_data_counts(data, tmp_path):
    X = np.tile(data, (20, 1))  # more rows than a sample would have
    stopped(X, tmp_path / "c.pt", 2)
    for row in (0, 1, 2, 3, 4, 5, 6, 7, len(X) - 1):
        other = X.copy()
        other[row, 1] += 1
        with pytest.raises(InputError, match="differ: values of data"):
            SASGP(**SETTINGS).fit(other, resume=tmp_path / "c.pt")
    SASGP(**SETTINGS).fit(np.asfortranarray(X), resume=tmp_path / "c.pt")  # the same rows


def kernel(cls=MaternKernel, scale=ScaleKernel, **options):
    return scale(cls(**{"ard_num_dims": 2} | options))


def network(activation=nn.Tanh, **options):
    return nn.Sequential(nn.Linear(4, 8), activation(**options), nn.Linear(8, 2))


class Rising(nn.Module):
    """A network whose activation is a function, not a module."""

    def __init__(self, function):
        super().__init__()
        self.layer, self.function = nn.Linear(4, 2), function

    def forward(self, X):
        return self.function(self.layer(X))


@pytest.mark.parametrize(
    ("setting", "then", "others"),
    [
        (
            "kernel",
            kernel,
            [
                lambda: kernel(nu=1.5),
                lambda: kernel(RBFKernel),
                lambda: kernel(active_dims=[1, 0]),
                lambda: kernel(ard_num_dims=None),
                lambda: kernel(lengthscale_constraint=Positive(torch.exp, torch.log)),
                lambda: kernel(lengthscale_constraint=GreaterThan(0.1)),
                lambda: kernel().base_kernel,
            ],
        ),
        ("encoder", network, [lambda: network(nn.ReLU), lambda: network(nn.ELU, alpha=0.5)]),
        ("encoder", lambda: network(nn.ELU), [lambda: network(nn.ELU, alpha=0.5)]),
        ("encoder", lambda: Rising(torch.tanh), [lambda: Rising(torch.relu)]),
    ],
)
def test_other_parts_of_the_same_shape_are_other_settings(data, tmp_path, setting, then, others):
    point = {"latents": "point"}
    stopped(data, tmp_path / "c.pt", 2, **{setting: then()}, **point)
    for other in others:
        with pytest.raises(InputError, match=f"differ: {setting}: "):
            SASGP(**SETTINGS, **{setting: other()}, **point).fit(data, resume=tmp_path / "c.pt")
    SASGP(**SETTINGS, **{setting: then()}, **point).fit(data, resume=tmp_path / "c.pt")  # whose first values are others


# ---------------------------------------------------------------------------------------------------- bad checkpoints


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """The bytes of a checkpoint."""
    path = tmp_path_factory.mktemp("checkpoint") / "c.pt"
    checkpoint.write(
        path, {"seed": 3, "history": [{"loss": 0.5}], "model": {"w": torch.arange(50.0), "b": torch.ones(3)}}
    )
    return path.read_bytes()


def refused(path, content, match="cannot be read as one"):
    path.write_bytes(content)
    with pytest.raises(InputError, match=match) as error:
        checkpoint.read(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def sealed(content):
    """A checkpoint with any content and the right checksum."""
    return b"sasgp checkpoint 2\n" + hashlib.sha256(content).digest() + content


def test_any_flipped_byte_is_noticed(content, tmp_path):
    draw = np.random.default_rng(0)
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << draw.integers(8)
        refused(tmp_path / "c.pt", damaged, "cannot be read as one|newer sasgp|development version")


def test_a_checkpoint_cut_short_or_of_another_format_is_refused(content, tmp_path):
    for length in (0, 5, 18, 19, 40, 51, 52, len(content) - 1):
        refused(tmp_path / "c.pt", content[:length])
    refused(tmp_path / "c.pt", content + b"x", "checksum")
    refused(tmp_path / "c.pt", content.replace(b"checkpoint 2", b"checkpoint 3", 1), "newer sasgp")
    refused(tmp_path / "c.pt", content.replace(b"checkpoint 2", b"checkpoint 1", 1), "development version")


def test_a_checkpoint_with_the_right_checksum_and_wrong_parts_is_refused(tmp_path):
    def made(outline, tensors=b""):
        text = outline if isinstance(outline, bytes) else json.dumps(outline).encode()
        return sealed(
            len(text).to_bytes(8, "little") + text + (tensors or safetensors.torch.save({"0": torch.ones(3)}))
        )

    def header(**entry):
        text = json.dumps({"0": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]} | entry}).encode()
        return len(text).to_bytes(8, "little") + text + bytes(12)

    path, outline = tmp_path / "c.pt", {"mapping": [["w", {"tensor": "0"}]]}
    path.write_bytes(made(outline))
    assert torch.equal(checkpoint.read(path)["w"], torch.ones(3))
    for wrong in ([], 1, {}, {"tensor": "0"}, {"mapping": [["w", {"tensor": "1"}]]}, {"mapping": 3}, {"other": 1}):
        refused(path, made(wrong))
    for wrong in ({"mapping": [[["list"], 1]]}, {"mapping": [["w", {"tensor": ["0"]}]]}, b"{", b"[" * 100_000):
        refused(path, made(wrong))
    for entry in ({"shape": [10**9]}, {"shape": [10**9], "data_offsets": [0, 4 * 10**9]}, {"data_offsets": [0, 13]}):
        refused(path, made(outline, header(**entry)))  # larger than the file
    for wrong in (b"", b"nonsense", (2**63).to_bytes(8, "little"), b"PK\3\4" + bytes(50)):
        refused(path, sealed(wrong))


def test_a_checkpoint_gives_back_what_it_was_given(tmp_path):
    shared = torch.arange(6.0).reshape(2, 3)
    state: dict[str, Any] = {
        "w": {0: shared, 1: shared.T, "again": shared, "view": shared.expand(4, 2, 3)},
        "betas": (0.1, [1e-320, math.inf, None, True]),
        "n": torch.tensor(3),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "none": torch.zeros(0, 3),
    }
    checkpoint.write(tmp_path / "c.pt", state)
    got = checkpoint.read(tmp_path / "c.pt")
    assert (list(got), list(got["w"]), got["betas"]) == (list(state), list(state["w"]), state["betas"])
    for name in ("n", "half", "none"):
        assert torch.equal(got[name], state[name])
        assert got[name].dtype == state[name].dtype
    assert all(torch.equal(got["w"][key], value) for key, value in state["w"].items())


def test_a_checkpoint_that_is_none_is_named(tmp_path, data):
    (tmp_path / "c.pt").write_bytes(b"PK\3\4 nonsense")
    for path in (tmp_path / "c.pt", tmp_path / "missing.pt", tmp_path):
        with pytest.raises(InputError, match="resume must name a checkpoint"):
            SASGP(**SETTINGS).fit(data, resume=path)


def test_loading_a_checkpoint_runs_no_code(tmp_path, data):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/owned",)

    torch.save({"sasgp checkpoint": 1, "evil": Evil()}, tmp_path / "bare.pt")
    (tmp_path / "c.pt").write_bytes(sealed((tmp_path / "bare.pt").read_bytes()))
    for path in (tmp_path / "bare.pt", tmp_path / "c.pt"):
        with pytest.raises(InputError, match="cannot be read"):
            SASGP(**SETTINGS).fit(data, resume=path)
    assert not (tmp_path / "owned").exists()


def test_callback_is_called_once_an_epoch(data):
    seen = []
    model = SASGP(**SETTINGS).fit(data, callback=lambda estimator, record: seen.append((estimator, record)))
    assert [record for _, record in seen] == model.history_
    assert all(estimator is model for estimator, _ in seen)


# ---------------------------------------------------------------------------------------------------- bad disks


def mounted(folder, options):
    """A small file system of its own, or a reason to skip."""
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"mount is not permitted here: {done.stderr.decode().strip()}")


def fill(path):
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs")
@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_a_disk_that_refuses_does_not_stop_training_and_keeps_the_old_checkpoint(data, tmp_path, trouble, monkeypatch):
    monkeypatch.setattr(checkpoint, "SHARE", math.inf)
    whole = SASGP(**SETTINGS).fit(data)
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted(folder, "size=16m")
    old = []

    def callback(model, record):
        if record["epoch"] == 2:  # there is a checkpoint by now; from here on nothing can be written
            old.append((folder / checkpoint.NAME).read_bytes())
            if trouble == "full":
                fill(folder / "filler")
            else:
                subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        if record["epoch"] == 5:
            assert (folder / checkpoint.NAME).read_bytes() == old[0]
            raise HaltError

    try:
        with pytest.warns(CheckpointWarning, match="the last one stays") as warned, pytest.raises(HaltError):
            SASGP(**SETTINGS).fit(data, checkpoint=folder, callback=callback)
        assert len(warned) == 1  # though three epochs' failed
        assert not [file for file in folder.iterdir() if file.name.endswith(".tmp")]
        again = SASGP(**SETTINGS).fit(data, resume=folder, checkpoint=tmp_path / "elsewhere.pt")
        assert checkpoint.read(folder / checkpoint.NAME)["training"]["position"]["epoch"] == 1
        np.testing.assert_array_equal(again.embedding_, whole.embedding_)
    finally:
        subprocess.run(["umount", folder], check=True)


# ---------------------------------------------------------------------------------------------------- signals


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "x.npy"
    np.save(path, np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32))
    return path


def fit(*tokens, **environment):
    return Process("-m", "sasgp", "fit", *tokens, **environment)


SMALL = ("--batch-size", 64, "--active-set-size", 20, "--encoder", "table", "--support-size", 50)
EPOCHS = 200  # a second or two: time to be killed in
LONG = ("--max-epochs", EPOCHS, *SMALL)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_says_how_to_go_on(file, tmp_path, number, code):
    run = tmp_path / "run"
    process = fit(file, "--out", run, "--max-epochs", 1_000_000, *SMALL)
    wait_for(run / "unfinished" / "checkpoint.pt", process)
    process.send_signal(number)
    err = process.communicate(timeout=60)[1]
    assert process.returncode == code
    assert f"Continue it with `sasgp fit --resume {run}`" in err
    assert err.count("\n") == 1
    step = checkpoint.read(run / "unfinished" / "checkpoint.pt")["training"]["position"]["step"]
    assert f"after step {step}." in err  # the checkpoint is of that very step
    lines = (run / "unfinished" / "history.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["epoch"] == 1


def test_a_second_ctrl_c_stops_at_once_and_the_checkpoint_is_whole(data, tmp_path, monkeypatch):
    # In the middle of a step: the first is noted, the second raises there
    monkeypatch.setattr(checkpoint, "SHARE", math.inf)
    forward, calls = SASGP._held_out_loss, []

    def slow(self, *arguments):
        calls.append(None)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            pytest.fail("went on")
        return forward(self, *arguments)

    monkeypatch.setattr(SASGP, "_held_out_loss", slow)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as error:
        SASGP(**SETTINGS, early_stopping=5).fit(data, checkpoint=tmp_path)
    assert not isinstance(error.value, Interrupted)
    assert signal.getsignal(signal.SIGINT) is handler
    assert checkpoint.read(tmp_path / checkpoint.NAME)["training"]["position"]["epoch"] == 2


def test_ctrl_c_in_python_tells_the_resume_argument(data, tmp_path):
    def callback(model, record):
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match=r"go on with fit\(X, resume='.*checkpoint.pt'\)"):
        SASGP(**SETTINGS).fit(data, checkpoint=tmp_path, callback=callback)
    again = SASGP(**SETTINGS).fit(data, resume=tmp_path)
    np.testing.assert_array_equal(again.embedding_, SASGP(**SETTINGS).fit(data).embedding_)


# ---------------------------------------------------------------------------------------------------- kill -9


@pytest.fixture(scope="module")
def whole(file, tmp_path_factory):
    """A run that nothing interrupted."""
    run = tmp_path_factory.mktemp("whole") / "run"
    assert cli.main(["fit", str(file), "--out", str(run), *map(str, LONG)]) == 0
    return run


def assert_same_run(run, other):
    """Two folders hold the same files, and the same model to the bit."""
    assert {file.name for file in run.iterdir()} == {file.name for file in other.iterdir()}
    assert (run / "embedding.csv").read_bytes() == (other / "embedding.csv").read_bytes()
    tensors, others = (storage.read(folder / "model.safetensors")[1] for folder in (run, other))
    assert tensors.keys() == others.keys()
    assert all(torch.equal(tensor, others[name]) for name, tensor in tensors.items())


def test_kill_9_at_random_moments_changes_no_bit(file, whole, tmp_path):
    draw = random.Random(0)
    run, kills = tmp_path / "run", 0
    path = run / "unfinished" / "checkpoint.pt"
    process = fit(file, "--out", run, *LONG)
    while kills < 3:
        # A little after training has begun, or gone on: a checkpoint newer than this process
        before = time.time()
        while process.poll() is None and not (path.exists() and path.stat().st_mtime > before):
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.1))
        if process.poll() is not None:
            break
        process.kill()
        process.communicate()
        kills += 1
        assert checkpoint.read(path)
        process = fit("--resume", run)
    err = process.communicate()[1]
    assert process.returncode == 0, err
    assert kills == 3
    assert_same_run(run, whole)


# A signal to itself as the second block of rows is added, after training has ended
IN_THE_PASS = """
import os, signal, sys
from sasgp import cli
from sasgp.estimators import all_rows
from sasgp.gp.row_sums import RowSums

all_rows.AllRows._shorten_lengthscales = lambda *_: None  # it makes passes of its own, before the one that is meant
all_rows.ENCODE_ROWS, add, calls = 64, RowSums.add, []

def interrupted(*args):
    calls.append(None)
    if len(calls) == 2:
        os.kill(os.getpid(), int(sys.argv[1]))
    add(*args)

RowSums.add = interrupted
sys.exit(cli.main(["fit", *sys.argv[2:]]))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_stopped_in_the_pass_over_all_rows_ends_in_the_same_bits(file, whole, tmp_path, number):
    run = tmp_path / "run"
    process = Process("-c", IN_THE_PASS, int(number), file, "--out", run, *LONG, "--quiet")
    err = process.communicate()[1]
    left = checkpoint.read(run / "unfinished" / "checkpoint.pt")
    assert left["training"]["position"]["epoch"] == EPOCHS
    assert not (run / "model.safetensors").exists()
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert err.count("\n") == 1
        assert f"The last checkpoint is complete. Continue it with `sasgp fit --resume {run}`" in err
    else:
        assert process.returncode == -number
    assert cli.main(["fit", "--resume", str(run)]) == 0
    assert_same_run(run, whole)


@pytest.mark.parametrize("components", [2, "auto"])
def test_ctrl_c_in_the_pass_leaves_the_checkpoint_of_python(data, tmp_path, monkeypatch, components):
    settings = SETTINGS | {"n_components": components, "latents": "bayesian", "kernel": None}
    make, calls = SASGP._final_posterior, []

    def interrupted(*args):
        calls.append(None)
        if len(calls) == (2 if components == "auto" else 1):  # "auto" has another one, without dimensions
            raise KeyboardInterrupt
        return make(*args)

    with monkeypatch.context() as patch:
        patch.setattr(SASGP, "_final_posterior", interrupted)
        with pytest.raises(KeyboardInterrupt):
            SASGP(**settings).fit(data, checkpoint=tmp_path / "c.pt")
    again = SASGP(**settings).fit(data, resume=tmp_path / "c.pt")
    fresh = SASGP(**settings).fit(data)
    np.testing.assert_array_equal(again.predict(fresh.embedding_), fresh.predict(fresh.embedding_))
    assert not (tmp_path / "c.pt").exists()


# ---------------------------------------------------------------------------------------------------- the command line


def test_resume_needs_no_other_argument_and_says_which_differ(file, tmp_path, capsys, monkeypatch):
    run = tmp_path / "run"

    def interrupt(*_):
        raise OSError(28, "Full")

    with monkeypatch.context() as patch:
        patch.setattr(SASGP, "save", interrupt)
        assert cli.main(["fit", str(file), "--out", str(run), "--max-epochs", "2", *map(str, SMALL)]) == 2
    err = capsys.readouterr().err
    assert f"Continue it with `sasgp fit --resume {run}`" in err  # trained for nothing? no
    assert cli.main(["fit", str(file), "--out", str(run)]) == 2
    assert "not finished. Continue it with" in capsys.readouterr().err
    assert cli.main(["sample", str(run), "--out", str(tmp_path / "x.npy")]) == 2
    assert "not finished, so there is no model yet. Continue it with" in capsys.readouterr().err
    assert cli.main(["fit", "--resume", str(run), "--max-epochs", "7", "--kernel", "matern12"]) == 2
    err = capsys.readouterr().err
    assert "max_epochs: 2 in the run, 7 now" in err
    assert "kernel: None in the run, 'matern12' now" in err
    assert cli.main(["fit", "--resume", str(run), "--batch-size=1024"]) == 2  # the default, but not that of the run
    assert "batch_size: 64 in the run, 1024 now" in capsys.readouterr().err
    assert cli.main(["fit", "digits", "--resume", str(run)]) == 2
    assert "in the run, 'digits' now" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    run.rename("batch_size")  # the name of a setting is no option
    assert cli.main(["fit", "--resume", "batch_size"]) == 0
    Path("batch_size").rename(run)
    assert not (run / "unfinished").exists()
    assert (run / "model.safetensors").exists()
    info = json.loads((run / "run.json").read_text())
    assert info["command"].startswith(f"sasgp fit {file} --out")  # what made the run, not what finished it
    assert info["training"]["seconds"] >= SASGP.load(run / "model.safetensors").history_[-1]["seconds"] - 0.01
    capsys.readouterr()
    assert cli.main(["fit", "--resume", "run"]) == 2
    assert "run has already finished. Start a new run with" in capsys.readouterr().err
    assert cli.main(["fit", str(file)]) == 2
    assert "--resume RUN" in capsys.readouterr().err


def test_a_run_killed_before_its_first_checkpoint_goes_on_from_its_start(file, tmp_path, capsys):
    options = [str(file), "--max-epochs", "2", *map(str, SMALL)]
    assert cli.main(["fit", *options, "--out", str(tmp_path / "whole")]) == 0
    run = tmp_path / "run"
    process = fit(*options, "--out", run)
    wait_for(run / "unfinished" / "run.json", process)
    process.kill()
    process.communicate()
    (run / "unfinished" / "checkpoint.pt").unlink(missing_ok=True)
    assert cli.main(["fit", "--resume", str(run)]) == 0
    assert (run / "embedding.csv").read_bytes() == (tmp_path / "whole" / "embedding.csv").read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs")
def test_a_disk_that_fills_up_under_a_command(file, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted(disk, "size=16m")
    run = disk / "run"
    try:
        process = fit(file, "--out", run, "--max-epochs", 200, *SMALL, TMPDIR=str(tmp_path))
        wait_for(run / "unfinished" / "checkpoint.pt", process)
        fill(disk / "filler")
        err = process.communicate(timeout=120)[1]
        assert process.returncode == 2
        assert "Traceback" not in err
        assert "No space left" in err
        assert f"Continue it with `sasgp fit --resume {run}`" in err
        assert checkpoint.read(run / "unfinished" / "checkpoint.pt")
        assert not (run / "model.safetensors").exists()
        (disk / "filler").unlink()
        assert cli.main(["fit", "--resume", str(run)]) == 0
        assert len(SASGP.load(run / "model.safetensors").history_) == 200
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs")
def test_a_disk_without_room_for_the_model_does_not_lose_it(file, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted(disk, "size=16k")  # there is room for run.json
    try:
        process = fit(file, "--out", disk / "run", "--max-epochs", 2, *SMALL, TMPDIR=str(tmp_path))
        err = process.communicate(timeout=120)[1].splitlines()[-1]
        assert process.returncode == 2
        (rescued,) = tmp_path.glob("sasgp-*/model.safetensors")
        assert f"{disk / 'run'} could not be written: No space left on device" in err
        assert f". The trained model is in {rescued} instead." in err
        assert len(SASGP.load(rescued).history_) == 2
        assert not list(disk.iterdir())
    finally:
        subprocess.run(["umount", disk], check=True)


def test_overwriting_keeps_the_old_run_until_the_new_one_is_whole(file, tmp_path, monkeypatch, capsys):
    options = ["fit", str(file), "--out", str(tmp_path / "run"), "--max-epochs", "2", *map(str, SMALL)]
    assert cli.main(options) == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}

    def fail(*_, **__):
        raise ArithmeticError

    with monkeypatch.context() as patch:
        patch.setattr(SASGP, "fit", fail)
        with pytest.raises(ArithmeticError):
            cli.main([*options, "--overwrite"])
    assert {path.name: path.read_bytes() for path in Path(tmp_path / "run").iterdir()} == before


def test_returns_are_forgotten_after_a_good_state(X, monkeypatch):
    # Five bad steps in a row make one return, and four returns are the most. Good states between them start the count
    # anew, so six troubles far apart are no reason to stop
    monkeypatch.setattr(loop, "GOOD_STEPS", 3)
    trouble = [step for start in range(10, 130, 20) for step in range(start, start + loop.IN_A_ROW)]
    model = Line(bad=trouble)
    run = training(model, X, max_epochs=60)
    list(run)
    assert model.n > max(trouble)
    assert run.position.returns == 0
    assert run.position.factor == pytest.approx(loop.LOWER**6)


def test_saving_takes_a_fiftieth_of_the_time_at_most(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    saver = checkpoint.Checkpointer(tmp_path / "c.pt")
    saver.last, saver.cost = 100.0, 2.0
    for seconds, due in ((0, False), (99, False), (100, True), (200, True)):  # 2 of 100 seconds
        now[0] = 100.0 + seconds
        assert saver.due_after_epoch() == due


def test_modules_that_differ_in_the_shape_of_a_parameter_alone_are_other_settings():
    def own(size):
        module = nn.Module()
        module.weight = nn.Parameter(torch.zeros(size))
        return module

    assert described(own(3)) == described(own(3))
    assert described(own(3)) != described(own(4))
