"""Encoders against hand-written ones, and the prior's terms against torch.distributions."""

import numpy as np
import oracles
import pytest
import torch
from oracles import assert_close
from torch import nn

from sasgp.gp.objective import kl_to_prior, prior_log_density
from sasgp.models.encoders import INITIAL_VARIANCE, Custom, Network, Picture, Table


def softplus(x):
    return np.log1p(np.exp(x))


def perceptron(layers, X):
    """relu(… relu(X W₁ᵀ + b₁) …) Wᵀ + b, from the weights of a torch Sequential."""
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    for layer in linear[:-1]:
        X = np.maximum(X @ layer.weight.detach().numpy().T + layer.bias.detach().numpy(), 0)
    return X @ linear[-1].weight.detach().numpy().T + linear[-1].bias.detach().numpy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_network_is_a_perceptron_of_the_centred_and_scaled_row(rng, dtype):
    X = torch.randn(6, 5, generator=rng, dtype=dtype) + 3
    network = Network(X.shape[1], 2, variance=True, hidden=(7, 4)).to(X).start_from(X.mean(0), X.new_tensor(0.1), rng)
    mu, var = network(X)
    # z = perceptron((x − mean) / scale). 0.1 is not a float32: a scale rounded to one on the way would show, by 1e-8
    centred = (X.numpy() - X.numpy().mean(0)) / 0.1
    assert_close(mu, perceptron(network.mu, centred), dtype=dtype)
    assert_close(var, softplus(perceptron(network.raw_var, centred)), 1e-5)  # + MIN_VARIANCE, 1e-8


