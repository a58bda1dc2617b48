"""The estimate and its hand-written gradient: against finite differences, autograd, scikit-learn and GPyTorch."""

import math

import numpy as np
import oracles
import pytest
import torch
from gpytorch.kernels import ConstantKernel, LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from oracles import OUTSIDE, assert_close, relative_error
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk
from torch.autograd import gradcheck

from sasgp.gp.linalg import JITTERS, NotPositiveDefiniteError, cholesky, inverse
from sasgp.gp.objective import _without_residuals, sas_estimate
from sasgp.models.encoders import Table
from sasgp.models.sas import SASModel

DOUBLE = torch.float64

KERNELS = {
    "rbf": lambda: ScaleKernel(RBFKernel()),
    "rbf-ard": lambda: ScaleKernel(RBFKernel(ard_num_dims=2)),
    "matern12": lambda: ScaleKernel(MaternKernel(nu=0.5)),
    "matern32": lambda: ScaleKernel(MaternKernel(nu=1.5)),
    "matern52": lambda: ScaleKernel(MaternKernel(nu=2.5)),
    "sum": lambda: ScaleKernel(RBFKernel()) + LinearKernel(),
    "product": lambda: RBFKernel() * LinearKernel() + ConstantKernel(),
    "linear": lambda: LinearKernel(),
}


def draw(rng, *shape, dtype=DOUBLE):
    return torch.randn(shape, generator=rng, dtype=DOUBLE).to(dtype)


def kernel_parts(kernel, Z, A):
    return kernel(Z, Z[:A]).to_dense(), kernel(Z, diag=True)[A:]


# ---- gradient ----


def check_gradient(kernel, rng, *, A, B, D, N, scales=None):
    """Finite differences of the model's likelihood in Z, every hyperparameter, log σ², log s and X."""
    encoder, mean = Table(draw(rng, B, 2), variance=False), torch.zeros(D, dtype=DOUBLE)
    model = SASModel(encoder, kernel, noise=0.2, mean=mean, active_set_size=A, by_feature=scales is not None)
    model.double()
    if scales is not None:
        model.start_from(mean, 0.2, scales)
    for parameter in kernel.parameters():  # away from GPyTorch's defaults, where two hyperparameters may coincide
        parameter.data += 0.3 * draw(rng, *parameter.shape)
    X = draw(rng, B, D).requires_grad_()
    # gradcheck moves its inputs in place, and these are the model's own
    inputs = (X, *model.parameters())
    assert len(inputs) == 3 + (scales is not None) + len(list(kernel.parameters()))

    def loss(X, *parameters):
        return model(X, torch.arange(B), N, torch.Generator()) * N * D

    assert gradcheck(loss, inputs)


@pytest.mark.parametrize("name", KERNELS)
def test_gradient_is_that_of_finite_differences(name, rng):
    check_gradient(KERNELS[name](), rng, A=4, B=7, D=3, N=11)


@pytest.mark.parametrize(
    ("A", "B", "D", "N"),
    [
        pytest.param(3, 6, 8, 20, id="D>A"),
        pytest.param(6, 8, 2, 20, id="D<A"),
        pytest.param(5, 5, 3, 5, id="R=0"),
        pytest.param(5, 6, 3, 6, id="R=1, exact"),
        pytest.param(5, 6, 3, 30, id="R=1"),
        pytest.param(1, 5, 3, 9, id="A=1"),
        pytest.param(1, 1, 1, 1, id="one row"),
    ],
)
def test_gradient_at_every_split(A, B, D, N, rng):
    check_gradient(KERNELS["rbf"](), rng, A=A, B=B, D=D, N=N)


