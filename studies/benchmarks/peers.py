"""Others on the same data in the same run: GPyTorch's BayesianGPLVM, Pyro's GPLVM, our BayesianGPLVM, and UMAP.

- **Seconds an epoch**, with as many inducing points as there are active ones. Ours are timed over a whole epoch of
  `fit`. The others are too slow for that: some steps of GPyTorch's are timed and multiplied by the steps of an epoch;
  Pyro's has no mini-batches and needs N × D × M numbers at once, so a step on a few rows is multiplied by the rows.
- **Seconds to a held-out RMSE**, on data that all can manage. GPyTorch and Pyro have no encoder: held-out rows are put
  where the decoder explains them best, by 30 steps from the best of the training latents, and that time is not counted.
  Ours are refined likewise, by as many steps from the encoder's answer. Of ours whole fits of 10, 20, 40 … epochs are
  timed, and the first that reaches the RMSE counts, without those before it.
- **UMAP**: what a user would pick instead. Seconds from the start of a process to a fitted UMAP, against those to the
  first of our fits with 1-NN ≥ .63 (the paper's Table 2), and the transform of the test rows.

Needs the extra `bench`.
"""

import gc
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import gpytorch
import numpy as np
import torch
from gpytorch.models.gplvm import BayesianGPLVM, VariationalLatentVariable
from numpy.typing import NDArray
from torch import Tensor

import sasgp
from sasgp.data import load
from sasgp.data.progress import progress_bar
from sasgp.evaluation import hold_out
from sasgp.gp.linalg import principal_axes
from sasgp.metrics import rmse
from studies.benchmarks.embedding import embedded
from studies.benchmarks.measure import compared, spread, timed, turns
from studies.benchmarks.step import DATA
from studies.records import EARLIER, Record, Run
from studies.tables import number, of_rows

__all__ = ["GPyTorch", "Pyro", "execute", "table"]

Q = 2
SIZES, QUICK_SIZES = (100, 400), (25,)
ROWS = 500  # of Pyro's step
EVERY = 1.5  # held-out RMSE is asked for whenever training has gone on for this factor
SEARCH = 30  # steps by which a new row is put in its place
TARGET, TIME_OUT = 0.18, 60.0  # digits: PCA has .231
PAPER = 0.63  # 1-NN of the Bayesian model on MNIST, Table 2
LADDER = (1, 2, 3, 4, 6, 10)  # epochs tried for that


class Peer(Protocol):
    """What is asked of another library's model."""

    steps: float  # of an epoch

    def step(self) -> None: ...

    def latents(self) -> Tensor:
        """Of the training rows."""
        ...

    def decode(self, Z: Tensor) -> Tensor:
        """Mean [M, D], differentiable."""
        ...


def principal(X: Tensor) -> Tensor:
    """Leading coordinates, with unit variance: where the peers start from."""
    centred = X - X.mean(0)
    Z = centred @ principal_axes(centred, Q)[1]
    return Z / Z.std(0)


class GPyTorch:
    """As GPyTorch's tutorial lays it out: inducing points, kernel and q(u) for every feature by itself."""

    BATCH = 100

    def __init__(self, X: Tensor, n_inducing: int) -> None:
        N, D = X.shape
        features = torch.Size([D])

        class Model(BayesianGPLVM):
            def __init__(self) -> None:
                q_u = gpytorch.variational.CholeskyVariationalDistribution(n_inducing, batch_shape=features)
                Z_u = torch.randn(D, n_inducing, Q)
                prior = gpytorch.priors.NormalPrior(torch.zeros(N, Q), torch.ones(N, Q))
                super().__init__(
                    VariationalLatentVariable(N, D, Q, principal(X), prior),
                    gpytorch.variational.VariationalStrategy(self, Z_u, q_u, learn_inducing_locations=True),
                )
                self.mean_module = gpytorch.means.ConstantMean()
                self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=Q))

            def forward(self, Z: Tensor) -> Any:
                return gpytorch.distributions.MultivariateNormal(self.mean_module(Z), self.covar_module(Z))

        self.X, self.steps = X, N / self.BATCH
        self.model = Model()
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood(batch_shape=features)
        self.bound = gpytorch.mlls.VariationalELBO(self.likelihood, self.model, num_data=N)
        self.adam = torch.optim.Adam([*self.model.parameters(), *self.likelihood.parameters()], lr=0.01)

    def step(self) -> None:
        self.model.train().requires_grad_(True)
        rows = torch.randint(len(self.X), (self.BATCH,))
        self.adam.zero_grad()
        Z = self.model.sample_latent_variable()
        loss = -self.bound(self.model(Z[rows]), self.X[rows].T).sum()
        loss.backward()
        self.adam.step()

    def latents(self) -> Tensor:
        return self.model.X.q_mu.detach()

    def decode(self, Z: Tensor) -> Tensor:
        return self.model.eval().requires_grad_(False)(Z).mean.T  # it keeps its factors as long as nobody trains it


