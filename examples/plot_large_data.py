"""
Ten million rows: what to do, in a small version that runs
==========================================================

Train from a file that is read in batches, survive an interruption, embed to a file, add rows later, and know what it
will cost.
"""

# %%
# Everything on this page works in the same way for ten million rows. Here there are 6000, so that it runs in seconds.
# The file is written block by block, as you would do from a database: at no time are all rows in memory. Single bytes
# are enough for pixels, and half precision (``float16``) for most measurements.

import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits

from sasgp import SASGP, metrics, plots

plt.style.use(plots.STYLE)
digits, labels = load_digits(return_X_y=True)
seen, unseen = np.split(np.random.default_rng(0).permutation(len(digits)), [1500])
folder = Path(tempfile.mkdtemp())
n, block = 6000, 1500
file = np.lib.format.open_memmap(folder / "rows.npy", "w+", np.uint8, (n, 64))
truth = np.empty(n, int)
for start in range(0, n, block):  # digits, shifted by up to half a pixel, and with other ink
    draw = np.random.default_rng(start)
    chosen = draw.choice(seen, block)
    images = digits[chosen].reshape(-1, 8, 8)
    shift = draw.uniform(-0.5, 0.5, (block, 1, 1))
    images = (1 - np.abs(shift)) * images + np.abs(shift) * np.where(
        shift > 0, np.roll(images, 1, 2), np.roll(images, -1, 2)
    )
    file[start : start + block] = np.clip(images * draw.uniform(0.7, 1.2, (block, 1, 1)) * 15, 0, 255).reshape(
        block, 64
    )
    truth[start : start + block] = labels[chosen]
file.flush()
del file
print(f"{(folder / 'rows.npy').stat().st_size / 1e6:.1f} MB on disk; ten million such rows would be 640 MB")

# %%
# ``fit`` takes the memory map. Above 64 MiB it reads the file in chunks, in random order, while a step computes. Ask
# for a checkpoint in any run of more than a few minutes. This one is interrupted on purpose after the third epoch.

torch.set_num_threads(1)  # only for the times at the end of this page, which are those of one core
rows = np.load(folder / "rows.npy", mmap_mode="r")
clock = []


def power_cut(model, record):
    clock.append(time.process_time())
    if record["epoch"] == 3:
        raise RuntimeError("the power is cut")


settings = {"active_set_size": 100, "batch_size": 500, "max_epochs": 8, "random_state": 0}
model = SASGP(**settings)
try:
    model.fit(rows, checkpoint=folder / "run.pt", callback=power_cut)
except RuntimeError as error:
    print(f"{error}; {folder.joinpath('run.pt').stat().st_size / 1e6:.1f} MB are in the checkpoint")

# %%
# The same call with ``resume`` goes on. All randomness comes from the seed and the number of the step, so the result
# has the bits of an undisturbed run.

model.fit(rows, resume=folder / "run.pt")
undisturbed = SASGP(**settings).fit(rows)
print("same bits as without the power cut:", np.array_equal(model.embedding_, undisturbed.embedding_))

# %%
# Latents go to a file as they are computed. The errors are measured on new digits, from which no training row was made.

start = time.process_time()
Z = model.transform(rows, out=folder / "latents.npy")
encoding = (time.process_time() - start) / n  # seconds for a row
new = (digits[unseen] * 15).astype(np.uint8)
mean, std = model.reconstruct(new, return_std=True)
print(f"latents: {type(Z).__name__} {Z.shape}")
print(f"unseen digits: RMSE {metrics.rmse(new, mean) / 255:.3f} of the range, ", end="")
print(f"15-NN accuracy {metrics.knn_accuracy(Z, truth, model.transform(new), labels[unseen], k=15):.3f}")

# %%
# Rows that arrive on Monday need no training. ``update`` makes one pass over them, and the decoder is then that of all
# rows. These are like the others, so little changes. If they were of a new kind, a warning would ask for a new fit.

half = len(new) // 2
before = model.score_samples(new[half:], n_samples=0).mean()
model.update(new[:half])
after = model.score_samples(new[half:], n_samples=0).mean()
print(f"{len(model.embedding_)} rows are in the decoder; ", end="")
print(f"mean log density of the other new rows {before:.1f} nats before, {after:.1f} after")

# %%
# What will it cost? A step costs the same for any number of rows: about A²·(A + B) + A·B·D operations, with A active
# rows, batches of B, and D features. So measure one step on your machine and multiply.

step = (clock[1] - clock[0]) / np.ceil(n / settings["batch_size"])
sizes = np.array([1e4, 1e5, 1e6, 1e7])
steps = np.maximum(1000, 3 * sizes / settings["batch_size"])  # max_epochs=None: about 1000 steps, but at least 3 passes
figure, axes = plt.subplots(figsize=(6.8, 3.8))
for name, minutes, colour in (
    ("training, with the default number of epochs", steps * step / 60, "C0"),
    ("embedding all rows", sizes * encoding / 60, "C4"),
):
    axes.loglog(sizes, minutes, "o-", color=colour, label=name)
    for size, value in zip(sizes, minutes, strict=True):
        text = f"{value:.2g}" if value < 10 else f"{value:.0f}"
        axes.annotate(text, (size, value), (0, 8), textcoords="offset points", ha="center", fontsize=8, color=colour)
axes.set(xlabel="rows", ylabel="minutes on one core", xlim=(5e3, 2e7))
axes.margins(y=0.15)
axes.legend(loc="upper left")
plt.show()
print(f"one step of {settings['batch_size']} rows takes {1000 * step:.0f} ms on the machine that made this page")

# %%
# Advice for the real thing:
#
# - **Shuffle the file once** if it is sorted by class or date. Batches are drawn from chunks of adjacent rows.
# - **Memory** is for batches, not for rows: what grows with the rows is 16 bytes for each.
# - **Fewer epochs, not fewer rows.** Three passes over ten million rows are 29 000 steps of 1024 rows. Try
#   ``max_epochs=1`` first.
# - **More cores**: ``torchrun --nproc-per-node 4 -m sasgp fit rows.npy --out RUN``. Each process draws its own active
#   sets.
# - **The command line** does all of this: ``sasgp fit rows.npy --out RUN``, ``sasgp fit --resume RUN`` and ``sasgp
#   update RUN monday.npy``.
#
# **What to read next.** :doc:`/large-data` has several hosts, and what happens when a disk is full. :doc:`/how-long`
# has times and memory that were measured, and :doc:`/performance` compares a step with its matrix products.
