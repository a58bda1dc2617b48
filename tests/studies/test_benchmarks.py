"""Benchmarks measure what they say: products are counted, the plain objective is the same objective, the page is true.

No test asserts a time.
"""

import math
from importlib import metadata
from pathlib import Path

import gpytorch
import numpy as np
import pytest
import torch
from oracles import TOLERANCE, assert_close

import sasgp
from sasgp.gp import refine, row_density
from sasgp.gp.objective import kl_to_prior, prior_log_density, sas_estimate
from sasgp.gp.row_sums import condition
from studies import records, tables
from studies.__main__ import main
from studies.benchmarks import autograd, floor, growth, inference, measure, page, sampled, scale, step
from studies.catalogue import names

# ---- floor ----


def test_flops_of_the_floor():
    # B=10, A=4, R=6, D=3, Q=2; layers 3-512-256-2. An encoder: X Wᵀ and dYᵀX of every layer, dY W of all but the first:
    encoder = 2 * 10 * (2 * (3 * 512 + 512 * 256 + 256 * 2) + (512 * 256 + 256 * 2))
    # K⁻¹X_A 2·4·4·3, K_RA α and r αᵀ 2·6·4·3 each, α αᵀ 2·4·3·4, W 2·6·4·4, WᵀP and Wᵀdiag(g)W 2·4·6·4 each
    objective = 96 + 144 + 144 + 96 + 192 + 192 + 192
    factor_and_inverse = 64  # A³/3 + 2A³/3
    assert floor.flops(4, 10, 3, 2, networks=1) == encoder + objective + factor_and_inverse
    assert floor.flops(4, 10, 3, 2, networks=2) == 2 * encoder + objective + factor_and_inverse


def test_the_floor_executes_every_product(monkeypatch):
    seen, mm = [], torch.mm
    monkeypatch.setattr(torch, "mm", lambda a, b, out: seen.append((*a.shape, b.shape[1])) or mm(a, b, out=out))
    floor.floor(4, 10, 3, 2, networks=2)()
    assert seen == [(p.rows, p.inner, p.columns) for p in floor.products(4, 10, 3, 2, networks=2)]


def test_a_step_is_a_step_of_training():
    training = step.trainer(step.random_rows(50, 5), active_set_size=8, batch_size=20)
    call = step.one_step(training)
    for _ in range(4):  # an epoch has three
        call()
    assert (training.position.step, training.position.epoch) == (4, 1)
    assert training.model.active_set_size == 8
    assert training.batch_size == 20
    for precision in ("float32", "mixed"):
        asked = step.trainer(step.random_rows(50, 5), active_set_size=8, batch_size=20, precision=precision)
        assert asked.model.encoder.mixed is (precision == "mixed")


# ---- autograd ----


@pytest.fixture(params=[torch.float64, torch.float32], ids=["float64", "float32"])
def dtype(request):
    return request.param


def kernel_of(dtype):
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).to(dtype)
    kernel.outputscale, kernel.base_kernel.lengthscale = 1.3, 0.7
    return kernel


def gradients(value, *leaves):
    return torch.autograd.grad(value, leaves)


def test_the_plain_estimate_is_the_sas_estimate_and_so_is_its_gradient(dtype):
    draw = torch.Generator().manual_seed(0)
    X, Z = (torch.randn(30, n, generator=draw, dtype=dtype) for n in (5, 2))
    noise, kernel, A, N = torch.tensor(0.3, dtype=dtype).requires_grad_(), kernel_of(dtype), 12, 100
    leaves = (Z.requires_grad_(), noise, *kernel.parameters())
    plain = autograd.plain_estimate(X, Z, kernel, noise, A, N)
    k = kernel(Z, diag=True)
    ours = sas_estimate(X, kernel(Z, Z[:A]).to_dense().diagonal_scatter(k[:A]), k[A:], noise, N)
    assert_close(ours, plain, dtype=dtype)
    tolerance = 10 * TOLERANCE[dtype]  # GPyTorch's distances near zero differ between AA and BA
    for one, other in zip(gradients(ours, *leaves), gradients(plain, *leaves), strict=True):
        assert_close(one, other, tolerance, dtype=dtype)