class Pyro:
    """A sparse GP regression whose inputs are latent, as Pyro's tutorial has it: all rows in every step."""

    def __init__(self, X: Tensor, n_inducing: int) -> None:
        import pyro  # the page is made from the files also where the extra is not installed
        from pyro.contrib import gp

        pyro.clear_param_store()
        Z = principal(X)
        kernel = gp.kernels.RBF(input_dim=Q, lengthscale=torch.ones(Q))
        Z_u = Z[torch.randperm(len(Z))[:n_inducing]] + 0.01 * torch.randn(n_inducing, Q)
        base = gp.models.SparseGPRegression(Z, X.T.contiguous(), kernel, Z_u, noise=torch.tensor(0.01), jitter=1e-5)
        self.model, self.steps = gp.models.GPLVM(base), 1.0
        self.loss = pyro.infer.TraceMeanField_ELBO().differentiable_loss
        self.adam = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def step(self) -> None:
        self.adam.zero_grad()
        self.loss(self.model.model, self.model.guide).backward()
        self.adam.step()

    def latents(self) -> Tensor:
        return self.model.X_loc.detach()

    def decode(self, Z: Tensor) -> Tensor:
        base = self.model.base_model
        base.set_data(self.latents(), base.y)
        return base(Z)[0].T


def ours() -> dict[str, Callable[..., Any]]:
    """Our estimators by name, each made from the number of active or inducing points."""

    def sas(n: int, **settings: Any) -> Any:
        return sasgp.SASGP(active_set_size=n, random_state=0, **EARLIER, **settings)

    def inducing(n: int, **settings: Any) -> Any:
        return sasgp.BayesianGPLVM(n_inducing=n, random_state=0, **EARLIER, **settings)

    return {"SASGP": sas, "our BayesianGPLVM": inducing}


PEERS: dict[str, Callable[[Tensor, int], Peer]] = {"GPyTorch's BayesianGPLVM": GPyTorch, "Pyro's GPLVM": Pyro}


