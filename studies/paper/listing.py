"""What is run: every table and figure of the paper as a list of runs, the most important first.

A run that several of them need is one run and one record, named after the first. Nothing heavy is imported here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from studies.records import Run

__all__ = ["STUDIES", "Training", "runs", "training"]

# Passes over the data of every run that is not the exact GP-LVM; the paper used up to 300
EPOCHS = {"mnist": 30, "fashion-mnist": 30, "cifar10": 10}
DRAWN = ("mnist", "fashion-mnist")  # whose latent spaces the paper shows
EXACT_EPOCHS, EXACT_ROWS = 300, 2000  # an epoch is one step there, of EXACT_ROWS³ operations
BATCH = 1024
# The paper's encoder sees rows as they are. Noise on them keeps an encoder of few rows from memorising them; with
# MNIST's 60 000 it costs more than it brings
PLAIN: dict[str, Any] = {"encoder_noise": 0.0}
FIG5_BATCHES = (1024, 512, 2048)
SIZES = (400, 200, 100)  # of active sets, and numbers of inducing points
EVIDENCE_ROWS = 40_000
# A latent space that starts from neighbours, and keeps them. The records are of a decoder that was given 4000 rows
LAID_OUT: dict[str, Any] = {
    "init": "umap",
    "encoder": "conv",
    "layout_weight": 0.7,
    "max_epochs": 30,
    "support_size": 4000,
}
WEIGHTS = (0.0, 0.1, 0.7, 3.0)  # layout_weight
QUICK_ROWS = 500

Measure = Literal["quality", "fewer", "some", "positions", "local", "latents", "evidence", "places", "refined"]


@dataclass(frozen=True)
class Training(Run):
    """A model to train, and what to measure: a run whose settings have these names."""

    @property
    def data(self) -> str:
        """The name of a data set with a test split."""
        return self.settings["data"]

    @property
    def estimator(self) -> str:
        """A class of `sasgp`, or one made for comparison: PCA, UMAP, TSNE, Autoencoder, FirstTerm, SecondTerm."""
        return self.settings["estimator"]

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Of the estimator, where they are not its defaults."""
        return self.settings["parameters"]

    @property
    def measures(self) -> tuple[Measure, ...]:
        """What to measure.

        "quality": reconstruction of test rows and nearest neighbours. "fewer", "some": reconstruction by a decoder that
        is given 400 or 2000 training rows instead of all. "positions": how many stand for all rows. "local": noise that
        depends on place and feature, and bits per value. "latents": positions and uncertainty, for figures. "evidence":
        log p(X|Z), exactly and by active sets. "places": how test rows lie among the training rows, and the seconds
        that it took to place them. "refined": all of that for latents that were refined.
        """
        return tuple(self.settings["measures"])

    @property
    def rows(self) -> int | None:
        """Rows to use where those of the data set are too many, drawn at random: to train on, or for the evidence."""
        return self.settings["rows"]


def training(
    name: str,
    data: str,
    estimator: str,
    parameters: Mapping[str, Any],
    seed: int,
    measures: tuple[Measure, ...] = ("quality",),
    rows: int | None = None,
) -> Training:
    """A run by what it is made of."""
    settings = {"data": data, "estimator": estimator, "parameters": dict(parameters)}
    return Training(name, settings | {"measures": list(measures), "rows": rows}, seed)


def _sas(table: str, data: str, latents: str, A: int, seed: int, *, estimator: str = "SASGP", **more: Any) -> Training:
    settings = {"latents": latents, "active_set_size": A, "batch_size": BATCH, "max_epochs": EPOCHS[data], **PLAIN}
    settings |= more
    kind = latents if estimator == "SASGP" else estimator.removesuffix("Term").lower()
    signs = {"batch_size": "B", "n_components": "Q"}
    name = "-".join([table, data, kind, f"A{A}", *(f"{signs[key]}{value}" for key, value in more.items())])
    drawn = table == "table1" and SIZES[0] == A and seed == 0 and data in DRAWN
    measures: tuple[Measure, ...] = ("quality", "fewer")
    # The figures show the course of training, which is the same whatever the decoder is given afterwards
    if not table.startswith("fig"):
        measures = (*measures, "positions")
        measures += ("some", "local") if (table, latents, A) == ("table1", "bayesian", SIZES[0]) else ()
        measures += ("latents",) if drawn else ()
    return training(name, data, estimator, settings, seed, measures)


def _other(
    table: str, data: str, kind: str, estimator: str, seed: int, *, rows: int | None = None, **more: Any
) -> Training:
    measures: tuple[Measure, ...] = (
        ("quality", "latents") if table == "table2" and seed == 0 and data in DRAWN else ("quality",)
    )
    return training(f"{table}-{data}-{kind}", data, estimator, more, seed, measures, rows)


def _vae(data: str, variance: str, seed: int) -> Training:
    settings = {"variance": variance, "max_epochs": EPOCHS[data], **PLAIN}
    return _other("table2", data, f"vae-{variance}", "VAE", seed, **settings)


def _inducing(table: str, data: str, M: int, seed: int, batch: int = BATCH) -> Training:
    kind = f"inducing-M{M}" + f"-B{batch}" * (batch != BATCH)
    settings = {"n_inducing": M, "batch_size": batch, "max_epochs": EPOCHS[data], **PLAIN}
    return _other(table, data, kind, "BayesianGPLVM", seed, **settings)


