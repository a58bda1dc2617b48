"""What `fit` takes besides tables of numbers: sparse matrices, and images with their shape."""

import re

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from sasgp import GPLVM, SASGP, VAE, BayesianGPLVM, InputError, SASGPImputer, SASGPRegressor
from sasgp.data import rows
from sasgp.data.rows import ArrayRows, check_values, moments, unmasked
from sasgp.data.sparse import SparseArray
from sasgp.training.fingerprint import fingerprint, sample_fingerprint

KINDS = [getattr(scipy.sparse, f"{kind}_{form}") for kind in ("csr", "csc", "coo") for form in ("matrix", "array")]


@pytest.fixture(scope="module")
def X():
    """Eighty rows of twelve features, two thirds of them zero."""
    draw = np.random.default_rng(0)
    curve = np.sin(draw.uniform(-2, 2, (80, 1)) + np.arange(12) / 3)
    return np.where(draw.random(curve.shape) < 2 / 3, 0, curve + 0.1 * draw.standard_normal(curve.shape))


@pytest.fixture(params=["dense at once", "dense by batch"])
def pools(request, monkeypatch):
    """Small matrices become dense at once, and those above a pool batch by batch. Both must give the same bits."""
    if request.param == "dense by batch":
        monkeypatch.setattr(rows, "POOL_BYTES", 1)


# ---------------------------------------------------------------------------------------------------- sparse


@pytest.mark.parametrize("kind", [scipy.sparse.csr_array, scipy.sparse.coo_matrix], ids=lambda kind: kind.__name__)
def test_a_sparse_matrix_is_the_dense_array(X, kind, pools):
    settings = {"max_epochs": 3, "batch_size": 30, "active_set_size": 10, "random_state": 0}
    sparse, dense = SASGP(**settings).fit(kind(X)), SASGP(**settings).fit(X)
    np.testing.assert_array_equal(sparse.embedding_, dense.embedding_)
    for other in KINDS:
        np.testing.assert_array_equal(sparse.transform(other(X)), dense.transform(X))
    for ask in (
        lambda model, X: model.transform(X, refine=2),
        lambda model, X: model.reconstruct(X),
        lambda model, X: model.score_samples(X),
        lambda model, X: model.evidence(X).mean,
        lambda model, X: model.predict(model.embedding_[:5], neighbours=7, data=X),
        lambda model, X: model.update(X).embedding_,
    ):
        np.testing.assert_array_equal(ask(sparse, kind(X)), ask(dense, X))
    # Data parts are known by their values, however they are stored
    assert sparse._data_parts == dense._data_parts


@pytest.mark.parametrize("cls", [GPLVM, BayesianGPLVM, VAE])
def test_every_class_takes_sparse_rows(X, cls, pools):
    sparse, dense = (cls(max_epochs=2, random_state=0).fit(rows) for rows in (scipy.sparse.csr_array(X), X))
    np.testing.assert_array_equal(sparse.embedding_, dense.embedding_)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "uint16", "int64", "float32", "float64", "longdouble"])
def test_sparse_numbers_of_every_type(X, dtype, pools):
    X = (4 * X).astype("int16").clip(0).astype(dtype)
    array = SparseArray(scipy.sparse.csr_array(X))
    for precision in (torch.float32, torch.float64):
        sparse, dense = (ArrayRows(each, precision, torch.device("cpu")) for each in (array, np.asarray(X, "float64")))
        some = torch.tensor([5, 2, 2, 79])
        assert sparse.gather(some).dtype == precision
        torch.testing.assert_close(sparse.gather(some), dense.gather(some), rtol=0, atol=0)
        torch.testing.assert_close(torch.cat([*sparse.blocks(7)]), dense.gather(torch.arange(80)), rtol=0, atol=0)
        torch.testing.assert_close(torch.cat([*sparse.subset(some).blocks(3)]), dense.gather(some), rtol=0, atol=0)
        plan = [torch.tensor([3, 1]), torch.tensor([4])]
        for index, batch in sparse.stream(plan):
            torch.testing.assert_close(batch, dense.gather(index), rtol=0, atol=0)


