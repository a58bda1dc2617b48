"""The paper's experiments: ablated objectives against their equations, runs and their files, tables and the page."""

import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import stdev
from typing import get_args

import numpy as np
import pytest
import torch
from sklearn import decomposition
from sklearn.datasets import load_digits
from starts import shorten_start
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from sasgp import SASGP, cli
from sasgp.cli.reproducing import Name
from sasgp.data.named import NAMES
from sasgp.errors import InputError
from sasgp.evaluation import reconstruction
from sasgp.metrics import nlpd, rmse
from sasgp.reproduction import figures, published, report, running
from sasgp.reproduction.ablation import FirstTerm, FirstTermDecoder, SecondTerm, SecondTermDecoder
from sasgp.reproduction.experiments import EPOCHS, EXPERIMENTS, WEIGHTS, Run, queue
from sasgp.reproduction.pca import PCA
from sasgp.reproduction.peers import TSNE, UMAP, Autoencoder
from sasgp.reproduction.results import Results, model_name
from sasgp.training.layouts import lay_out

ROOT = Path(__file__).parents[2]
SPREAD = "layouts-mnist-autoencoder"
N, B, A, D, Q = 40, 12, 5, 3, 2


@pytest.fixture(autouse=True)
def brief_starts(monkeypatch):
    """The encoder's fit to its start is most of the time of a run of one epoch."""
    shorten_start(monkeypatch, 5)


# ---------------------------------------------------------------------------------------------------- ablation


class Fixed(torch.nn.Module):
    """An encoder that a test can compute with: z is half of the first features, its variance is known."""

    def __init__(self, latents):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((), 0.5))
        self.variance = 0.04 if latents == "bayesian" else None

    def forward(self, X):
        mu = self.weight * X[:, :Q]
        return mu if self.variance is None else (mu, torch.full_like(mu, self.variance))


def decoder(estimator, latents, dtype):
    X = np.random.default_rng(0).normal(size=(N, D))
    model = estimator(
        encoder=Fixed(latents), latents=latents, active_set_size=A, batch_size=B, max_epochs=1, encoder_noise=0.0,
        dtype=dtype, random_state=0,
    ).fit(X).model_  # fmt: skip
    return model, torch.as_tensor(X[:B], dtype=getattr(torch, dtype))


@torch.no_grad()
def terms(model, X, n_drawn):
    """F, S and log p(z_n) of a batch in float64, by torch.distributions; − KL for the last where latents are Bayesian.

    n_drawn is how many rows the model makes a draw for: as many have a draw of their own here.
    """
    mu = model.encoder.module.weight.double() * X[:, :Q].double()
    prior = Independent(Normal(torch.zeros_like(mu), 1.0), 1)
    Z, log_prior = mu, prior.log_prob(mu)
    if (v := model.encoder.module.variance) is not None:
        epsilon = torch.zeros_like(mu)
        epsilon[:n_drawn] = torch.randn(n_drawn, Q, generator=generator(), dtype=X.dtype).double()
        Z = mu + math.sqrt(v) * epsilon
        log_prior = -kl_divergence(Independent(Normal(mu, math.sqrt(v)), 1), prior)
    K = model.kernel.double()(Z).to_dense() + model.noise.double() * torch.eye(B).double()
    X = (X - model.mean).double()
    inverse = K[:A, :A].inverse()
    F = MultivariateNormal(torch.zeros(A).double(), K[:A, :A]).log_prob(X[:A].T).sum()
    m = K[A:, :A] @ inverse @ X[:A]
    c = K.diagonal()[A:] - (K[A:, :A] @ inverse @ K[:A, A:]).diagonal()
    S = Normal(m, c.sqrt()[:, None]).log_prob(X[A:]).sum()
    return F.item(), S.item(), log_prior


def generator():
    return torch.Generator().manual_seed(3)


@pytest.mark.parametrize("latents", ["point", "bayesian"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-4)])
def test_the_second_term_alone_is_its_equation(latents, dtype, tolerance):
    model, X = decoder(SecondTerm, latents, dtype)
    assert type(model) is SecondTermDecoder
    loss = float(model(X, torch.arange(B), N, generator()).detach())
    _, S, log_prior = terms(model, X, B)
    # (N−A)/(B−A) · S + (N−A)/B · Σ log p(z_n), for each of the N D entries
    objective = (N - A) / (B - A) * S + (N - A) / B * float(log_prior.sum())
    assert loss == pytest.approx(-objective / (N * D), rel=tolerance)