@pytest.mark.parametrize(("A", "B", "N"), [(4, 7, 11), (5, 5, 5)])
def test_gradient_in_the_scales_of_features(A, B, N, rng):
    scales = torch.stack([torch.full((3,), 0.1, dtype=DOUBLE), draw(rng, 3).exp()])
    check_gradient(KERNELS["rbf"](), rng, A=A, B=B, D=3, N=N, scales=scales)


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
def test_scales_are_a_change_of_units(dtype, rng):
    # x_d = s_d y_d:   log p(x) = log p(y) − N Σ_d log s_d
    B, A, D, N = 9, 4, 3, 20
    kernel, Z, X, noise = KERNELS["rbf"]().to(dtype), draw(rng, B, 2, dtype=dtype), draw(rng, B, D, dtype=dtype), 0.3
    K_BA, k_RR = kernel_parts(kernel, Z, A)
    s = torch.tensor([0.01, 1.0, 300.0], dtype=dtype)
    noise = torch.tensor(noise, dtype=dtype)
    one = sas_estimate(X, K_BA, k_RR, noise, N) - N * s.log().sum()
    assert_close(sas_estimate(X * s, K_BA, k_RR, noise, N, s), one.detach(), oracles.TOLERANCE[dtype])


def test_gradient_in_the_kernel_matrix_itself(rng):
    # K_AA is symmetric, so it is moved through S ↦ S + Sᵀ: the factor reads one triangle, the gradient fills both
    A, R, D, N = 4, 3, 5, 13
    root = draw(rng, A, A)
    S = (root @ root.T / 4).requires_grad_()
    K_RA = (0.3 * draw(rng, R, A)).requires_grad_()
    k_RR, noise = (torch.full((n,), v, dtype=DOUBLE, requires_grad=True) for n, v in ((R, 2.0), (1, 0.5)))
    X = draw(rng, A + R, D).requires_grad_()

    def estimate(X, S, K_RA, k_RR, noise):
        return sas_estimate(X, torch.cat([S + S.T, K_RA]), k_RR, noise[0], N)

    assert gradcheck(estimate, (X, S, K_RA, k_RR, noise))


def gradients(estimate, X, K_BA, k_RR, noise, N, *, in_X=True):
    inputs = [t.detach().clone().requires_grad_() for t in (X, K_BA, k_RR, noise)]
    inputs[0].requires_grad_(in_X)
    value = estimate(*inputs, N)
    value.backward()
    d_K = inputs[1].grad
    A = d_K.shape[1]
    # Only the symmetric part of ∂/∂K_AA has a meaning; how it is shared by the two triangles is each method's choice
    d_K = torch.cat([(d_K[:A] + d_K[:A].T) / 2, d_K[A:]])
    known = {"value": value.detach(), "K": d_K, "k_RR": inputs[2].grad, "noise": inputs[3].grad}
    return known | ({"X": inputs[0].grad} if in_X else {})


# Lengthscale, σ² over the amplitude, and the relative error that float32 may leave. It grows with the condition number
# of K, which is at most A/σ². Measured, the worst part of each: 1.3e-6, 4e-5, 4e-4, 6e-3; plain autograd in float32:
# 1e-6, 4e-5, 3e-4, 2e-3. Products with an explicit K⁻¹ reach 4e-6, 5e-4, 3e-2 and 8e-1.
AT_SCALE = [(0.1, 0.1, 1e-5), (1.0, 0.1, 1e-4), (1.0, 0.01, 1e-3), (1.0, 0.001, 2e-2)]


@pytest.mark.parametrize(("lengthscale", "noise", "bound"), AT_SCALE)
def test_float32_at_the_usual_size(lengthscale, noise, bound, rng):
    # A=400, B=1024, D=100, from the same rounded kernel matrix, so that only the algebra differs
    A, B, D, N = 400, 1024, 100, 60_000
    Z = draw(rng, B, 2)
    X = (torch.sin(2 * Z @ draw(rng, 2, D)) + math.sqrt(noise) * draw(rng, B, D)).float()
    K_BA = torch.exp(-0.5 * torch.cdist(Z, Z[:A]).square() / lengthscale**2).float()
    arguments = (X, K_BA, torch.ones(B - A), torch.tensor(noise))
    truth = gradients(oracles.autograd_estimate, *(t.double() for t in arguments), N)
    ours = gradients(sas_estimate, *arguments, N)
    assert all(part.dtype == torch.float32 for part in ours.values())
    errors = {part: relative_error(ours[part], truth[part]) for part in truth}
    assert max(errors.values()) <= bound, errors


