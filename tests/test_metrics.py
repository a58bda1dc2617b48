"""Metrics against scipy's densities, numbers derived by hand, and identities."""

import math

import numpy as np
import oracles
import pytest
from scipy.stats import chisquare, norm

from sasgp import evaluation, metrics
from sasgp.errors import InputError
from sasgp.evaluation import structure
from sasgp.metrics import (
    bits_per_value,
    continuity,
    knn_accuracy,
    mae,
    neighbour_recall,
    nlpd,
    rmse,
    silhouette,
    triplet_accuracy,
    trustworthiness,
)


@pytest.fixture
def pair():
    rng = np.random.default_rng(0)
    return rng.normal(size=(23, 7)), rng.normal(size=(23, 7))


def test_errors_by_hand():
    # residuals 3, 4, 0, 0: √(25/4) = 2.5 and 7/4
    X, mean = [[3.0, 0.0], [1.0, 2.0]], [[0.0, -4.0], [1.0, 2.0]]
    assert rmse(X, mean) == 2.5
    assert mae(X, mean) == 1.75


# ---------------------------------------------------------------------------------------------------- bits per value


def test_bits_are_the_masses_that_scipy_gives():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, size=(40, 9)).astype(np.uint8)
    X[0] = 0, 255, 0, 255, 0, 255, 1, 254, 128
    sd = rng.uniform(5, 40, size=X.shape)
    mean = X + 3 * sd * rng.uniform(-1, 1, size=X.shape)
    low, high = np.where(X == 0, -np.inf, X - 0.5), np.where(X == 255, np.inf, X + 0.5)
    expected = -np.log2(norm.cdf((high - mean) / sd) - norm.cdf((low - mean) / sd))
    assert bits_per_value(X, mean, sd**2, np.arange(256)) == pytest.approx(expected.mean(), rel=1e-9)
    # Units do not matter, in float32 neither
    scaled = (X / 255).astype(np.float32)
    found = bits_per_value(scaled, mean / 255, (sd / 255) ** 2, np.arange(256) / 255)
    assert found == pytest.approx(expected.mean(), rel=1e-6)


@pytest.mark.parametrize("sd", [1e-6, 1e-3, 0.02, 3.0, 1e6])
@pytest.mark.parametrize("mean", [-40.0, 0.0, 0.3, 1.0, 1e3])
@pytest.mark.parametrize("level", [0, 1, 77, 254, 255])
def test_bits_are_right_however_far_in_the_tails(level, mean, sd):
    # erfc of 50 digits: P = ½ [ erfc(a/√2) − erfc(b/√2) ]
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(60):
        edge = [(mpmath.mpf(k) - mpmath.mpf(1) / 2) / 255 for k in (level, level + 1)]
        a, b = ((e - mpmath.mpf(mean)) / mpmath.mpf(sd) / mpmath.sqrt(2) for e in edge)
        a, b = mpmath.mpf("-inf") if level == 0 else a, mpmath.mpf("inf") if level == 255 else b
        a, b = (-b, -a) if b < 0 else (a, b)
        bits = -mpmath.log((mpmath.erfc(a) - mpmath.erfc(b)) / 2) / mpmath.log(2)
        expected = float(bits)
    found = bits_per_value([[level / 255]], [[mean]], sd**2, np.arange(256) / 255)
    assert found == pytest.approx(expected, rel=1e-7, abs=1e-12)


@pytest.mark.parametrize(("mean", "sd"), [(0.5, 0.1), (0.0, 0.001), (-3.0, 2.0), (1.2, 0.3), (0.7, 50.0)])
def test_the_masses_of_all_levels_sum_to_one(mean, sd):
    levels = np.arange(256) / 255
    masses = [2 ** -bits_per_value([[x]], [[mean]], sd**2, levels) for x in levels]
    assert sum(masses) == pytest.approx(1, abs=1e-9)


def test_bits_by_hand_and_of_levels_that_are_none():
    # Two levels, the edge between them at the mean: one bit each, whatever the variance
    assert bits_per_value([[0.0, 1.0]], [[0.5, 0.5]], 7.0, [0, 1]) == pytest.approx(1)
    for levels in ([1.0], [0, 0, 1], [2, 1], [[0, 1]]):
        with pytest.raises(InputError, match="rising order"):
            bits_per_value([[0.0]], [[0.0]], 1.0, levels)


# ---------------------------------------------------------------------------------------------------- densities


@pytest.mark.parametrize("shape", [(23,), (23, 1), (23, 7)])
def test_nlpd_is_the_mean_of_scipys_log_density(pair, shape):
    X, mean = pair
    var = np.random.default_rng(1).uniform(0.1, 2, shape)
    std = np.sqrt(var if len(shape) == 2 else var[:, None])
    assert nlpd(X, mean, var) == pytest.approx(-norm.logpdf(X, mean, std).mean(), rel=1e-12)


