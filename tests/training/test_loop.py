"""The loop on a three-line quadratic: it knows no Gaussian process, and neither does this file."""

import math
from copy import deepcopy

import numpy as np
import pytest
import torch
from memory import Memory
from torch import nn

from sasgp.training.loop import Adam, DivergedError, batches, generator, one_cycle, train


class Quadratic(nn.Module):
    """½ E‖w − x‖², least at the mean of the data."""

    def __init__(self, D, *, jitter=0.0):
        super().__init__()
        self.w, self.jitter, self.seen = nn.Parameter(torch.zeros(D, dtype=torch.float64)), jitter, []

    def forward(self, X, index, n_total, generator):
        self.seen.append((index.clone(), n_total, self.training))
        noise = self.jitter * torch.randn(X.shape, generator=generator, dtype=X.dtype)
        return 0.5 * (self.w - X - noise).square().sum(1).mean()


@pytest.fixture
def X(rng):
    return torch.randn(23, 3, generator=rng, dtype=torch.float64) + torch.tensor([1.0, -2.0, 0.5])


def run(X, model=None, *, batch_size=8, max_epochs=5, seed=7, lr=0.1, **options):
    model = Quadratic(X.shape[1]) if model is None else model
    groups = [{"params": list(model.parameters()), "lr": lr}]
    options = {"batch_size": batch_size, "max_epochs": max_epochs, "seed": seed, **options}
    return model, list(train(model, Memory(X), groups, **options))


# ---- the loop ----


def test_converges_to_the_mean_of_the_data(X):
    # Full batches, so the gradient is exact: w → mean(x), and the loss → ½ Σ_d var_d (with 1/N)
    model, epochs = run(X, batch_size=len(X), max_epochs=300)
    assert model.w.detach().numpy() == pytest.approx(X.mean(0).numpy(), abs=1e-4)
    assert epochs[-1].loss == pytest.approx(0.5 * float(X.var(0, correction=0).sum()), abs=1e-6)


def test_two_runs_are_identical_bit_for_bit(X):
    (one, epochs), (two, again) = (run(X, Quadratic(3, jitter=0.5)) for _ in range(2))
    assert torch.equal(one.w, two.w)
    assert [e.loss for e in epochs] == [e.loss for e in again]
    other, _ = run(X, Quadratic(3, jitter=0.5), seed=8)
    assert not torch.equal(one.w, other.w)


def test_every_step_draws_from_a_generator_of_its_own(X):
    # Made from (seed, rank, step): resuming at step k needs no memory of the k before it
    drawn = []

    class Draws(Quadratic):
        def forward(self, X, index, n_total, generator):
            drawn.append(torch.rand((), generator=generator).item())
            return super().forward(X, index, n_total, generator)

    run(X, Draws(3), max_epochs=2, seed=7)
    assert drawn == [torch.rand((), generator=generator(7, 0, step)).item() for step in range(6)]
    assert len(set(drawn)) == 6


def test_global_random_states_are_neither_read_nor_moved(X):
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002 the global state is what is being watched
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    one, _ = run(X, Quadratic(3, jitter=0.5))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    torch.manual_seed(2)
    two, _ = run(X, Quadratic(3, jitter=0.5))
    assert torch.equal(one.w, two.w)


def test_reported_loss_is_the_mean_over_the_steps(X):
    losses = []

    class Counted(Quadratic):
        def forward(self, *arguments):
            loss = super().forward(*arguments)
            losses.append(loss.item())
            return loss

    _, epochs = run(X, Counted(3), max_epochs=2)
    # 23 rows in batches of 8: 3 steps an epoch
    assert [e.step for e in epochs] == [3, 6]
    assert [e.epoch for e in epochs] == [1, 2]
    assert epochs[0].loss == pytest.approx(sum(losses[:3]) / 3, rel=1e-15)
    assert epochs[1].loss == pytest.approx(sum(losses[3:]) / 3, rel=1e-15)


def test_on_step_hears_of_every_step(X):
    heard = []
    _, epochs = run(X, max_epochs=2, on_step=lambda *news: heard.append(news))
    assert [(step, total) for step, total, _ in heard] == [(k, 6) for k in range(1, 7)]
    assert [heard[2][2], heard[5][2]] == [e.loss for e in epochs]