def test_what_is_asked_of_all_rows(X):
    array = SparseArray(scipy.sparse.csr_array(X))
    for ours, theirs in zip(moments(array), (X.mean(0), X.var(0), np.ptp(X, 0)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert sample_fingerprint(array, "float32") == sample_fingerprint(X, "float32")
    assert fingerprint(array, {}) == fingerprint(X, {})
    assert array[3, 2] == X[3, 2]
    np.testing.assert_array_equal(array[4], X[4])
    X = X.copy()
    X[7, 3] = np.nan
    assert check_values(SparseArray(scipy.sparse.csc_array(X))) == 1
    X[7, 3] = np.inf
    with pytest.raises(InputError, match=re.escape("in row 7, column 3")):
        check_values(SparseArray(scipy.sparse.csc_array(X)))
    X[7, 3] = 1e30
    assert SASGP(max_epochs=1, random_state=0).fit(scipy.sparse.csr_array(X)).dtype_ == "float64"
    X[7, 3] = 1e200
    with pytest.raises(InputError, match="1e\\+200, whose square does not fit into float64"):
        SASGP().fit(scipy.sparse.csr_array(X))


def test_a_duplicate_entry_counts_twice():
    matrix = scipy.sparse.coo_matrix(([1.0, 2.0, 5.0], ([0, 0, 1], [1, 1, 0])), shape=(3, 2))
    np.testing.assert_array_equal(SparseArray(matrix)[0:3], [[0, 3], [5, 0], [0, 0]])


def test_a_large_matrix_never_becomes_dense(monkeypatch):
    """20 000 × 5000 values would take 400 MB in float32. No block is larger than a batch or VALUES_AT_ONCE."""
    matrix = scipy.sparse.random_array((20_000, 5000), density=0.002, format="csr", dtype="float32", rng=0)
    largest = 0

    def watched(array, rows):
        nonlocal largest
        block = dense(array, rows)
        largest = max(largest, block.size)
        return block

    dense = SparseArray.__getitem__
    monkeypatch.setattr(SparseArray, "__getitem__", watched)
    data = ArrayRows(SparseArray(matrix), torch.float32, torch.device("cpu"))
    moments(data.array)
    check_values(data.array)
    total = sum(float(block.sum(dtype=torch.float64)) for block in data.blocks(500))
    assert total == pytest.approx(matrix.sum(dtype="float64"), rel=1e-9)
    assert 0 < largest <= 4_000_000


def test_one_hot_columns_in_a_pipeline():
    draw = np.random.default_rng(0)
    X = draw.choice(["a", "b", "c"], (60, 4))
    pipeline = make_pipeline(OneHotEncoder(), SASGP(max_epochs=2, random_state=0)).fit(X)
    hot = OneHotEncoder(sparse_output=False).fit_transform(X)
    np.testing.assert_array_equal(pipeline.transform(X), SASGP(max_epochs=2, random_state=0).fit(hot).transform(hot))


def test_a_checkpoint_of_sparse_rows_goes_on(X, tmp_path):
    settings = {"max_epochs": 4, "batch_size": 30, "active_set_size": 10, "random_state": 0}
    matrix, file = scipy.sparse.csr_array(X), tmp_path / "checkpoint.pt"

    def stop(model, record):
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SASGP(**settings).fit(matrix, checkpoint=file, callback=stop)
    # The rows are the same, however they are stored
    resumed = SASGP(**settings).fit(X, resume=file)
    np.testing.assert_array_equal(resumed.embedding_, SASGP(**settings).fit(matrix).embedding_)


def test_the_explorer_shows_sparse_rows(X):
    model = SASGP(max_epochs=2, random_state=0).fit(X)
    sparse, dense = (model.explorer(rows).content for rows in (scipy.sparse.csr_array(X), X))
    assert sparse["observed"] == dense["observed"]


# ---------------------------------------------------------------------------------------------------- images


@pytest.mark.parametrize(
    ("shape", "size"), [((6, 8), (6, 8)), ((3, 2, 8), (2, 8)), ((2, 8, 3), (2, 8)), ((1, 6, 8), (6, 8))]
)
@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_images_keep_their_shape(shape, size, kind):
    flat = np.random.default_rng(0).random((50, 48))
    images = kind(flat.reshape(50, *shape))
    model, other = (SASGP(max_epochs=2, random_state=0).fit(X) for X in (images, flat))
    assert (model.image_shape_, other.image_shape_) == (shape, None)
    assert model.n_features_in_ == 48
    for ask in ("transform", "reconstruct", "score_samples"):
        np.testing.assert_array_equal(getattr(model, ask)(images), getattr(other, ask)(flat))
    # Decoded rows are flat, as documented
    assert model.predict(model.embedding_[:2]).shape == model.sample(2).shape == (2, 48)
    np.testing.assert_array_equal(model.transform(flat), model.transform(images))
    page = model.explorer().content["image"]
    assert (page["height"], page["width"]) == size


def test_the_shape_is_in_the_file_and_other_shapes_are_refused(tmp_path):
    images = np.random.default_rng(0).random((50, 3, 4, 4))
    fitted = SASGP(max_epochs=1, random_state=0).fit(images)
    fitted.save(tmp_path / "m.safetensors")
    model = SASGP.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(model.transform(images), fitted.transform(images))
    with pytest.raises(InputError, match=re.escape("shape (4, 4, 3), but the model's images have shape (3, 4, 4)")):
        model.transform(np.moveaxis(images, 1, -1))
    with pytest.raises(InputError, match=re.escape("image_shape=(4, 4, 3) is not the shape of the images in X")):
        SASGP(image_shape=(4, 4, 3)).fit(images)


def test_convolutions_take_the_shape_of_the_array():
    images = np.random.default_rng(0).standard_normal((40, 8, 12))  # neither square nor from 0 to 1: no guess
    model = SASGP(encoder="conv", max_epochs=1, random_state=0).fit(images)
    assert model.image_shape_ == (8, 12)
    with pytest.raises(InputError, match="needs rows that are images"):
        SASGP(encoder="conv").fit(images.reshape(40, -1))


def test_other_axes_are_flattened():
    X = np.random.default_rng(0).random((30, 2, 3, 5))  # two channels are no image that can be shown
    model = SASGP(max_epochs=1, random_state=0).fit(X)
    assert (model.image_shape_, model.n_features_in_) == (None, 30)
    flat = X.reshape(30, 30)
    np.testing.assert_array_equal(model.embedding_, SASGP(max_epochs=1, random_state=0).fit(flat).embedding_)
    np.testing.assert_array_equal(model.transform(X), model.transform(flat))


def test_a_memory_map_of_images_stays_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "POOL_BYTES", 1)
    images = np.random.default_rng(0).random((60, 4, 5)).astype("float32")
    np.save(tmp_path / "x.npy", images)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    model = SASGP(max_epochs=1, random_state=0).fit(mapped)
    assert model._rows(mapped).reader is not None
    np.testing.assert_allclose(model.transform(mapped), model.transform(images), rtol=1e-6)


def test_what_is_masked_is_missing(X):
    """The numbers under a mask, often -999, were taken for data."""
    hidden = np.zeros(X.shape, bool)
    hidden[::5, 1] = True
    masked, missing = np.ma.masked_array(np.where(hidden, -999, X), hidden), np.where(hidden, np.nan, X)
    model, same = (SASGP(max_epochs=1, random_state=0).fit(rows) for rows in (masked, missing))
    np.testing.assert_array_equal(model.embedding_, same.embedding_)
    np.testing.assert_array_equal(model.impute(masked), same.impute(missing))
    imputer, other = (SASGPImputer(random_state=0).fit(rows) for rows in (masked, missing))
    np.testing.assert_array_equal(imputer.transform(masked), other.transform(missing))
    whole = np.ma.masked_array([1, 2])
    assert unmasked(whole).dtype == whole.dtype
    assert type(unmasked(whole)) is np.ndarray
    np.testing.assert_array_equal(unmasked(np.ma.masked_array([1, 2], [False, True])), [1, np.nan])
    with pytest.raises(InputError, match="y must hold finite numbers"):
        SASGPRegressor().fit(X, np.ma.masked_array(X[:, 0], hidden[:, 1]))


def test_a_matrix_is_refused_as_by_scikit_learn(X):
    with pytest.raises(TypeError, match=r"np\.matrix is not supported"):
        SASGP(max_epochs=1).fit(X.view(np.matrix))
