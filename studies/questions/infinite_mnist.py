"""A million digits on disk: three epochs, with the loss curve, the memory curve and 1-NN on MNIST's own test digits.

    sasgp data infinite-mnist --rows 1000000 --out big.npy
    SASGP_DATA=data python experiments/infinite_mnist.py big.npy
    python experiments/infinite_mnist.py --draw        # docs/images/infinite-mnist.png from the JSON alone

Leaves experiments/results/infinite-mnist.json. A run that is killed goes on from its checkpoint beside the data.
Resident memory is what /proc/self/status says, every second; the file is 784 MB, and would be 3.1 GB as float32.
"""

import argparse
import json
import os
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import torch

from sasgp import SASGP
from sasgp.data import load
from sasgp.metrics import knn_accuracy, rmse

HERE = Path(__file__).parent
RESULT = HERE / "results" / "infinite-mnist.json"
PICTURE = HERE.parent / "docs" / "images" / "infinite-mnist.png"
EPOCHS = 3


def resident() -> dict[str, float]:
    """Resident memory and its peak, in MB."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return {name: int(lines[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")}


def run(path: Path, seed: int) -> dict[str, object]:
    """Train, measure, and watch the memory."""
    data = load(path)
    started, memory, steps = time.monotonic(), [], []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(1.0):
            memory.append([round(time.monotonic() - started, 1), round(resident()["VmRSS"], 1)])

    threading.Thread(target=watch, daemon=True).start()
    checkpoint = path.with_suffix(".checkpoint.pt")
    model = SASGP(max_epochs=EPOCHS, random_state=seed)
    forward = torch.nn.Module.__call__

    def counted(module: torch.nn.Module, *arguments: object, **options: object) -> object:
        result = forward(module, *arguments, **options)
        if module is getattr(model, "model_", None) and module.training:
            steps.append(round(float(result.detach()), 5))
        return result

    torch.nn.Module.__call__ = counted  # the loss of every step: history_ has that of every epoch
    model.fit(data.X, checkpoint=checkpoint, resume=checkpoint if checkpoint.exists() else None)
    torch.nn.Module.__call__ = forward
    trained, peak = time.monotonic() - started, resident()["VmHWM"]  # MNIST itself comes into memory now
    done.set()
    mnist = load("mnist")
    X_test = mnist.X_test * 255  # in the units of the file
    Z_test = model.transform(X_test)
    accuracy = {f"{k}-NN": knn_accuracy(model.embedding_, data.y, Z_test, mnist.y_test, k) for k in (1, 15)}
    decoded = np.asarray(model.predict(Z_test))
    return {
        "rows": len(data.X),
        "epochs": EPOCHS,
        "seconds": trained,
        "history": model.history_,
        "loss of every step": steps,
        "metrics": accuracy | {"RMSE, pixels in [0, 1]": rmse(X_test, decoded) / 255},
        "peak resident memory, MB": peak,
        "resident memory, [second, MB]": memory,
        "machine": {"cores": os.cpu_count(), "threads": torch.get_num_threads(), "load": os.getloadavg()},
    }


def draw() -> None:
    """The loss curve and the memory curve, side by side."""
    from matplotlib.figure import Figure

    result = json.loads(RESULT.read_text())
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    loss = np.asarray(result["loss of every step"])
    left.plot(np.arange(1, len(loss) + 1), loss, lw=0.6, color="0.75")
    width = min(50, len(loss))
    smooth = np.convolve(loss, np.ones(width) / width, "valid")
    left.plot(np.arange(width, len(loss) + 1), smooth, lw=1.5)
    low, high = np.quantile(loss[len(loss) // 20 :], [0, 1])
    left.set(xlabel="step of 1024 rows", ylabel="loss, nats for each pixel value", ylim=(low - 0.05, high + 0.05))
    seconds, megabytes = np.asarray(result["resident memory, [second, MB]"]).T
    right.plot(seconds / 60, megabytes)
    right.axhline(784, ls=":", color="0.5")
    right.text(0, 790, "the file", color="0.4", va="bottom", fontsize=8)
    right.set(xlabel="minutes", ylabel="resident memory, MB", ylim=(0, 1200))
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=130)
    losses = ", ".join(f"{record['loss']:.3f}" for record in result["history"])
    one, fifteen = (result["metrics"][f"{k}-NN"] for k in (1, 15))
    text = (
        f"{result['epochs']} epochs of {result['rows']:,} rows took {result['seconds'] / 60:.0f} minutes on "
        f"{result['machine']['threads']} thread of a machine with {result['machine']['cores']} cores at a load of "
        f"{result['machine']['load'][1]:.0f}. The loss of the epochs was {losses} nats a value (pixels are bytes here: "
        f"ln 255 = 5.54 more than for pixels in [0, 1]). On the 10 000 test digits of MNIST itself, through the latent "
        f"space z = encoder(x), 1-NN accuracy is {one:.3f} and 15-NN {fifteen:.3f}, with neighbours among the million, "
        f"and RMSE {result['metrics']['RMSE, pixels in [0, 1]']:.4f}. Peak resident memory was "
        f"{result['peak resident memory, MB']:.0f} MB."
    )
    fill("infinite-mnist", "\n".join(textwrap.wrap(text, 120)))


def fill(name: str, text: str) -> None:
    """Put a result between its marks in docs/large-data.md."""
    page = HERE.parent / "docs" / "large-data.md"
    before, mark, rest = page.read_text().partition(f"<!-- {name} -->\n")
    page.write_text(before + mark + text + "\n" + rest[rest.index("<!-- end -->") :])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draw", action="store_true")
    arguments = parser.parse_args()
    if not arguments.draw:
        result = run(arguments.file, arguments.seed)
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(json.dumps(result) + "\n")
        print({name: result[name] for name in ("seconds", "metrics", "peak resident memory, MB")})
    draw()