@pytest.mark.parametrize("latents", ["point", "bayesian"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-4)])
def test_the_first_term_alone_is_its_equation(latents, dtype, tolerance):
    model, X = decoder(FirstTerm, latents, dtype)
    assert type(model) is FirstTermDecoder
    loss = float(model(X, torch.arange(B), N, generator()).detach())
    F, _, log_prior = terms(model, X, A)
    # N/A · [ F + Σ_A log p(z_n) ], for each of the N D entries
    objective = N / A * (F + float(log_prior[:A].sum()))
    assert loss == pytest.approx(-objective / (N * D), rel=tolerance)


@pytest.mark.parametrize("latents", ["point", "bayesian"])
def test_the_oracle_knows_the_whole_estimate_too(latents):
    model, X = decoder(SASGP, latents, "float64")
    loss = float(model(X, torch.arange(B), N, generator()).detach())
    F, S, log_prior = terms(model, X, B)
    # Eq. 6 and Eq. 8
    objective = F + (N - A) / (B - A) * S + N / B * float(log_prior.sum())
    assert loss == pytest.approx(-objective / (N * D), rel=1e-9)


def test_the_second_term_has_a_gradient_and_training_lowers_it():
    X = load_digits().data / 16
    model = SecondTerm(active_set_size=50, batch_size=200, max_epochs=10, random_state=0).fit(X[:600])
    losses = [epoch["loss"] for epoch in model.history_]
    assert losses[-1] < losses[0] - 0.05


# ---------------------------------------------------------------------------------------------------- PCA


def test_pca_decodes_as_scikit_learn_does_and_has_the_density_of_its_residuals():
    X = load_digits().data / 16
    model, theirs = PCA(random_state=0).fit(X), decomposition.PCA(2).fit(X)
    mean, std = model.predict(model.transform(X), return_std=True)
    np.testing.assert_allclose(mean, theirs.inverse_transform(theirs.transform(X)), atol=1e-8)
    r = rmse(X, mean)
    # A constant variance r², which is the error's own on the rows it was fitted to: ½ ln(2πe r²)
    assert nlpd(X, mean, std**2) == pytest.approx(0.5 * math.log(2 * math.pi * math.e * r**2))


# ---------------------------------------------------------------------------------------------------- others


def test_an_autoencoder_is_no_worse_than_pca_and_depends_on_its_seed_alone():
    X = (load_digits().data / 16).astype(np.float32)
    model, again = (Autoencoder(max_epochs=40, batch_size=256, random_state=3).fit(X[:1000]) for _ in range(2))
    np.testing.assert_array_equal(model.embedding_, again.embedding_)
    np.testing.assert_array_equal(model.embedding_, model.transform(X[:1000]))
    plane = PCA(random_state=0).fit(X[:1000])
    mean, std = model.predict(model.transform(X[1000:]), return_std=True)
    assert rmse(X[1000:], mean) < rmse(X[1000:], plane.predict(plane.transform(X[1000:])))
    assert std[0, 0] == pytest.approx(rmse(X[:1000], model.predict(model.embedding_)), rel=1e-5)


@pytest.mark.parametrize(("peer", "name"), [(TSNE, "tsne"), (UMAP, "umap")])
def test_peers_lay_out_as_init_does_and_place_rows_that_they_know_where_they_are(peer, name):
    X = (load_digits().data[:300] / 16).astype(np.float32)
    model = peer(random_state=3).fit(X)
    Z = model.embedding_
    np.testing.assert_allclose(Z, lay_out(name, X, 2, 3))
    apart = np.linalg.norm(model.transform(X[:20]) - Z[:20], axis=1)
    assert np.median(apart) < 0.2 * np.linalg.norm(Z.std(0))


# ---------------------------------------------------------------------------------------------------- what is run


