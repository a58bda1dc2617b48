"""The short way to the default kernel: against GPyTorch's own, in value, gradient and precision."""

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from oracles import TOLERANCE, assert_close, relative_error
from torch.autograd import gradcheck

from sasgp.gp import kernels
from sasgp.gp.covariance import _is_scaled, covariances
from sasgp.models.base import NOISE_SD, noise_bytes

DOUBLE = torch.float64


def latents(rng, n, Q, dtype=DOUBLE):
    return torch.randn(n, Q, generator=rng, dtype=DOUBLE).to(dtype)


def through_gpytorch(kernel, Z, A):
    return kernel(Z, Z[:A]).to_dense(), kernel(Z, diag=True)


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
@pytest.mark.parametrize(
    ("name", "Q"), [("rbf", 1), ("rbf", 2), ("rbf-ard", 3), ("matern32", 2), ("matern32-ard", 3), ("matern52-ard", 3)]
)
def test_values_and_gradients_are_gpytorchs(name, Q, dtype, rng):
    kernel = kernels.make(name, Q).to(dtype)
    kernel.outputscale, kernel.base_kernel.lengthscale = 0.7, 0.4 + torch.arange(kernel.base_kernel.lengthscale.numel())
    Z, A = latents(rng, 60, Q, dtype).requires_grad_(), 25
    weights, more = torch.randn(60, A, generator=rng, dtype=dtype), torch.randn(60, generator=rng, dtype=dtype)
    found = []
    for way in (covariances, through_gpytorch):
        K, k = way(kernel, Z, A)
        total = (weights * K).sum() + (more * k).sum()
        found.append((K.detach(), k.detach(), *torch.autograd.grad(total, [Z, *kernel.parameters()])))
    for ours, theirs in zip(*found, strict=True):
        assert ours.shape == theirs.shape
        assert_close(ours, theirs, TOLERANCE[dtype])


@pytest.mark.parametrize("name", ["rbf-ard", "matern32-ard", "matern52-ard"])
def test_gradient_is_that_of_finite_differences(name, rng):
    kernel = kernels.make(name, 2).double()
    Z = latents(rng, 7, 2).requires_grad_()
    assert gradcheck(lambda Z, *_: covariances(kernel, Z, 4)[0], (Z, *kernel.parameters()))


@pytest.mark.parametrize("A", [1, 5])
def test_everything_active_and_one_point(A, rng):
    kernel, Z = kernels.make("rbf", 2).double(), latents(rng, A, 2)
    K, k = covariances(kernel, Z, A)
    assert_close(K.detach(), through_gpytorch(kernel, Z, A)[0].detach())
    assert torch.equal(K.diagonal(), k)


def test_float32_far_from_the_origin_and_at_a_short_lengthscale(rng):
    # Differences alone count: a common shift of 100 lengthscales must not cost digits. Points that coincide have k = s
    kernel = kernels.make("rbf", 2)
    kernel.base_kernel.lengthscale = 0.1
    Z = latents(rng, 200, 2)
    Z[150:] = Z[:50]
    truth = covariances(kernel.double(), Z, 50)[0].detach()
    K = covariances(kernel.float(), (Z + 10).float(), 50)[0].detach()
    assert relative_error(K, truth) < 1e-4
    assert K.max() <= 1
    assert torch.equal(K[:50].diagonal(), torch.ones(50))


def test_only_the_plain_kernel_goes_the_short_way():
    class Other(RBFKernel):
        pass

    assert all(_is_scaled(kernels.make(name, 2), RBFKernel) for name in ("rbf", "rbf-ard"))
    others = [
        RBFKernel(),
        ScaleKernel(Other()),
        ScaleKernel(MaternKernel()),
        ScaleKernel(RBFKernel(active_dims=[0])),
        ScaleKernel(RBFKernel(), active_dims=[0]),
        ScaleKernel(RBFKernel(batch_shape=torch.Size([2])), batch_shape=torch.Size([2])),
    ]
    assert not any(_is_scaled(other, RBFKernel) for other in others)


def test_noise_bytes_have_no_mean_and_the_variance_that_is_said():
    # 128 odd numbers, ±1, ±3, …, ±127: mean 0, variance (128² − 1)/3; n = 10⁶ leaves 1e-3 of a standard deviation
    noise = noise_bytes(torch.Size([1000, 1001]), torch.Generator().manual_seed(0)).double()
    assert set(noise.unique().tolist()) == set(range(-127, 128, 2))
    assert abs(noise.mean()) / NOISE_SD < 4e-3
    assert abs(noise.std() / NOISE_SD - 1) < 4e-3
    # neighbours share a draw of the generator, and must not share anything else
    for lag in (1, 7, 8, 1001):
        flat = noise.flatten() / NOISE_SD
        assert abs((flat[lag:] * flat[:-lag]).mean()) < 4e-3


def test_second_derivative_raises_rather_than_lies(rng):
    Z = latents(rng, 6, 2).requires_grad_()
    total = covariances(kernels.make("rbf", 2).double(), Z, 3)[0].sum() + Z.pow(3).sum()
    with pytest.raises(RuntimeError, match=r"differentiable once, but create_graph=True"):
        torch.autograd.grad(total, Z, create_graph=True)