def test_the_schedule_moves_every_group_from_start_to_end(X):
    # Adam's first step is lr · sign(gradient) whatever the gradient's size, so it shows the rate: .5 × schedule(0)
    model, epochs = run(X, max_epochs=1, batch_size=len(X), lr=0.5, schedule=lambda progress: 0.25 + progress)
    assert model.w.detach().abs().numpy() == pytest.approx(0.125, rel=1e-6)
    asked = []
    _, epochs = run(X, max_epochs=2, lr=0.5, schedule=lambda progress: asked.append(progress) or 1 - progress / 2)
    assert asked == [0, 0.2, 0.4, 0.6, 0.8, 1]  # six steps, both ends included
    assert [e.learning_rate for e in epochs] == [0.5 * 0.8, 0.5 * 0.5]


def test_model_trains_in_training_mode_and_is_handed_out_in_evaluation_mode(X):
    model = Quadratic(3)
    for _ in train(model, Memory(X), [{"params": model.parameters(), "lr": 0.1}], batch_size=8, max_epochs=2, seed=0):
        assert not model.training
    assert all(training for _, _, training in model.seen)
    assert {n_total for _, n_total, _ in model.seen} == {23}


def test_what_the_model_monitors_is_in_the_record(X):
    class Monitored(Quadratic):
        def monitor(self):
            return {"w0": self.w[0].item()}

    model, epochs = run(X, Monitored(3))
    assert epochs[-1].monitored == {"w0": model.w[0].item()}
    assert run(X)[1][0].monitored == {}


# ---- batches ----


@pytest.mark.parametrize(("n", "size"), [(23, 8), (24, 8), (9, 8), (8, 8), (5, 1), (5, 8), (3, 8), (1, 1024)])
def test_batches_cover_every_row_in_full_batches_without_repeats(n, size):
    for epoch in range(3):
        drawn = [rows.tolist() for rows in batches(n, size, seed=0, epoch=epoch)]
        assert len(drawn) == math.ceil(n / size)
        assert all(len(rows) == len(set(rows)) == min(n, size) for rows in drawn)
        assert {row for rows in drawn for row in rows} == set(range(n))


def test_batches_depend_on_seed_and_epoch_alone():
    def drawn(seed, epoch):
        return torch.cat(list(batches(50, 8, seed, epoch))).tolist()

    assert drawn(3, 4) == drawn(3, 4)
    assert len({tuple(drawn(seed, epoch)) for seed in range(3) for epoch in range(3)}) == 9


def test_every_row_is_equally_likely_to_be_active_in_the_filled_batch():
    # The last batch of an epoch takes rows from the start of the permutation. Over many epochs its first A = 3 places
    # must still be uniform on 10 rows: counts of 6000·3/10 = 1800, standard deviation √(6000·.3·.7) = 35; five of those
    counts = torch.zeros(10)
    for epoch in range(6000):
        *_, last = batches(10, 4, seed=0, epoch=epoch)
        counts[last[:3]] += 1
    assert (counts - 1800).abs().max() < 5 * 35


def test_a_batch_is_filled_from_the_start_and_further_ones_are_new_draws():
    first, _, last = (rows.tolist() for rows in batches(10, 4, seed=0, epoch=0))
    assert last[2:] == first[:2]
    assert len({tuple(rows.tolist()) for rows in batches(10, 10, seed=0, epoch=0, at_least=3)}) == 3


# ---- random generators ----


def test_generator_depends_on_its_key_alone():
    def draws(*key):
        return tuple(torch.rand(4, generator=generator(*key)).tolist())

    torch.manual_seed(0)
    first = draws(1, 0, 1000)
    torch.manual_seed(99)
    draws(5)
    assert draws(1, 0, 1000) == first
    # (1, 23) is not (12, 3), nor is the order of the parts lost
    keys = [(1, 23), (12, 3), (3, 12), (123,), (1, 2, 3), (0, 0, 0), (0, 0), ("epoch", 0), (0, "epoch", 0)]
    assert len({draws(*key) for key in keys}) == len(keys)


