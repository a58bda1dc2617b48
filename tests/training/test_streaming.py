"""Data larger than memory: what is read from disk gives what is in memory, and memory does not grow with it."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from sasgp import SASGP
from sasgp.data import rows
from sasgp.data.disk import Chunks, FileReader, file_reader
from sasgp.data.rows import ArrayRows
from sasgp.errors import InputError
from sasgp.estimators.validation import check_rows
from sasgp.training import fit_encoder
from sasgp.training.loop import batches, generator

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def X():
    draw = np.random.default_rng(0)
    t = draw.uniform(-2, 2, 500)
    curve = np.stack([np.sin(t), np.cos(t), t, t**2, np.abs(t)], 1)
    return (curve + 0.05 * draw.standard_normal(curve.shape)).astype(np.float32)


@pytest.fixture
def on_disk(X, tmp_path, monkeypatch):
    """The same rows in a file that counts as large: chunks of 7 rows, pools of 5 chunks."""
    np.save(tmp_path / "x.npy", X)
    monkeypatch.setattr(rows, "CHUNK_BYTES", 7 * X[0].nbytes)
    monkeypatch.setattr(rows, "POOL_BYTES", 5 * 7 * X[0].nbytes)
    return np.load(tmp_path / "x.npy", mmap_mode="r")


@pytest.fixture(scope="module")
def model(X):
    return SASGP(max_epochs=3, random_state=0).fit(X)


# ---------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("view", ["whole", "slice", "three axes", "offset"])
def test_a_reader_reads_what_the_map_shows(X, tmp_path, view):
    if view == "three axes":
        np.save(tmp_path / "x.npy", X.reshape(250, 2, 5))
        array = np.load(tmp_path / "x.npy", mmap_mode="r").reshape(250, 10)
    elif view == "offset":
        (tmp_path / "x.raw").write_bytes(b"\0" * 12 + X.tobytes())
        array = np.memmap(tmp_path / "x.raw", np.float32, "r", offset=12, shape=X.shape)
    else:
        np.save(tmp_path / "x.npy", X)
        array = np.load(tmp_path / "x.npy", mmap_mode="r")
        array = array[37:400] if view == "slice" else array
    reader = FileReader(array)
    np.testing.assert_array_equal(reader.slice(5, 11), array[5:11])
    np.testing.assert_array_equal(reader.slice(len(array) - 2, len(array) + 9), array[-2:])
    some = np.array([3, 240, 3, 0])
    np.testing.assert_array_equal(reader.take(some), array[some])


def test_maps_whose_rows_lie_otherwise_are_read_through_the_map(X, tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "POOL_BYTES", 1)
    np.save(tmp_path / "x.npy", np.asfortranarray(X))
    for array in (np.load(tmp_path / "x.npy", mmap_mode="r"), np.load(tmp_path / "x.npy", mmap_mode="r")[::2, 1:]):
        data = ArrayRows(array, torch.float32, CPU)
        assert data.reader is None
        some = torch.tensor([4, 100, 7])
        np.testing.assert_array_equal(data.gather(some), array[some.numpy()])
        assert sorted(torch.cat(list(data.segments(generator(0)))).tolist()) == list(range(len(array)))


@pytest.mark.parametrize("picked", [False, True])
def test_chunks_come_in_pools_every_row_once(on_disk, X, picked):
    indices = torch.arange(500)[torch.arange(500) % 10 != 0] if picked else None
    data = ArrayRows(on_disk, torch.float32, CPU, indices)
    chunks = data._chunks()
    assert (chunks.rows_each, chunks.per_pool, len(chunks.buffer)) == (7, 5, 10)
    segments = list(data.segments(generator(1)))
    order = torch.cat(segments)
    assert sorted(order.tolist()) == list(range(len(data)))
    assert all(len({row // 7 for row in segment.tolist()}) <= 5 for segment in segments)
    assert not torch.equal(order, torch.cat(list(data.segments(generator(2)))))
    assert torch.equal(order, torch.cat(list(data.segments(generator(1)))))
    # What the stream yields are those rows, across the borders of pools and at the filled end
    plan = list(batches(len(data), 16, 3, 0, segments=data.segments))
    expected = X if indices is None else X[indices.numpy()]
    for (got, values), wanted in zip(data.stream(iter(plan)), plan, strict=True):
        assert torch.equal(got, wanted)
        np.testing.assert_array_equal(values, expected[wanted.numpy()])


def test_every_row_is_equally_likely_at_every_place(on_disk):
    # 5000 epochs of 40 rows in chunks of 7, the last of which is shorter: the first batch of 4 holds each row with
    # probability 4/40; counts of 500, standard deviation √(5000·.1·.9) = 21, five of those
    chunks = Chunks(FileReader(on_disk[:40]), None, rows.CHUNK_BYTES, rows.POOL_BYTES)
    counts = torch.zeros(40)
    for epoch in range(5000):
        counts[next(batches(40, 4, 0, epoch, segments=chunks.segments))] += 1
    # The short chunk's pool has fewer rows, which come first or last: places of its rows are not quite uniform
    assert (counts - 500).abs().max() < 5 * 21 + 60


def test_a_pool_is_read_once(on_disk, monkeypatch):
    data = ArrayRows(on_disk, torch.float32, CPU)
    reads = []
    into = FileReader.into
    monkeypatch.setattr(FileReader, "into", lambda self, out, start: (reads.append(len(out)), into(self, out, start)))
    for _ in data.stream(batches(500, 10, 0, 0, segments=data.segments)):
        pass
    assert sum(reads) == 500
    assert len(reads) == 72  # ⌈500/7⌉ chunks, not 500 rows


def test_an_error_in_the_reading_thread_reaches_the_caller(on_disk, monkeypatch):
    data = ArrayRows(on_disk, torch.float32, CPU)

    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(FileReader, "into", fail)
    with pytest.raises(OSError, match="Input/output"):
        list(data.stream(batches(500, 10, 0, 0, segments=data.segments)))


def test_leaving_early_ends_the_thread(on_disk):
    import threading

    stream = ArrayRows(on_disk, torch.float32, CPU).stream(batches(500, 10, 0, 0))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert "sasgp reader" not in {thread.name for thread in threading.enumerate()}


# ---------------------------------------------------------------------------------------------------- same results


def test_blocks_of_a_part_are_its_rows(X, on_disk):
    dataset = TensorDataset(torch.from_numpy(X))
    for array in (X, on_disk, rows.DatasetArray(dataset)):
        everything = ArrayRows(array, torch.float32, CPU)
        for chosen, expected in ((everything, X), (everything.subset(torch.arange(0, 500, 2)), X[::2])):
            for part in (slice(None), slice(30, 101), slice(230, 250), slice(40, 40)):
                found = list(chosen.blocks(20, part))
                assert all(len(block) == 20 for block in found[:-1])
                np.testing.assert_array_equal(np.concatenate([np.empty((0, 5)), *found]), expected[part])


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64, np.int32, np.uint16, ">f4"])
def test_small_types_are_converted_by_batch(X, tmp_path, dtype, monkeypatch):
    values = (50 * (X + 3)).astype(dtype)
    np.save(tmp_path / "x.npy", values)
    some = torch.tensor([3, 1, 499])
    for pool in (1, 1 << 26):
        monkeypatch.setattr(rows, "POOL_BYTES", pool)
        for array in (values, np.load(tmp_path / "x.npy", mmap_mode="r")):
            got = ArrayRows(array, torch.float32, CPU).gather(some)
            assert got.dtype == torch.float32
            np.testing.assert_array_equal(got, values[some.numpy()].astype(np.float32))
    if np.dtype(dtype).itemsize < 4 and dtype != np.uint16:
        assert ArrayRows(values, torch.float32, CPU).tensor.dtype.itemsize < 4  # a quarter of the memory, or half


def test_streamed_results_are_those_in_memory(model, X, on_disk, tmp_path):
    np.testing.assert_array_equal(model.transform(on_disk), model.transform(X))
    np.testing.assert_array_equal(model.score_samples(on_disk), model.score_samples(X))
    np.testing.assert_array_equal(model.reconstruct(on_disk), model.reconstruct(X))
    Z = model.transform(X)
    for name, call in {
        "z": lambda out: model.transform(on_disk, out=out),
        "s": lambda out: model.score_samples(on_disk, out=out),
        "x": lambda out: model.predict(Z, out=out),
    }.items():
        expected = call(None)
        result = call(tmp_path / f"{name}.npy")
        assert isinstance(result, np.memmap)
        np.testing.assert_array_equal(np.load(tmp_path / f"{name}.npy"), expected)
        own = np.empty(expected.shape)
        assert call(own) is own
        np.testing.assert_array_equal(own, expected)
    mean, std = model.predict(Z, return_std=True, out=(tmp_path / "m.npy", tmp_path / "d.npy"))
    for got, expected in zip((mean, std), model.predict(Z, return_std=True), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_result_file_is_whole_or_not_there(model, X, tmp_path, monkeypatch):
    monkeypatch.setattr("sasgp.estimators.inference.ENCODE_ROWS", 100)
    bad = X.copy()
    with monkeypatch.context() as patch:
        patch.setattr(ArrayRows, "gather", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.transform(bad, out=tmp_path / "z.npy")
    assert not list(tmp_path.iterdir())
    for out in (tmp_path / "z.csv", tmp_path / "no" / "z.npy", np.empty((3, 2)), np.empty((500, 2), int)):
        with pytest.raises(InputError, match="out must be"):
            model.transform(X, out=out)


def test_training_from_disk_is_as_good_as_from_memory(X, on_disk, monkeypatch):
    monkeypatch.setattr(fit_encoder, "FIT_STEPS", 50)
    settings = {"max_epochs": 20, "batch_size": 64, "active_set_size": 20, "random_state": 0}
    from_disk, again, in_memory = (SASGP(**settings).fit(rows) for rows in (on_disk, on_disk, X))
    np.testing.assert_array_equal(from_disk.embedding_, again.embedding_)
    # Other batches, the same objective: .001 nats per value apart, where two seeds are .05 apart
    losses = [fitted.history_[-1]["loss"] for fitted in (from_disk, in_memory)]
    assert abs(losses[0] - losses[1]) < 0.02


def test_early_stopping_reads_its_rows_from_disk(on_disk, X, monkeypatch):
    # With a learning rate of nothing both models stay as they start, and the loss is that of the same held-out rows
    monkeypatch.setattr(fit_encoder, "FIT_STEPS", 0)
    still = {"learning_rate": 1e-12, "hyper_learning_rate": 1e-12}
    settings = {"max_epochs": 1, "batch_size": 64, "active_set_size": 20, "random_state": 0, "early_stopping": 5}
    a, b = (SASGP(**settings, **still).fit(rows) for rows in (on_disk, X))
    assert a.history_[0]["held_out_loss"] == pytest.approx(b.history_[0]["held_out_loss"], rel=1e-5)
    np.testing.assert_allclose(a.embedding_, b.embedding_, atol=1e-5)  # of all rows, also of those held out


def test_a_torch_dataset_is_an_array_of_its_items(model, X, monkeypatch):
    monkeypatch.setattr(fit_encoder, "FIT_STEPS", 20)

    class Pictures(Dataset):
        def __len__(self):
            return 500

        def __getitem__(self, i):
            return torch.as_tensor(X[i]).reshape(5, 1)

    pairs = TensorDataset(torch.as_tensor(X), torch.zeros(500))
    for dataset in (pairs, Pictures()):
        np.testing.assert_array_equal(model.transform(dataset), model.transform(X))
        np.testing.assert_array_equal(model.score_samples(dataset), model.score_samples(X))
    fits = [SASGP(max_epochs=2, random_state=0).fit_transform(data) for data in (X, pairs, Pictures())]
    np.testing.assert_allclose(fits[1], fits[0], atol=1e-5)
    np.testing.assert_array_equal(fits[1], fits[2])


def test_datasets_that_cannot_be_used_are_named(model, X):
    class Endless(IterableDataset):
        def __iter__(self):
            return iter(())

    with pytest.raises(InputError, match="map-style"):
        model.transform(Endless())
    with pytest.raises(InputError, match="expecting 5"):
        model.transform(TensorDataset(torch.zeros(3, 4)))
    bad = torch.as_tensor(X).clone()
    bad[7, 3] = torch.inf
    with pytest.raises(InputError, match=r"row 7, column 3"):
        check_rows(model, TensorDataset(bad), reset=False)


# ---------------------------------------------------------------------------------------------------- memory

MEASURE = """
import sys, numpy as np, torch
from pathlib import Path
from sasgp import SASGP
from sasgp.data import rows
torch.set_num_threads(1)
rows.POOL_BYTES = 1 << 22
X = np.load(sys.argv[1], mmap_mode="r")
torch.manual_seed(0)
settings = {"encoder": torch.nn.Linear(128, 2), "latents": "point", "max_epochs": 1, "random_state": 0}
model = SASGP(**settings, batch_size=4096, active_set_size=16, support_size=64).fit(X)
model.transform(X, out=sys.argv[1] + ".z.npy")
model.score_samples(X[:10_000], out=sys.argv[1] + ".s.npy")
print(next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line).split()[1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_resident_memory_does_not_grow_with_the_rows(tmp_path):
    # From 50 000 to 400 000 rows the file grows by 45 MB, and by 180 MB as float32. What may grow by eight bytes a row
    # each, 8 MB in all: the embedding, a permutation to draw the support from, and its sorted copy
    peaks = {}
    for n in (50_000, 400_000):
        path = tmp_path / f"{n}.npy"
        block = np.random.default_rng(0).integers(0, 255, (n // 10, 128), dtype=np.uint8)
        np.save(path, np.concatenate([block] * 10))
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, str(path)],
            capture_output=True, text=True, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        peaks[n] = int(done.stdout.split()[-1]) / 1024
        path.unlink()
    assert peaks[400_000] - peaks[50_000] < 25, peaks


def test_a_subset_has_a_cache_of_its_own(on_disk, X):
    # The cache of all rows knows 500 rows by their places; row 3 of the subset is another one
    whole = ArrayRows(on_disk, torch.float32, CPU)
    list(whole.stream(whole.segments(torch.Generator())))
    chosen = torch.arange(499, -1, -5)
    some = whole.subset(chosen)
    drawn = list(some.stream(some.segments(torch.Generator())))
    assert sorted(int(i) for index, _ in drawn for i in index) == list(range(100))
    for index, batch in drawn:
        assert torch.equal(batch, torch.from_numpy(X)[chosen[index]])


def test_the_cache_drops_the_chunk_that_was_not_used_for_longest(on_disk, X, monkeypatch):
    # Room for 2 chunks of 7 rows: after chunks 0, 1 and 0 again, chunk 2 takes the place of chunk 1
    reader = file_reader(on_disk)
    cache = Chunks(reader, None, 7 * X[0].nbytes, 7 * X[0].nbytes)
    read = []
    monkeypatch.setattr(cache, "_read", lambda chunk, out, usual=cache._read: [read.append(chunk), usual(chunk, out)])
    for row in (0, 7, 1, 14, 2):
        assert np.array_equal(cache.take(np.array([row])), X[[row]])
    assert read == [0, 1, 2]
