"""A kernel's description is the kernel: rebuilt, it evaluates to the same bits and trains from the same place."""

import copy
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.kernels import (
    AdditiveKernel,
    ConstantKernel,
    CosineKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PiecewisePolynomialKernel,
    PolynomialKernel,
    ProductKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from gpytorch.priors import (
    GammaPrior,
    HalfCauchyPrior,
    HalfNormalPrior,
    HorseshoePrior,
    LogNormalPrior,
    MultivariateNormalPrior,
    NormalPrior,
    SmoothedBoxPrior,
    UniformPrior,
)

from sasgp.errors import InputError
from sasgp.gp.kernels import NAMES, CustomKernelError, describe, lengthscales, make, rebuild, relevance

Q = 3

KERNELS: dict[str, Callable[[], Kernel]] = {
    **{name: lambda name=name: make(name, Q) for name in NAMES},
    "RBF": RBFKernel,
    "RBF on two dimensions": lambda: RBFKernel(ard_num_dims=2, active_dims=(0, 2)),
    "Matern 1/2": lambda: MaternKernel(nu=0.5),
    "Matern 3/2, numpy's numbers": lambda: MaternKernel(nu=np.float64(1.5), ard_num_dims=np.int64(Q)),
    "Matern 5/2": lambda: MaternKernel(),
    "RQ": lambda: RQKernel(ard_num_dims=Q, alpha_constraint=GreaterThan(0.3)),
    "Periodic": PeriodicKernel,
    "Periodic, ARD": lambda: PeriodicKernel(ard_num_dims=Q),
    "Cosine": lambda: CosineKernel(active_dims=(1,)),
    "Linear": LinearKernel,
    "Linear, ARD": lambda: LinearKernel(ard_num_dims=Q),
    "Polynomial": lambda: PolynomialKernel(power=3),
    "Polynomial, a tensor's power": lambda: PolynomialKernel(power=torch.tensor(2)),
    "Constant": ConstantKernel,
    **{f"piecewise polynomial {q}": lambda q=q: PiecewisePolynomialKernel(q=q) for q in range(4)},
    "spectral mixture": lambda: SpectralMixtureKernel(num_mixtures=4, ard_num_dims=Q),
    "scale, dimensions of the base": lambda: ScaleKernel(RBFKernel(active_dims=(1,))),
    "scale, its own dimensions": lambda: ScaleKernel(RBFKernel() + LinearKernel(), active_dims=(0, 1)),
    "sum": lambda: RBFKernel() + LinearKernel() + ConstantKernel(),
    "product": lambda: RBFKernel(active_dims=(0,)) * PeriodicKernel(active_dims=(1, 2)),
    "sum on some dimensions": lambda: _on((0, 2), RBFKernel() + MaternKernel()),
    "nested": lambda: ScaleKernel(ScaleKernel(RBFKernel()) * (LinearKernel() + RQKernel()) + CosineKernel()),
    "sum of sums": lambda: AdditiveKernel(AdditiveKernel(RBFKernel()), ProductKernel(LinearKernel(), RBFKernel())),
    "exp": lambda: RBFKernel(lengthscale_constraint=Positive(torch.exp, torch.log)),
    "interval": lambda: RBFKernel(lengthscale_constraint=Interval(0.1, 0.9)),
    "interval for each dimension": lambda: RBFKernel(
        ard_num_dims=2, active_dims=(0, 1), lengthscale_constraint=Interval(torch.tensor([0.1, 0.2]), 0.9)
    ),
    "less than": lambda: ScaleKernel(RBFKernel(), outputscale_constraint=LessThan(7.7)),
    "greater than, softplus function": lambda: RBFKernel(
        lengthscale_constraint=GreaterThan(0.1, torch.nn.functional.softplus, None)
    ),
    "no transform": lambda: RBFKernel(lengthscale_constraint=GreaterThan(-5.0, transform=None, inv_transform=None)),
    "deep copy": lambda: copy.deepcopy(ScaleKernel(RBFKernel())),
    "gamma": lambda: ScaleKernel(
        RBFKernel(lengthscale_prior=GammaPrior(3.0, 6.0)), outputscale_prior=GammaPrior(2.0, 0.15)
    ),
    "normal": lambda: LinearKernel(variance_prior=NormalPrior(0.1, 2.0)),
    "log-normal": lambda: PeriodicKernel(period_length_prior=LogNormalPrior(0.1, 1.1)),
    "log-normal for each dimension": lambda: RBFKernel(
        ard_num_dims=Q, lengthscale_prior=LogNormalPrior(torch.tensor([0.1, 0.2, 0.3]), 1.1)
    ),
    "uniform": lambda: ConstantKernel(constant_prior=UniformPrior(0.0, 1e4)),
    "half Cauchy": lambda: PolynomialKernel(power=2, offset_prior=HalfCauchyPrior(0.3)),
    "half normal": lambda: CosineKernel(period_length_prior=HalfNormalPrior(0.7)),
    "horseshoe": lambda: RBFKernel(lengthscale_prior=HorseshoePrior(0.1)),
    "smoothed box": lambda: RBFKernel(lengthscale_prior=SmoothedBoxPrior(0.1, 2.0, 0.3)),
    "checked prior": lambda: RBFKernel(lengthscale_prior=GammaPrior(3.0, 6.0, validate_args=True)),
    "frozen": lambda: _frozen(ScaleKernel(RBFKernel())),
}


def _on(dims: tuple[int, ...], kernel: Kernel) -> Kernel:
    kernel.active_dims = torch.tensor(dims)
    return kernel


def _frozen(kernel: Kernel) -> Kernel:
    kernel.base_kernel.raw_lengthscale.requires_grad_(False)
    return kernel


def randomised(kernel: Kernel, dtype: torch.dtype) -> Kernel:
    """Hyperparameters with all of the dtype's digits, as training leaves them."""
    generator = torch.Generator().manual_seed(0)
    kernel.to(dtype)
    for parameter in kernel.parameters():
        parameter.data = torch.rand(parameter.shape, generator=generator, dtype=dtype) + 0.1
    return kernel


def log_priors(kernel: Kernel) -> list[Any]:
    return sorted((name, prior.log_prob(f(module)).tolist()) for name, module, prior, f, _ in kernel.named_priors())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_rebuilt_kernel_is_the_same(name: str, dtype: torch.dtype) -> None:
    kernel = randomised(KERNELS[name](), dtype)
    text = json.dumps(describe(kernel), allow_nan=False)
    again = rebuild(json.loads(text))

    def parameters(k: Kernel) -> list[tuple[str, torch.dtype, bool]]:
        return [(name, p.dtype, p.requires_grad) for name, p in k.named_parameters()]

    assert parameters(again) == parameters(kernel)
    assert log_priors(again) == log_priors(kernel)
    assert json.dumps(describe(again)) == text

    generator = torch.Generator().manual_seed(1)
    X, Y = (torch.randn(n, Q, generator=generator, dtype=dtype) for n in (7, 4))
    assert torch.equal(again(X, Y).to_dense(), kernel(X, Y).to_dense())
    assert torch.equal(again(X).to_dense(), kernel(X).to_dense())
    assert torch.equal(again(X, diag=True), kernel(X, diag=True))

    # Training goes on alike: gradients pass through the constraints' transforms
    for k in (kernel, again):
        k(X, Y).to_dense().sum().backward()
    for p, q in zip(kernel.parameters(), again.parameters(), strict=True):
        assert (p.grad is None and q.grad is None) or torch.equal(p.grad, q.grad)
    # and so does setting a value, by the transforms' inverses (one inside of every interval above)
    for (_, p, c), (_, q, d) in zip(
        kernel.named_parameters_and_constraints(), again.named_parameters_and_constraints(), strict=True
    ):
        value = torch.full_like(p, 0.5)
        assert torch.equal(c.inverse_transform(value), d.inverse_transform(value))
        assert c.check(value) == d.check(value)
        assert torch.equal(c.transform(p), d.transform(q))


def test_restored_prior_can_set_its_hyperparameter() -> None:
    kernel = rebuild(describe(RBFKernel(lengthscale_prior=UniformPrior(2.0, 2.5))))
    kernel.sample_from_prior("lengthscale_prior")
    assert 2.0 <= kernel.lengthscale.item() <= 2.5


def test_bounds_keep_the_digits_they_were_used_with() -> None:
    # Interval(0.1, …) rounds to float32 when it is made, whatever the kernel becomes later
    kernel = RBFKernel(lengthscale_constraint=Interval(0.1, 0.9)).double()
    bound = rebuild(describe(kernel)).raw_lengthscale_constraint.lower_bound
    assert bound.dtype == torch.float64
    assert bound.item() == float(np.float32(0.1)) != 0.1


# Known values: with lengthscale and amplitude 1, k(0, r) at r = 2
AT_TWO = {
    "rbf": math.exp(-2),
    "matern12": math.exp(-2),
    "matern32": (1 + math.sqrt(3) * 2) * math.exp(-math.sqrt(3) * 2),
    "matern52": (1 + math.sqrt(5) * 2 + 5 * 4 / 3) * math.exp(-math.sqrt(5) * 2),
}


@pytest.mark.parametrize("name", NAMES)
def test_make(name: str) -> None:
    kernel = make(name, Q).double()
    r = torch.tensor([[0.0, 2.0, 0.0]], dtype=torch.float64)
    assert kernel(r, torch.zeros_like(r)).to_dense().item() == pytest.approx(
        AT_TWO[name.removesuffix("-ard")], rel=1e-6
    )
    assert kernel.base_kernel.raw_lengthscale.shape == (1, Q if name.endswith("-ard") else 1)
    # A step of s in the raw parameter is a factor of exp(s), at any scale
    for scale in 1e-4, 1.0, 1e4:
        kernel.outputscale = scale
        kernel.raw_outputscale.data += 0.1
        assert kernel.outputscale.item() == pytest.approx(scale * math.exp(0.1))


def test_nothing_draws_from_the_global_generator() -> None:
    before = torch.get_rng_state()
    for made in KERNELS.values():
        rebuild(describe(made()))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("name", "cure"),
    [("rfb", "Did you mean 'rbf'?"), ("matern_52", "Did you mean 'matern52'?"), ("?", "gpytorch.kernels.Kernel")],
)
def test_unknown_name(name: str, cure: str) -> None:
    with pytest.raises(InputError, match=r"kernel must be one of 'rbf'.*Got") as caught:
        make(name, Q)
    assert cure in str(caught.value)


