"""Does training ever fail? 20 seeds × digits and oil flow × point and Bayesian × learning rates, all in float32.

    SASGP_DATA=data python experiments/robustness.py            # finished fits are skipped; ends with the table
    python experiments/robustness.py --table                    # the table alone, from the JSON

Leaves experiments/results/robustness.jsonl, a line for every fit. Kernel and noise learn ten times as fast as the
encoder, which is the ratio of the defaults. Fits are short, 40 epochs instead of the default 600, to keep 240 of them
affordable: trouble comes early, when the rates are at their peak and noise falls fastest.
"""

import argparse
import json
import math
import time
import warnings
from itertools import product
from pathlib import Path

import numpy as np

from sasgp import SASGP
from sasgp.data import load
from sasgp.metrics import knn_accuracy, rmse

RESULT = Path(__file__).parent / "results" / "robustness.jsonl"
SEEDS, DATA, LATENTS, RATES = range(20), ("digits", "oil-flow"), ("point", "bayesian"), (1e-4, 1e-3, 1e-2)
EPOCHS = 40


def run(data: str, latents: str, rate: float, seed: int) -> dict[str, object]:
    """One fit; a failure is a result."""
    rows = load(data)
    key = {"data": data, "latents": latents, "learning_rate": rate, "seed": seed}
    model = SASGP(
        latents=latents, learning_rate=rate, hyper_learning_rate=10 * rate, max_epochs=EPOCHS, random_state=seed
    )
    started = time.monotonic()
    try:
        model.fit(rows.X)
        Z = model.transform(rows.X_test)
        found = {
            "rmse": rmse(rows.X_test, np.asarray(model.predict(Z))),
            "1-NN": knn_accuracy(model.embedding_, rows.y, Z, rows.y_test),
            "score": float(model.score_samples(rows.X_test, n_samples=0).mean()) / rows.X.shape[1],
            "objective": -model.history_[-1]["loss"],
            "noise": model.noise_,
            "dropped": sum(record["dropped"] for record in model.history_),
        }
        found["finite"] = all(map(math.isfinite, found.values())) and bool(np.isfinite(model.embedding_).all())
    except Exception as error:  # whatever it is, it is counted
        found = {"failed": f"{type(error).__name__}: {error}"}
    return key | found | {"seconds": round(time.monotonic() - started, 2)}


def table(results: list[dict[str, object]]) -> str:
    """Mean and spread over the seeds, in Markdown."""
    lines = [
        "| data | latents | learning rate | seeds | failed or NaN | steps dropped | RMSE | 1-NN | score a value |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for data, latents, rate in product(DATA, LATENTS, RATES):
        some = [r for r in results if (r["data"], r["latents"], r["learning_rate"]) == (data, latents, rate)]
        good = [r for r in some if r.get("finite")]
        if not some:
            continue
        numbers = [
            f"{np.mean([r[name] for r in good]):.4f} ± {np.std([r[name] for r in good], ddof=1):.4f}"
            for name in ("rmse", "1-NN", "score")
        ]
        dropped = sum(r["dropped"] for r in good)
        lines.append(
            f"| {data} | {latents} | {rate:g} | {len(some)} | {len(some) - len(good)} | {dropped} | "
            f"{' | '.join(numbers)} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    from infinite_mnist import fill

    warnings.simplefilter("error", RuntimeWarning)  # an overflow in numpy would be one
    RESULT.parent.mkdir(exist_ok=True)
    results = [json.loads(line) for line in RESULT.read_text().splitlines()] if RESULT.exists() else []
    names = ("data", "latents", "learning_rate", "seed")
    done = {tuple(r[name] for name in names) for r in results}
    for seed, data, latents, rate in product(SEEDS, DATA, LATENTS, RATES):
        if arguments.table or (data, latents, rate, seed) in done:
            continue
        results.append(run(data, latents, rate, seed))
        with RESULT.open("a") as file:
            file.write(json.dumps(results[-1]) + "\n")
    total = len(SEEDS) * len(DATA) * len(LATENTS) * len(RATES)
    failed = sum(not r.get("finite") for r in results)
    print(table(results))
    fill(
        "robustness",
        f"{len(results)} of {total} fits in float32, {EPOCHS} epochs each, kernel and noise at ten times the encoder's "
        f"learning rate:\n{failed} failed or met NaN. Mean ± standard deviation over the seeds, on test rows "
        "(`experiments/robustness.py`).\n\n" + table(results),
    )
