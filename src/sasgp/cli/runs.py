"""A run: the folder that `sasgp fit --out RUN` leaves, whole or not at all.

| file | holds |
|---|---|
| model.safetensors | the trained model, with the training rows that it is conditioned on |
| embedding.csv | a line for every row of the data: row, z0, z1, …, label (where there are labels), split |
| history.jsonl | a line for every epoch |
| run.json | where the data came from, image shape, column names, command, versions, test metrics |
| latent.png, loss.png | pictures of the latent space and of training |
| explorer.html | the latent space to look around in, in a browser |
"""

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasgp.cli.files import real_path, writable
from sasgp.cli.unfinished import check_finished, check_no_other
from sasgp.errors import InputError

__all__ = ["Embedding", "Run", "check_new", "created", "find"]

MODEL, EMBEDDING, HISTORY, INFO = "model.safetensors", "embedding.csv", "history.jsonl", "run.json"
LATENT, LOSS, EXPLORER = "latent.png", "loss.png", "explorer.html"
INDEX = "model.neighbours.safetensors"  # that `build_index` and `save` leave
FILES = (MODEL, EMBEDDING, HISTORY, INFO, LATENT, LOSS, EXPLORER)

TRAIN, TEST = "train", "test"

Array = NDArray[Any]


# ---------------------------------------------------------------------------------------------------- writing


def check_new(path: Path, *, overwrite: bool) -> None:
    """Raise InputError where a run cannot be written. Nothing is left behind."""
    path = real_path(path)
    if path.exists() and not path.is_dir():
        raise InputError(f"--out must be a folder for the run. Got the file {path}; name another.")
    if path.is_dir() and not overwrite:
        check_no_other(path, overwrite=overwrite)
        if any((path / name).exists() for name in FILES):
            raise InputError(f"{path} already holds a run; add --overwrite to replace it, or choose another --out.")
        if any(not file.name.startswith(".") for file in path.iterdir()):
            raise InputError(
                f"{path} holds files that are no run; choose an empty or new folder for --out, or add --overwrite to "
                "write beside them."
            )
    with created(path):
        pass


@contextmanager
def created(path: Path) -> Iterator[tuple[Path, Path]]:
    """A temporary folder to write a run into, and the place where it appears at the end, when all went well.

    Of a folder that is there already, only the files of a run are replaced. A folder into which nothing was written
    leaves no trace.
    """
    path = real_path(path)
    missing = [folder for folder in path.parents if not folder.exists()]
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    done = False
    try:
        with writable(path):
            temporary.mkdir(parents=True)
            if path.is_dir() and not os.access(path, os.W_OK | os.X_OK):
                raise PermissionError(None, "the folder is write-protected")
        yield temporary, path
        with writable(path):
            if any(temporary.iterdir()):
                _move(temporary, path)
                done = True
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        for folder in missing if not done else ():
            with suppress(OSError):  # somebody else may use it by now
                folder.rmdir()


def _move(temporary: Path, path: Path) -> None:
    if not path.exists():
        temporary.rename(path)
        return
    for name in (*FILES, INDEX):  # pictures and the index of an older run go as well
        (path / name).unlink(missing_ok=True)
    for file in temporary.iterdir():
        file.replace(path / file.name)


# ---------------------------------------------------------------------------------------------------- reading


@dataclass(frozen=True)
class Embedding:
    """The latents of rows: which row of which split each is, and its label where there are labels."""

    rows: Array
    Z: Array
    labels: Array | None
    split: Array | None = None

    def as_train(self, test: "Embedding | None" = None, *, by_row: bool = False) -> "Embedding":
        """These as the training rows, followed by those of the test split, or all of them in the order of `rows`."""
        if test is None:
            return replace(self, split=np.full(len(self.rows), TRAIN))
        rows, Z = np.concatenate([self.rows, test.rows]), np.concatenate([self.Z, test.Z])
        labels = None if self.labels is None or test.labels is None else np.concatenate([self.labels, test.labels])
        split = np.repeat([TRAIN, TEST], [len(self.rows), len(test.rows)])
        order = np.argsort(rows, kind="stable") if by_row else np.arange(len(rows))
        return Embedding(rows[order], Z[order], None if labels is None else labels[order], split[order])

    def only(self, split: str) -> "Embedding":
        chosen = np.flatnonzero(self.split == split)
        return Embedding(self.rows[chosen], self.Z[chosen], None if self.labels is None else self.labels[chosen])

    def write(self, path: Path) -> None:
        import polars as pl

        columns: dict[str, Any] = {"row": self.rows} | {f"z{q}": self.Z[:, q] for q in range(self.Z.shape[1])}
        if self.labels is not None:
            columns["label"] = self.labels
        if self.split is not None:
            columns["split"] = self.split
        pl.DataFrame(columns).write_csv(path)

    @classmethod
    def read(cls, path: Path) -> "Embedding":
        """Labels come back as text."""
        import polars as pl

        try:
            frame = pl.read_csv(path, schema_overrides={"label": pl.String})
            Z = frame.select(pl.col("^z[0-9]+$").cast(pl.Float64)).to_numpy()
            labels = np.array(frame["label"].to_list()) if "label" in frame.columns else None
            return cls(frame["row"].to_numpy(), Z, labels, np.array(frame["split"].to_list()))
        except (pl.exceptions.PolarsError, OSError) as error:
            raise InputError(
                f"{path} must be an embedding.csv as `sasgp fit` writes it ({str(error).splitlines()[0]}); restore it, "
                f"or name the {MODEL} beside it to do without."
            ) from error


@dataclass(frozen=True)
class Run:
    """A model on disk: its file, the run's folder if it is in one, and what run.json says."""

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
    def name(self) -> str:
        """What to call it: the name of the data, or of the file."""
        return str(self.info.get("data", {}).get("name", self.model.stem))

    @property
    def source(self) -> str | None:
        """The name of the data set, or the absolute path of the file, that the model was trained on."""
        return self.info.get("data", {}).get("source")

    @property
    def labels(self) -> str | None:
        """What --labels was when the model was trained: a column, or the path of a file."""
        return self.info.get("data", {}).get("labels")

    def embedding(self) -> Embedding | None:
        if self.folder is None or not (self.folder / EMBEDDING).exists():
            return None
        return Embedding.read(self.folder / EMBEDDING)


def find(path: Path) -> Run:
    """The run in a folder, or a model by itself."""
    path = path.expanduser()
    if not path.is_dir():
        return Run(path)  # whatever is wrong with it, reading it tells
    if not (path / MODEL).is_file():
        check_finished(path)
        raise InputError(
            f"MODEL must be the folder of a run, or a .safetensors file. Got {path}, a folder without {MODEL}; "
            "name the folder that was the --out of `sasgp fit`."
        )
    try:
        info = json.loads((path / INFO).read_text(encoding="utf-8"))
        if not isinstance(info, dict) or not isinstance(info.get("data", {}), dict):
            raise ValueError("no mapping")
    except FileNotFoundError:
        info = {}
    except ValueError as error:
        raise InputError(
            f"{path / INFO} must be JSON as `sasgp fit` writes it ({error}); restore it, or delete it to do without."
        ) from error
    return Run(path / MODEL, path, info)