@pytest.mark.parametrize("lengthscale", [0.1, 1.0])
def test_float64_at_the_usual_size(lengthscale, rng):
    A, B, D, N = 400, 1024, 100, 60_000
    Z = draw(rng, B, 2)
    X = torch.sin(2 * Z @ draw(rng, 2, D))
    K_BA = torch.exp(-0.5 * torch.cdist(Z, Z[:A]).square() / lengthscale**2)
    arguments = (X, K_BA, torch.ones(B - A, dtype=DOUBLE), torch.tensor(0.01, dtype=DOUBLE))
    truth, ours = gradients(oracles.autograd_estimate, *arguments, N), gradients(sas_estimate, *arguments, N)
    for part, expected in truth.items():
        assert relative_error(ours[part], expected) < 1e-9, part


# ---- products of the rows in the place of the residuals ----


@pytest.mark.parametrize("by_gram", [True, False])
@pytest.mark.parametrize(("A", "B"), [(3, 6), (5, 5), (1, 5), (70, 90)])
def test_the_form_without_residuals_is_the_same_function(A, B, by_gram, rng, monkeypatch):
    # Without a gradient in X, more features than active rows go without residuals, and from A + B on by the Gram matrix
    D, N = A + B if by_gram else A + 1, 1000
    X, (K_BA, k_RR) = draw(rng, B, D), kernel_parts(KERNELS["rbf"]().double(), draw(rng, B, 2), A)
    arguments = (X, K_BA, k_RR, torch.tensor(0.3, dtype=DOUBLE), N if B > A else A)
    truth = gradients(oracles.autograd_estimate, *arguments, in_X=False)
    monkeypatch.setattr("sasgp.gp.objective._by_residual", None)  # nobody asks for it
    ours = gradients(sas_estimate, *arguments, in_X=False)
    for part, expected in truth.items():
        if part != "k_RR" or B > A:  # there is none of an empty rest
            assert_close(ours[part], expected, 1e-10)


# σ² over the amplitude, and the relative error of the gradient in Z. Measured: 2e-5, 2e-4, 1e-3 from the Gram matrix,
# 1e-5, 9e-5, 5e-4 from U and from the residuals
@pytest.mark.parametrize("D", [1500, 600])  # from the Gram matrix, and from U
@pytest.mark.parametrize(("noise", "bound"), [(0.1, 3e-4), (0.01, 1e-3), (0.001, 1e-2)])
def test_the_form_without_residuals_in_float32(noise, bound, D, rng):
    # e = ‖x‖² − …, a difference, where residuals are a small part of the data
    A, B, N, lengthscale = 200, 512, 60_000, 0.3
    Z = draw(rng, B, 2)
    K = torch.exp(-0.5 * torch.cdist(Z, Z).square() / lengthscale**2)
    root = torch.linalg.cholesky(K + 1e-8 * torch.eye(B))
    X = (root @ draw(rng, B, D) + math.sqrt(noise) * draw(rng, B, D)).float()

    def gradient_in_Z(dtype):
        at = Z.clone().requires_grad_()
        K_BA = torch.exp(-0.5 * (at[:, None] - at[None, :A]).square().sum(-1) / lengthscale**2).to(dtype)
        value = sas_estimate(X.to(dtype), K_BA, torch.ones(B - A, dtype=dtype), torch.tensor(noise, dtype=dtype), N)
        return torch.autograd.grad(value, at)[0]

    assert relative_error(gradient_in_Z(torch.float32), gradient_in_Z(DOUBLE)) <= bound


@pytest.mark.parametrize("D", [2000, 15])
def test_residuals_far_below_the_data_are_not_taken_from_a_difference(D, rng):
    # Rows that are all but the same: e is 1e-8 of ‖x‖², and in float32 the difference would be nothing but rounding
    A, B = 4, 12
    X, K_BA, noise = (1 + 1e-4 * draw(rng, B, D)).float(), torch.full((B, A), 4.0), torch.tensor(1e-4)
    L_inv = inverse(cholesky(K_BA[:A] + noise * torch.eye(A)))
    assert _without_residuals(X, K_BA[A:] @ L_inv.T, L_inv) is None
    # float32 leaves 3e-4 of the value by the residuals, too, through the factor of a matrix of condition 1e5
    arguments = (X, K_BA, torch.full((B - A,), 4.0), noise)
    truth = oracles.autograd_estimate(*(t.double() for t in arguments), 100)
    assert relative_error(sas_estimate(*arguments, 100), truth) < 1e-3


