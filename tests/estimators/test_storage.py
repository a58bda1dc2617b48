"""A model file is read back exactly, or not at all: every kind of damage is one clear InputError."""

import io
import json
import os
import pickle
import random
import signal
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from sasgp.errors import InputError
from sasgp.estimators import storage
from sasgp.estimators.storage import read, write
from sasgp.gp import kernels
from sasgp.models.build import build

HEADER = {
    "class": "SASGP",
    "settings": {"n_components": 2, "learning_rate": 0.1, "kernel": None, "verbose": False},
    # What the checksum's place could be mistaken for
    "note": 'Ünïcode 🜛 "checksum":"' + "0" * 64 + '"',
    "history": [1, 2.5, [], {}],
}
TENSORS = {
    "encoder.weight": torch.arange(6, dtype=torch.float32).reshape(2, 3) / 7,
    "noise": torch.tensor(0.1, dtype=torch.float64),
    "checksum": torch.tensor([1, -2, 3]),
    "seen": torch.tensor([True, False]),
    "none": torch.zeros(0, 3),
}


def same(got: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    return got.keys() == expected.keys() and all(
        got[name].dtype == value.dtype and torch.equal(got[name], value) for name, value in expected.items()
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def refused(path: Path, match: str = "sasgp wrote|cannot be read") -> None:
    """Reading fails with an InputError that names the file."""
    with pytest.raises(InputError, match=match) as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_round_trip(path: Path) -> None:
    write(path, HEADER, TENSORS)
    header, tensors = read(str(path))
    assert header == HEADER
    assert list(header) == list(HEADER)
    assert same(tensors, TENSORS)
    tensors["noise"] += 1  # ours to change


def test_a_kernel_survives_the_file(path: Path) -> None:
    kernel = kernels.make("rbf-ard", 3)
    kernel.base_kernel.lengthscale = torch.tensor([0.1, 0.2, 0.3])
    write(path, {"kernel": kernels.describe(kernel)}, {})
    Z = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(kernels.rebuild(read(path)[0]["kernel"])(Z).to_dense(), kernel(Z).to_dense())


def test_no_tensors(path: Path) -> None:
    write(path, {}, {})
    assert read(path) == ({}, {})


def test_any_tool_can_look_into_the_file(path: Path) -> None:
    write(path, HEADER, TENSORS)
    assert same(safetensors.torch.load_file(path), TENSORS)
    with safetensors.safe_open(path, "pt") as file:
        metadata = file.metadata()
    assert metadata.keys() == {"format", "version", "header", "checksum"}
    assert (metadata["format"], metadata["version"]) == ("sasgp", "3")
    assert json.loads(metadata["header"]) == HEADER


def test_tensors_that_share_memory_or_are_views(path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4).requires_grad_()
    tensors = {"base": base, "again": base, "transpose": base.T, "row": base[1], "column": base[:, 2], "grad": base * 2}
    expected = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    write(path, {}, tensors)
    _, got = read(path)
    assert same(got, expected)
    got["base"][0, 0] = -1
    assert got["again"][0, 0] == 0


def test_a_second_write_replaces_the_first(path: Path) -> None:
    write(path, HEADER, TENSORS)
    write(path, {"second": True}, {"x": torch.ones(2)})
    header, tensors = read(path)
    assert header == {"second": True}
    assert same(tensors, {"x": torch.ones(2)})
    assert list(path.parent.iterdir()) == [path]


def test_a_link_stays_a_link(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    write(link, HEADER, TENSORS)
    assert link.is_symlink()
    assert read(path)[0] == HEADER


@pytest.mark.skipif(os.name != "posix", reason="file modes")
def test_a_private_file_stays_private(path: Path) -> None:
    path.touch(mode=0o600)
    path.chmod(0o600)
    write(path, HEADER, TENSORS)
    assert path.stat().st_mode & 0o777 == 0o600
    read(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), torch.zeros(1), {1, 2}, object])
def test_header_is_strict_json(path: Path, value: object) -> None:
    write(path, HEADER, TENSORS)
    with pytest.raises(InputError, match="JSON"):
        write(path, {"value": value}, {})
    assert read(path)[0] == HEADER


# --- where a file cannot be written


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"saved to .*/model: there is no folder .*/nowhere. Create it first"):
        write(tmp_path / "nowhere" / "model", {}, {})


