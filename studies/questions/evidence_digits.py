"""Three ways to the evidence of one trained model of digits, and the single terms that the unbiased one improves on.

    python experiments/evidence_digits.py

Leaves experiments/results/evidence-digits.json.
"""

import json
from pathlib import Path

from sasgp import SASGP
from sasgp.data import load

RESULT = Path(__file__).parent / "results" / "evidence-digits.json"

if __name__ == "__main__":
    X = load("digits").X
    model = SASGP(random_state=0).fit(X)
    found = {name: model.evidence(X, method=name, random_state=0) for name in ("exact", "sas", "unbiased")}
    values = {
        name: {"per value": one.per_value, "standard error": one.standard_error / X.size} for name, one in found.items()
    }
    RESULT.write_text(json.dumps({"rows": len(X), "A": model.active_set_size_, **values}) + "\n")
    print(RESULT.read_text())