def test_scaled_gradient(rng):
    # d(−3 L̂) = −3 dL̂: the incoming gradient multiplies everything
    Z, X = draw(rng, 6, 2), draw(rng, 6, 3)
    K_BA, k_RR = kernel_parts(KERNELS["rbf"]().double(), Z, 4)
    arguments = (X, K_BA, k_RR, torch.tensor(0.3, dtype=DOUBLE), 9)
    once, thrice = gradients(sas_estimate, *arguments), gradients(lambda *a: -3 * sas_estimate(*a), *arguments)
    for part, gradient in once.items():
        assert_close(thrice[part], -3 * gradient)


def test_second_derivative_raises_rather_than_lies(rng):
    # Beside another term, too: there an estimate whose gradient is a constant to autograd would be left out unnoticed
    X = draw(rng, 4, 2).requires_grad_()
    K_BA, k_RR = (part.detach() for part in kernel_parts(KERNELS["rbf"]().double(), draw(rng, 4, 2), 3))
    value = sas_estimate(X, K_BA, k_RR, torch.tensor(0.3, dtype=DOUBLE), 4)
    for total in (value, 2 * value, value + X.pow(3).sum()):
        with pytest.raises(RuntimeError, match=r"differentiable once, but create_graph=True"):
            torch.autograd.grad(total, X, create_graph=True)


# ---- outside opinions ----


def test_exact_log_marginal_agrees_with_scikit_learn_and_gpytorch(rng):
    N, D, noise = 40, 3, 0.07
    Z, X = draw(rng, N, 2), draw(rng, N, D)
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale, kernel.base_kernel.lengthscale = torch.tensor(1.7).double(), torch.tensor(0.6).double()
    with torch.no_grad():
        K, k_RR = kernel_parts(kernel, Z, N)
        ours = float(sas_estimate(X, K, k_RR, torch.tensor(noise, dtype=DOUBLE), N))
    sk_kernel = sk.ConstantKernel(kernel.outputscale.item()) * sk.RBF(kernel.base_kernel.lengthscale.item())
    regressor = GaussianProcessRegressor(sk_kernel, alpha=noise, optimizer=None).fit(Z.numpy(), X.numpy())
    assert_close(ours, regressor.log_marginal_likelihood(), OUTSIDE[DOUBLE])
    noise_tensor = torch.tensor(noise, dtype=DOUBLE)
    assert_close(ours, oracles.gpytorch_log_marginal(kernel, noise_tensor, Z, X), OUTSIDE[DOUBLE])


@pytest.mark.parametrize("name", ["matern12", "matern32", "matern52", "linear", "rbf-ard"])
def test_model_agrees_with_kernels_written_as_loops(name, rng):
    A, B, D, N = 4, 7, 3, 11
    Z, X = draw(rng, B, 2), draw(rng, B, D)
    kernel = KERNELS[name]().double()
    nu = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
    if name in nu:
        scale, ell = kernel.outputscale.item(), kernel.base_kernel.lengthscale.item()
        K = scale * oracles.gram(lambda a, b: oracles.matern(a, b, nu[name], ell), Z, Z)
    elif name == "linear":
        K = oracles.gram(lambda a, b: oracles.linear(a, b, kernel.variance.item()), Z, Z)
    else:
        kernel.base_kernel.lengthscale = torch.tensor([[0.5, 2.0]], dtype=DOUBLE)
        K = kernel.outputscale.item() * oracles.gram(lambda a, b: oracles.rbf(a, b, [0.5, 2.0]), Z, Z)
    model = SASModel(Table(Z, variance=False), kernel, noise=0.2, mean=torch.zeros(D, dtype=DOUBLE), active_set_size=A)
    loss = model(X, torch.arange(B), N, torch.Generator()).item()
    log_p = oracles.sas_estimate(X.numpy(), K, 0.2, range(A), range(A, B), N)
    log_prior = N / B * float(oracles.prior_log_density(Z).sum())
    assert_close(-loss * N * D, log_p + log_prior)


# ---- jitter and failure ----


