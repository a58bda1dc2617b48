"""A run: the folder that `sasgp fit --out RUN` leaves, complete or not at all.

| file | holds |
|---|---|
| model.safetensors | the trained model, with its sums over the training rows |
| embedding.csv | one line per row of the data, then of updates: row, id (if any), z0, z1, …, label (if any), split |
| history.jsonl | one line per epoch |
| run.json | where the data came from, image shape, column names, command, versions, test metrics, updates |
| latent.png, loss.png | pictures of the latent space and of training |
| explorer.html | a page to explore the latent space in a browser |

With --target there are no latents. In the place of embedding.csv and of the last two lines, the folder has

| file | holds |
|---|---|
| predictions.csv | the held-out rows: row, id (if any), observed, predicted, low, high, quantile or probabilities |
| predicted.png, confusion.png | predictions against observations, of a regression and of a classification |
| calibration.png, relevance.png | whether predictions are calibrated, and how much each input matters |
| loss.png | a picture of training |
| partial_dependence.png, relevance.csv | what `sasgp explain` adds |
"""

import difflib
import errno
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasgp.cli import unfinished
from sasgp.cli.files import missing_folders, remove_empty, same_file, writable, write_csv
from sasgp.data.files import at_home, real_path
from sasgp.data.labels import parse_labels
from sasgp.data.named import NAMES
from sasgp.errors import InputError

__all__ = ["Embedding", "RunFolder", "check_inputs", "check_new", "check_outside", "find", "lacks_pictures", "written"]

MODEL, EMBEDDING, HISTORY, INFO = "model.safetensors", "embedding.csv", "history.jsonl", "run.json"
LATENT, LOSS, EXPLORER = "latent.png", "loss.png", "explorer.html"
FILES = (MODEL, EMBEDDING, HISTORY, INFO, LATENT, LOSS, EXPLORER)
PREDICTIONS, PREDICTED, CONFUSION = "predictions.csv", "predicted.png", "confusion.png"
CALIBRATION, RELEVANCE, DEPENDENCE, RELEVANCES = (
    "calibration.png",
    "relevance.png",
    "partial_dependence.png",
    "relevance.csv",
)
OF_TARGETS = (PREDICTIONS, PREDICTED, CONFUSION, CALIBRATION, RELEVANCE, DEPENDENCE, RELEVANCES)

TRAIN, TEST = "train", "test"

Array = NDArray[Any]


# ---------------------------------------------------------------------------------------------------- writing


def check_new(path: Path, *, overwrite: bool) -> None:
    """Raise InputError if a run cannot be written to the folder. Leaves nothing behind."""
    path = real_path(path)
    unfinished.complete(path)
    if path.exists() and not path.is_dir():
        raise InputError(f"--out must be a folder, but {path} is a file. Choose another name.")
    if path.is_dir() and not overwrite:
        unfinished.check_not_begun(path)
        if any((path / name).exists() for name in FILES):
            raise InputError(f"{path} already holds a run. Add --overwrite to replace it, or choose another --out.")
        if any(not file.name.startswith(".") for file in path.iterdir()):
            raise InputError(
                f"{path} holds other files and no run. Choose an empty or new folder for --out, or add --overwrite to "
                "write beside them."
            )
    unfinished.check_replaceable(path)
    for name in (*FILES, *OF_TARGETS):
        if (path / name).is_dir():
            raise InputError(f"{path / name} is a folder, but a run has a file of that name. Choose another --out.")
    missing = missing_folders(path)
    try:
        with writable(path):
            path.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=path).close()
    finally:
        remove_empty(missing)


def check_inputs(path: Path, *inputs: str | None) -> None:
    """Raise InputError if one of the inputs is a file that a run in the folder replaces."""
    path = real_path(path)
    for source in filter(None, inputs):
        if any(same_file(path / name, source) for name in (*FILES, *OF_TARGETS)):
            raise InputError(f"--out {path} would overwrite {source}, which the command reads. Choose another folder.")