@contextmanager
def limited_memory(share: float = 0.85) -> Iterator[None]:
    """Let an allocation fail that the machine has no room for, rather than the whole run be killed."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    size = int(share * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    resource.setrlimit(resource.RLIMIT_AS, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def epoch_of(estimator: Any, X: NDArray[Any]) -> float:
    """Seconds of the second epoch of a fit."""
    history = estimator.fit(X).history_
    return history[1]["seconds"] - history[0]["seconds"]


def epochs(X: NDArray[np.float32], n: int, rounds: int, steps: int) -> dict[str, Any]:
    """Seconds an epoch with n active or inducing points; None where a step has no room in memory."""
    contenders: dict[str, Callable[[], float]] = {
        name: lambda make=make: epoch_of(make(n, max_epochs=2), X) for name, make in ours().items()
    }
    too_large = []
    some = torch.from_numpy(X[np.random.default_rng(0).permutation(len(X))[:ROWS]])
    with limited_memory():
        for name, make in PEERS.items():
            rows = some if make is Pyro else torch.from_numpy(X)
            try:
                peer = make(rows, n)
                peer.step()
            except RuntimeError as error:
                if "allocate memory" not in str(error):
                    raise
                too_large.append(name)
                gc.collect()
                continue
            share = len(X) / len(rows) * peer.steps
            contenders[name] = lambda peer=peer, share=share: share * timed(peer.step, steps)
        found = turns(contenders, rounds, f"peers  epoch, {n} points")
    return {
        "points": n,
        "seconds an epoch": {name: spread(values) for name, values in found.items()} | dict.fromkeys(too_large),
        "against SASGP": {name: compared(found, name, "SASGP") for name in found},
    }


def held_out_rmse(peer: Peer, X: Tensor) -> float:
    """RMSE of rows that are put where the decoder explains them best."""
    with torch.no_grad():
        candidates = peer.latents()[:500]
        nearest = torch.cdist(X, peer.decode(candidates)).argmin(1)
    Z = candidates[nearest].clone().requires_grad_()
    adam = torch.optim.Adam([Z], lr=0.05)
    best = torch.full((len(X),), torch.inf)
    for _ in range(SEARCH):
        errors = (X - peer.decode(Z)).square().mean(1)
        best = torch.minimum(best, errors.detach())
        (Z.grad,) = torch.autograd.grad(errors.sum(), Z)
        adam.step()
    return float(best.mean().sqrt())


def peer_reaches(make: Callable[[], Peer], X_test: Tensor, target: float, time_out: float) -> list[list[float]]:
    """[seconds of training, held-out RMSE] until the target or the end of the time."""
    started = time.perf_counter()
    peer = make()
    spent, asked = time.perf_counter() - started, 0.5
    curve: list[list[float]] = []
    while spent < time_out:
        spent += timed(peer.step)
        if spent > asked:
            asked = spent * EVERY
            curve.append([spent, held_out_rmse(peer, X_test)])
            if curve[-1][1] <= target:
                break
    return curve


def ours_reaches(
    make: Callable[..., Any], X: NDArray[Any], X_test: NDArray[Any], target: float, time_out: float
) -> list[list[float]]:
    """[seconds of a fit, held-out RMSE], for twice as many epochs every time."""
    make(max_epochs=1).fit(X)  # the first fit of a process imports
    curve: list[list[float]] = []
    n_epochs = 10
    while not curve or (curve[-1][1] > target and curve[-1][0] < time_out / 2):
        model = make(max_epochs=n_epochs)
        spent = timed(lambda model=model: model.fit(X))
        curve.append([spent, rmse(X_test, model.predict(model.transform(X_test, refine=SEARCH)))])
        n_epochs *= 2
    return curve


def to_rmse(n: int, target: float, time_out: float, rounds: int) -> dict[str, Any]:
    """Seconds until held-out rows of digits are decoded to the RMSE asked for; None: not in the time there was."""
    split = hold_out(load("digits"), None, 0)
    assert split.test is not None
    X, X_test = (np.asarray(part.X, np.float32) for part in (split.train, split.test))
    contenders: dict[str, Callable[[], list[list[float]]]] = {
        name: lambda make=make: ours_reaches(lambda **s: make(n, **s), X, X_test, target, time_out)
        for name, make in ours().items()
    }
    rows, new = torch.from_numpy(X), torch.from_numpy(X_test)
    mean = rows.mean(0)  # Pyro's model has none of its own
    for name, make in PEERS.items():
        contenders[name] = lambda make=make: peer_reaches(lambda: make(rows - mean, n), new - mean, target, time_out)
    curves: dict[str, list[list[list[float]]]] = {name: [] for name in contenders}
    with progress_bar(f"peers  RMSE {target}", rounds * len(contenders)) as update:
        for i in range(rounds):
            for j, (name, contender) in enumerate(contenders.items()):
                update(i * len(contenders) + j, f"{name}, {i + 1}/{rounds}")
                curves[name].append(contender())
    seconds = {
        name: [curve[-1][0] if curve and curve[-1][1] <= target else None for curve in found]
        for name, found in curves.items()
    }
    reached = {name: [s or time_out for s in values] for name, values in seconds.items()}
    return {
        "data": "digits",
        "rows": len(X),
        "new rows": len(X_test),
        "points": n,
        "target": target,
        "time-out": time_out,
        "seconds": seconds,
        "against SASGP": {name: compared(reached, name, "SASGP") for name in reached},
        "curves": curves,
    }


def against_umap(data: str, rounds: int, ladder: tuple[int, ...]) -> dict[str, Any]:
    """UMAP's fit and transform against ours."""
    found: dict[str, list[dict[str, Any]]] = {"SASGP": [], "UMAP": []}
    with progress_bar(f"peers  UMAP, {data}", 2 * rounds) as update:
        for i in range(rounds):
            update(2 * i, f"SASGP, {i + 1}/{rounds}")
            tried = [embedded("sasgp", data, ladder[0])]
            for n_epochs in ladder[1:]:
                if tried[-1]["1-NN"] < PAPER:
                    tried.append(embedded("sasgp", data, n_epochs))
            found["SASGP"].append(tried[-1])
            ladder = ladder[len(tried) - 1 :]  # shorter ones need not be tried again
            update(2 * i + 1, f"UMAP, {i + 1}/{rounds}")
            found["UMAP"].append(embedded("umap", data))
    result: dict[str, Any] = {"data": data, "1-NN asked for": PAPER, "runs": found}
    for part in ("fit", "transform"):
        seconds = {name: [run[part] for run in runs] for name, runs in found.items()}
        result[part] = {name: spread(values) for name, values in seconds.items()}
        result[part]["UMAP / SASGP"] = compared(seconds, "UMAP", "SASGP")
    return result


