"""The paper's studies: runs and their records, tables and the page."""

import json
import os
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import stdev

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from starts import shorten_start

from sasgp import SASGP
from sasgp.data.named import NAMES
from sasgp.errors import InputError
from sasgp.evaluation import reconstruction
from sasgp.gp.row_sums import condition
from sasgp.metrics import nlpd, rmse
from studies import records, runner, tables
from studies.__main__ import main
from studies.catalogue import names, study
from studies.paper import figures, page, published
from studies.paper import training as paper
from studies.paper.listing import EPOCHS, STUDIES, WEIGHTS, training
from studies.paper.results import Results, model_name

ROOT = Path(__file__).parents[2]
SPREAD = "layouts-mnist-autoencoder"


@pytest.fixture(autouse=True)
def brief_starts(monkeypatch):
    """The encoder's fit to its start is most of the time of a run of one epoch."""
    shorten_start(monkeypatch, 5)


# ---------------------------------------------------------------------------------------------------- what is run


def queue(some, seeds, *, quick=False):
    return [task.run for task in tasks(some, seeds, quick=quick)]


def tasks(some, seeds, *, quick=False):
    return runner.queue([study("paper", name) for name in some], seeds, quick=quick)


def execute(run, out):
    return runner.perform(study("paper", "table1"), run, out, command="typed")


def test_table_1_is_whole():
    cells = {(run.data, run.parameters["latents"], run.parameters["active_set_size"]) for run in STUDIES["table1"](0)}
    assert cells == {
        (data, latents, A) for data in EPOCHS for latents in ("point", "bayesian") for A in (100, 200, 400)
    }
    assert set(EPOCHS) <= set(NAMES)
    assert all(run.parameters["max_epochs"] <= 30 for run in STUDIES["table1"](0))  # the budget


def test_a_run_that_several_need_is_one_and_the_same():
    every = [run for name in STUDIES for run in STUDIES[name](0)]
    titles = {run.title: run for run in every}
    assert len(titles) < len(every)
    assert all(titles[run.title] == run for run in every), "two different runs would share a file"
    assert "table1-mnist-bayesian-A400-seed0" in titles
    for name in ("table2", "fig2", "fig3", "fig5"):
        assert "table1-mnist-bayesian-A400" in {run.name for run in STUDIES[name](0)}


def test_the_queue_goes_seed_by_seed_and_has_every_run_once():
    runs = queue(STUDIES, [0, 1, 2])
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)
    assert len({run.title for run in runs}) == len(runs)
    assert {run.seed for run in queue(["fig2", "fig5"], [0, 1])} == {0}


def test_a_rehearsal_needs_no_download_and_one_epoch():
    runs = queue(STUDIES, [0], quick=True)
    assert {run.title for run in runs} == {run.title for run in queue(STUDIES, [0])}
    assert {run.data for run in runs} == {"digits"}
    assert {run.parameters.get("max_epochs", 1) for run in runs} == {1}


def test_the_catalogue_knows_all_of_them():
    assert names("paper") == tuple(STUDIES)
    assert study("paper", "fig2").runs(1, False) == STUDIES["fig2"](1)


def test_every_model_has_a_name_and_every_measure_a_function():
    for run in queue(STUDIES, [0]):
        assert model_name(run)
        assert "None" not in model_name(run)
        assert set(run.measures) <= set(paper.MEASURES)


# ---------------------------------------------------------------------------------------------------- running


def small(name="table1-mnist-bayesian-A400", seed=0):
    return next(run for run in queue(STUDIES, [seed], quick=True) if run.name == name)


def work(runs, out, **options):
    return runner.work([runner.Task(study("paper", "table1"), run) for run in runs], out, command="typed", **options)


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
    runs = [run for run in queue(STUDIES, [0, 1], quick=True) if run.name in names]
    runs += [run for run in queue(["layouts"], [0], quick=True) if run.name in ("layouts-mnist-pca", SPREAD)]
    with pytest.MonkeyPatch.context() as patch:
        shorten_start(patch, 5)
        outcomes = list(work(runs, out / "quick"))
    assert [outcome.error for outcome in outcomes] == [""] * len(runs)
    # What would take UMAP: the numbers of another run, under its name
    stand_in = json.loads((out / "quick" / f"{SPREAD}-seed0.json").read_text())
    first = next(run for run in queue(["layouts"], [0], quick=True) if run.estimator == "SASGP")
    for i, run in enumerate([first, *queue(["tradeoff"], [0], quick=True)]):
        found = stand_in["results"]["metrics"]
        metrics = found | {"refined_knn_1": 0.5} | {"nlpd": found["nlpd"] + 0.01 * i}
        asked = {"name": run.name, "seed": run.seed, "settings": dict(run.settings)}
        record = stand_in | asked | {"results": stand_in["results"] | {"metrics": metrics}}
        (out / "quick" / f"{run.title}.json").write_text(json.dumps(record))
    return out