def check_outside(path: Path, source: str) -> None:
    """Raise InputError if a run would be written into the folder of images that the command reads."""
    if source not in NAMES and at_home(source).is_dir() and real_path(path).is_relative_to(real_path(source)):
        raise InputError(
            f"--out {path} is in {source}, so the pictures of the run would be taken for data. Choose a folder outside."
        )


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """A temporary folder for a run's files. They replace those of the run when the block ends without an error.

    The temporary folder is inside RUN/unfinished, so that whatever a killed process left there is removed with it.
    """
    path = real_path(path)
    with tempfile.TemporaryDirectory(dir=path / unfinished.FOLDER, ignore_cleanup_errors=True) as temporary:
        old, new = Path(temporary, "old"), Path(temporary, "new")
        old.mkdir()
        new.mkdir()
        yield new
        files = sorted(new.iterdir(), key=lambda file: file.name == MODEL)  # last: without a model, there is no run
        try:
            for name in _files_of(path, files):  # pictures of an older run go as well
                if (path / name).is_dir():
                    raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path / name))
                if os.path.lexists(path / name):
                    (path / name).rename(old / name)
            for file in files:
                file.rename(path / file.name)
        except OSError:
            with suppress(OSError):
                _put_back(path, old, files)
            raise


def _files_of(path: Path, files: list[Path]) -> list[str]:
    """The names of all files of the run in a folder, and of those that are to replace them."""
    try:
        older = json.loads((path / INFO).read_text(encoding="utf-8"))
        has_target = older["data"].get("target") is not None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        has_target = False
    return list(dict.fromkeys([*FILES, *(OF_TARGETS if has_target else ()), *(file.name for file in files)]))


def _put_back(path: Path, old: Path, files: list[Path]) -> None:
    """Give a folder its old files again, after some of the new ones could not be moved there."""
    for file in files:
        if not file.exists():
            (path / file.name).unlink(missing_ok=True)
    for file in old.iterdir():
        file.rename(path / file.name)


# ---------------------------------------------------------------------------------------------------- reading