def execute(run: Run) -> dict[str, Any]:
    """All three comparisons."""
    quick = run.settings["quick"]
    torch.manual_seed(0)  # the peers draw from torch's global state
    data = "digits" if quick else DATA
    X = np.asarray(hold_out(load(data), None, 0).train.X, np.float32)
    sizes, rounds = (QUICK_SIZES, 2) if quick else (SIZES, 3)
    return {
        "data": {"name": data, "rows": len(X), "features": X.shape[1]},
        "epoch": [epochs(X, n, rounds, steps=2) for n in sizes],
        "RMSE": to_rmse(25, 0.215, 5.0, 1) if quick else to_rmse(100, TARGET, TIME_OUT, 2),
        "UMAP": against_umap(data, 1 if quick else 2, (10,) if quick else LADDER),
    }


def table(records: Sequence[Record]) -> str:
    """Three tables, one under the other."""
    result = records[0]["results"]
    data, reached, umap = result["data"], result["RMSE"], result["UMAP"]
    epoch = [
        {
            "active or inducing points": part["points"],
            "model": name,
            f"s an epoch of {data['name']}, {data['rows']:,} rows": value["median"] if value else "too large",
            "against SASGP (quartiles)": part["against SASGP"].get(name, ""),
        }
        for part in result["epoch"]
        for name, value in part["seconds an epoch"].items()
    ]
    late = f"> {reached['time-out']:.0f}"
    to_target = [
        {
            f"{reached['points']} points, {reached['data']}": name,
            f"s to a held-out RMSE of {reached['target']}": ", ".join(number(s) if s else late for s in values),
            "against SASGP (quartiles)": ("≥ " if None in values else "") + number(reached["against SASGP"][name]),
        }
        for name, values in reached["seconds"].items()
    ]
    new = umap["runs"]["UMAP"][0]["new rows"]
    beside = [
        {
            umap["data"]: label,
            "SASGP, s": umap[part]["SASGP"]["median"],
            "UMAP, s": umap[part]["UMAP"]["median"],
            "UMAP / SASGP (quartiles)": umap[part]["UMAP / SASGP"],
            "1-NN, SASGP and UMAP": " and ".join(number(umap["runs"][name][0]["1-NN"]) for name in ("SASGP", "UMAP")),
        }
        for part, label in (("fit", "process to the end of fit"), ("transform", f"transform of {new:,} new rows"))
    ]
    return "\n\n".join(of_rows(rows) for rows in (epoch, to_target, beside))