def test_table_1_is_whole():
    cells = {(run.data, run.settings["latents"], run.settings["active_set_size"]) for run in EXPERIMENTS["table1"](0)}
    assert cells == {
        (data, latents, A) for data in EPOCHS for latents in ("point", "bayesian") for A in (100, 200, 400)
    }
    assert set(EPOCHS) <= set(NAMES)
    assert all(run.settings["max_epochs"] <= 30 for run in EXPERIMENTS["table1"](0))  # the budget


def test_a_run_that_several_need_is_one_and_the_same():
    every = [run for name in EXPERIMENTS for run in EXPERIMENTS[name](0)]
    titles = {run.title: run for run in every}
    assert len(titles) < len(every)
    assert all(titles[run.title] == run for run in every), "two different runs would share a file"
    assert "table1-mnist-bayesian-A400-seed0" in titles
    for name in ("table2", "ablation", "fig2", "fig3", "fig5"):
        assert "table1-mnist-bayesian-A400" in {run.name for run in EXPERIMENTS[name](0)}


def test_the_queue_goes_seed_by_seed_and_has_every_run_once():
    runs = queue(EXPERIMENTS, [0, 1, 2])
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)
    assert len({run.title for run in runs}) == len(runs)
    assert {run.seed for run in queue(["fig2", "fig5"], [0, 1])} == {0}


def test_a_rehearsal_needs_no_download_and_one_epoch():
    runs = queue(EXPERIMENTS, [0], quick=True)
    assert {run.title for run in runs} == {run.title for run in queue(EXPERIMENTS, [0])}
    assert {run.data for run in runs} == {"digits"}
    assert {run.settings.get("max_epochs", 1) for run in runs} == {1}


def test_the_command_knows_all_experiments():
    assert list(get_args(Name)) == ["all", *EXPERIMENTS]


def test_every_model_has_a_name_and_every_measure_a_function():
    for run in queue(EXPERIMENTS, [0]):
        assert model_name(run)
        assert "None" not in model_name(run)
        assert set(run.measures) <= set(running.MEASURES)


# ---------------------------------------------------------------------------------------------------- running


def small(name="table1-mnist-bayesian-A400", seed=0):
    return next(run for run in queue(EXPERIMENTS, [seed], quick=True) if run.name == name)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A folder with a few finished runs of two seeds, in quick's subfolder."""
    out = tmp_path_factory.mktemp("results")
    (out / "quick").mkdir()
    names = (
        "table1-mnist-bayesian-A400",
        "table2-mnist-pca",
        "fig5-mnist-evidence-N40000",
        "ablation-mnist-second-A400",
    )
    runs = [run for run in queue(EXPERIMENTS, [0, 1], quick=True) if run.name in names]
    runs += [run for run in queue(["layouts"], [0], quick=True) if run.name in ("layouts-mnist-pca", SPREAD)]
    with pytest.MonkeyPatch.context() as patch:
        shorten_start(patch, 5)
        outcomes = list(running.work(runs, out / "quick"))
    assert [outcome.error for outcome in outcomes] == [""] * len(runs)
    # What would take UMAP: the numbers of another run, under its name
    stand_in = json.loads((out / "quick" / f"{SPREAD}-seed0.json").read_text())
    first = next(run for run in queue(["layouts"], [0], quick=True) if run.estimator == "SASGP")
    for i, run in enumerate([first, *queue(["tradeoff"], [0], quick=True)]):
        metrics = stand_in["metrics"] | {"refined_knn_1": 0.5} | {"nlpd": stand_in["metrics"]["nlpd"] + 0.01 * i}
        record = stand_in | {"run": running._plain(run), "metrics": metrics}
        (out / "quick" / f"{run.title}.json").write_text(json.dumps(record))
    return out


def test_a_record_has_all_that_a_table_needs(done):
    record = json.loads((done / "quick" / "table1-mnist-bayesian-A400-seed0.json").read_text())
    assert record["settings"]["latents"] == "bayesian"
    assert record["settings"]["random_state"] == 0
    assert {"sasgp", "commit", "python", "torch"} <= set(record["versions"])
    assert {"cores", "threads", "jobs"} <= set(record["machine"])
    assert {"rmse", "mae", "nlpd", "knn_1", "knn_15", "rmse_400", "mae_400", "nlpd_400"} <= set(record["metrics"])
    assert record["curve"][0]["seconds"] > 0
    assert record["seconds"] > record["curve"][-1]["seconds"]
    assert not list((done / "quick").glob(".*")), "no temporary file is left"