def _shared() -> Kernel:
    part = RBFKernel()
    return part * part


def _with(kernel: Kernel, change: Callable[[Kernel], object]) -> Kernel:
    change(kernel)
    return kernel


class MyKernel(RBFKernel):
    pass


CUSTOM: dict[str, Callable[[], Kernel]] = {
    "subclass": MyKernel,
    "subclass with the name of its base": type("RBFKernel", (RBFKernel,), {}),
    "subclass inside": lambda: ScaleKernel(RBFKernel() + MyKernel()),
    "another of GPyTorch's": lambda: gpytorch.kernels.RFFKernel(num_samples=4, num_dims=Q),
    "batch": lambda: RBFKernel(batch_shape=torch.Size([2])),
    "one part twice": _shared,
    "half precision": lambda: RBFKernel().half(),
    "too many": lambda: RBFKernel(ard_num_dims=1_000_001),
    "empty sum": AdditiveKernel,
    "subclass of a constraint": lambda: RBFKernel(lengthscale_constraint=type("Positive", (Positive,), {})()),
    "unknown transform": lambda: RBFKernel(lengthscale_constraint=Positive(torch.square, torch.sqrt)),
    "unmatched inverse": lambda: RBFKernel(lengthscale_constraint=Positive(torch.exp)),
    "another softplus": lambda: RBFKernel(lengthscale_constraint=Positive(torch.nn.Softplus(beta=2))),
    "another of GPyTorch's priors": lambda: RBFKernel(
        ard_num_dims=2, lengthscale_prior=MultivariateNormalPrior(torch.zeros(2), torch.eye(2))
    ),
    "prior with a transform": lambda: RBFKernel(lengthscale_prior=NormalPrior(0.0, 1.0, transform=torch.exp)),
    "prior on a function": lambda: _with(
        RBFKernel(),
        lambda k: k.register_prior("lengthscale_prior", NormalPrior(0.0, 1.0), lambda m: m.lengthscale.log()),
    ),
    "prior of another name": lambda: _with(
        RBFKernel(), lambda k: k.register_prior("mine", NormalPrior(0.0, 1.0), "lengthscale")
    ),
    "a parameter more": lambda: _with(
        RBFKernel(), lambda k: k.register_parameter("raw_more", torch.nn.Parameter(torch.zeros(1)))
    ),
    "a buffer more": lambda: _with(RBFKernel(), lambda k: k.register_buffer("more", torch.zeros(1))),
    "another shape": lambda: _with(
        RBFKernel(), lambda k: setattr(k, "raw_lengthscale", torch.nn.Parameter(torch.zeros(1, Q)))
    ),
}