def test_generators_of_successive_steps_are_unrelated():
    # First draws of 4000 successive steps: mean ½ ± 1/√(12·4000) = .0046, correlation of neighbours 0 ± 1/√4000
    u = torch.tensor([torch.rand((), generator=generator(0, 0, step), dtype=torch.float64) for step in range(4000)])
    assert abs(u.mean() - 0.5) < 5 * 0.0046
    assert abs(torch.corrcoef(torch.stack([u[1:], u[:-1]]))[0, 1]) < 5 / math.sqrt(4000)


# ---- schedule ----


def test_one_cycle_starts_peaks_and_ends_where_it_says():
    assert one_cycle(0.0) == pytest.approx(0.04)
    assert one_cycle(0.3) == 1.0
    assert one_cycle(1.0) == pytest.approx(1e-4)
    # Half-way up and half-way down a cosine is at the mean of its ends
    assert one_cycle(0.15) == pytest.approx((0.04 + 1) / 2)
    assert one_cycle(0.65) == pytest.approx((1 + 1e-4) / 2)
    up, down = ([one_cycle(t) for t in np.linspace(*ends, 50)] for ends in ((0, 0.3), (0.3, 1)))
    assert up == sorted(up)
    assert down == sorted(down, reverse=True)


def test_a_smaller_share_has_as_many_batches_wherever_it_goes_on():
    # 718 rows make one batch of 718, 719 make two: with at_least=2 both shares of 1437 rows have two, from any start
    for n_rows in (718, 719):
        for first in (0, 1, 2):
            plan = list(batches(n_rows, 718, 0, 0, first=first, at_least=2))
            assert len(plan) == 2 - first
            assert all(len(rows.unique()) == 718 for rows in plan)


def test_what_a_diagnosis_says():
    from sasgp.gp.kernels import make
    from sasgp.models.encoders import Table
    from sasgp.models.sas import SASModel

    Z = torch.tensor([[0.0, 0.0], [0.0, 0.0], [3.0, -4.0], [1.0, 1.0]])
    kernel = make("rbf", 2)
    kernel.outputscale, kernel.base_kernel.lengthscale = 2.0, 0.5
    model = SASModel(Table(Z, variance=False), kernel, noise=1e-3, mean=torch.zeros(1), active_set_size=3)
    found = model.diagnose(torch.zeros(4, 1), torch.arange(4))
    assert found["noise"] == pytest.approx(1e-3)
    assert found["outputscale"] == pytest.approx(2.0)
    assert found["lengthscale"] == pytest.approx(0.5)
    assert found["largest latent"] == 4
    # Two rows at one place: K = v 11ᵀ + σ²I, whose second pivot is (v + σ²) − v² / (v + σ²)
    assert found["smallest pivot"] == pytest.approx(2.001 - 4 / 2.001, rel=1e-4)
    with torch.no_grad():
        model.encoder.mu[0, 0] = torch.nan
    assert np.isnan(model.diagnose(torch.zeros(4, 1), torch.arange(4))["smallest pivot"])


def test_training_without_one_good_step_is_an_error(X):
    class Bad(Quadratic):
        def forward(self, X, index, n_total, generator):
            return super().forward(X, index, n_total, generator) * float("nan")

    with pytest.raises(DivergedError, match="in any of its 3 steps"):  # too few for a return to an earlier state
        run(X, Bad(3), batch_size=23, max_epochs=3)


def test_our_adam_is_torchs():
    # Only what marks its methods for torch.compile is gone: the same bits, and a state that the other can go on from
    def steps(optimiser, parameter, n):
        for _ in range(n):
            optimiser.zero_grad()
            (parameter - torch.tensor([1.0, -2.0])).square().sum().backward()
            optimiser.step()

    def start(kind):
        parameter = nn.Parameter(torch.tensor([0.3, 0.7]))
        return kind([{"params": [parameter], "lr": 0.1}], fused=True), parameter

    (ours, p), (theirs, q) = start(Adam), start(torch.optim.Adam)
    steps(ours, p, 3)
    steps(theirs, q, 3)
    assert torch.equal(p, q)
    theirs.load_state_dict(deepcopy(ours.state_dict()))
    ours.load_state_dict(deepcopy(theirs.state_dict()))
    steps(ours, p, 2)
    steps(theirs, q, 2)
    assert torch.equal(p, q)
    assert not p.grad.requires_grad