def test_metrics_with_fewer_support_points_are_those_of_a_decoder_that_has_fewer(monkeypatch, tmp_path):
    run, data = small(), running._load("digits")
    record = running.execute(replace(run, measures=("quality", "fewer")), tmp_path)
    X = running._some(data.X, run.rows, run.seed)
    model = SASGP(**run.settings, random_state=0).fit(X)
    rows = model.support_rows_[:400]
    posterior = model.model_.condition(torch.as_tensor(X[rows]), torch.as_tensor(model.embedding_[rows]))
    mean, var = (part.numpy() for part in posterior.predict(torch.as_tensor(model.transform(data.X_test))))
    assert record["metrics"]["rmse_400"] == pytest.approx(rmse(data.X_test, mean), rel=1e-5)
    assert record["metrics"]["nlpd_400"] == pytest.approx(nlpd(data.X_test, mean, var), rel=1e-4)
    all_of_them = reconstruction(model, data.X_test, model.transform(data.X_test))
    assert record["metrics"]["rmse"] == pytest.approx(all_of_them["rmse"], rel=1e-5)


def test_refined_metrics_are_of_latents_that_were_refined(tmp_path):
    settings = {"init": "spectral", "neighbours": 0.1, "max_epochs": 1}
    record = running.execute(Run("own", "digits", "SASGP", settings, 0, ("quality", "refined"), 300), tmp_path)
    data = running._load("digits")
    model = SASGP(**settings, random_state=0).fit(running._some(data.X, 300, 0))
    Z = model.transform(data.X_test, refine=running.REFINE)
    found = record["metrics"]
    assert found["refined_rmse"] == pytest.approx(rmse(data.X_test, model.predict(Z)), rel=1e-4)
    assert found["refined_nlpd"] < found["nlpd"]
    assert {"refined_knn_1", "refined_knn_15", "refined_trustworthiness", "refined_transform_seconds"} <= set(found)


def test_kept_latents_are_those_of_the_model_and_small(done):
    path = done / "quick" / "table1-mnist-bayesian-A400-seed0.npz"
    data = running._load("digits")
    with np.load(path) as arrays:
        assert {name: arrays[name].shape for name in arrays} == {
            "Z": (len(data.X), 2), "Z_test": (360, 2), "std": (80, 80), "y": (len(data.X),), "y_test": (360,),
            "extent": (4,),
        }  # fmt: skip
        x0, x1, y0, y1 = arrays["extent"]
        for Z in (arrays["Z"], arrays["Z_test"]):
            assert (((x0, y0) < Z) & ((x1, y1) > Z)).all()
        assert arrays["std"].min() > 0
    # 15 000 points of MNIST take this much before compression
    assert 15_000 * (2 * 2 + 1) + 80 * 80 * 2 < 150_000
    assert not (done / "quick" / "table1-mnist-bayesian-A400-seed1.npz").exists(), "figures are of seed 0"


def test_finished_runs_are_skipped_and_others_are_not(done, monkeypatch, tmp_path):
    run, ran = small(), []
    monkeypatch.setattr(running, "execute", lambda run, out, **_: ran.append(run.title) or {})
    list(running.work([run], done / "quick"))
    assert ran == []
    # Asked for in other words, or damaged, it is not the same run
    longer = replace(run, settings=run.settings | {"max_epochs": 2})
    (tmp_path / f"{run.title}.json").write_text('{"run": ')
    list(running.work([longer], done / "quick"))
    list(running.work([run], tmp_path))
    assert ran == [run.title, run.title]


def test_a_run_that_fails_leaves_nothing_and_does_not_stop_the_others(tmp_path):
    wrong = Run("wrong", "digits", "PCA", {"n_components": -1}, 0)
    right = small("table2-mnist-pca")
    first, second = running.work([wrong, right], tmp_path)
    assert first.record is None
    assert first.error
    assert second.record is not None
    assert {path.name for path in tmp_path.iterdir()} == {f"{right.title}.json", f"{right.title}.npz"}