def test_nlpd_of_the_best_constant_variance(pair):
    # With v = r² the quadratic term averages to ½, so NLPD = ½ ln 2πr² + ½ = ½ ln(2πe r²); no other v does better.
    X, mean = pair
    r = rmse(X, mean)
    best = nlpd(X, mean, r**2)
    assert best == pytest.approx(0.5 * math.log(2 * math.pi * math.e * r**2), rel=1e-12)
    assert best < min(nlpd(X, mean, 1.1 * r**2), nlpd(X, mean, 0.9 * r**2))


def test_nlpd_is_signed():
    # A density above 1: −log N(0 | 0, 1e-4) = ½ ln(2π · 1e-4) < 0
    assert nlpd([[0.0]], [[0.0]], 1e-4) == pytest.approx(0.5 * math.log(2e-4 * math.pi))


def test_one_axis_of_variances_is_one_a_row_even_in_a_square():
    X, mean, var = np.array([[0.0, 0.0], [2.0, 2.0]]), np.zeros((2, 2)), np.array([1.0, 4.0])
    # Row 1 has variance 1, row 2 has 4 and (x − m)²/v = 1: ½ ln 2π + ½ (½ ln 4 + ½ · 1)
    assert nlpd(X, mean, var) == pytest.approx(0.5 * math.log(2 * math.pi) + 0.25 * math.log(4) + 0.25)


def test_blocks_do_not_change_the_result(pair, monkeypatch):
    X, mean = pair
    var = np.random.default_rng(1).uniform(0.1, 2, 23)
    whole = rmse(X, mean), mae(X, mean), nlpd(X, mean, var)
    for size in (1, 15, 40):  # less than a row, two rows, and blocks that leave a rest
        monkeypatch.setattr("sasgp.data.blocks.VALUES_AT_ONCE", size)
        assert (rmse(X, mean), mae(X, mean), nlpd(X, mean, var)) == pytest.approx(whole, rel=1e-13)


def test_float32_is_summed_in_float64():
    # In float32 a million squares of 0.1 would lose digits as they add up, and 2²⁴ − ½ would round to 2²⁴.
    X = np.full((1000, 1000), 0.1, dtype=np.float32)
    assert rmse(X, np.zeros_like(X)) == pytest.approx(float(np.float32(0.1)), rel=1e-12)
    assert mae(np.array([[2**24]], dtype=np.float32), np.array([[2**24 - 0.5]])) == 0.5


def test_unsigned_pixels_do_not_wrap_around():
    assert mae(np.array([[0]], dtype=np.uint8), np.array([[255]], dtype=np.uint8)) == 255


def test_memory_maps_stay_on_disk(tmp_path, pair):
    np.save(tmp_path / "x.npy", pair[0])
    assert rmse(np.load(tmp_path / "x.npy", mmap_mode="r"), pair[1]) == rmse(*pair)


def test_not_a_number_is_not_hidden(pair):
    X, mean = pair
    X[3, 2] = np.nan
    assert math.isnan(rmse(X, mean))
    assert math.isnan(nlpd(X, mean, 1.0))


def test_neighbours_by_hand():
    Z, y = [[0.0], [1.0], [1.5]], ["a", "b", "b"]
    # Nearest to .4 is 0 (a); three votes make it b.  Nearest to 1.2 is 1 (b).
    Z_test, y_test = [[0.4], [1.2]], ["a", "b"]
    assert knn_accuracy(Z, y, Z_test, y_test) == 1.0
    assert knn_accuracy(Z, y, Z_test, y_test, k=3) == 0.5


def test_neighbours_against_a_loop():
    rng = np.random.default_rng(0)
    Z, Z_test = rng.normal(size=(60, 2)), rng.normal(size=(40, 2))
    y, y_test = rng.integers(0, 3, 60), rng.integers(0, 3, 40)
    hits = [
        y[np.argmin([np.linalg.norm(z - z_n) for z_n in Z])] == label for z, label in zip(Z_test, y_test, strict=True)
    ]
    assert knn_accuracy(Z, y, Z_test, y_test) == pytest.approx(np.mean(hits))


def test_many_classes_are_no_reason_to_warn():
    Z, y = np.arange(60.0)[:, None], np.arange(60)
    assert knn_accuracy(Z, y, Z, y) == 1  # every point is nearest to itself


# ---------------------------------------------------------------------------------------------------- structure