def test_target_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a folder\. Name a file in it"):
        write(tmp_path, {}, {})


def test_target_in_a_file(path: Path) -> None:
    path.touch()
    with pytest.raises(InputError, match="no folder"):
        write(path / "model", {}, {})


def test_names_that_no_file_can_have(path: Path) -> None:
    with pytest.raises(InputError, match="File name too long"):
        write(path.with_name("x" * 300), {}, {})
    with pytest.raises(InputError, match="File name too long"):
        read(path.with_name("x" * 300))
    longest = path.with_name("x" * 255)  # the temporary name must not be the longer one
    write(longest, HEADER, {})
    assert read(longest)[0] == HEADER


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_write_protected(path: Path) -> None:
    write(path, HEADER, TENSORS)
    path.chmod(0o444)
    with pytest.raises(InputError, match="write-protected"):
        write(path, {}, {})
    path.parent.chmod(0o555)
    try:
        with pytest.raises(InputError, match="Permission denied"):
            write(path.with_name("other"), {}, {})
    finally:
        path.parent.chmod(0o755)
    assert read(path)[0] == HEADER


@pytest.mark.parametrize(
    ("error", "expected"),
    [(OSError(28, "No space left on device"), InputError), (KeyboardInterrupt(), KeyboardInterrupt)],
)
@pytest.mark.parametrize("function", ["fsync", "rename"])
def test_a_failed_write_leaves_everything_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch, function: str, error: BaseException, expected: type[BaseException]
) -> None:
    write(path, HEADER, TENSORS)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        if function == "fsync":
            patch.setattr(storage.os, "fsync", fail)  # type: ignore[attr-defined]
        else:
            patch.setattr(Path, "replace", fail)
        with pytest.raises(expected):
            write(path, {}, {})
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


# --- what is not a whole model file


def test_missing(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere.safetensors", "does not exist. Name a model file")
    refused(tmp_path / "nowhere" / "model.safetensors", "does not exist")


def test_folder(tmp_path: Path) -> None:
    refused(tmp_path, "is a folder. Name a model file")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_pipe_is_not_waited_for(path: Path) -> None:
    os.mkfifo(path)
    refused(path, "not a regular file")


def test_truncated_at_every_length(path: Path) -> None:
    write(path, HEADER, TENSORS)
    for length in reversed(range(path.stat().st_size)):
        os.truncate(path, length)
        refused(path)


def test_longer_than_it_was(path: Path) -> None:
    write(path, HEADER, TENSORS)
    path.write_bytes(path.read_bytes() + b"\0")
    refused(path, "do not match its checksum")


def test_any_flipped_byte(path: Path) -> None:
    """Every byte of a small file, the length in front and the padding included, changed in several ways."""
    write(path, HEADER, TENSORS)
    content = path.read_bytes()
    with path.open("r+b", buffering=0) as file:
        for place, byte in enumerate(content):
            # one bit; the case of a letter; a space into a tab, which JSON does not tell apart; all bits
            for flip in 1, 0x20, ord(" ") ^ ord("\t"), 0xFF:
                os.pwrite(file.fileno(), bytes([byte ^ flip]), place)
                refused(path, "sasgp wrote|newer sasgp|development version of sasgp")
            os.pwrite(file.fileno(), bytes([byte]), place)
    assert read(path)[0] == HEADER


def test_flipped_bytes_of_a_larger_file(path: Path) -> None:
    write(path, HEADER, {"X": torch.randn(1000, 50, generator=torch.Generator().manual_seed(0))})
    content = bytearray(path.read_bytes())
    for place in random.Random(0).sample(range(len(content)), 200):
        content[place] ^= 0x10
        path.write_bytes(content)
        refused(path, "sasgp wrote|newer sasgp")
        content[place] ^= 0x10
    path.write_bytes(content)
    read(path)


def test_a_giant_length_is_not_allocated(path: Path) -> None:
    for length in 2**27, 2**40, 2**63, 2**64 - 1:
        path.write_bytes(struct.pack("<Q", length) + b"{}" * 100)
        refused(path, "do not fit its size")


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.abort, ())


