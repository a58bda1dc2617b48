"""Several processes: gradients that are means, tables that are shared out, ranks that die, and other numbers of ranks.

Processes are real. This file is also the program that each of them runs: python test_distributed.py TASK FOLDER.
"""

import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import processes
import pytest
import torch
from memory import Memory
from oracles import TOLERANCE, assert_close
from torch import nn

from sasgp import SASGP, SASGPRegressor
from sasgp.estimators import all_rows, inference
from sasgp.gp.kernels import make
from sasgp.gp.masked_sums import PatternSums
from sasgp.gp.row_sums import RowSums
from sasgp.metrics import rmse
from sasgp.models.encoders import Table
from sasgp.models.sas import SASModel
from sasgp.training import checkpoint, fit_encoder, regression, shares
from sasgp.training.distributed import RankError, joined
from sasgp.training.loop import Training, batches, generator

SETTINGS = {"max_epochs": 8, "batch_size": 32, "active_set_size": 12, "random_state": 3}
CASES = {"network": {}, "mixed": {"precision": "mixed"}, "table": {"encoder": "table"}}
B, SEED = 16, 5


def curve(n=121):
    t = np.linspace(-2, 2, n)
    noise = 0.05 * np.random.default_rng(0).standard_normal((n, 4))
    return (np.stack([np.sin(t), np.cos(t), t, t**2], 1) + noise).astype(np.float32)


def holed():
    """The curve without a third of its values. Each row keeps its third."""
    missing = np.random.default_rng(1).random((121, 4)) < 1 / 3
    missing[:, 2] = False
    return np.where(missing, np.float32(np.nan), curve())


def decoder(encoder):
    X = torch.as_tensor(curve(), dtype=torch.float64)
    torch.manual_seed(0)
    encoder = nn.Linear(4, 2).double() if encoder == "network" else Table(X[:, :2], variance=False).double()
    if isinstance(encoder, nn.Linear):
        from sasgp.models.encoders import Custom

        encoder = Custom(encoder, 2, variance=False)
    model = SASModel(encoder, make("rbf", 2).double(), noise=0.1, mean=X.mean(0), active_set_size=6)
    return model.double(), Memory(X)


def one_step(encoder, ranks):
    """The first step's gradients, and the rows that this rank took."""
    model, data = decoder(encoder)
    seen = []
    forward = model.forward
    model.forward = lambda X, rows, *rest: (seen.append(rows), forward(X, rows, *rest))[1]
    groups = model.parameter_groups(1e-3, 1e-3)
    training = Training(model, data, groups, batch_size=B, max_epochs=1, seed=SEED, pause=lambda: True, ranks=ranks)
    for _ in training:
        break
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return gradients, seen[0], training


# ---------------------------------------------------------------------------------------------------- what a rank runs


def task_gradients(folder, ranks):
    for encoder in ("network", "table"):
        gradients, rows, training = one_step(encoder, ranks)
        owned = training.owned
        state = training.state_dict()  # collects the table
        torch.save([gradients, rows, owned, state["model"]], folder / f"{encoder}-{ranks.rank}.pt")


def task_fit(folder, ranks):
    fit_encoder.FIT_STEPS = 20
    vars(inference)["ENCODE_ROWS"], shares.ROUND_ROWS = 16, 40
    for name, case in CASES.items():
        model = SASGP(**SETTINGS | case | {"max_epochs": 60}).fit(curve())
        np.save(folder / f"{name}-{ranks.rank}.npy", model.embedding_)
        np.save(folder / f"{name}-alone-{ranks.rank}.npy", model._encode(model._rows(curve()), known=True))
        if ranks.rank == 0:
            (folder / f"{name}.json").write_text(json.dumps([rmse(curve(), model.predict(model.embedding_))]))


def task_regression(folder, ranks):
    regression.SHARP_STEPS = 5
    X = curve()
    model = SASGPRegressor(max_epochs=5, batch_size=32, active_set_size=12, random_state=3).fit(X[:, 2:], X[:, 0])
    assert model.history_[-1]["step"] == 5 * 2  # of four batches in an epoch, each rank took two
    np.save(folder / f"regression-{ranks.rank}.npy", np.stack(model.predict(X[:, 2:], return_std=True)))


def task_sums(folder, ranks):
    """A decoder given all rows, of which each rank adds its blocks."""
    fit_encoder.FIT_STEPS = vars(all_rows)["ENCODE_ROWS"] = 16
    added, add = [], RowSums.add
    RowSums.add = lambda *args: (added.append(args), add(*args))[1]
    model = SASGP(**SETTINGS | {"dtype": "float64", "support_size": 20}).fit(curve())
    np.save(folder / f"added-{ranks.rank}.npy", [len(X) for sums, X, _ in added if sums is model.sums_])
    model.save(folder / f"{ranks.rank}.safetensors")