@pytest.mark.parametrize("k", [1, 4])
def test_structure_against_loops(k):
    rng = np.random.default_rng(k)
    X, y = rng.normal(size=(25, 6)), rng.integers(0, 3, 25)
    Z = X[:, :2] + 0.1 * rng.normal(size=(25, 2))
    assert trustworthiness(X, Z, k) == pytest.approx(oracles.trustworthiness(X, Z, k))
    assert continuity(X, Z, k) == pytest.approx(oracles.trustworthiness(Z, X, k))
    assert neighbour_recall(X, Z, k) == pytest.approx(oracles.neighbour_recall(X, Z, k))
    assert silhouette(Z, y) == pytest.approx(oracles.silhouette(Z, y))
    # Draws of a share p have the standard deviation √(p (1 − p) / n) ≤ .0025 for n = 40 000
    assert triplet_accuracy(X, Z, 40_000, seed=k) == pytest.approx(oracles.triplet_accuracy(X, Z), abs=0.01)


def test_a_rotated_and_scaled_copy_is_perfect():
    X = np.random.default_rng(0).normal(size=(100, 3))
    Z = 5 * X @ np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0] + 7
    found = structure(X, Z, None)
    assert found == {"trustworthiness": 1.0, "continuity": 1.0, "neighbour_recall": 1.0, "triplets": 1.0}


def test_latents_at_random_are_at_chance():
    rng = np.random.default_rng(0)
    X, Z, y = rng.normal(size=(1000, 10)), rng.normal(size=(1000, 2)), rng.integers(0, 4, 1000)
    found = structure(X, Z, y)
    # Each of a row's neighbours is among any 15 of 999 with the chance 15/999. Ranks r are uniform, so that the mean of
    # max(0, r − k) is (N − k)²/2N, and 1 − 2 (N − k)²/2N / (2N − 3k − 1) = 1 − (N − k)²/(N (2N − 3k − 1)) = .504
    assert found["trustworthiness"] == pytest.approx(0.5, abs=0.02)
    assert found["continuity"] == pytest.approx(0.5, abs=0.02)
    assert found["neighbour_recall"] == pytest.approx(15 / 999, abs=0.005)
    assert found["triplets"] == pytest.approx(0.5, abs=0.03)
    assert -0.05 < found["silhouette"] < 0.0  # b is the least of three means, each of which is about a


def test_a_tear_costs_continuity_and_a_fold_costs_trustworthiness():
    # A circle cut open and drawn as a line: all neighbours on the line were neighbours, but the ends were too
    angle = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    line = angle[:, None]
    assert trustworthiness(circle, line, 5) > 0.999 > continuity(circle, line, 5)
    # Pressed flat, its upper half lies on its lower one: neighbours in z are far apart, and those in x still near
    flat = circle[:, :1]
    assert continuity(circle, flat, 5) > trustworthiness(circle, flat, 5)


def test_clusters_far_apart_have_a_silhouette_near_one():
    Z, y = np.repeat([[0.0, 0.0], [100.0, 0.0]], 20, axis=0), np.repeat(["a", "b"], 20)
    Z = Z + np.random.default_rng(0).normal(size=Z.shape)
    assert silhouette(Z, y) > 0.97


def test_structure_of_many_rows_is_that_of_some(monkeypatch):
    monkeypatch.setattr(evaluation, "STRUCTURE_ROWS", 200)
    X, y = np.random.default_rng(0).normal(size=(500, 4)), np.arange(500) % 3
    some = np.random.default_rng(1).permutation(500)[:200]
    found = structure(X, X[:, :2], y, seed=1)
    assert found["neighbour_recall"] == pytest.approx(neighbour_recall(X[some], X[some, :2]))
    assert found["silhouette"] == pytest.approx(silhouette(X[some, :2], y[some]))