def _bytes(save: Callable[[io.BytesIO], object]) -> bytes:
    buffer = io.BytesIO()
    save(buffer)
    return buffer.getvalue()


def _safetensors(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _zip(buffer: io.BytesIO) -> None:
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(Bomb()))


OURS = {"format": "sasgp", "version": str(storage.VERSION), "header": "{}", "checksum": "0" * 64}
OTHERS: dict[str, bytes] = {
    "pickle": pickle.dumps(Bomb()),
    "old pickle": pickle.dumps(Bomb(), protocol=0),
    "torch.save": _bytes(lambda f: torch.save(TENSORS, f)),
    "torch.save with code": _bytes(_zip),
    "npy": _bytes(lambda f: np.save(f, np.zeros(5))),
    "png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(100),
    "text": b"hello\n" * 100,
    "empty": b"",
    "zeros": bytes(1000),
    "safetensors of another's": safetensors.torch.save(TENSORS),
    "the same with metadata": safetensors.torch.save(TENSORS, {"format": "pt"}),
    "JSON list": _safetensors([]),
    "JSON number": _safetensors(1),
    "metadata null": _safetensors({"__metadata__": None}),
    "metadata text": _safetensors({"__metadata__": "format"}),
    "metadata nested": _safetensors({"__metadata__": {**OURS, "header": {}}}),
    "deep": _safetensors(b'{"a":' + b"[" * 200_000),
    "long number": _safetensors(b'{"a":' + b"1" * 10_000 + b"}"),
    "NaN": _safetensors(b'{"a":NaN}'),
    "UTF-16": _safetensors(json.dumps({"__metadata__": OURS}).encode("utf-16")),
    "no checksum": _safetensors({"__metadata__": {k: v for k, v in OURS.items() if k != "checksum"}}),
    "wrong checksum": _safetensors({"__metadata__": OURS}),
    "lone surrogate": _safetensors({"__metadata__": {**OURS, "checksum": "\ud800"}}),
    **{
        f"version {version!r}": _safetensors({"__metadata__": {**OURS, "version": version}})
        for version in ("0", "", "-1", "1.0", "one", "１", "9" * 5000, "01")
    },
}


@pytest.mark.parametrize("kind", OTHERS)
def test_files_of_another_kind(path: Path, kind: str) -> None:
    path.write_bytes(OTHERS[kind])
    refused(path, "is not a model file that sasgp wrote")


@pytest.mark.parametrize(
    ("kind", "name"), [("pickle", "a pickle"), ("torch.save", "torch.save"), ("npy", "a NumPy array")]
)
def test_usual_mistakes_are_named(path: Path, kind: str, name: str) -> None:
    path.write_bytes(OTHERS[kind])
    refused(path, f"looks like .*{name}")


