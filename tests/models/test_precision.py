"""Mixed precision of encoders: when "auto" chooses it, what is rounded in training and what never is."""

from pathlib import Path

import pytest
import torch
from oracles import relative_error
from torch import nn

from sasgp.models import precision
from sasgp.models.encoders import Custom, Network, Picture
from sasgp.models.precision import FEWEST_FEATURES, auto_precision, has_bfloat16

CPU = torch.device("cpu")


def network(rng, D, *, mixed, **more):
    return Network(D, 2, variance=True, mixed=mixed, **more).start_from(torch.zeros(D), torch.ones(()), rng)


def pair(D, **more):
    """The same network in float32 and in mixed precision."""
    return (network(torch.Generator().manual_seed(5), D, mixed=mixed, **more) for mixed in (False, True))


def gradient(encoder, X, weights):
    mu, var = encoder(X)
    loss = (weights[0] * mu).sum() + (weights[1] * var).sum()
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(encoder.parameters()))])


# ---- what "auto" means ----


def test_auto_is_mixed_where_it_pays(monkeypatch):
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: True)
    wide, float32 = FEWEST_FEATURES, torch.float32
    assert [auto_precision(name, float32, wide, CPU) for name in ("network", "conv")] == ["mixed"] * 2
    for encoder, dtype, D in (
        ("network", float32, wide - 1),  # a table of few columns
        ("network", torch.float64, wide),
        ("table", float32, wide),  # has no products
        (nn.Linear(wide, 2), float32, wide),  # of which we know nothing
    ):
        assert auto_precision(encoder, dtype, D, CPU) == "float32"
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: False)
    assert auto_precision("network", float32, wide, CPU) == "float32"


def test_hardware_is_recognised(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    for flags, expected in (
        ({"fpu", "avx512f", "avx512_bf16"}, True),
        ({"fpu", "amx_tile", "amx_bf16"}, True),
        ({"fpu", "avx2", "avx512f"}, False),
        (set(), False),  # not Linux
    ):
        monkeypatch.setattr(precision, "_cpu_flags", lambda flags=flags: frozenset(flags))
        assert has_bfloat16(CPU) is expected
    for capability, expected in (((7, 5), False), ((8, 0), True), ((9, 0), True)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, found=capability: found)
        assert has_bfloat16(torch.device("cuda")) is expected
    assert not has_bfloat16(torch.device("meta"))


# ---- networks ----


def test_a_system_that_does_not_name_its_processor_has_no_bfloat16(monkeypatch):
    def missing(path, **options):
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", missing)
    monkeypatch.setattr(precision, "_cpu_flags", precision._cpu_flags.__wrapped__)
    assert not has_bfloat16(torch.device("cpu"))


def test_numbers_that_bfloat16_holds_give_the_answer_of_float32(rng):
    # Small integers: every sum is a whole number below 256, which eight bits hold exactly. The last layer has
    # weights that bfloat16 does not hold, so it must not be rounded
    exact, mixed = pair(30, hidden=(16, 8))
    for encoder in (exact, mixed):
        draw = torch.Generator().manual_seed(1)
        for net in (encoder.mu, encoder.raw_var):
            for layer in (net[0], net[2]):
                for parameter in layer.parameters():
                    parameter.data.copy_(torch.randint(-1, 2, parameter.shape, generator=draw))
    X = torch.randint(0, 2, (50, 30), generator=rng).float()
    assert exact.mu[:4](X).max() < 256
    for one, other in zip(exact(X), mixed(X), strict=True):
        # Only the order of the sum in the last layer may differ
        torch.testing.assert_close(other, one, rtol=1e-6, atol=1e-6)


@torch.no_grad()
def test_hidden_layers_are_rounded_but_z_is_not(rng):
    exact, mixed = pair(100)
    X = torch.randn(64, 100, generator=rng)
    for one, other in zip(exact(X), mixed(X), strict=True):
        # Each of two layers rounds factors and sums by up to 2⁻⁹: measured 2e-3
        assert 1e-4 < relative_error(other, one) < 1e-2
        assert other.dtype == torch.float32
        assert not torch.equal(other, other.bfloat16().float())
    assert relative_error(mixed.position(X), mixed(X)[0]) == 0


def test_the_gradient_is_that_of_float32_but_for_rounding(rng):
    # Units whose input is within rounding of 0, some 2 in 1000, are on in one and off in the other: √.002 = .045
    exact, mixed = pair(100)
    X, weights = torch.randn(512, 100, generator=rng), torch.randn(2, 512, 2, generator=rng)
    one, other = (gradient(encoder, X, weights) for encoder in (exact, mixed))
    assert other.dtype == torch.float32
    assert 1e-3 < relative_error(other, one) < 0.08
    # The error has no direction: along the gradient itself it is much smaller
    assert float(other @ one / (one @ one)) == pytest.approx(1, abs=5e-3)


def test_without_mixed_precision_nothing_changes(rng):
    encoder, _ = pair(100)
    X = torch.randn(64, 100, generator=rng)
    assert torch.equal(encoder(X)[0], encoder.mu((X - encoder.mean) / encoder.scale))


def test_after_training_all_is_float32(rng):
    exact, mixed = (encoder.eval() for encoder in pair(100))
    X = torch.randn(64, 100, generator=rng)
    assert all(torch.equal(one, other) for one, other in zip(exact(X), mixed(X), strict=True))


@torch.no_grad()
def test_convolutions_and_masks(rng):
    X = torch.randn(20, 64, generator=rng)
    for more in ({"picture": Picture(1, 8, 8)}, {"masks": True}):
        exact, mixed = pair(64, **more)
        rows = X.masked_fill(X > 1, torch.nan) if "masks" in more else X
        assert 1e-4 < relative_error(mixed(rows)[0], exact(rows)[0]) < 2e-2


# ---- modules of the user ----


class Watched(nn.Module):
    """A layer that knows whether it was inside of autocast."""

    def __init__(self):
        super().__init__()
        self.layer, self.inside = nn.Linear(10, 2), None

    def forward(self, X):
        self.inside = torch.is_autocast_enabled("cpu")
        return self.layer(X)


@pytest.mark.parametrize("mixed", [True, False])
def test_a_module_of_the_user_is_trained_inside_autocast_if_asked_for(mixed, rng):
    encoder = Custom(Watched(), 2, variance=False, mixed=mixed)
    X = torch.randn(5, 10, generator=rng)
    assert encoder.train()(X)[0].dtype == torch.float32
    assert encoder.module.inside is mixed
    encoder.eval()(X)
    assert encoder.module.inside is False