def test_an_interruption_is_one(monkeypatch, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "execute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(running.work([small()], tmp_path))


def test_jobs_are_processes_with_a_share_of_the_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    right, wrong = small("table2-mnist-pca"), Run("wrong", "digits", "PCA", {"n_components": -1}, 0)
    outcomes = {outcome.run.title: outcome for outcome in running.work([right, wrong], tmp_path, jobs=2)}
    record = outcomes[right.title].record
    assert record["machine"]["jobs"] == 2
    assert record["machine"]["threads"] == 1
    assert "n_components" in outcomes[wrong.title].error
    with pytest.raises(InputError, match="--jobs must be at least 1"):
        list(running.work([right], tmp_path, jobs=0))


def test_the_commit_is_that_of_the_package():
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    commit = running._commit()
    if not (ROOT / ".git").exists():
        assert commit is None
    else:
        head = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert head.startswith(commit.removesuffix("-dirty"))


# ---------------------------------------------------------------------------------------------------- tables


def test_values_are_means_with_standard_deviations():
    records = [{"metrics": {"nlpd": value}} for value in (-0.2, -0.3, -0.4)]
    assert report.value(records, "nlpd") == f"−0.3000 ± {stdev((0.2, 0.3, 0.4)):.4f}" == "−0.3000 ± 0.1000"
    assert report.value(records[:1], "nlpd") == "−0.2000"
    assert report.value([], "nlpd") == "–"


def test_the_papers_table_is_whole():
    # Table 1 of the paper, as in the list of numbers: corners and the largest A of every line
    assert published.reconstruction("mnist", "point", "rmse", 100) == 0.255
    assert published.reconstruction("mnist", "bayesian", "nlpd", 400) == 0.217
    assert published.reconstruction("fashion-mnist", "bayesian", "mae", 200) == 0.102
    assert published.reconstruction("cifar10", "point", "nlpd", 400) == 0.332
    assert published.reconstruction("cifar10", "bayesian", "nlpd", 400) == 0.306


def test_tables_hold_what_the_files_say(done):
    results = Results(done / "quick", quick=True)
    both = [json.loads(path.read_text()) for path in sorted((done / "quick").glob("table1-mnist-bayesian-A400-*.json"))]
    values = [record["metrics"]["rmse"] for record in both]
    line = next(line for line in report.table1(results).splitlines() if re.search(r"MNIST +\| bayesian \| 400", line))
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells[:5] == ["MNIST", "bayesian", "400", "0.199", f"{np.mean(values):.4f} ± {stdev(values):.4f}"]
    assert cells[-1] == "2"
    better = sum(
        np.mean([record["metrics"][metric] for record in both]) < paper
        for metric, paper in (("rmse", 0.199), ("mae", 0.096), ("nlpd", 0.217))
    )
    assert report.table1(results).endswith(f"Ours is below the paper's in {better} of 3 cells.")
    exact = json.loads((done / "quick" / "fig5-mnist-evidence-N40000-seed0.json").read_text())["metrics"]["exact"]
    assert f"{exact['per_value']:.4f}" in report.evidence(results)


def test_neighbourhoods_are_listed_before_and_after_refinement(done):
    results = Results(done / "quick", quick=True)
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.neighbours(results).splitlines()[2:]]
    assert [line[1] for line in lines] == ["SASGP from UMAP", "SASGP from UMAP, refined", "autoencoder", "PCA"]
    record = json.loads((done / "quick" / f"{SPREAD}-seed0.json").read_text())["metrics"]
    assert lines[2][2:6] == [report.value([{"metrics": record}], name) for name in ("knn_1", "knn_15", "rmse", "nlpd")]
    assert lines[2][6:11] == [f"{record[name]:.3f}".replace("-", "−") for _, name in report.STRUCTURE]
    assert lines[1][2] == "0.5000"
    weights = [line.split("|")[1].strip() for line in report.weights(results).splitlines()[2:]]
    assert weights == [f"{weight:g}" for weight in WEIGHTS]


