"""A million digits on disk: three epochs, with the loss curve, the memory curve and 1-NN on MNIST's own test digits.

With --file big.npy the digits are those of `python -m studies data infinite-mnist --rows 1000000 --out big.npy`, and a
run that is killed goes on from its checkpoint beside them; otherwise they are made in a temporary folder. Resident
memory is what /proc/self/status says, every second; the file is 784 MB, and would be 3.1 GB as float32.
"""

import tempfile
import textwrap
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from sasgp import SASGP
from sasgp.data import load, named
from sasgp.metrics import knn_accuracy, rmse
from studies.infinite_mnist import write_infinite
from studies.records import EARLIER, Record, Run
from studies.tables import table as markdown


def runs(seed: int, quick: bool) -> list[Run]:
    """One."""
    return [Run("infinite-mnist", {"rows": 3000 if quick else 10**6, "max_epochs": 3})]


def resident() -> dict[str, float]:
    """Resident memory and its peak, in MB."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return {name: int(lines[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")}


def trained(X: Any, checkpoint: Path, epochs: int) -> tuple[SASGP, dict[str, Any]]:
    """A model, with the loss of every step and the memory of every second on the way."""
    started, memory, steps = time.monotonic(), [], []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(1.0):
            memory.append([round(time.monotonic() - started, 1), round(resident()["VmRSS"], 1)])

    threading.Thread(target=watch, daemon=True).start()
    model = SASGP(max_epochs=epochs, random_state=0, verbose=True, **EARLIER)
    forward: Any = torch.nn.Module.__call__

    def counted(module: torch.nn.Module, *arguments: object, **options: object) -> Any:
        result = forward(module, *arguments, **options)
        if module is getattr(model, "model_", None) and module.training:
            steps.append(round(float(result.detach()), 5))
        return result

    torch.nn.Module.__call__ = counted  # type: ignore[method-assign]  # history_ has the loss of every epoch only
    try:
        model.fit(X, checkpoint=checkpoint, resume=checkpoint if checkpoint.exists() else None)
    finally:
        torch.nn.Module.__call__ = forward  # type: ignore[method-assign]
        done.set()
    return model, {
        "seconds": time.monotonic() - started,
        "history": model.history_,
        "loss of every step": steps,
        "peak resident memory, MB": resident()["VmHWM"],
        "resident memory, [second, MB]": memory,
    }


def execute(run: Run) -> dict[str, Any]:
    """Train, watch the memory, and measure."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(run.file) if run.file else Path(folder) / "digits.npy"
        if not run.file:
            raw = named.fetch("mnist")
            images, labels = (named.read_idx(raw[name], name) for name in named.IDX[:2])
            write_infinite(images, labels, run.settings["rows"], path)
        data: Any = load(path)
        model, found = trained(data.X, path.with_suffix(".checkpoint.pt"), run.settings["max_epochs"])
        mnist: Any = load("mnist")  # after the peak of the memory was read
        X_test = mnist.X_test * 255  # in the units of the file
        Z_test = model.transform(X_test)
        accuracy = {f"{k}-NN": knn_accuracy(model.embedding_, data.y, Z_test, mnist.y_test, k) for k in (1, 15)}
        decoded = np.asarray(model.predict(Z_test))
        metrics = accuracy | {"RMSE, pixels in [0, 1]": rmse(X_test, decoded) / 255}
        return {"rows": len(data.X), "epochs": len(model.history_), "metrics": metrics, **found}


def table(records: Sequence[Record]) -> str:
    """The metrics."""
    found = records[0]["results"]
    lines = {**found["metrics"], "minutes": found["seconds"] / 60, "peak, MB": found["peak resident memory, MB"]}
    return markdown(["", f"{found['rows']:,} rows"], [[name, f"{value:.4g}"] for name, value in lines.items()])


def figure(records: Sequence[Record]) -> Figure:
    """The loss curve and the memory curve, side by side."""
    result = records[0]["results"]
    found = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = found.subplots(1, 2)
    loss = np.asarray(result["loss of every step"])
    left.plot(np.arange(1, len(loss) + 1), loss, lw=0.6, color="0.75")
    width = min(50, len(loss))
    smooth = np.convolve(loss, np.ones(width) / width, "valid")
    left.plot(np.arange(width, len(loss) + 1), smooth, lw=1.5)
    low, high = np.quantile(loss[len(loss) // 20 :], [0, 1])
    left.set(xlabel="step of 1024 rows", ylabel="loss, nats per pixel", ylim=(low - 0.05, high + 0.05))
    seconds, megabytes = np.asarray(result["resident memory, [second, MB]"]).reshape(-1, 2).T
    right.plot(seconds / 60, megabytes)
    right.axhline(784, ls=":", color="0.5")
    right.text(0, 790, "the file", color="0.4", va="bottom", fontsize=8)
    right.set(xlabel="minutes", ylabel="resident memory, MB", ylim=(0, 1200))
    return found


def part(records: Sequence[Record]) -> str:
    """What the page says."""
    result, machine = records[0]["results"], records[0]["machine"]
    losses = ", ".join(f"{record['loss']:.3f}" for record in result["history"])
    one, fifteen = (result["metrics"][f"{k}-NN"] for k in (1, 15))
    text = (
        f"{result['epochs']} epochs of {result['rows']:,} rows took {result['seconds'] / 60:.0f} minutes on "
        f"{machine['threads']} thread of a machine with {machine['cores']} cores at a load of "
        f"{machine['load after'][1]:.0f}. The loss of the epochs was {losses} nats a value (pixels are bytes here: "
        f"ln 255 = 5.54 more than for pixels in [0, 1]). On the 10 000 test digits of MNIST itself, through the latent "
        f"space z = encoder(x), 1-NN accuracy is {one:.3f} and 15-NN {fifteen:.3f}, with neighbours among the million, "
        f"and RMSE {result['metrics']['RMSE, pixels in [0, 1]']:.4f}. Peak resident memory was "
        f"{result['peak resident memory, MB']:.0f} MB."
    )
    return "\n".join(textwrap.wrap(text, 120))
