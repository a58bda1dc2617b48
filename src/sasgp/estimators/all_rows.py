"""The decoder of SASGP and GPLVM: after training, one pass puts all rows into sums, through positions of the latents.

The sums (`sasgp.gp.row_sums`) are what the decoder is made of, and what its file holds. Rows that arrive after training
are added to them. With noise="local" a second pass does the same with the squared residuals (`sasgp.gp.local_noise`).
"""

import copy
import warnings
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sasgp.data.rows import ArrayRows
from sasgp.estimators.evidence import EvidenceMethods
from sasgp.gp import kernels, positions
from sasgp.gp.linalg import NotPositiveDefiniteError
from sasgp.gp.local_noise import ResidualSums
from sasgp.gp.posterior import Posterior
from sasgp.gp.row_sums import RowSums
from sasgp.models.encoders import ENCODE_ROWS
from sasgp.training.distributed import same_everywhere
from sasgp.training.fingerprint import sample_fingerprint
from sasgp.training.loop import Alone, Ranks, generator
from sasgp.training.progress import progress_bar
from sasgp.training.shares import shares

__all__ = ["AllRows"]

FEW_ROWS = 500  # up to so many rows, "auto" makes every row a position
MISSED = 1e-4  # share of the prior's variance that "auto" leaves at the rows it chooses from
ROUGHLY = 1e-3  # the same while lengthscales are chosen
MOST = 1000  # positions that "auto" takes at most: the pass takes M² operations per row
SHORTER, SHORTENED = 0.8, 10  # factor by which lengthscales are shortened at a time, and times at most
MIXED = 64  # mixtures of the features that decide about lengthscales
FAR = 0.5  # share of the prior's variance at new rows beyond which the positions do not know them
INTERIM_ROWS, INTERIM_POSITIONS = 4000, 200  # of the decoder that early stopping looks at