def task_missing(folder, ranks):
    """Rows with missing values, of which each rank adds its blocks."""
    fit_encoder.FIT_STEPS = vars(all_rows)["ENCODE_ROWS"] = 16
    model = SASGP(**SETTINGS | {"dtype": "float64", "support_size": 20}).fit(holed())
    model.save(folder / f"{ranks.rank}.safetensors")
    np.save(folder / f"completed-{ranks.rank}.npy", model.impute(holed()))


def task_buffers(folder, ranks):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    model = SASGP(**SETTINGS | {"encoder": module, "latents": "point"}).fit(curve())
    np.save(folder / f"buffers-{ranks.rank}.npy", model.transform(curve()))


def task_resume(folder, ranks):
    """Stopped by a signal to one rank after four epochs, then gone on with; the checkpoint in between is kept."""
    fit_encoder.FIT_STEPS = 20
    for encoder in ("network", "table"):
        path = folder / f"{encoder}.pt"

        def callback(model, record):
            if record["epoch"] == 4:
                os.kill(os.getpid(), signal.SIGTERM)

        with suppress(checkpoint.Interrupted):  # in both, though one was told
            SASGP(**SETTINGS | {"encoder": encoder}).fit(curve(), checkpoint=path, callback=callback)
        if ranks.rank == 0:
            (folder / f"{encoder}-copy.pt").write_bytes(path.read_bytes())
        model = SASGP(**SETTINGS | {"encoder": encoder}).fit(curve(), resume=path)
        np.save(folder / f"{encoder}-resumed-{ranks.rank}.npy", model.embedding_)


def task_die(folder, ranks):
    fit_encoder.FIT_STEPS = 20
    if ranks.rank == 0:
        SASGP(**SETTINGS | {"max_epochs": 1_000_000}).fit(curve(), checkpoint=folder)

    # The other dies in a step, whatever the first does then
    forward, calls = SASModel.forward, []

    def mortal(self, *arguments):
        calls.append(None)
        if len(calls) == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        return forward(self, *arguments)

    SASModel.forward = mortal
    SASGP(**SETTINGS | {"max_epochs": 1_000_000}).fit(curve(), checkpoint=folder)


def run(task, folder):
    processes.finish(processes.start(__file__, task, folder))


# ---------------------------------------------------------------------------------------------------- tests


