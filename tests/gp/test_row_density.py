"""The fast form of log p(x|z): its value and gradient are the decoder's, and where it loses digits it is not used."""

import gpytorch
import pytest
import torch
from oracles import assert_close

from sasgp.gp.local_noise import LocalNoise
from sasgp.gp.posterior import Posterior
from sasgp.gp.refine import climb
from sasgp.gp.row_density import GramDensity, RowDensity, row_density
from sasgp.gp.row_sums import condition
from sasgp.training.loop import Adam

M, D, Q = 7, 5, 2


def decoder(scales=None, *, noise=0.1, lengthscale=0.8, n=40):
    draw = torch.Generator().manual_seed(0)
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    kernel.outputscale, kernel.base_kernel.lengthscale = 1.7, lengthscale
    Z = torch.randn(n, Q, generator=draw)
    X = torch.sin(2 * Z @ torch.randn(Q, D, generator=draw)) + 3
    return condition(kernel, torch.tensor(noise), Z, X, X.mean(0), scales)


def rows(seed=1):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(M, D, generator=draw).double() + 3, torch.randn(M, Q, generator=draw).double()


def value_and_slope(density, Z):
    Z = Z.clone().requires_grad_()
    value = density(Z)
    weights = torch.arange(1.0, 1 + len(value)).double()  # so that a gradient of the wrong row shows
    return value.detach(), torch.autograd.grad((weights * value).sum(), Z)[0]


@pytest.mark.parametrize("scales", [None, torch.tensor([1.0, 2.0, 0.5, 3.0, 0.1])], ids=["shared", "by feature"])
def test_value_and_gradient_are_those_of_the_decoder(scales):
    posterior, (X, Z) = decoder(scales), rows()
    fast = row_density(posterior, X)
    assert isinstance(fast, GramDensity)
    for one, other in zip(value_and_slope(fast, Z), value_and_slope(RowDensity(posterior, X), Z), strict=True):
        assert_close(one, other, 1e-9)


def test_rows_at_one_z_and_rows_repeated():
    posterior, (X, Z) = decoder(), rows()
    fast, plain = row_density(posterior, X), RowDensity(posterior, X)
    assert_close(fast.at_one(Z[0]), plain.at_one(Z[0]), 1e-9)
    assert_close(plain.at_one(Z[0]), posterior.log_density(X, Z[:1].expand(M, Q)), 1e-12)
    twice = Z.repeat_interleave(2, 0) + torch.tensor([[0.0, 0.1]] * 2 * M).double()
    assert_close(fast.repeated(2)(twice), plain.repeated(2)(twice), 1e-9)


def test_a_decoder_that_would_lose_digits_answers_itself():
    # With noise of 1e-9 and all 40 rows as positions close together, α is about 1e7 and α αᵀ 1e14: of the 16 digits of
    # a residual, 1e-9 at the rows, none would be left
    posterior, (X, _) = decoder(noise=1e-9, lengthscale=3.0), rows()
    assert not isinstance(row_density(posterior, X), GramDensity)


def test_missing_values_local_noise_and_other_decoders_answer_themselves():
    posterior, (X, _) = decoder(), rows()
    holes = X.clone()
    holes[0, 0] = torch.nan
    assert not isinstance(row_density(posterior, holes), GramDensity)

    class Other(Posterior):
        pass

    other = decoder()
    other.__class__ = Other
    assert not isinstance(row_density(other, X), GramDensity)
    local = decoder()
    local.local_noise = LocalNoise(local.Z.double(), torch.ones(Q).double(), torch.ones(len(local.Z), D).double(), 0.1)
    assert not isinstance(row_density(local, X), GramDensity)


def test_climbing_is_torchs_adam():
    posterior, (X, start) = decoder(), rows()
    density, steps = row_density(posterior, X), 12
    found, best = climb(density, start, steps)
    Z = start.clone().requires_grad_()
    adam = Adam([Z])  # torch's
    seen, values = [], []
    for step in range(steps + 1):
        value = density.joint(Z)
        seen.append(Z.detach().clone())
        values.append(value.detach())
        if step < steps:
            adam.param_groups[0]["lr"] = 0.05 * (1 - step / steps)
            adam.zero_grad()
            (-value.sum()).backward()
            adam.step()
    every = torch.stack(values)  # [steps + 1, M]
    assert_close(best, every.max(0).values, 1e-10)
    assert_close(found, torch.stack(seen)[every.argmax(0), torch.arange(M)], 1e-10)