@pytest.mark.parametrize("bayesian", [False, True])
def test_the_plain_model_has_the_loss_of_ours(bayesian, dtype):
    draw = torch.Generator().manual_seed(0)
    X = torch.randn(30, 5, generator=draw, dtype=dtype)
    model = autograd.Plain(X.mean(0), X.std(), bayesian=bayesian, active=12, encoder_noise=0.0)
    model.kernel.load_state_dict(kernel_of(dtype).state_dict())
    model = model.to(dtype)
    torch.manual_seed(1)
    loss = model(X, 100)
    torch.manual_seed(1)
    torch.randn_like(X)  # the encoder's noise is drawn, if only to be multiplied by zero
    mu, var = model.encoder(X)
    Z = mu if var is None else mu + var.sqrt() * torch.empty_like(mu).normal_()
    log_prior = prior_log_density(mu) if var is None else -kl_to_prior(mu, var)
    k = model.kernel(Z, diag=True)
    K_BA = model.kernel(Z, Z[:12]).to_dense().diagonal_scatter(k[:12])
    log_p = sas_estimate(X - model.mean, K_BA, k[12:], model.log_noise.exp(), 100)
    assert_close(loss, -(log_p + 100 / 30 * log_prior.sum()) / (100 * 5), dtype=dtype)


def test_the_plain_step_learns():
    X = torch.randn(2 * autograd.B, 3, generator=torch.Generator().manual_seed(0))
    with torch.random.fork_rng():  # it draws as plain code does, from torch's global state
        torch.manual_seed(0)
        plain_step = autograd.plain_step(X, latents="bayesian", active=20, encoder_noise=0.1)
        losses = torch.stack([plain_step() for _ in range(40)])  # 20 epochs
    assert losses[-10:].mean() < losses[:10].mean()


# ---- inference, shares, growth ----


@pytest.mark.parametrize(("steps", "samples"), [(20, 0), (4, 16), (4, 5)])
def test_evaluations_of_a_search_are_counted_as_they_happen(steps, samples, monkeypatch):
    # M rows at once: a call with the best four starts has 4M rows
    M, rows, X = 3, [], torch.randn(40, 4, generator=torch.Generator().manual_seed(0)).double()
    kernel = kernel_of(torch.float64)
    posterior = condition(kernel, torch.tensor(0.1), X[:, :2], X, X.mean(0))
    plain = row_density.GramDensity.__call__
    monkeypatch.setattr(row_density.GramDensity, "__call__", lambda self, Z: rows.append(len(Z)) or plain(self, Z))
    starts = torch.zeros(M, refine.N_STARTS + 1, 2).double()
    Z = refine.refine(posterior, X[:M], starts, steps)
    if samples:
        F = refine.laplace(posterior, X[:M], Z)
        refine.log_evidence(posterior, X[:M], Z, F, refine.normal_points(samples, 2, 0))
    assert sum(rows) == M * inference.evaluations(steps, 2, samples)


def test_the_part_of_a_stack_is_the_first_that_it_is_in():
    step = [("/x/sasgp/training/loop.py", "_step"), ("/x/sasgp/training/run.py", "train"), ("/x/cli/fit.py", "fit")]
    assert sampled.part_of(step) == "steps"
    assert sampled.part_of([("/x/training/initialise.py", "initialise"), *step]) == "first numbers"
    assert sampled.part_of([("<frozen importlib._bootstrap>", "_find_and_load"), *step]) == "imports"
    assert sampled.part_of(step[1:]) == "between steps"
    assert sampled.part_of(step[2:]) == sampled.REST


