"""Numbers that pages quote by hand are those of their records: README, guide, trust, layouts, evidence and times.

A line of a table is found by its first cells, and a sentence by its words, in whatever page they stand. Tables between
markers are held against their records by the tests of their pages.
"""

import re
from statistics import mean, stdev

import pytest

from studies import records

PAGES = [records.ROOT / "README.md", *sorted((records.ROOT / "docs").rglob("*.md"))]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
LINES = [[cell.strip().strip("*") for cell in line.split("|")[1:-1]] for line in TEXT.splitlines() if "|" in line[:4]]
WORDS = " ".join(TEXT.split())


def results(name, group="questions"):
    """Results of all seeds of a run."""
    folder = records.RESULTS / group
    paths = sorted(folder.glob(f"{name}-seed*.json")) or [folder / f"{name}.json"]
    return [records.read(path)["results"] for path in paths]


def metrics(name):
    return [one["metrics"] for one in results(name, "paper")]


def short(value, digits):
    """As pages write numbers: .123, −.123, 1.23."""
    return re.sub(r"^(−?)0\.", r"\1.", f"{value:.{digits}f}".replace("-", "−"))


def spread(values, digits):
    return f"{short(mean(values), digits)} ± {short(stdev(values), digits)}"


def many(found, keys, digits):
    return [spread([one[key] for one in found], n) for key, n in zip(keys, digits, strict=True)]


def means(found, keys, digits):
    return [short(mean(one[key] for one in found), n) for key, n in zip(keys, digits, strict=True)]


# ---- lines of tables: the first cells, and those that follow them ----


def readme():
    mixed = results("precision-digits-mixed")
    yield ("digits (1437 / 360 rows), default settings",), many(mixed, ("1-NN", "RMSE", "NLPD"), (3, 3, 3))
    keys, digits = ("knn_1", "rmse", "nlpd"), (3, 4, 3)
    for label, name, pca in (
        ("MNIST (60 000 / 10 000), 30 epochs", "table1-mnist-bayesian-A400", "mnist"),
        ("Fashion-MNIST (60 000 / 10 000), 30 epochs", "table1-fashion-mnist-bayesian-A400", "fashion-mnist"),
        ("MNIST, started from UMAP and [held there](docs/layouts.md), 30 epochs", "layouts-mnist-sasgp", "mnist"),
    ):
        plane = metrics(f"table2-{pca}-pca")[0]["rmse"]
        yield (label,), [*many(metrics(name), keys, digits), short(plane, 3)]


def units():
    for data in ("iris", "wine", "breast-cancer", "oil-flow", "digits"):
        for noise in ("shared", "feature"):
            found = results(f"feature-noise-{data}-{noise}")
            inside = short(mean(one["coverage"]["0.9"] for one in found), 3)
            yield (data, noise), [*many(found, ("nlpd", "rmse"), (3, 3)), inside]


def local_noise():
    keys = ("bits", "nlpd", "coverage_50", "coverage_90", "coverage_99")
    for data, title in (("mnist", "MNIST"), ("fashion-mnist", "Fashion-MNIST")):
        found = metrics(f"table1-{data}-bayesian-A400")
        yield (f"{title}, one noise",), means(found, keys, (3,) * 5)
        yield (f"{title}, local",), means(found, [f"local_{key}" for key in keys], (3,) * 5)


def anomalies():
    found = [results(f"anomalies-{kind}")[0]["auroc"] for kind in ("mnist", "without-sandals", "without-bags")]
    for title, key in {
        "`score_samples`, 2 dimensions": "log p(x), 2 dimensions",
        "`score_samples(n_samples=0)`, 2 dimensions": "reconstruction, 2 dimensions",
        "`score_samples`, 8 dimensions": "log p(x), 8 dimensions",
        "`score_samples(n_samples=0)`, 8 dimensions": "reconstruction, 8 dimensions",
        "VAE's ELBO, 2 dimensions": "VAE, ELBO, 2 dimensions",
        "VAE's ELBO, 8 dimensions": "VAE, ELBO, 8 dimensions",
        "PCA's reconstruction error, 2 components": "PCA, 2 components",
        "IsolationForest": "IsolationForest",
    }.items():
        yield (title,), [short(one[key], 3) for one in found]
    most = [max((key for key in one if key.startswith("PCA")), key=lambda key: int(key.split()[1])) for one in found]
    assert sorted(int(key.split()[1]) for key in most) == [76, 76, 84]
    title = "the same, 76 to 84 components (90 % of the variance)"
    yield (title,), [short(one[key], 3) for one, key in zip(found, most, strict=True)]