class AllRows(EvidenceMethods):
    """The methods of an estimator that concern the positions and the sums of its decoder."""

    sums_: RowSums
    residual_sums_: ResidualSums | None  # of noise="local"
    _FITTED: ClassVar[tuple[str, ...]] = (*EvidenceMethods._FITTED, "sums_", "residual_sums_")

    @property
    def support_size_(self) -> int:
        """The number of positions that the decoder has."""
        return len(self.sums_.U)

    @property
    def missed_share_(self) -> float:
        """The share of the prior's variance at the rows that the positions cannot express."""
        return self.sums_.missed_share

    # ------------------------------------------------------------------------------------------------ all rows

    def _interim_posterior(self, rows: ArrayRows) -> Posterior:
        some = torch.randperm(len(rows), generator=generator(self.seed_, "early stopping"))[:INTERIM_ROWS]
        X = rows.gather(some)
        Z = self.model_.encoder.position(X, some.to(self._device))
        sums = self.model_.row_sums(Z[:INTERIM_POSITIONS])
        sums.add(self.model_.centred(X), Z)
        return self.model_.decoder(sums)

    def _final_posterior(self, rows: ArrayRows, ranks: Ranks) -> Posterior:
        Z = torch.as_tensor(self.embedding_, device=self._device)
        if self.active_set_size is not None:
            self._shorten_lengthscales(rows, Z, ranks)
        self.sums_ = self._sums(rows, Z, ranks)
        self.residual_sums_ = self.model_.residual_sums(self.sums_.U) if self.noise_kind_ == "local" else None
        return self._decoder_with(self.sums_, self.residual_sums_, rows, Z, ranks)

    def _shorten_lengthscales(self, rows: ArrayRows, Z: Tensor, ranks: Ranks) -> None:
        """Shorten the kernel's lengthscales as long as the bound on the evidence of all rows grows.

        A rows see less than N do, so training on sets of A rows ends with lengthscales that are too long for all rows.
        The bound is that of a few random mixtures of the features: orthonormal mixtures of functions with one kernel
        are such functions, too.
        """
        kernel, D = self.model_.kernel, self.n_scores_
        draw = generator(self.seed_, "mixed features")
        mix = torch.linalg.qr(torch.randn(D, min(D, MIXED), generator=draw, dtype=Z.dtype)).Q.to(Z.device)  # [D, F]

        def bound() -> float:
            return self._sums(rows, Z, ranks, mix).bound(self.model_.noise)

        kept = copy.deepcopy(kernel.state_dict())
        if not kernels.scale_lengthscales(kernel, 1.0):
            return
        best = bound()
        for _ in range(SHORTENED):
            kernels.scale_lengthscales(kernel, SHORTER)
            if (found := bound()) <= best:
                break
            best, kept = found, copy.deepcopy(kernel.state_dict())
        kernel.load_state_dict(kept)

    def _sums(self, rows: ArrayRows, Z: Tensor, ranks: Ranks, mix: Tensor | None = None) -> RowSums:
        """The sums over all rows, or over mixtures [D, F] of their features."""
        U = Z[self._choose_positions(Z, MISSED if mix is None else ROUGHLY)].clone()
        same_everywhere([U], ranks)  # rounding may differ between machines
        sums = self.model_.row_sums(U, n_features=None if mix is None else mix.shape[1])
        same_everywhere([sums.L], ranks)
        return self._add_rows(sums, rows, Z, ranks, mix)

    def _choose_positions(self, Z: Tensor, missed: float) -> Tensor:
        """Indices of the rows whose latents become positions; with "auto", they may miss this share of the variance."""
        auto, N = self.support_size == "auto", len(Z)
        size = N if self.support_size is None else MOST if auto else int(self.support_size)
        draw = generator(self.seed_, "support")
        if (FEW_ROWS if auto else size) >= N:
            # All rows but those that others express to the last digit: the exact Gaussian process
            return positions.choose(self.model_.kernel, Z, N, draw).to(Z.device)
        some = torch.randperm(N, generator=draw)[: max(positions.CHOSEN_FROM, size)].to(Z.device)
        chosen = positions.choose(self.model_.kernel, Z[some], size, draw, missed if auto else 0.0)
        return some[chosen.to(Z.device)]

    def _add_rows(self, sums: RowSums, rows: ArrayRows, Z: Tensor, ranks: Ranks, mix: Tensor | None = None) -> RowSums:
        """Add rows with latents Z [N, Q] to sums, or mixtures [D, F] of their features."""

        def add(X: Tensor, Z: Tensor) -> None:
            X = self.model_.centred(X)
            sums.add(X if mix is None else X @ mix, Z)

        self._pass("conditioning on all rows", sums, add, rows, Z, ranks)
        return sums

    def _decoder_with(
        self, sums: RowSums, residuals: ResidualSums | None, rows: ArrayRows, Z: Tensor, ranks: Ranks
    ) -> Posterior:
        """The decoder given sums that hold these rows already. For local noise, their residuals are added as well."""
        posterior = self.model_.decoder(sums)
        if residuals is None:
            return posterior

        def add(X: Tensor, Z: Tensor) -> None:
            r, h = posterior.residuals(X, Z)
            residuals.add(r, h, Z)

        self._pass("local noise", residuals, add, rows, Z, ranks)
        posterior.local_noise = residuals.noise(posterior.feature_noise)
        return posterior

    def _pass(
        self,
        title: str,
        sums: RowSums | ResidualSums,
        add: Callable[[Tensor, Tensor], None],
        rows: ArrayRows,
        Z: Tensor,
        ranks: Ranks,
    ) -> None:
        """Walk through rows with latents Z [N, Q]. Each process adds its share to the sums, and all get the total."""
        N, before = len(rows), {name: tensor.clone() for name, tensor in sums.tensors.items()}
        part = shares(N, ranks.world, ENCODE_ROWS)[ranks.rank]
        done = part.start
        with (
            torch.no_grad(),
            progress_bar(title, N, show=self.verbose and N > 10 * ENCODE_ROWS) as update,
        ):
            for X in rows.blocks(ENCODE_ROWS, part):
                add(X, Z[done : done + len(X)])
                done += len(X)
                update((done - part.start) * ranks.world)
            if ranks.world > 1:
                for name, tensor in sums.tensors.items():
                    tensor -= before[name]
                    ranks.sum_(tensor)
                    tensor += before[name]

    # ------------------------------------------------------------------------------------------------ more rows

    def update(self, X: Any) -> Self:
        """Condition the decoder also on new rows X [M, D], without training again.

        Encoder, kernel and noise stay as they are. Afterwards the decoder is what one pass over all rows, old and new,
        gives. The latents of the new rows follow those of the old ones in `embedding_`. With noise="local", the
        residuals of the new rows are added to those of the old ones, which stay those of the decoder at their time.

        Parameters
        ----------
        X : array-like [M, D]
            Whatever `fit` takes, with the same features.
        """
        check_is_fitted(self)
        rows = self._rows(X)
        with_spread = self._by_row and self.latents == "bayesian"  # a table keeps the variances of its rows
        latents, std = self._encode(rows, return_std=True) if with_spread else (self._encode(rows), None)
        sums, residuals = copy.deepcopy(self.sums_), copy.deepcopy(self.residual_sums_)
        Z = torch.as_tensor(latents, device=self._device)
        self._add_rows(sums, rows, Z, Alone())
        posterior = self._decoder_with(sums, residuals, rows, Z, Alone())
        missed = float((sums.t - self.sums_.t) / (sums.k - self.sums_.k))
        parts = [*self._data_parts, [len(rows), sample_fingerprint(rows.array, self.dtype)]]
        model, embedding = self.model_, np.concatenate([self.embedding_, latents])
        if self._by_row:
            model = copy.deepcopy(model)
            model.encoder.extend(Z, None if std is None else torch.as_tensor(std, device=self._device).square())
        if missed > FAR:
            warnings.warn(
                f"The new rows lie where the model has seen little: its positions miss {missed:.0%} of the variance "
                "there, so the new rows change the decoder only in part. Fit the model again with all rows.",
                UserWarning,
                stacklevel=2,
            )
        # In one step, which nothing interrupts
        decoder = {"sums_": sums, "residual_sums_": residuals, "posterior_": posterior, "model_": model}
        self.__dict__.update(decoder, embedding_=embedding, _data_parts=parts)
        return self

    # ------------------------------------------------------------------------------------------------ files

    def _posterior_tensors(self) -> dict[str, Tensor]:
        sums = self.sums_
        row, column = torch.tril_indices(len(sums.U), len(sums.U), device=sums.S.device)
        triangles = {f"support.{name}": getattr(sums, name)[row, column] for name in ("L", "S")}
        scalars = torch.stack([sums.t, sums.e, sums.k, sums.n])
        residuals = {} if self.residual_sums_ is None else self.residual_sums_.tensors
        noise = {f"noise.{name}": tensor for name, tensor in residuals.items()}
        return {"support.U": sums.U, "support.b": sums.b, "support.scalars": scalars, **triangles, **noise}

    def _posterior_shapes(self, tensors: dict[str, Tensor]) -> dict[str, tuple[int | None, ...]]:
        Q, D, U = self.embedding_.shape[1], self.n_scores_, tensors.get("support.U")
        M = 0 if U is None else len(U)
        triangles = {f"support.{name}": (M * (M + 1) // 2,) for name in ("L", "S")}
        noise: dict[str, tuple[int | None, ...]] = (
            {"noise.R": (M, D), "noise.n": (M,)} if self.noise_kind_ == "local" else {}
        )
        return {"support.U": (M, Q), "support.b": (M, D), "support.scalars": (4,), **triangles, **noise}

    def _restore_posterior(self, tensors: dict[str, Tensor]) -> None:
        U = tensors["support.U"]
        row, column = torch.tril_indices(len(U), len(U), device=U.device)
        L, S = torch.zeros(2, len(U), len(U), dtype=torch.float64, device=U.device)
        L[row, column], S[row, column] = tensors["support.L"].double(), tensors["support.S"].double()
        if not all(tensor.isfinite().all() for tensor in (U, L, S)) or not (L.diagonal() > 0).all():
            raise NotPositiveDefiniteError("its sums over the rows are none")
        sums = self.model_.row_sums(U, L)
        sums.S, sums.b = S + S.tril(-1).T, tensors["support.b"].double()
        sums.t, sums.e, sums.k, sums.n = tensors["support.scalars"].double()
        residuals = self.model_.residual_sums(U) if self.noise_kind_ == "local" else None
        if residuals is not None:
            residuals.R, residuals.n = tensors["noise.R"].double(), tensors["noise.n"].double()
            if not all((tensor.isfinite() & (tensor >= 0)).all() for tensor in residuals.tensors.values()):
                raise NotPositiveDefiniteError("its sums over squared residuals are none")
        self.sums_, self.residual_sums_ = sums, residuals
        self.posterior_ = self.model_.decoder(sums, residuals)