@pytest.fixture(scope="module")
def gradients(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gradients")
    run("gradients", folder)
    return folder


def test_gradients_are_the_mean_of_those_of_each_rank_alone(gradients):
    (got, rows_0, _, _), (other, rows_1, _, _) = (torch.load(gradients / f"network-{rank}.pt") for rank in range(2))
    # Each takes its own batch of the same permutation
    first, second = list(batches(121, B, SEED, 0))[:2]
    assert torch.equal(rows_0, first)
    assert torch.equal(rows_1, second)
    alone = []
    for rank, rows in enumerate((rows_0, rows_1)):
        model, data = decoder("network")
        model(data.gather(rows), rows, 121, generator(SEED, rank, 0)).backward()
        alone.append({name: p.grad for name, p in model.named_parameters()})
    for name in got:
        expected = (alone[0][name] + alone[1][name]) / 2
        torch.testing.assert_close(got[name], expected, rtol=1e-14, atol=0)
        assert torch.equal(got[name], other[name])


def test_each_rank_owns_its_rows_of_a_table(gradients):
    parts = [torch.load(gradients / f"table-{rank}.pt") for rank in range(2)]
    owned = [part[2] for part in parts]
    assert torch.equal(owned[0], ~owned[1])
    assert abs(int(owned[0].sum()) - int(owned[1].sum())) <= 1
    start_Z = decoder("table")[0].encoder.mu.detach()
    for got, rows, mine, state in parts:
        assert mine[rows].all()
        # The mean estimate (L̂_0 + L̂_1)/2 has this rank's rows in one term alone, weighted for all 121 rows
        model, data = decoder("table")
        rank = 0 if mine is owned[0] else 1
        model(data.gather(rows), rows, 121, generator(SEED, rank, 0)).backward()
        torch.testing.assert_close(got["encoder.mu"], model.encoder.mu.grad / 2, rtol=1e-14, atol=0)
        # ... and what each moved is in everybody's state
        moved = (state["encoder.mu"] != start_Z).any(1)
        assert moved[rows].all()
    assert torch.equal(parts[0][3]["encoder.mu"], parts[1][3]["encoder.mu"])


def test_two_ranks_fit_one_model_as_good_as_one_process(tmp_path, monkeypatch):
    run("fit", tmp_path)
    monkeypatch.setattr(fit_encoder, "FIT_STEPS", 20)
    for name, case in CASES.items():
        Z = [np.load(tmp_path / f"{name}-{rank}.npy") for rank in range(2)]
        np.testing.assert_array_equal(Z[0], Z[1])
        # Each encoded four of the eight blocks of rows, in two rounds. All got what one finds alone
        np.testing.assert_array_equal(Z[0], np.load(tmp_path / f"{name}-alone-0.npy"))
        (error,) = json.loads((tmp_path / f"{name}.json").read_text())
        # An epoch of two ranks has half the steps of one, each with half the variance. At as many steps two ranks are
        # no worse than one process, as far as its seeds differ, with room for three of their deviations
        settings = SETTINGS | case | {"max_epochs": 30}
        alone = [SASGP(**settings | {"random_state": seed}).fit(curve()) for seed in range(3)]
        errors = [rmse(curve(), model.predict(model.embedding_)) for model in alone]
        assert error < max(errors) + 3 * max(np.std(errors), 0.01)


def test_sums_over_two_ranks_are_those_of_one_process(tmp_path):
    run("sums", tmp_path)
    models = [SASGP.load(tmp_path / f"{rank}.safetensors") for rank in range(2)]
    added = [np.load(tmp_path / f"added-{rank}.npy") for rank in range(2)]
    assert sum(map(sum, added)) == 121
    assert min(map(sum, added)) >= 48  # of 121 rows in blocks of 16
    model, Z = models[0], torch.as_tensor(models[0].embedding_)
    alone = model.model_.row_sums(model.sums_.U, model.sums_.L)
    with torch.no_grad():
        alone.add(model.model_.centred(torch.as_tensor(curve(), dtype=torch.float64)), Z)
    expected = model.model_.decoder(alone).predict(Z)
    for one in models:
        for name, tensor in alone.tensors.items():
            scale = float(alone.k if name == "t" else tensor.abs().max())  # t is a difference, Σ k_nn − Σ ‖a_n‖²
            assert float((one.sums_.tensors[name] - tensor).abs().max()) <= TOLERANCE[torch.float64] * scale
        for found, right in zip(one.posterior_.predict(Z), expected, strict=True):
            assert_close(found, right, TOLERANCE[torch.float64])
    assert torch.equal(models[0].sums_.S, models[1].sums_.S)


def test_two_ranks_complete_rows_as_one_process_does(tmp_path):
    run("missing", tmp_path)
    completed = [np.load(tmp_path / f"completed-{rank}.npy") for rank in range(2)]
    np.testing.assert_array_equal(*completed)
    missing = np.isnan(holed())
    assert (completed[0] == curve())[~missing].all()
    model = SASGP.load(tmp_path / "0.safetensors")
    Z = torch.as_tensor(model.embedding_)
    assert isinstance(model.sums_, PatternSums)
    # Each feature given the rows that have it, all of them added by one process
    alone = PatternSums(model.model_.kernel, model.sums_.U, 4, model.sums_.L)
    with torch.no_grad():
        alone.add(model.model_.centred(torch.as_tensor(holed(), dtype=torch.float64)), Z)
        expected = alone.posterior(model.model_.noise, model.model_.mean, model.model_.scales).predict(Z)
    torch.testing.assert_close(model.sums_.n_g[model.sums_.group], torch.as_tensor((~missing).sum(0)).double())
    assert_close(model.posterior_.predict(Z)[0], expected[0], TOLERANCE[torch.float64])


def test_two_ranks_fit_one_regression(tmp_path):
    run("regression", tmp_path)
    found = [np.load(tmp_path / f"regression-{rank}.npy") for rank in range(2)]
    np.testing.assert_array_equal(found[0], found[1])
    assert rmse(curve()[:, :1], found[0][0][:, None]) < 0.1  # of sin t with a noise of .05, given t and t²


def test_a_run_goes_on_with_another_number_of_ranks(tmp_path):
    run("resume", tmp_path)
    for encoder in ("network", "table"):
        Z = [np.load(tmp_path / f"{encoder}-resumed-{rank}.npy") for rank in range(2)]
        np.testing.assert_array_equal(Z[0], Z[1])
        # The same checkpoint of two ranks, by one
        assert checkpoint.read(tmp_path / f"{encoder}-copy.pt")["training"]["position"]["epoch"] == 4
        alone = SASGP(**SETTINGS | {"encoder": encoder}).fit(curve(), resume=tmp_path / f"{encoder}-copy.pt")
        assert [record["epoch"] for record in alone.history_] == list(range(1, 9))
        # Two ranks made two steps an epoch of four batches, one makes four
        assert [record["step"] for record in alone.history_] == [2, 4, 6, 8, 12, 16, 20, 24]
        assert np.isfinite(alone.embedding_).all()


def test_a_rank_that_dies_ends_the_others_with_a_message(tmp_path):
    started = time.monotonic()
    first, other = processes.start(__file__, "die", tmp_path)
    err = first.communicate(timeout=120)[1]
    other.communicate(timeout=60)
    assert other.returncode == -signal.SIGKILL
    assert first.returncode == 1
    assert "RankError: One of the 2 processes that work together is gone" in err
    assert time.monotonic() - started < 60
    assert checkpoint.read(tmp_path / checkpoint.NAME)["training"]["position"]["step"] > 0


def test_torchrun_writes_one_run(tmp_path):
    np.save(tmp_path / "x.npy", curve())
    options = ["--max-epochs", "3", "--batch-size", "32", "--active-set-size", "12"]
    done = processes.torchrun("fit", tmp_path / "x.npy", "--out", tmp_path / "run", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Trained SASGP") == 1
    assert not (tmp_path / "run" / "unfinished").exists()
    assert SASGP.load(tmp_path / "run" / "model.safetensors").history_[-1]["step"] == 6  # 109 rows: 4 batches, 2 a step


def test_torchrun_writes_one_run_of_a_regression(tmp_path):
    X = curve()
    lines = [",".join(map(repr, row)) for row in np.column_stack([X[:, :3], X.sum(1)]).tolist()]
    (tmp_path / "x.csv").write_text("\n".join(["a,b,c,y", *lines]))
    options = ["--max-epochs", "3", "--batch-size", "32", "--active-set-size", "12", "--test-fraction", "0.1"]
    done = processes.torchrun("fit", tmp_path / "x.csv", "--target", "y", "--out", tmp_path / "run", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Trained SASGPRegressor") == 1
    assert not (tmp_path / "run" / "unfinished").exists()
    model = SASGPRegressor.load(tmp_path / "run" / "model.safetensors")
    assert model.history_[-1]["step"] == 6  # 108 rows: 4 batches, 2 a step
    assert len(model._targets) == len(X) - len((tmp_path / "run" / "predictions.csv").read_text().splitlines()) + 1


@pytest.mark.parametrize(("n", "size", "world", "first"), [(23, 8, 2, 0), (23, 8, 2, 1), (5, 8, 3, 0), (24, 8, 2, 2)])
def test_ranks_take_as_many_batches_each_and_every_row_is_taken(n, size, world, first):
    drawn = [rows.tolist() for rows in batches(n, size, 0, 0, first=first, group=world)]
    assert len(drawn) % world == 0
    assert all(len(rows) == len(set(rows)) == min(n, size) for rows in drawn)
    before = {row for rows in list(batches(n, size, 0, 0))[:first] for row in rows.tolist()}
    assert before | {row for rows in drawn for row in rows} == set(range(n))


def test_ranks_have_active_sets_of_their_own_where_rows_are_few():
    one, other = (rows.tolist() for rows in batches(60, 100, 0, 0, group=2))
    assert one != other
    assert set(one) == set(other) == set(range(60))


def test_running_means_of_a_module_are_those_of_rank_0_everywhere(tmp_path):
    run("buffers", tmp_path)
    Z = [np.load(tmp_path / f"buffers-{rank}.npy") for rank in range(2)]
    np.testing.assert_array_equal(Z[0], Z[1])


def test_the_exact_model_wants_one_process(monkeypatch):
    from contextlib import contextmanager
    from types import SimpleNamespace

    from sasgp import GPLVM
    from sasgp.errors import InputError

    @contextmanager
    def two(device):
        yield SimpleNamespace(rank=0, world=2)

    monkeypatch.setattr("sasgp.estimators.base.joined", two)
    with pytest.raises(InputError, match="trains in one process, but 2 were started"):
        GPLVM(max_epochs=1).fit(curve())


if __name__ == "__main__":
    torch.set_num_threads(1)
    with joined(torch.device("cpu")) as group:
        try:
            globals()[f"task_{sys.argv[1]}"](Path(sys.argv[2]), group)
        except RankError as error:
            print(f"RankError: {error}", file=sys.stderr)  # noqa: T201
            os._exit(1)
    # A worker of gloo that outlives the group may abort the process at its end
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    left = [name for name in names if "gloo" in name]
    if left:
        sys.exit(f"Expected no threads of the group after it. Got {left}.")