@dataclass(frozen=True)
class Embedding:
    """Latents, with the row and the split that each belongs to, and labels and names of the rows if there are any."""

    rows: Array
    Z: Array
    labels: Array | None
    split: Array | None = None
    ids: Array | None = None

    def named(self, ids: Array | None) -> "Embedding":
        """With the names of these rows, from the names of all rows of the data, if they have any."""
        return self if ids is None else replace(self, ids=ids[self.rows])

    def as_train(self, test: "Embedding | None" = None, *, by_row: bool = False) -> "Embedding":
        """These latents as the training split, followed by the test split, or with both sorted by row."""
        if test is None:
            return replace(self, split=np.full(len(self.rows), TRAIN))
        rows, Z = np.concatenate([self.rows, test.rows]), np.concatenate([self.Z, test.Z])
        labels = None if self.labels is None or test.labels is None else np.concatenate([self.labels, test.labels])
        ids = None if self.ids is None or test.ids is None else np.concatenate([self.ids, test.ids])
        split = np.repeat([TRAIN, TEST], [len(self.rows), len(test.rows)])
        order = np.argsort(rows, kind="stable") if by_row else np.arange(len(rows))
        return Embedding(rows, Z, labels, split, ids)._at(order)

    def followed_by(self, Z: Array, labels: Array | None, ids: Array | None = None) -> "Embedding":
        """These latents and those of new training rows, whose numbers go on from the last.

        If these have labels and the new rows have none, their label is empty, or NaN where labels are numbers. Names
        that are missing are empty.
        """
        start, known = int(self.rows.max(initial=-1)) + 1, self.labels
        if known is not None:
            numbers = parse_labels(known.tolist()).dtype.kind == "f"
            new = np.full(len(Z), "nan" if numbers else "") if labels is None else labels.astype(np.str_)
            known = np.concatenate([known.astype(np.str_), new])
        split = None if self.split is None else np.concatenate([self.split, np.full(len(Z), TRAIN)])
        rows = np.concatenate([self.rows, np.arange(start, start + len(Z))])
        names = None
        if self.ids is not None:
            names = np.concatenate([self.ids, np.full(len(Z), "", dtype=object) if ids is None else ids])
        return Embedding(rows, np.concatenate([self.Z, Z]), known, split, names)

    def labelled(self) -> "Embedding":
        """Without the rows that have an empty label."""
        if self.labels is None or (chosen := np.flatnonzero(self.labels != "")).size == len(self.labels):
            return self
        return self._at(chosen)

    def only(self, split: str) -> "Embedding":
        return replace(self._at(np.flatnonzero(self.split == split)), split=None)

    def _at(self, chosen: Array) -> "Embedding":
        """Some of these latents, with all that belongs to them."""
        labels, split, ids = (None if part is None else part[chosen] for part in (self.labels, self.split, self.ids))
        return Embedding(self.rows[chosen], self.Z[chosen], labels, split, ids)

    def write(self, path: Path, *, escape_formulas: bool = False) -> None:
        import polars as pl

        columns: dict[str, Any] = {"row": self.rows}
        if self.ids is not None:
            columns["id"] = [str(name) for name in self.ids]
        columns |= {f"z{q}": self.Z[:, q] for q in range(self.Z.shape[1])}
        if self.labels is not None:
            columns["label"] = self.labels
        if self.split is not None:
            columns["split"] = self.split
        write_csv(pl.DataFrame(columns), path, escape_formulas=escape_formulas)

    @classmethod
    def read(cls, path: Path) -> "Embedding":
        """Read what `write` wrote. Labels are text then."""
        import polars as pl

        try:
            frame = pl.read_csv(path, schema_overrides={"label": pl.String, "id": pl.String}, glob=False)
            Z = frame.select(pl.col("^z[0-9]+$").cast(pl.Float64)).to_numpy()
            labels = np.array(frame["label"].to_list()) if "label" in frame.columns else None
            ids = np.array(frame["id"].fill_null("").to_list(), dtype=object) if "id" in frame.columns else None
            return cls(frame["row"].to_numpy(), Z, labels, np.array(frame["split"].to_list()), ids)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise InputError(
                f"{path} is not the table that `sasgp fit` wrote ({str(error).splitlines()[0]}). Restore it, or name "
                f"the {MODEL} beside it to do without."
            ) from error


@dataclass(frozen=True)
class RunFolder:
    """A model on disk: its file, the folder of its run if there is one, and the contents of run.json."""

    model: Path
    folder: Path | None = None
    info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        shape = self.info.get("data", {}).get("image_shape")
        return None if shape is None else tuple(shape)

    @property
    def columns(self) -> Sequence[str] | None:
        return self.info.get("data", {}).get("columns")

    @property
    def findings(self) -> Sequence[Mapping[str, Any]]:
        """What each column of a table was taken for."""
        return self.info.get("data", {}).get("table") or ()

    @property
    def name(self) -> str:
        """The name of the data, or of the model's file, for titles."""
        return str(self.info.get("data", {}).get("name", self.model.stem))

    @property
    def source(self) -> str | None:
        """The name of the data set, or the absolute path of the file, that the model was trained on."""
        return self.info.get("data", {}).get("source")

    @property
    def labels(self) -> str | None:
        """The --labels of training: a column, or the path of a file."""
        return self.info.get("data", {}).get("labels")

    @property
    def target(self) -> str | None:
        """The --target of training: a column, or the path of a file. None for a model with latents."""
        return self.info.get("data", {}).get("target")

    @property
    def metadata(self) -> Sequence[str]:
        """The --columns of training: columns, or paths of tables."""
        return self.info.get("data", {}).get("metadata") or ()

    @property
    def updates(self) -> Sequence[Mapping[str, Any]]:
        """What `sasgp update` added, in that order: file, rows, date and missed_share of each."""
        updates: Sequence[Mapping[str, Any]] = self.info.get("updates", ())
        return updates

    @property
    def n_added(self) -> int:
        """The number of rows that were added after training."""
        return sum(update["rows"] for update in self.updates)

    def predictions(self) -> Any:
        """The table of the held-out rows of a run with a target, or None if there is none."""
        import polars as pl

        if self.folder is None or not (self.folder / PREDICTIONS).exists():
            return None
        try:
            return pl.read_csv(self.folder / PREDICTIONS, glob=False, infer_schema_length=None)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise InputError(
                f"{self.folder / PREDICTIONS} is not the table that `sasgp fit` wrote "
                f"({str(error).splitlines()[0]}). Restore it."
            ) from error

    def embedding(self) -> Embedding | None:
        if self.folder is None or not (self.folder / EMBEDDING).exists():
            return None
        return Embedding.read(self.folder / EMBEDDING)