@pytest.mark.parametrize("name", CUSTOM)
def test_what_cannot_be_described_says_so(name: str) -> None:
    with pytest.raises(CustomKernelError, match=r"This one cannot: .*pass the kernel when loading"):
        describe(CUSTOM[name]())


def test_a_kernel_that_diverged_is_not_saved() -> None:
    kernel = RBFKernel()
    kernel.raw_lengthscale.data.fill_(math.nan)
    with pytest.raises(InputError, match=r"raw_lengthscale = \[\[nan\]\].*hyper_learning_rate") as caught:
        describe(kernel)
    assert not isinstance(caught.value, CustomKernelError)


def _nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, child in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _nodes(child, (*path, key))


def _changed(value: Any, path: tuple[Any, ...], change: Callable[[Any, Any], object]) -> Any:
    value = copy.deepcopy(value)
    parent = value
    for key in path[:-1]:
        parent = parent[key]
    change(parent, path[-1])
    return value


DESCRIPTION = describe(ScaleKernel(MaternKernel(lengthscale_prior=GammaPrior(3.0, 6.0)) + LinearKernel()))
WRONG = [None, "os.system", "Kernel", "__import__", -1, 1.5, 10**12, 1e400, True, [], [[[]]], {}, {"class": "Module"}]


def test_malformed_descriptions_are_refused() -> None:
    """Every part replaced by something wrong, or left out: an InputError, or a kernel that can be described again."""
    refused = 0
    for path in [path for path in _nodes(DESCRIPTION) if path]:
        for wrong in WRONG:
            try:
                rebuilt = rebuild(_changed(DESCRIPTION, path, lambda parent, key, w=wrong: parent.__setitem__(key, w)))
            except InputError:
                refused += 1
            else:  # a number in place of another, a prior left out, ...
                describe(rebuilt)
        if isinstance(path[-1], str):
            with pytest.raises(InputError):
                rebuild(_changed(DESCRIPTION, path, lambda parent, key: parent.__delitem__(key)))
    assert refused > 500
    for wrong in WRONG:
        with pytest.raises(InputError):
            rebuild(wrong)


