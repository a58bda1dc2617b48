"""What finished runs have left, read back."""

import re
from pathlib import Path

from sasgp.reproduction.experiments import EPOCHS, EXPERIMENTS, Run, queue
from sasgp.reproduction.running import Record, finished

__all__ = ["NAMES", "Results", "model_name", "place"]

LAYOUTS = {"umap": "UMAP", "tsne": "t-SNE"}
NAMES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "digits": "digits"}
VARIANCES = {"shared": "one variance", "head": "variance from its own head", "mean": "variance from the mean"}


class Results:
    """Records of finished runs, for whatever seeds there are.

    Parameters
    ----------
    out
        The folder with their files. Those that were made with other settings than asked for now do not count.
    quick
        Whether they are a rehearsal's.
    """

    def __init__(self, out: Path, *, quick: bool = False) -> None:
        self.out = out
        seeds = {int(found[1]) for path in out.glob("*.json") if (found := re.search(r"-seed(\d+)\.json$", path.name))}
        self._records: dict[str, list[Record]] = {}
        for run in queue(EXPERIMENTS, sorted(seeds), quick=quick):
            if (record := finished(run, out)) is not None:
                self._records.setdefault(run.name, []).append(record)

    def records(self, name: str) -> list[Record]:
        """Of a run's name, one for each seed."""
        return self._records.get(name, [])

    def of(self, experiment: str) -> dict[str, list[Record]]:
        """Records of the runs of an experiment that are finished, by their names and in their order."""
        return {run.name: found for run in EXPERIMENTS[experiment](0) if (found := self.records(run.name))}

    def by_weight(self) -> list[tuple[float, list[Record]]]:
        """Records of the trade-off by how much weight staying near the layout had."""
        found = self.of("tradeoff").values()
        return sorted((records[0]["run"]["settings"]["neighbours"], records) for records in found)


def model_name(run: Run) -> str:
    """What tables and figures call a model."""
    settings = run.settings
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


def place(run: Run) -> tuple[int, int, int]:
    """Where a model stands among others: by data set, kind and size."""
    kinds = ("SASGP", "UMAP", "TSNE", "BayesianGPLVM", "VAE", "Autoencoder", "GPLVM", "PCA")
    return list(EPOCHS).index(run.data), kinds.index(run.estimator), run.settings.get("n_inducing", 0)