def oil_flow():
    for title, name, refine in (
        ('`noise="shared"`, encoder', "shared", 0),
        ('`noise="shared"`, `refine=100`', "shared", 100),
        ('`noise="feature"`, encoder', "feature", 0),
        ('`noise="feature"`, `refine=100`', "feature", 100),
        ('point latents, `noise="feature"`, encoder', "point", 0),
    ):
        found = [one[f"refine {refine}"] for one in results(f"oil-flow-{name}")]
        yield (title,), many(found, ("rmse", "nlpd"), (4, 2))


def layouts():
    for title, name in {
        "squared error, 300 steps (as for a projection)": "300-steps",
        "squared error, 15 epochs": "squared",
        "squared error, noise": "squared-noise",
        "squared error, shifts of up to 2 pixels": "squared-shift",
        "Cauchy's loss, noise": "cauchy-noise",
        "Cauchy's loss, shifts": "cauchy-shift",
        "Cauchy's loss, shifts and less noise (.3), convolutions": "cauchy-shift-convolutional",
    }.items():
        yield (title,), means(results(f"layout-encoders-mnist-{name}"), ("1-NN", "15-NN"), (3, 3))
    yield ("UMAP's own transform",), means(metrics("layouts-mnist-umap")[:1], ("knn_1", "knn_15"), (3, 3))
    for data, inits in {"digits": ("pca", "umap"), "oil flow": ("pca", "spectral", "tsne")}.items():
        for init in inits:
            found = results(f"inits-{data.replace(' ', '-')}-{init}")[0]["after training"]
            density = [short(found["NLPD"], 3)] if data == "digits" else ["–"]
            yield (f'{data}, `"{init}"`',), [*(short(found[key], 3) for key in ("1-NN", "15-NN", "RMSE")), *density]
    for init in ("pca", "spectral", "tsne", "umap"):
        found = results(f"inits-iris-{init}")[0]["after training"]
        numbers = [short(found[key], n) for key, n in {"1-NN": 2, "15-NN": 2, "RMSE": 3, "NLPD": 3}.items()]
        yield (f'iris, `"{init}"`',), numbers


def guide():
    keys, found = ("rmse", "nlpd", "knn_1", "knn_15"), results("refine-mnist")[0]
    lines = {"MNIST, network": "encoder", "best of the starts, without a step": "best start, support"}
    for title, key in (lines | {"`refine=10`": "refine=10, support"}).items():
        yield (title,), means([found[key]], keys, (4, 3, 3, 3))
    found = results("refine-digits")[0]
    for title, refine in (("digits, network (two seeds)", 0), ("digits, `refine=20`", 20)):
        both = [found[f"network, seed {seed}, refine={refine}"] for seed in (0, 1)]
        yield (title,), [", ".join(short(one[key], 3) for one in both) for key in keys]
    for title, noise in (("`encoder_noise=0`", 0), ('`encoder_noise=1`, which "auto" chooses', 1)):
        found = [one["metrics"] for one in results(f"encoder-noise-digits-{noise}")]
        yield (title,), many(found, ("1-NN", "RMSE", "NLPD, test", "NLPD, training"), (3,) * 4)


def evidence():
    found = results("evidence-digits")[0]

    def digits(method):
        error = found[method]["standard error"]
        return short(found[method]["per value"], 4) + (f" ± {short(error, 4)}" if error else "")

    yield ('`"exact"`', "log p(X\\", "Z) itself"), [digits("exact")]
    yield ('`"unbiased"`', "SAS_A and a random correction; its mean is the exact number"), [digits("unbiased")]
    sas = '`"sas"`', "the estimate of training (Eq. 6), averaged over random active sets of A rows"
    yield sas, [f"{digits('sas')} at A = {found['A']}"]
    large = metrics("fig5-mnist-evidence-N40000")[0]
    yield ("exact, 3.5 GiB",), [short(large["exact"]["per_value"], 4), f"{large['exact']['seconds']:.0f}"]
    assert large["exact"]["memory"] / 2**30 == pytest.approx(3.5, abs=0.05)
    for A, words in ((800, " per estimate (10 estimates)"), (400, ""), (200, ""), (100, ", the first and slowest")):
        one = large[f"SAS, A = {A}"]
        value = f"{short(one['per_value'], 4)} ± {short(one['standard_error_per_value'], 4)}"
        yield (f"SAS, A = {A}",), [value, short(one["seconds"] / one["n_estimates"], 1) + words]


def two_digits(value):
    """Times as pages write them: 11, 1.5, .032."""
    return re.sub(r"^0\.", ".", f"{float(f'{value:.2g}'):g}")