@pytest.mark.parametrize(
    "name", ["Kernel", "RFFKernel", "os.system", "GammaPrior", "__class__", "", None, ["RBFKernel"]]
)
def test_only_known_classes_are_rebuilt(name: object) -> None:
    with pytest.raises(InputError, match=r"must name one of AdditiveKernel.*Got"):
        rebuild({**describe(RBFKernel()), "class": name})


def test_endless_nesting_is_refused() -> None:
    description, shell = describe(RBFKernel()), describe(AdditiveKernel(RBFKernel()))
    for _ in range(5000):
        description = {**shell, "kernels": [description]}
    with pytest.raises(InputError, match="malformed: RecursionError"):
        rebuild(description)


def test_lengthscales_of_dimensions_that_an_outer_kernel_chose() -> None:
    inner = RBFKernel(ard_num_dims=2)
    inner.lengthscale = torch.tensor([[2.0, 3.0]])
    assert lengthscales(ScaleKernel(inner, active_dims=(0, 2)), 3) == [2, math.inf, 3]
    own = RBFKernel(active_dims=(1,))
    own.lengthscale = 5.0
    assert lengthscales(ScaleKernel(own), 2) == [math.inf, 5]  # which takes over what its base has chosen
    assert lengthscales(ScaleKernel(own) + ScaleKernel(inner, active_dims=(2, 1)), 3) == [math.inf, 3, 2]


def test_relevance_is_the_spread_of_latents_in_lengthscales() -> None:
    kernel = make("rbf-ard", 3)
    kernel.base_kernel.lengthscale = torch.tensor([[0.5, 1.0, 2.0]])
    Z = np.array([[-1.0, 0.0, 3.0], [1.0, 0.0, 5.0]])  # standard deviations 1, 0 and 1
    assert relevance(kernel, Z) == pytest.approx([2.0, 0.0, 0.5])