def test_parts_of_a_run_are_functions_that_there_are():
    package = Path(sasgp.__file__).parent
    for part, places in sampled.PARTS.items():
        for end, function in places if part != "imports" else ():
            assert f"def {function}(" in (package / end).read_text(), f"{end} has no {function}"


def test_a_billion_rows_are_added_up():
    # 3·10⁹ rows in steps of 64·1024: 45,776 of them. At .036 s that is .458 h. A ring moves 2·63/64·4 bytes for each of
    # 10⁶ parameters, 7.875 MB. A share is 15.6·10⁶ rows: at 36 s for 10⁶ it takes .156 h
    one = {"step": 0.036, "pass": 36.0, "parameters": 10**6}
    found = {row["of 10⁹ rows on 64 machines"]: row["each machine"] for row in growth.added_up(one, 10**6)}
    assert found["steps of 3 epochs"] == "45,776"
    assert math.isclose(found["computing them, h"], 0.4578, rel_tol=1e-3)
    assert found["bytes through the network a step"] == "7.88 MB"
    assert math.isclose(found["sending them at 1 Gbit/s, h"], 45776 * 7.875e6 / 125e6 / 3600, rel_tol=1e-4)
    assert math.isclose(found["the pass over its share, h"], 0.15625)


# ---- measuring ----


def test_the_exponent_of_a_power_law():
    sizes = [100, 200, 400, 800]
    assert math.isclose(measure.exponent(sizes, [3.0 * n**1.7 for n in sizes]), 1.7)
    # With x = log₂ n from −1.5 to 1.5, errors of h at one end and −h at the other change the slope by Σ x h / Σ x²
    noisy = [n * math.exp(h) for n, h in zip(sizes, (0.1, 0, 0, -0.1), strict=True)]
    x = np.log2(sizes) - np.mean(np.log2(sizes))  # −1.5, −.5, .5, 1.5
    assert math.isclose(measure.exponent(sizes, noisy), 1 - 0.1 * 3 / ((x**2).sum() * math.log(2)), rel_tol=1e-9)


def test_contenders_take_turns_and_ratios_are_within_a_round():
    order, clocks = [], {"a": iter([1.0, 10.0, 3.0]), "b": iter([2.0, 20.0, 12.0])}

    def contender(name):
        return lambda: order.append(name) or next(clocks[name])

    seconds = measure.turns({name: contender(name) for name in "ab"}, 3, "")
    assert "".join(order) == "ababab"
    # Ratios b / a are 2, 2, 4: the median is 2 although the slow round has the largest numbers
    assert measure.compared(seconds, "b", "a") == {"median": 2.0, "quartiles": [2.0, 3.0]}


def test_a_stretch_has_as_many_calls_as_take_its_time(monkeypatch):
    calls = []
    monkeypatch.setattr(measure, "timed", lambda call, n=1: calls.append(n) or 0.01)
    measure.interleaved({"a": lambda: None}, rounds=2, seconds=0.25, title="")
    assert calls == [1, 25, 25]


def test_numbers_have_three_digits():
    values = [0.0123456, 1.0, 123.456, 1234.5, 7, "none", {"median": 1.234, "quartiles": [1.1, 1.35]}]
    shown = ["0.0123", "1.00", "123", "1234", "7", "none", "1.23 (1.10–1.35)"]
    assert [tables.number(value) for value in values] == shown


# ---- the command, the files and the page ----


@pytest.fixture
def tiny(monkeypatch):
    for name, value in {"QUICK_SIZES": dict.fromkeys((3, 5), ((4, 16), (8, 16))), "ROWS": 32}.items():
        monkeypatch.setattr(floor, name, value)