def test_a_record_has_all_that_a_table_needs(done):
    record = json.loads((done / "quick" / "table1-mnist-bayesian-A400-seed0.json").read_text())
    results = record["results"]
    assert record["settings"]["parameters"]["latents"] == results["parameters"]["latents"] == "bayesian"
    assert record["seed"] == results["parameters"]["random_state"] == 0
    assert {"rmse", "mae", "nlpd", "knn_1", "knn_15", "rmse_400", "mae_400", "nlpd_400"} <= set(results["metrics"])
    assert results["curve"][0]["seconds"] > 0
    assert results["seconds"] > results["curve"][-1]["seconds"]
    assert not list((done / "quick").glob(".*")), "no temporary file is left"


def test_metrics_with_fewer_rows_are_those_of_a_decoder_that_is_given_fewer(tmp_path):
    run, data = small(), paper._load("digits")
    measured = {**run.settings, "measures": ["quality", "fewer"]}
    metrics = execute(replace(run, settings=measured), tmp_path)["results"]["metrics"]
    X = paper._some(data.X, run.rows, run.seed)
    model = SASGP(**run.parameters, random_state=0).fit(X)
    rows = np.sort(np.random.default_rng(run.seed).permutation(len(X))[:400])
    Z_rows, trained = torch.as_tensor(model.embedding_[rows]), model.model_
    posterior = condition(trained.kernel, trained.noise, Z_rows, torch.as_tensor(X[rows]), trained.mean)
    mean, var = (part.numpy() for part in posterior.predict(torch.as_tensor(model.transform(data.X_test))))
    assert metrics["rmse_400"] == pytest.approx(rmse(data.X_test, mean), rel=1e-5)
    assert metrics["nlpd_400"] == pytest.approx(nlpd(data.X_test, mean, var), rel=1e-4)
    all_of_them = reconstruction(model, data.X_test, model.transform(data.X_test))
    assert metrics["rmse"] == pytest.approx(all_of_them["rmse"], rel=1e-5)


def test_local_noise_is_measured_without_training_again(tmp_path):
    # The same numbers as from a model that was trained with it
    run, data = small(), paper._load("digits")
    measured = {**run.settings, "measures": ["quality", "local"]}
    metrics = execute(replace(run, settings=measured), tmp_path)["results"]["metrics"]
    model = SASGP(**run.parameters, noise="local", random_state=0).fit(paper._some(data.X, run.rows, run.seed))
    found = reconstruction(model, data.X_test, model.transform(data.X_test))
    for name in ("nlpd", "coverage_50", "coverage_90", "coverage_99"):
        assert metrics[f"local_{name}"] == pytest.approx(found[name], rel=1e-5)
    assert metrics["local_nlpd"] != pytest.approx(metrics["nlpd"], rel=0.01)
    assert not {"bits", "local_bits"} & set(metrics), "digits have 17 levels"


def test_refined_metrics_are_of_latents_that_were_refined(tmp_path):
    settings = {"init": "spectral", "layout_weight": 0.1, "max_epochs": 1}
    record = execute(training("own", "digits", "SASGP", settings, 0, ("quality", "refined"), 300), tmp_path)
    data = paper._load("digits")
    model = SASGP(**settings, random_state=0).fit(paper._some(data.X, 300, 0))
    Z = model.transform(data.X_test, refine=paper.REFINE)
    found = record["results"]["metrics"]
    assert found["refined_rmse"] == pytest.approx(rmse(data.X_test, model.predict(Z)), rel=1e-4)
    assert found["refined_nlpd"] < found["nlpd"]
    assert {"refined_knn_1", "refined_knn_15", "refined_trustworthiness", "refined_transform_seconds"} <= set(found)


def test_kept_latents_are_those_of_the_model_and_small(done):
    path = done / "quick" / "table1-mnist-bayesian-A400-seed0.npz"
    data = paper._load("digits")
    with np.load(path) as arrays:
        assert {name: arrays[name].shape for name in arrays} == {
            "Z": (len(data.X), 2), "Z_test": (360, 2), "std": (80, 80), "y": (len(data.X),), "y_test": (360,),
            "extent": (4,),
        }  # fmt: skip
        x0, x1, y0, y1 = arrays["extent"]
        for Z in (arrays["Z"], arrays["Z_test"]):
            assert (((x0, y0) < Z) & ((x1, y1) > Z)).all()
        assert arrays["std"].min() > 0
        # Two latents of 2 bytes and a label of 1 for each point, so that 15 000 points of MNIST take 88 kB
        sizes = {name: arrays[name].nbytes for name in arrays}
        points = len(data.X) + 360
        assert sum(sizes.values()) == 5 * points + 2 * 80 * 80 + sizes["extent"]
    assert not (done / "quick" / "table1-mnist-bayesian-A400-seed1.npz").exists(), "figures are of seed 0"


