"""Larger active sets late in training: MNIST, 10 epochs, the same seed.

    SASGP_DATA=data python experiments/late_active_sets.py

Leaves experiments/results/late-active-sets-{first}-{late}-seed0.json for active sets of `first` points in the first
seven epochs and of `late` points in the last three; finished runs are skipped.
"""

import json
import time
from pathlib import Path

from sasgp import SASGP
from sasgp.data import load
from sasgp.evaluation import knn, reconstruction

RESULTS = Path(__file__).parent / "results"
EPOCHS, LATE = 10, 7


def run(first: int, late: int) -> dict[str, float]:
    """Train, and measure on test rows."""
    data = load("mnist")

    def grow(model: SASGP, record: dict[str, float]) -> None:
        if record["epoch"] == LATE:
            model.model_.active_set_size = late

    started = time.process_time()
    model = SASGP(active_set_size=first, max_epochs=EPOCHS, random_state=0).fit(data.X, callback=grow)
    seconds = time.process_time() - started
    Z_test = model.transform(data.X_test)
    found = reconstruction(model, data.X_test, Z_test)
    del found["pit"]
    return found | knn(model.embedding_, data.y, Z_test, data.y_test) | {"cpu_seconds": seconds}


if __name__ == "__main__":
    for first, late in ((400, 400), (400, 800), (800, 800)):
        path = RESULTS / f"late-active-sets-{first}-{late}-seed0.json"
        if not path.exists():
            path.write_text(json.dumps(run(first, late), indent=1) + "\n")
        found = json.loads(path.read_text())
        print(first, late, {name: round(value, 4) for name, value in found.items()}, flush=True)