def test_cholesky_adds_nothing_where_nothing_is_needed(rng):
    root = draw(rng, 6, 6)
    K = root @ root.T + torch.eye(6, dtype=DOUBLE)
    assert_close(cholesky(K), np.linalg.cholesky(K.numpy()), 1e-14)


def test_cholesky_adds_the_smallest_jitter_that_works():
    # All ones has the eigenvalues 4, 0, 0, 0; take 3e-9 from each. The mean diagonal is 1 − 3e-9
    K = torch.ones(4, 4, dtype=DOUBLE) - 3e-9 * torch.eye(4, dtype=DOUBLE)
    L = cholesky(K)
    # 1e-10 leaves −2.9e-9; 1e-8 is the first that lifts them above zero
    assert_close(L @ L.T, K + 1e-8 * K.diagonal().mean() * torch.eye(4, dtype=DOUBLE), 1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
def test_duplicates_without_noise_share_one_jitter_in_loss_and_gradient(dtype, rng):
    # Rows 0 and 1 coincide and σ² = 1e-30 changes nothing: K is singular, and the first jitter that works is found by
    # the same list. Loss and gradient must then both be those of K + jitter, held constant.
    A, B, D, N = 4, 6, 3, 9
    Z = draw(rng, B, 2)
    Z[1] = Z[0]
    X = draw(rng, B, D, dtype=dtype)
    X[1] = X[0] + 1e-3
    K_BA = torch.exp(-0.5 * (Z[:, None] - Z[None, :A]).square().sum(-1)).to(dtype)
    jitter = JITTERS[dtype][1] * 1.0  # mean diagonal 1
    assert torch.linalg.cholesky_ex(K_BA[:A]).info > 0, "singular without"
    eye = torch.cat([torch.eye(A), torch.zeros(B - A, A)]).double()
    arguments = (X, K_BA, torch.ones(B - A, dtype=dtype), torch.tensor(1e-30, dtype=dtype))
    ours = gradients(sas_estimate, *arguments, N)
    X, K_BA, k_RR, noise = (t.double() for t in arguments)

    def jittered(X, K_BA, k_RR, noise, N):
        return oracles.autograd_estimate(X, K_BA + jitter * eye, k_RR, noise, N)

    truth = gradients(jittered, X, K_BA, k_RR, noise, N)
    # The condition number is 2/jitter: 2e6 in float32 and 2e10 in float64 leave so many digits of ε = 6e-8 and 1e-16
    tolerance = {torch.float32: 0.2, DOUBLE: 1e-5}[dtype]
    for part, expected in truth.items():
        assert torch.isfinite(ours[part]).all()
        assert relative_error(ours[part], expected) < tolerance, part


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
@pytest.mark.parametrize("bad", ["nan", "indefinite", "infinite"])
def test_a_matrix_without_a_factor_says_so(bad, dtype):
    K = torch.eye(3, dtype=dtype)
    K[2, 2] = {"nan": math.nan, "indefinite": -1.0, "infinite": math.inf}[bad]
    name = {torch.float32: "float32", DOUBLE: "float64"}[dtype]
    with pytest.raises(NotPositiveDefiniteError, match=rf"3×3 covariance in {name}.*Use dtype='float64'"):
        cholesky(K)
    with pytest.raises(NotPositiveDefiniteError, match=rf"3×3 covariance in {name}"):
        sas_estimate(torch.ones(3, 2, dtype=dtype), K, torch.ones(0, dtype=dtype), torch.tensor(0.1, dtype=dtype), 3)


def test_the_message_takes_no_numbers_out_of_a_graph():
    """The inducing points' covariance is differentiated; torch warns if such a tensor becomes a number."""
    K = -torch.eye(3, requires_grad=True)
    with pytest.raises(NotPositiveDefiniteError, match="from -1 to -1"):
        cholesky(K)


def test_nan_off_the_diagonal_is_found(rng):
    K = torch.eye(4)
    K[3, 1] = K[1, 3] = math.nan
    with pytest.raises(NotPositiveDefiniteError, match="4×4"):
        cholesky(K)


def test_no_point_left_to_predict_is_an_error():
    with pytest.raises(
        ValueError, match=r"Got 4 active rows in a batch of 4, with 9 rows in all.*a smaller active set"
    ):
        sas_estimate(torch.ones(4, 2), torch.eye(4), torch.ones(0), torch.tensor(0.1), 9)
    sas_estimate(torch.ones(4, 2), torch.eye(4), torch.ones(0), torch.tensor(0.1), 4)  # everything: exact, and allowed


def test_variance_never_falls_below_the_noise():
    # A rest row that coincides with an active one at σ² = 1e-7 in float32: k_nn − k K⁻¹ k is 1e-7 ± rounding of 1, so
    # unguarded c might be ≤ 0 and its logarithm NaN. c ∈ [σ², 2σ² + rounding] bounds the log density by −½ log 2πσ².
    noise = torch.tensor(1e-7)
    for value in torch.linspace(0.5, 1.5, 101):
        K = torch.full((2, 1), float(value))
        log_p = sas_estimate(torch.zeros(2, 1), K, K[1], noise, 2)
        active = -0.5 * math.log(2 * math.pi * float(value))
        assert log_p <= active - 0.5 * math.log(2 * math.pi * 1e-7) + 1e-3
        assert torch.isfinite(log_p)


@pytest.mark.parametrize("D", [6, 200], ids=["from U", "from the Gram matrix"])
def test_no_error_is_negative_if_it_is_a_difference(rng, D):
    # x = V U, without a residual, in 100 rows, so that e is rounding; one row has one, or e would be a sum of squares
    X_A, V = torch.randn(4, D, generator=rng), torch.randn(101, 4, generator=rng)
    X = torch.cat([X_A, V @ X_A])
    X[-1] += 10 * torch.randn(D, generator=rng)
    _, _, e = _without_residuals(X, V, torch.eye(4))
    assert (e >= 0).all()
    assert e[:-1].max() < 1e-4 * X.square().sum(1).max()
    assert_close(e[-1], (X[-1] - V[-1] @ X_A).square().sum(), 1e-4)


# ---- cost ----


class Recording(RBFKernel):
    """An RBF that notes the shape of everything it is asked to form."""

    def __init__(self):
        super().__init__()
        self.formed = []

    def forward(self, x1, x2, diag=False, **params):
        K = super().forward(x1, x2, diag=diag, **params)
        self.formed.append(tuple(K.shape))
        return K


def test_only_the_diagonal_of_the_rest_is_formed(rng):
    # A=3 of B=10: [10, 3] against the active rows, and diagonals. [10, 10] or [7, 7] would be K_RR.
    kernel = Recording()
    model = SASModel(
        Table(draw(rng, 10, 2).float(), variance=False), kernel, noise=0.1, mean=torch.zeros(4), active_set_size=3
    )
    model(torch.ones(10, 4), torch.arange(10), 50, torch.Generator()).backward()
    assert [shape for shape in kernel.formed if len(shape) == 2] == [(10, 3)]
    assert all(shape[0] <= 10 for shape in kernel.formed if len(shape) == 1)


@pytest.mark.parametrize("name", ["rbf", "matern12", "matern32", "sum"])
def test_the_model_knows_k_of_a_point_with_itself_exactly(name, rng, monkeypatch):
    # GPyTorch's expanded distances leave a point √ε from itself: for Matérn-1/2 at ℓ = 0.1 in float32 that is .01 of k
    kernel = KERNELS[name]()
    for part in kernel.modules():
        if getattr(part, "has_lengthscale", False):
            part.lengthscale = 0.1
    Z = draw(rng, 300, 2, dtype=torch.float32)
    seen = {}
    monkeypatch.setattr(
        "sasgp.models.sas.sas_estimate",
        lambda X, K_BA, k_RR, noise, n_total, scales: seen.update(K_BA=K_BA, k_RR=k_RR) or K_BA.sum(),
    )
    model = SASModel(Table(Z, variance=False), kernel, noise=0.1, mean=torch.zeros(1), active_set_size=100)
    model(torch.zeros(300, 1), torch.arange(300), 300, torch.Generator())
    with torch.no_grad():
        k = kernel(Z, diag=True)
    assert torch.equal(seen["K_BA"].diagonal(), k[:100])
    assert torch.equal(seen["k_RR"], k[100:])