def times():
    for D in (64, 784, 3072):
        rows = results("floor", "benchmarks")[0]["rows"]
        sizes = {"latents": "bayesian", "A": 400, "B": 1024, "D": D}
        row = next(row for row in rows if row.items() >= sizes.items())
        yield (str(D),), [f"{row[f'{name}, ms']['median']:.0f} ms" for name in ("step", "mixed")]
    quality = results("quality", "benchmarks")[0]
    few, many_epochs = (
        next(run["fit"] for run in quality["runs"] if run["epochs"] == epochs and "batch_size" not in run)
        for epochs in (2, 30)
    )
    ours = f"{few:.0f} s for 2 epochs, {many_epochs:.0f} s for 30"
    yield ("time for MNIST, 2 cores",), [ours, "", "", f"{quality['umap']['fit']:.0f} s"]
    peers = results("peers", "benchmarks")[0]["UMAP"]["transform"]
    ours, theirs = (two_digits(peers[name]["median"]) for name in ("SASGP", "UMAP"))
    yield ("`transform` of 10 000 new rows of MNIST",), [f"{ours} s, where UMAP takes {theirs} s"]
    each = {row["method"]: row["µs a row"] / 1e3 for row in results("inference", "benchmarks")[0]["rows"]}
    for title, method in {
        "`predict`, per row of 10 000": "predict",
        "`transform(X, refine=20)`, per row of 1000": "transform(refine=20)",
        "`score_samples`, per row of 1000": "score_samples",
    }.items():
        yield (title,), [f"{two_digits(each[method])} ms"]


TABLES = (readme, units, local_noise, anomalies, oil_flow, layouts, guide, evidence, times)


@pytest.mark.parametrize("lines", TABLES, ids=lambda lines: lines.__name__)
def test_lines_of_tables_are_what_their_records_say(lines):
    for first, numbers in lines():
        found = [
            line for line in LINES if tuple(line[: len(first)]) == first and len(line) >= len(first) + len(numbers)
        ]
        shown = [line[len(first) :][: len(numbers)] for line in found]
        assert numbers in shown, f"{' | '.join(first)}: the records say {numbers}, the pages {shown}"


# ---- sentences ----


def sentences():
    late = [results(f"late-active-sets-{name}")[0]["nlpd"] for name in ("400-400", "400-800", "800-800")]
    same, last, all_of_it = (short(value, 4) for value in late)
    yield (
        f"NLPD is {same} with 400 points throughout, {last} with 800 in the last three epochs, and {all_of_it} with "
        "800 throughout"
    )
    dropout, noise = (results(f"layout-encoders-mnist-cauchy-{name}")[0] for name in ("dropout", "noise"))
    one, other = ([short(found[key], 3) for key in ("1-NN", "15-NN")] for found in (dropout, noise))
    yield f"1-NN is {one[0]} and 15-NN {one[1]}, instead of {other[0]} and {other[1]}"
    for name, words in {"umap-rate0.002": "from {} to {} in 12 epochs", "umap": "from {} to {} in 8 epochs"}.items():
        found = results(f"inits-mnist-{name}")[0]
        yield words.format(*(short(found[when]["1-NN"], 3) for when in ("at the start", "after training")))
    found = results("dimensions")
    assert [one["kept"] for one in found] == [3, 3, 3]
    kept, every = (sorted(short(one[key], 3) for one in found) for key in ("rmse, kept", "rmse, 12"))
    yield f"The RMSE of DataTst is {kept[0]} to {kept[-1]} through the three dimensions, and {every[0]} to {every[-1]}"
    umap = [one["knn_1"] for one in metrics("layouts-mnist-umap")]
    yield f"UMAP's own `transform` has a 1-NN accuracy of {short(mean(umap), 3)}"
    a, b = (
        results(f"exact-evidence-mnist-5000-{name}")[0]["evidence"]["exact"]["mean"] for name in ("float32", "float64")
    )
    assert abs(a / b - 1) < 3.5e-8
    yield "float32 agreed with float64 to 3·10⁻⁸"
    ours, theirs = (results(f"classification-breast-cancer-{name}") for name in ("sasgp", "gpc"))
    digits = {"accuracy": 4, "log_loss": 3}
    by = {key: [one[key] - other[key] for one, other in zip(ours, theirs, strict=True)] for key in digits}
    more, less = (
        f"{short(abs(mean(by[key])), n)} ± {short(stdev(by[key]) / len(ours) ** 0.5, n)}" for key, n in digits.items()
    )
    assert len(ours) == 20
    assert mean(by["accuracy"]) > 0 > mean(by["log_loss"])
    yield f"over twenty splits, the difference is {more} (standard error)"
    yield f"Its log loss is lower by {less}."


def test_sentences_are_what_their_records_say():
    for sentence in sentences():
        assert sentence in WORDS, f"no page says: {sentence}"