def test_a_page_is_made_filled_and_stays_as_it_is(done, tmp_path):
    results = Results(done / "quick", quick=True)
    page = tmp_path / "page.md"
    written = report.write(results, page)
    # Nothing of Fashion-MNIST was run, which is Fig. 4
    drawn = ("fig2", "fig3", "fig5", "layouts", "tradeoff")
    assert [path.name for path in written] == ["page.md", *(f"reproduction-{name}.png" for name in drawn)]
    text = page.read_text()
    assert "Not run yet: `sasgp reproduce fig4`." in text
    page.write_text(f"before\n{text}after\n")
    report.write(results, page)
    assert page.read_text() == f"before\n{text}after\n"
    with pytest.raises(InputError, match="marker <!-- table1: … -->"):
        report.filled("an empty page", report.blocks(results))


def test_figures_say_where_times_are_not_comparable(done):
    results = Results(done / "quick", quick=True)
    one = results.records("table1-mnist-bayesian-A400")[0]
    threads = one["machine"]["threads"]
    assert f"Threads of every run: {threads}." in figures.caption("fig2", results)
    results._records["table1-mnist-point-A400"] = [one | {"machine": one["machine"] | {"threads": threads + 1}}]
    assert "not comparable" in figures.caption("fig2", results)


def test_times_are_those_at_work(done):
    results = Results(done / "quick", quick=True)
    found = results.records("table1-mnist-bayesian-A400")
    for record in found:
        record["seconds"], record["cpu_seconds"] = 40.0, 10.0
    assert report._seconds(found) == "10"
    (line,) = figures.fig2(results).axes[1].lines  # of Bayesian latents, one epoch
    assert line.get_xdata()[0] == pytest.approx(found[0]["curve"][0]["seconds"] / 4)
    for record in found:
        del record["cpu_seconds"]  # as in files of earlier versions
    assert report._seconds(found) == report.NOTHING
    assert not figures.CAN_DRAW["fig2"](results)


def test_the_page_of_the_project_is_what_its_files_say():
    page = ROOT / "docs" / "reproduction.md"
    contents = report.blocks(Results(ROOT / "experiments" / "results"))
    assert report.filled(page.read_text(), contents) == page.read_text(), (
        "docs/reproduction.md is behind: run `sasgp reproduce all --list --report docs/reproduction.md`"
    )


# ---------------------------------------------------------------------------------------------------- the command


def test_the_command_runs_what_is_missing_lists_and_prints_tables(done, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reproduce", "appendix", "--quick", "--out", str(done), "--report", "page.md"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"\[1/2\] appendix-mnist-bayesian-A400-Q3-seed0  \d+ s  RMSE", out)
    assert re.search(r"^\| 3 +\| 0\.", out, flags=re.MULTILINE)
    assert Path("page.md").exists()
    assert cli.main(["reproduce", "appendix", "--quick", "--seeds", "0", "1", "--out", str(done), "--list"]) == 0
    states = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]]
    names = ("appendix-mnist-bayesian-A400-Q3", "appendix-mnist-bayesian-A400-Q4")
    expected = [[f"{name}-seed{seed}", "done" if seed == 0 else "missing"] for seed in (0, 1) for name in names]
    assert states == expected


def test_a_failed_run_is_said_and_the_exit_code_tells(tmp_path, capsys, monkeypatch):
    def fail(*_, **__):
        raise ArithmeticError("no factor")

    monkeypatch.setattr(running, "execute", fail)
    assert cli.main(["reproduce", "appendix", "--quick", "--out", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert "[2/2] appendix-mnist-bayesian-A400-Q4-seed0  failed: ArithmeticError: no factor" in out
    assert "2 of 2 runs failed" in err


def test_wrong_arguments_are_one_line(capsys):
    assert cli.main(["reproduce", "table3"]) == 2
    assert cli.main(["reproduce", "table1", "--seeds", "-1", "--list"]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_help_and_list_do_not_wait_for_torch():
    code = (
        "import sys; from sasgp.cli import main; code = main(sys.argv[1:]); "
        "print({'torch', 'matplotlib'} & {*sys.modules}); sys.exit(code)"
    )
    for tokens in (["reproduce", "--help"], ["reproduce", "all", "--list"]):
        done = subprocess.run([sys.executable, "-c", code, *tokens], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "set()"