def test_finished_runs_are_skipped_and_others_are_not(done, monkeypatch, tmp_path):
    run, ran = small(), []
    monkeypatch.setattr(runner, "perform", lambda study, run, out, **_: ran.append(run.title) or {})
    list(work([run], done / "quick"))
    assert ran == []
    # Asked for in other words, or damaged, it is not the same run
    longer = replace(run, settings={**run.settings, "parameters": {**run.parameters, "max_epochs": 2}})
    (tmp_path / f"{run.title}.json").write_text('{"settings": ')
    list(work([longer], done / "quick"))
    list(work([run], tmp_path))
    assert ran == [run.title, run.title]
    list(work([run], done / "quick", again=True))
    assert len(ran) == 3


def test_a_run_that_fails_leaves_nothing_and_does_not_stop_the_others(tmp_path):
    wrong = training("wrong", "digits", "PCA", {"n_components": -1}, 0)
    right = small("table2-mnist-pca")
    first, second = work([wrong, right], tmp_path)
    assert first.record is None
    assert first.error
    assert second.record is not None
    assert {path.name for path in tmp_path.iterdir()} == {f"{right.title}.json", f"{right.title}.npz"}


def test_an_interruption_is_one(monkeypatch, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "perform", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(work([small()], tmp_path))


def test_jobs_are_processes_with_a_share_of_the_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    right, wrong = small("table2-mnist-pca"), training("wrong", "digits", "PCA", {"n_components": -1}, 0)
    outcomes = {outcome.run.title: outcome for outcome in work([right, wrong], tmp_path, jobs=2)}
    record = outcomes[right.title].record
    assert record["machine"]["jobs"] == 2
    assert record["machine"]["threads"] == 1
    assert "n_components" in outcomes[wrong.title].error
    with pytest.raises(InputError, match="--jobs must be at least 1"):
        list(work([right], tmp_path, jobs=0))


# ---------------------------------------------------------------------------------------------------- tables


def test_values_are_means_with_standard_deviations():
    found = [{"results": {"metrics": {"nlpd": value}}} for value in (-0.2, -0.3, -0.4)]
    assert page.value(found, "nlpd") == f"−0.3000 ± {stdev((0.2, 0.3, 0.4)):.4f}" == "−0.3000 ± 0.1000"
    assert page.value(found[:1], "nlpd") == "−0.2000"
    assert page.value([], "nlpd") == "–"


@pytest.mark.parametrize(
    ("data", "latents", "A"), list(product(published.RECONSTRUCTION, ("point", "bayesian"), (100, 200, 400)))
)
def test_the_papers_numbers_fit_together(data, latents, A):
    # ½ ln 2πv + RMSE² / 2v = NLPD has v = .201 to .219 in every cell but one, which the paper prints so: CIFAR-10,
    # point, A = 400. Within a line of the table v varies by .002, and a wrong digit moves it by more. Gaussian errors
    # have MAE = .8 RMSE; with heavier tails it is less
    rmse, mae, nlpd = (published.reconstruction(data, latents, metric, A) for metric in ("rmse", "mae", "nlpd"))
    v = brentq(lambda v: 0.5 * np.log(2 * np.pi * v) + rmse**2 / (2 * v) - nlpd, rmse**2, 1.0)
    odd = (data, latents, A) == ("cifar10", "point", 400)
    expected = 0.234 if odd else {"point": 0.2155, "bayesian": 0.202 if "mnist" in data else 0.2155}[latents]
    assert v == pytest.approx(expected, abs=0.004)
    assert 0.48 < mae / rmse < 0.68


def test_tables_hold_what_the_files_say(done):
    results = Results(done / "quick", quick=True)
    both = [json.loads(path.read_text()) for path in sorted((done / "quick").glob("table1-mnist-bayesian-A400-*.json"))]
    values = [record["results"]["metrics"]["rmse"] for record in both]
    line = next(line for line in page.table1(results).splitlines() if re.search(r"MNIST +\| bayesian \| 400", line))
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells[:5] == ["MNIST", "bayesian", "400", "0.199", f"{np.mean(values):.4f} ± {stdev(values):.4f}"]
    assert cells[-1] == "2"
    better = sum(
        np.mean([record["results"]["metrics"][metric] for record in both]) < best
        for metric, best in (("rmse", 0.199), ("mae", 0.096), ("nlpd", 0.217))
    )
    assert page.table1(results).endswith(f"Ours is below the paper's in {better} of 3 cells.")
    exact = records.read(done / "quick" / "fig5-mnist-evidence-N40000-seed0.json")["results"]["metrics"]["exact"]
    assert f"{exact['per_value']:.4f}" in page.evidence(results)


def test_neighbourhoods_are_listed_before_and_after_refinement(done):
    results = Results(done / "quick", quick=True)
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.neighbours(results).splitlines()[2:]]
    assert [line[1] for line in lines] == ["SASGP from UMAP", "SASGP from UMAP, refined", "autoencoder", "PCA"]
    record = records.read(done / "quick" / f"{SPREAD}-seed0.json")["results"]["metrics"]
    shown = [{"results": {"metrics": record}}]
    assert lines[2][2:6] == [page.value(shown, name) for name in ("knn_1", "knn_15", "rmse", "nlpd")]
    assert lines[2][6:11] == [f"{record[name]:.3f}".replace("-", "−") for _, name in page.STRUCTURE]
    assert lines[1][2] == "0.5000"
    weights = [line.split("|")[1].strip() for line in page.weights(results).splitlines()[2:]]
    assert weights == [f"{weight:g}" for weight in WEIGHTS]