def lacks_pictures(path: Path) -> bool:
    """Whether a run is complete but for its pictures, because its process was killed while it drew them."""
    path = real_path(path)
    is_trained = (path / MODEL).is_file() and (path / INFO).is_file() and not (path / unfinished.FOLDER).exists()
    pictures = find(path).info.get("pictures", (LATENT, LOSS, EXPLORER)) if is_trained else ()
    return not all((path / name).exists() for name in pictures)


def _check_info(info: Any) -> None:
    """Raise ValueError if the contents of run.json are not of the types that `RunFolder` expects."""
    if not isinstance(info, dict) or not isinstance(info.get("data", {}), dict):
        raise ValueError("it is no mapping")
    data = info.get("data", {})
    for name, kind in (("image_shape", int), ("columns", str), ("missing", str), ("metadata", str)):
        entries = data.get(name)
        if not (entries is None or (isinstance(entries, list) and all(type(entry) is kind for entry in entries))):
            raise ValueError(f"{name} is no list of {'numbers' if kind is int else 'names'}")
    table = data.get("table") or []
    if not isinstance(table, list) or not all(
        isinstance(one, dict) and all(isinstance(one.get(key), str) for key in ("name", "kind", "why")) for one in table
    ):
        raise ValueError("table is no list of columns")
    for name in ("name", "source", "labels", "target", "target_name"):
        if not isinstance(data.get(name), str | None):
            raise ValueError(f"{name} is no text")
    pictures = info.get("pictures", [])
    if not isinstance(pictures, list) or not all(name in (*FILES, *OF_TARGETS) for name in pictures):
        raise ValueError("pictures is no list of files of a run")
    updates = info.get("updates", [])
    if not isinstance(updates, list) or not all(
        isinstance(update, dict) and isinstance(update.get("file"), str) and type(update.get("rows")) is int
        for update in updates
    ):
        raise ValueError("updates is no list of files and their rows")


def find(path: Path) -> RunFolder:
    """The run in a folder, or a model on its own."""
    path = at_home(path)
    if not path.exists():
        there = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        near = difflib.get_close_matches(path.name, there, 1)
        hint = f"Did you mean {path.parent / near[0]}?" if near else "Name the --out of a finished `sasgp fit`."
        raise InputError(f"RUN must be the folder of a run, or a .safetensors file. There is no {path}. {hint}")
    if not path.is_dir():
        return RunFolder(path)  # if something is wrong with the file, reading it will say so
    unfinished.complete(real_path(path))
    if not (path / MODEL).is_file():
        unfinished.check_finished(path)
        raise InputError(
            f"RUN must be the folder of a run, or a .safetensors file. The folder {path} has no {MODEL}. Name the "
            "folder that was the --out of `sasgp fit`."
        )
    try:
        info = json.loads((path / INFO).read_text(encoding="utf-8"))
        _check_info(info)
    except FileNotFoundError:
        info = {}
    except ValueError as error:
        raise InputError(
            f"{path / INFO} is not the JSON that `sasgp fit` wrote ({error}). Restore it, or delete it to do without."
        ) from error
    return RunFolder(path / MODEL, path, info)