def test_quick_floor_writes_a_record_a_table_and_a_figure(tiny, tmp_path, capsys):
    line = ["benchmarks", "floor", "--quick", "--out", str(tmp_path), "--report", str(tmp_path / "page.md")]
    assert main(line) == 0
    record = records.read(tmp_path / "quick" / "floor.json")
    assert record["command"] == f"python -m studies {' '.join(line)}"
    assert record["settings"] == {"quick": True}
    assert record["machine"]["threads"] == torch.get_num_threads()
    assert record["versions"]["torch"] == metadata.version("torch")
    rows = record["results"]["rows"]
    sizes = {(row["latents"], row["A"], row["D"]) for row in rows}
    assert sizes == {(latents, A, D) for latents in ("point", "bayesian") for A in (4, 8) for D in (3, 5)}
    for row in rows:
        for ratio in (row["step / floor"], row["mixed / floor"]):
            low, high = ratio["quartiles"]
            assert 0 < low <= ratio["median"] <= high
        assert row["GFLOP"] == floor.flops(row["A"], 16, row["D"], 2, 1 + (row["latents"] == "bayesian")) / 1e9
    assert floor.table([record]) in capsys.readouterr().out
    assert (tmp_path / "images" / "performance-floor.png").stat().st_size > 10_000


def test_names_that_are_no_benchmarks(capsys):
    with pytest.raises(SystemExit):
        main(["benchmarks", "flor"])
    assert "invalid choice: 'flor'" in capsys.readouterr().err


def test_the_page_has_every_benchmark_and_its_tables_are_those_of_the_records():
    parts = tables.parts(page.PAGE.read_text())
    assert set(parts) == set(names("benchmarks"))
    for name, text in page.contents(records.RESULTS / "benchmarks", False).items():
        assert parts[name] == text, f"python -m studies benchmarks {name} --tables: {name} has changed"
        assert "Not measured" not in text


def test_records_of_the_page_are_not_quick_ones():
    for path in (records.RESULTS / "benchmarks").glob("*.json"):
        assert records.read(path)["settings"] == {"quick": False}, f"{path} is from --quick"


def test_publishing_fills_the_page(tmp_path):
    some = {"median": 1.0, "quartiles": [0.9, 1.2]}
    steps = {f"{name}, ms": some for name in ("floor", "step", "mixed")}
    row = {"A": 4, "B": 16, "D": 3, "GFLOP": 0.1, **steps, "step / floor": some, "mixed / floor": some}
    found = {"rows": [{"latents": latents, **row} for latents in ("point", "bayesian")]}
    run = records.Run("floor", {"quick": False})
    records.write(records.record(run, found, command="typed", machine=records.machine()), tmp_path / "floor.json")
    contents = page.contents(tmp_path, False)
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in contents["floor"].splitlines()]
    assert ["point", "3", "4", "16", "0.100", *["1.00"] * 3, *["1.00 (0.900–1.20)"] * 2, "100"] in lines
    assert "`python -m studies benchmarks floor`" in contents["floor"]
    assert contents["scale"] == "Not measured yet: `python -m studies benchmarks scale`."
    written = tables.publish(tmp_path / "page.md", contents, page.pictures(tmp_path, False), "benchmarks")
    assert [path.name for path in written] == ["page.md", "performance-floor.png"]


def test_rows_on_disk(tmp_path):
    path = step.random_file(tmp_path / "rows.npy", 70_000, 3)
    rows = np.load(path, mmap_mode="r")
    assert rows.shape == (70_000, 3)
    assert rows.dtype == np.uint8
    assert (
        abs(rows[60_000:].mean() - 127.5) < 3
    )  # written to the end; the mean's standard deviation is 74 / √30000 = .4


def test_the_table_of_scale_reads_what_it_wrote():
    part = {"ratio": 0.9, "quartiles": [0.8, 1.0]}
    result = {"disk": part, "ranks": part, "peak resident memory, MB": {"60000": 700.0, "1000000": 770.0}}
    assert "1,000,000 rows / at 60,000 rows, 770 MB | 1.10 |" in " ".join(scale.table([{"results": result}]).split())