def test_a_page_is_made_filled_and_stays_as_it_is(done, tmp_path):
    parts, pictures = page.contents(done / "quick", True), page.pictures(done / "quick", True)
    path = tmp_path / "page.md"
    written = tables.publish(path, parts, pictures, "paper")
    # Nothing of Fashion-MNIST was run, which is Fig. 4
    drawn = ("fig2", "fig3", "fig5", "layouts", "tradeoff")
    assert [file.name for file in written] == ["page.md", *(f"reproduction-{name}.png" for name in drawn)]
    assert all(file.stat().st_size for file in written)
    text = path.read_text()
    assert "Not run yet: `python -m studies paper fig4`." in text
    assert tables.parts(text) == parts
    path.write_text(f"before\n{text}after\n")
    tables.publish(path, parts, {}, "paper")
    assert path.read_text() == f"before\n{text}after\n"


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
        record["results"] |= {"seconds": 40.0, "cpu_seconds": 10.0}
    assert page._seconds(found) == "10"
    (line,) = figures.fig2(results).axes[1].lines  # of Bayesian latents, one epoch
    assert line.get_xdata()[0] == pytest.approx(found[0]["results"]["curve"][0]["seconds"] / 4)
    for record in found:
        del record["results"]["cpu_seconds"]  # as in records of earlier versions
    assert page._seconds(found) == tables.NOTHING
    assert not figures.CAN_DRAW["fig2"](results)


def test_the_page_of_the_project_is_what_its_records_say():
    text = page.PAGE.read_text()
    assert tables.filled(text, page.contents(records.RESULTS / "paper", False)) == text, (
        "docs/reproduction.md is behind: run `python -m studies paper all --tables`"
    )


# ---------------------------------------------------------------------------------------------------- the command


def test_the_command_runs_what_is_missing_lists_and_prints_tables(done, tmp_path, capsys):
    page = tmp_path / "page.md"
    assert main(["paper", "appendix", "--quick", "--out", str(done), "--report", str(page)]) == 0
    out = capsys.readouterr().out
    assert re.search(r"\[1/2\] appendix-mnist-bayesian-A400-Q3-seed0  \d+ s  RMSE", out)
    assert re.search(r"^\| 3 +\| 0\.", out, flags=re.MULTILINE)
    assert page.exists()
    assert main(["paper", "appendix", "--quick", "--seeds", "0", "1", "--out", str(done), "--list"]) == 0
    states = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]]
    expected = ("appendix-mnist-bayesian-A400-Q3", "appendix-mnist-bayesian-A400-Q4")
    assert states == [
        [f"{name}-seed{seed}", "done" if seed == 0 else "missing"] for seed in (0, 1) for name in expected
    ]
    assert main(["paper", "appendix", "--quick", "--seeds", "1", "--out", str(done), "--tables"]) == 0
    assert "seed" not in capsys.readouterr().out.partition("|")[0], "tables run nothing"


def test_a_failed_run_is_said_and_the_exit_code_tells(tmp_path, capsys, monkeypatch):
    def fail(*_, **__):
        raise ArithmeticError("no factor")

    monkeypatch.setattr(runner, "perform", fail)
    assert main(["paper", "appendix", "--quick", "--out", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert "[2/2] appendix-mnist-bayesian-A400-Q4-seed0  failed: ArithmeticError: no factor" in out
    assert "2 of 2 runs failed" in err
