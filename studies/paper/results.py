"""What finished runs have left, read back."""

from pathlib import Path

from studies import records
from studies.paper.listing import EPOCHS, STUDIES, Training, runs
from studies.records import Record

__all__ = ["NAMES", "Results", "model_name", "place"]

LAYOUTS = {"umap": "UMAP", "tsne": "t-SNE"}
NAMES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "digits": "digits"}
VARIANCES = {"shared": "one variance", "head": "variance from its own head", "mean": "variance from the mean"}


class Results:
    """Records of finished runs, for whatever seeds there are.

    Parameters
    ----------
    out
        The folder with the records. Those with other settings than asked for now do not count.
    quick
        Whether they are a rehearsal's.
    """

    def __init__(self, out: Path, *, quick: bool = False) -> None:
        self.out = out
        asked = {run.title: run for seed in records.seeds(out) for name in STUDIES for run in runs(name, seed, quick)}
        self._records: dict[str, list[Record]] = {}
        for run in asked.values():
            if (record := records.finished(run, out)) is not None:
                self._records.setdefault(run.name, []).append(record)

    def records(self, name: str) -> list[Record]:
        """Of a run's name, one for each seed."""
        return self._records.get(name, [])

    def of(self, study: str) -> dict[str, list[Record]]:
        """Records of the runs of a study that are finished, by their names and in their order."""
        return {run.name: found for run in STUDIES[study](0) if (found := self.records(run.name))}

    def by_weight(self) -> list[tuple[float, list[Record]]]:
        """Records of the trade-off by their layout weight."""
        found = self.of("tradeoff").values()
        return sorted((records[0]["settings"]["parameters"]["layout_weight"], records) for records in found)


def model_name(run: Training) -> str:
    """What tables and figures call a model."""
    settings = run.parameters
    if "init" in settings:
        return f"{run.estimator} from {LAYOUTS[settings['init']]}"
    return {
        "SASGP": f"SAS, {settings.get('latents')}, A = {settings.get('active_set_size')}",
        "BayesianGPLVM": f"Bayesian GP-LVM, M = {settings.get('n_inducing')}",
        "VAE": f"VAE, {VARIANCES[settings['variance']]}" if "variance" in settings else "VAE",
        "GPLVM": f"exact GP-LVM, {run.rows} rows",
        "PCA": "PCA",
        "UMAP": "UMAP",
        "TSNE": "openTSNE",
        "Autoencoder": "autoencoder",
        "FirstTerm": "first term only",
        "SecondTerm": "second term only",
    }[run.estimator]


def place(run: Training) -> tuple[int, int, int]:
    """Where a model stands among others: by data set, kind and size."""
    kinds = ("SASGP", "UMAP", "TSNE", "BayesianGPLVM", "VAE", "Autoencoder", "GPLVM", "PCA")
    return list(EPOCHS).index(run.data), kinds.index(run.estimator), run.parameters.get("n_inducing", 0)