def test_network_starts_from_its_generator_alone(rng):
    # Weights and biases uniform on ±1/√n_in, as torch has them: variance 1/(3 n_in), here 1/300 ± 1/300·√(4/5/5000)
    before = torch.get_rng_state()
    one, two = (
        Network(100, 2, variance=True).start_from(torch.zeros(100), torch.ones(()), torch.Generator().manual_seed(seed))
        for seed in (1, 1)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    weights = one.mu[0].weight.detach()[:50]
    assert weights.abs().max() <= 0.1
    assert weights.var().item() == pytest.approx(1 / 300, rel=5 * np.sqrt(0.8 / 5000))
    assert not torch.equal(one.mu[0].weight, one.raw_var[0].weight)


def test_network_starts_near_the_initial_variance_and_stays_positive(rng):
    X = torch.randn(8, 5, generator=rng)
    network = Network(5, 2, variance=True).start_from(torch.zeros(5), torch.ones(()), rng)
    with torch.no_grad():
        network.raw_var[-1].weight.zero_()
    # softplus(softplus⁻¹(v)) = v when only the bias speaks
    assert_close(network(X)[1], np.full((8, 2), INITIAL_VARIANCE), dtype=torch.float32)
    with torch.no_grad():
        network.raw_var[-1].bias.fill_(-200.0)  # softplus(−200) underflows to 0 in float32
    mu, var = network(X)
    assert (var == torch.tensor(1e-8)).all()
    assert torch.isfinite(kl_to_prior(mu, var)).all()


def test_point_network_has_no_variance(rng):
    X = torch.randn(3, 5, generator=rng)
    network = Network(5, 2, variance=False).start_from(torch.zeros(5), torch.ones(()), rng)
    assert network(X)[1] is None
    assert_close(network(X)[0], perceptron(network.mu, X.numpy()), dtype=torch.float32)


def test_table_returns_its_rows_and_moves_only_those(rng):
    Z = torch.randn(6, 2, generator=rng)
    table, rows = Table(Z, variance=True), torch.tensor([4, 1])
    mu, var = table(torch.zeros(2, 3), rows)
    assert torch.equal(mu, Z[rows])
    assert_close(var, np.full((2, 2), INITIAL_VARIANCE), dtype=torch.float32)
    (3 * mu.sum() + var.sum()).backward()
    expected = torch.zeros(6, 2)
    expected[rows] = 3.0
    assert torch.equal(table.mu.grad, expected)
    # d softplus(u)/du = 1 − exp(−softplus(u)) = 1 − e^−v where the variance is v
    assert_close(table.raw_var.grad, np.where(expected > 0, 1 - np.exp(-INITIAL_VARIANCE), 0.0), dtype=torch.float32)


def test_table_keeps_its_own_copy(rng):
    Z = torch.randn(4, 2, generator=rng)
    table = Table(Z, variance=False)
    before = Z.clone()
    Z.zero_()
    mu, var = table(torch.zeros(4, 1), torch.arange(4))
    assert torch.equal(mu, before)
    assert var is None


class Returns(nn.Module):
    def __init__(self, *out):
        super().__init__()
        self.out = out if len(out) > 1 else out[0]

    def forward(self, X):
        return self.out


def test_custom_is_taken_as_it_is():
    mu, var = torch.ones(3, 2), torch.full((3, 2), 0.5)
    X = torch.zeros(3, 4)
    assert Custom(Returns(mu), 2, variance=False)(X) == (mu, None)
    assert Custom(Returns(mu, var), 2, variance=True)(X) == (mu, var)
    assert Custom(Returns(mu, var), 2, variance=False)(X) == (mu, None)


@pytest.mark.parametrize(
    ("out", "variance", "message"),
    [
        (
            [torch.ones(3, 2)],
            True,
            r"must return a pair \(mean, variance\), but Returns returned one tensor.*latents='point'",
        ),
        ([torch.ones(3, 5)], False, r"mean must have shape \(3, 2\).*Returns returned shape \(3, 5\)"),
        ([torch.ones(2)], False, r"mean must have shape \(3, 2\).*returned shape \(2,\)"),
        ([torch.ones(3, 2), torch.ones(3, 1)], True, r"variance must have shape \(3, 2\).*returned shape \(3, 1\)"),
    ],
)
def test_custom_says_what_it_expected(out, variance, message):
    with pytest.raises(ValueError, match=message):
        Custom(Returns(*out), 2, variance=variance)(torch.zeros(3, 4))


def test_prior_terms_are_torch_distributions(rng):
    mu = torch.randn(5, 3, generator=rng, dtype=torch.float64)
    var = torch.rand(5, 3, generator=rng, dtype=torch.float64) + 0.01
    assert_close(kl_to_prior(mu, var), oracles.kl_to_prior(mu, var))
    assert_close(prior_log_density(mu), oracles.prior_log_density(mu))
    # KL is zero at the prior itself, and ½(μ² + v − log v − 1) = ½(4 + ½ + log 2 − 1) by hand
    assert kl_to_prior(torch.zeros(1, 1), torch.ones(1, 1)).item() == 0
    assert kl_to_prior(torch.tensor([[2.0]]), torch.tensor([[0.5]])).item() == pytest.approx(0.5 * (3.5 + np.log(2)))


@pytest.mark.parametrize("variance", [False, True])
def test_the_position_alone_is_the_mean_of_q(variance, rng):
    X = torch.randn(5, 3, generator=rng)
    network = Network(X.shape[1], 2, variance=variance).start_from(X.mean(0), torch.tensor(2.0), rng)
    assert torch.equal(network.position(X), network(X)[0])
    table = Table(torch.randn(5, 2, generator=rng), variance=variance)
    assert torch.equal(table.position(X, torch.arange(3)), table.mu[:3])


# ---------------------------------------------------------------------------------------------------- images


def convolved(image, weight, bias):
    """relu(Σ_{c,i,j} w_{o,c,i,j} x_{c, 2h+i−1, 2w+j−1} + b_o), zeros around the image [C, H, W]."""
    C, H, W = image.shape
    padded = np.zeros((C, H + 2, W + 2))
    padded[:, 1:-1, 1:-1] = image
    out = np.empty((len(weight), (H + 1) // 2, (W + 1) // 2))
    for h, w in np.ndindex(out.shape[1:]):
        out[:, h, w] = np.tensordot(weight, padded[:, 2 * h : 2 * h + 3, 2 * w : 2 * w + 3], 3) + bias
    return np.maximum(out, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("last", [False, True])
def test_convolutions_by_loops(rng, dtype, last):
    C, H, W = 3, 9, 11
    X = torch.randn(4, C * H * W, generator=rng, dtype=dtype) + 3
    picture = Picture(C, H, W, last=last)
    network = Network(X.shape[1], 2, variance=True, picture=picture).to(X).start_from(X.mean(0), X.new_tensor(0.5), rng)
    centred = (X.numpy() - X.numpy().mean(0)) / 0.5
    expected = {"mu": [], "raw_var": []}
    for name, found in expected.items():
        layers = getattr(network, name)
        for row in centred:
            image = row.reshape(H, W, C).transpose(2, 0, 1) if last else row.reshape(C, H, W)
            for layer in layers:
                if isinstance(layer, nn.Conv2d):
                    image = convolved(image, layer.weight.detach().numpy(), layer.bias.detach().numpy())
            assert image.shape == (32, 3, 3)  # 9×11 pixels, 5×6, 3×3
            found.append(perceptron(layers, image.reshape(-1)))
    mu, var = network(X)
    assert_close(mu, np.stack(expected["mu"]), dtype=dtype)
    assert_close(var, softplus(np.stack(expected["raw_var"])), 1e-5)
    network.keep([1])
    assert_close(network.position(X), np.stack(expected["mu"])[:, 1:], dtype=dtype)


@pytest.mark.parametrize("last", [False, True])
def test_images_are_moved_by_pixels_each_by_its_own(rng, last):
    C, H, W = 3, 28, 14  # up to two pixels down or up, one to either side
    X = torch.randn(200, C * H * W, generator=rng)
    seen = set()
    for before, after in zip(X, Picture(C, H, W, last=last).shifted(X, rng), strict=True):
        image, moved = (
            row.numpy().reshape(H, W, C).transpose(2, 0, 1) if last else row.numpy().reshape(C, H, W)
            for row in (before, after)
        )
        edged = np.pad(image, ((0, 0), (2, 2), (1, 1)), mode="edge")
        matches = [
            (down, right)
            for down, right in np.ndindex(5, 3)
            if np.array_equal(moved, edged[:, down : down + H, right : right + W])
        ]
        assert len(matches) == 1
        seen |= set(matches)
    assert len(seen) == 15
    small = torch.randn(3, 64, generator=rng)
    assert torch.equal(Picture(1, 8, 8).shifted(small, rng), small)
    plain = Network(64, 2, variance=False).start_from(torch.zeros(64), torch.ones(()), rng)
    assert plain.varied(small, rng) is small