def test_newer_format(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = storage.VERSION + 1
    monkeypatch.setattr(storage, "VERSION", newer)
    write(path, HEADER, TENSORS)
    monkeypatch.undo()
    refused(path, rf"was written by a newer sasgp \(format {newer}, this one reads {newer - 1}\). Upgrade sasgp")


@pytest.mark.parametrize("header", ["[]", "NaN", "{", "[" * 200_000, None])
@pytest.mark.parametrize("entry", [None, {"dtype": "F32", "shape": [2**60], "data_offsets": [0, 4]}])
def test_made_with_a_valid_checksum_and_still_wrong(path: Path, header: str | None, entry: object) -> None:
    """A checksum is no protection against intent: what it vouches for is checked all the same."""
    metadata = {key: value for key, value in {**OURS, "header": header or "{}"}.items() if header or key != "header"}
    content = {"__metadata__": metadata} | ({"x": entry} if entry else {})
    text = json.dumps(content, separators=(",", ":")).encode()
    raw = _safetensors(text, bytes(4 if entry else 0))
    digest = storage.hashlib.sha256(raw).hexdigest().encode()  # type: ignore[attr-defined]
    path.write_bytes(raw.replace(b'"checksum":"' + b"0" * 64, b'"checksum":"' + digest))
    refused(path, "is not a model file that sasgp wrote")


# Torch is loaded once; every line that comes in asks for a new writer
WRITERS = """
import os, sys, torch
from sasgp.estimators.storage import write
for _ in sys.stdin:
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        i = 0
        while True:
            # 400 kB, so that a kill often finds a write under way
            write(sys.argv[1], {"i": i}, {"x": torch.full((100_000,), float(i))})
            print(i, flush=True)
            i += 1
    os.wait()
    print("killed", flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kill -9")
def test_killed_while_writing(path: Path) -> None:
    """Ten writers killed at random moments, each after a complete write: the file is always whole."""
    moments = random.Random(0)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(storage.__file__).parents[2])}
    command = [sys.executable, "-c", WRITERS, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as writers:
        assert writers.stdin is not None
        assert writers.stdout is not None
        for kill in range(10):
            writers.stdin.write("next\n")
            writers.stdin.flush()
            writer = int(writers.stdout.readline())
            assert writers.stdout.readline() == "0\n"
            time.sleep(moments.uniform(0, 0.05))
            os.kill(writer, signal.SIGKILL)
            last = 0
            for line in iter(writers.stdout.readline, "killed\n"):
                last = int(line)
            header, tensors = read(path)
            assert header["i"] in (last, last + 1)  # the rename may have been done and not yet told
            assert torch.equal(tensors["x"], torch.full((100_000,), float(header["i"])))
            # A killed writer leaves one temporary file at the most
            assert len(list(path.parent.iterdir())) <= 1 + (kill + 1)
    write(path, HEADER, TENSORS)
    assert read(path)[0] == HEADER


# --- models with a right checksum and wrong parts


@pytest.fixture(scope="module", params=["SASGP", "BayesianGPLVM", "VAE"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[type[Any], Path]:
    import sasgp

    cls: type[Any] = getattr(sasgp, request.param)
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    cls(max_epochs=1, random_state=0).fit(np.random.default_rng(0).normal(size=(40, 3))).save(path)
    cls.load(path)
    return cls, path


WRONG: list[Any] = [None, "x", -1, [1, "x"]]  # tests/fuzz has more


def test_wrong_parts_of_the_header_are_one_sentence(model: tuple[type[Any], Path], path: Path) -> None:
    cls, source = model
    header, tensors = read(source)

    def check(changed: dict[str, Any]) -> None:
        write(path, changed, tensors)
        with suppress(InputError):  # a setting that loading does not use may be anything
            cls.load(path)

    for key in ("settings", "fitted", "feature_names", "class"):
        check({name: value for name, value in header.items() if name != key})
        for wrong in WRONG:
            check(header | {key: wrong})
    for part in ("settings", "fitted"):
        for key in header[part]:
            check(header | {part: {name: value for name, value in header[part].items() if name != key}})
            for wrong in WRONG:
                check(header | {part: header[part] | {key: wrong}})


def test_wrong_tensors_are_one_sentence(model: tuple[type[Any], Path], path: Path) -> None:
    cls, source = model
    header, tensors = read(source)
    for name, tensor in tensors.items():
        if name.endswith("_bound"):  # GPyTorch takes its own if a file has none
            continue
        rest = {key: value for key, value in tensors.items() if key != name}
        for others in (rest, rest | {name: torch.zeros(2, 2, 2)}):
            write(path, header, others)
            with pytest.raises(InputError, match="model"):
                cls.load(path)
        for wrong in (torch.zeros(0), tensor[None], tensor[..., None]):  # torch takes one value for a scalar
            write(path, header, rest | {name: wrong})
            with suppress(InputError):
                cls.load(path)


def test_a_small_file_makes_no_large_model(
    model: tuple[type[Any], Path], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls, source = model
    header, tensors = read(source)
    made: list[str] = []

    def watched(settings: Any, *sizes: int) -> Any:
        made.append(settings.device.type)
        return build(settings, *sizes)

    monkeypatch.setattr("sasgp.estimators.persistence.build", watched)
    write(path, header | {"fitted": header["fitted"] | {"n_features_in_": 10**8}}, tensors)
    with pytest.raises(InputError, match="does not fit its settings"):
        cls.load(path)
    assert made == ["meta"]