def test_structure_of_hardly_any_rows_is_left_out():
    X = np.random.default_rng(0).normal(size=(31, 4))
    assert structure(X, X[:, :2], None) == {}
    assert "silhouette" not in structure(np.tile(X, (2, 1)), np.tile(X[:, :2], (2, 1)), np.zeros(62, int))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rmse(np.ones((3, 2)), np.ones((2, 3))), r"same shape.*\(3, 2\) and \(2, 3\)"),
        (lambda: mae(np.ones(3), np.ones(3)), r"\[N, D\]"),
        (lambda: rmse(np.ones((0, 2)), np.ones((0, 2))), "must not be empty"),
        (lambda: nlpd(np.ones((3, 2)), np.ones((3, 2)), np.ones(2)), r"\(3,\), \(3, 1\) or \(3, 2\).*Got \(2,\)"),
        (lambda: nlpd(np.ones((3, 2)), np.ones((3, 2)), np.ones((1, 2))), r"Got \(1, 2\)"),
        (lambda: nlpd(np.ones((3, 2)), np.ones((3, 2)), -1.0), "positive. Got -1"),
        (lambda: knn_accuracy(np.ones((3, 2)), [0, 1], np.ones((1, 2)), [0]), r"y_train.*\(3, 2\) and \(2,\)"),
        (lambda: knn_accuracy(np.ones((3, 2)), [0, 1, 1], np.ones((1, 3)), [0]), "2 and 3"),
        (lambda: knn_accuracy(np.ones((3, 2)), [0, 1, 1], np.ones((1, 2)), [0], k=4), "k must be from 1 to 3"),
        (lambda: knn_accuracy(np.ones((2, 2)), [0.5, 1], np.ones((1, 2)), [0]), "fractions such as 0.5"),
        (lambda: trustworthiness(np.ones((9, 2)), np.ones((8, 2))), r"same number of rows.*\(9, 2\) and \(8, 2\)"),
        (lambda: trustworthiness(np.ones((9, 2)), np.ones((9, 2)), k=5), "less than half the number of rows, 9. Got 5"),
        (lambda: neighbour_recall(np.ones((9, 2)), np.ones((9, 2)), k=9), "more rows than neighbours.*Got 9"),
        (lambda: triplet_accuracy(np.ones((2, 2)), np.ones((2, 2))), "Got 2 rows"),
        (lambda: silhouette(np.ones((3, 2)), [1, 1, 1]), "from 2 to 2 different labels. Got 1"),
    ],
)
def test_what_does_not_fit_is_said(call, message):
    with pytest.raises(InputError, match=message):
        call()


# ---- calibration ----


@pytest.mark.parametrize("blocks", [1, 7])
def test_pit_is_flat_where_predictions_are_calibrated(blocks, monkeypatch):
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=(4000, 5)), rng.uniform(0.1, 3, size=(4000, 5))
    X = mean + std * rng.normal(size=mean.shape)
    monkeypatch.setattr("sasgp.data.blocks.VALUES_AT_ONCE", mean.size // blocks)
    counts = metrics.pit_counts(X, mean, std**2)
    assert counts.sum() == X.size
    assert chisquare(counts).pvalue > 1e-3
    for level in (0.5, 0.9, 0.99):
        assert metrics.coverage(counts, level) == pytest.approx(level, abs=0.01)


def test_coverage_is_that_of_the_interval_itself():
    rng = np.random.default_rng(1)
    X, mean, var = rng.normal(size=(300, 4)), rng.normal(size=(300, 4)), rng.uniform(0.5, 2, size=300)
    counts = metrics.pit_counts(X, mean, var)
    for level in (0.5, 0.9, 0.99):
        half = norm.ppf((1 + level) / 2) * np.sqrt(var)[:, None]
        assert metrics.coverage(counts, level) == pytest.approx((abs(X - mean) <= half).mean(), abs=1e-12)
    assert metrics.coverage(metrics.pit_counts(mean + 1e9, mean, 1.0), 0.99) == 0  # far outside is counted, too


def test_levels_between_the_edges_of_bins():
    with pytest.raises(InputError, match=r"multiple of 0.01.*Got 0.955"):
        metrics.coverage(np.ones(200), 0.955)


# ---- principal components ----


def test_pca_rmse_is_that_of_scikit_learn():
    from sklearn.decomposition import PCA

    rng = np.random.default_rng(0)
    X, X_new = rng.normal(size=(2, 60, 8)) * np.arange(1, 9)
    pca = PCA(3).fit(X)
    expected = rmse(X_new, pca.inverse_transform(pca.transform(X_new)))
    assert evaluation.pca_rmse(X, X_new, 3, seed=0) == pytest.approx(expected, rel=1e-10)


def test_pca_rmse_of_constant_data_and_of_more_components_than_features():
    assert evaluation.pca_rmse(np.ones((60, 3)), np.ones((5, 3)), 2, seed=0) == 0
    assert evaluation.pca_rmse(np.ones((3, 60)), np.ones((5, 60)), 2, seed=0) == 0
    X = np.random.default_rng(0).normal(size=(60, 3))
    assert evaluation.pca_rmse(X, X, 9, seed=0) == pytest.approx(0, abs=1e-12)


def test_pca_rmse_of_many_rows_is_that_of_some(monkeypatch):
    X = np.random.default_rng(0).normal(size=(4000, 6)) * [8, 4, 1, 1, 1, 1]
    whole = evaluation.pca_rmse(X, X, 2, seed=0)
    monkeypatch.setattr(evaluation, "PCA_ROWS", 1000)
    assert evaluation.pca_rmse(X, X, 2, seed=0) == pytest.approx(whole, rel=2e-3)