def table1(seed: int) -> list[Training]:
    """Reconstruction: rmse, mae and nlpd for point and Bayesian latents, three sizes of the active set."""
    return [
        _sas("table1", data, latents, A, seed) for data in EPOCHS for A in SIZES for latents in ("bayesian", "point")
    ]


def table2(seed: int) -> list[Training]:
    """1-NN accuracy beside other models."""
    # The paper has nothing for CIFAR-10; PCA is what its reconstruction is held against
    return [run for data in DRAWN for run in _beside(data, seed)] + _plainly("cifar10", seed)


def _plainly(data: str, seed: int) -> list[Training]:
    both = [_sas("table1", data, latents, SIZES[0], seed) for latents in ("bayesian", "point")]
    return [*both, _other("table2", data, "pca", "PCA", seed)]


def _beside(data: str, seed: int) -> list[Training]:
    return [
        *_plainly(data, seed),
        *(_vae(data, variance, seed) for variance in ("shared", "head", "mean")),
        _inducing("table2", data, SIZES[-1], seed),
        _other("table2", data, f"gplvm-N{EXACT_ROWS}", "GPLVM", seed, rows=EXACT_ROWS, max_epochs=EXACT_EPOCHS),
        _inducing("table2", data, SIZES[0], seed),
    ]


def fig2(_: int) -> list[Training]:
    """The objective against time for several sizes of the active set."""
    more = [_sas("fig2", "mnist", latents, 800, 0) for latents in ("bayesian", "point")]
    return [run for run in table1(0) if run.data == "mnist"] + more


def fig3(_: int) -> list[Training]:
    """Latent spaces of MNIST."""
    return _beside("mnist", 0)


def fig4(_: int) -> list[Training]:
    """Latent spaces of Fashion-MNIST."""
    return _beside("fashion-mnist", 0)


def fig5(_: int) -> list[Training]:
    """The objective against time for active sets and inducing points; SAS_A beside the exact evidence."""
    # Settings of its own: a run of many minutes that need not be done again when those above change
    settings = {"latents": "bayesian", "active_set_size": 400, "batch_size": 1024, "max_epochs": 30}
    name = f"fig5-mnist-evidence-N{EVIDENCE_ROWS}"
    runs = [training(name, "mnist", "SASGP", settings, 0, ("evidence",), EVIDENCE_ROWS)]
    for B in FIG5_BATCHES:
        for A in (SIZES[0], SIZES[-1]):
            if B == BATCH:
                runs += [_sas("table1", "mnist", "bayesian", A, 0), _inducing("table2", "mnist", A, 0)]
            else:
                runs += [_sas("fig5", "mnist", "bayesian", A, 0, batch_size=B), _inducing("fig5", "mnist", A, 0, B)]
    return runs


def appendix(seed: int) -> list[Training]:
    """Three and four latent dimensions."""
    return [_sas("appendix", "mnist", "bayesian", 400, seed, n_components=Q) for Q in (3, 4)]


def ablation(seed: int) -> list[Training]:
    """Eq. 6 without its second term, and without its first."""
    terms = ("FirstTerm", "SecondTerm")
    alone = [_sas("ablation", "mnist", "bayesian", 400, seed, estimator=term) for term in terms]
    return [_sas("table1", "mnist", "bayesian", 400, seed), *alone]


def layouts(seed: int) -> list[Training]:
    """Beyond the paper: neighbourhoods with a density, beside what people use for either."""
    return [run for data in DRAWN for run in _neighbourhoods(data, seed)]


def _neighbourhoods(data: str, seed: int) -> list[Training]:
    def run(kind: str, estimator: str, *measures: Measure, **settings: Any) -> Training:
        drawn: tuple[Measure, ...] = ("latents",) if seed == 0 else ()
        return training(f"layouts-{data}-{kind}", data, estimator, settings, seed, (*measures, "places", *drawn))

    ours = [run("sasgp", "SASGP", "quality", "refined", **LAID_OUT), run("umap", "UMAP"), run("pca", "PCA", "quality")]
    if seed:
        return ours
    return [
        *ours,
        run("sasgp-tsne", "SASGP", "quality", "refined", **LAID_OUT | {"init": "tsne"}),
        run("autoencoder", "Autoencoder", "quality", max_epochs=EPOCHS[data]),
        _vae(data, "shared", seed),
        run("tsne", "TSNE"),
    ]


def tradeoff(_: int) -> list[Training]:
    """What the weight of staying near the layout buys, and what it costs."""
    return [
        training(
            f"tradeoff-mnist-weight{weight:g}",
            "mnist",
            "SASGP",
            {"init": "umap", "layout_weight": weight, "learning_rate": 2e-3, "max_epochs": 10},
            0,
            ("quality", "places"),
        )
        for weight in WEIGHTS
    ]


STUDIES: dict[str, Callable[[int], list[Training]]] = {
    study.__name__: study for study in (table1, table2, ablation, appendix, fig2, fig3, fig4, fig5, layouts, tradeoff)
}


def runs(name: str, seed: int, quick: bool = False) -> list[Training]:
    """The runs of a study. With `quick` every data set is a part of digits and every model trains for one epoch."""
    return [_rehearsed(run) if quick else run for run in STUDIES[name](seed)]


def _rehearsed(run: Training) -> Training:
    parameters = {key: 1 if key == "max_epochs" else value for key, value in run.parameters.items()}
    return replace(run, settings={**run.settings, "data": "digits", "parameters": parameters, "rows": QUICK_ROWS})
