"""The figures in docs/images that sasgp draws itself.

    python docs/figures.py [RUNS]     # a minute

RUNS is a folder with a run of digits to take instead of training anew: `sasgp fit digits --out RUNS/digits`.
"""

import sys
from pathlib import Path

from sasgp import SASGP, plots
from sasgp.data import load

IMAGES = Path(__file__).parent / "images"


def main(runs: Path | None) -> None:
    """Draw s(a) of digits."""
    X = load("digits").X
    model = SASGP(random_state=0).fit(X) if runs is None else SASGP.load(runs / "digits" / "model.safetensors")
    curve = model.evidence_curve(X, random_state=0)
    plots.evidence_curve(curve, title="digits").savefig(IMAGES / "evidence.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
