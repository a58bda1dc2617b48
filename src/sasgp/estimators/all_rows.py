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

from sasgp.data.progress import progress_bar
from sasgp.data.rows import ArrayRows, check_values
from sasgp.estimators.evidence import EvidenceMethods
from sasgp.gp import kernels, positions
from sasgp.gp.linalg import NotPositiveDefiniteError
from sasgp.gp.local_noise import ResidualSums
from sasgp.gp.masked_sums import FilledSums, PatternSums, masked_copy, most_positions
from sasgp.gp.posterior import Posterior
from sasgp.gp.row_sums import RowSums
from sasgp.models.encoders import ENCODE_ROWS
from sasgp.training.distributed import same_everywhere
from sasgp.training.fingerprint import sample_fingerprint
from sasgp.training.loop import Alone, Ranks, generator
from sasgp.training.shares import shares

__all__ = ["AllRows"]

FEW_ROWS = 500  # up to so many rows, "auto" makes every row a position
MISSED = 1e-4  # share of the prior's variance that "auto" leaves at the rows it chooses from
ROUGHLY = 1e-3  # the same while lengthscales are chosen
MOST = 1000  # positions that "auto" takes at most: the pass takes M² operations per row
SHORTER, SHORTENED = 0.8, 10  # factor by which lengthscales are shortened at a time, and times at most
MIXED, MIXED_ROWS = 64, 1 << 16  # mixtures of the features that decide about lengthscales, and rows at most: 16 MiB
MASKED_FEATURES, MASKED_ROWS = 8, 4000  # that decide about them if values are missing
FAR = 0.5  # share of the prior's variance at new rows beyond which the positions do not know them
INTERIM_ROWS, INTERIM_POSITIONS = 4000, 200  # of the decoder that early stopping looks at


class AllRows(EvidenceMethods):
    """The methods of an estimator that concern the positions and the sums of its decoder."""

    sums_: RowSums
    residual_sums_: ResidualSums | None  # of noise="local"
    _FITTED: ClassVar[tuple[str, ...]] = (*EvidenceMethods._FITTED, "sums_", "residual_sums_")

    @property
    def support_size_(self) -> int:
        """The number of positions that the decoder has, also if support_size="auto" chose it."""
        return len(self.sums_.U)

    @property
    def missed_share_(self) -> float:
        """Share of the prior's variance at the rows that the positions cannot express; more positions lower it."""
        return self.sums_.missed_share

    # ------------------------------------------------------------------------------------------------ all rows

    def _interim_posterior(self, rows: ArrayRows) -> Posterior:
        some = torch.randperm(len(rows), generator=generator(self.seed_, "early stopping"))[:INTERIM_ROWS]
        X = rows.gather(some)
        Z = self.model_.encoder.position(X, some.to(self._device))
        sums = self._empty_sums(Z[:INTERIM_POSITIONS])
        centred = self.model_.centred(X)
        sums.add(centred, Z)
        if isinstance(sums, FilledSums):
            sums.fill(self.model_.noise, lambda V: sums.seen_products(centred, Z, V))
        return self.model_.decoder(sums)

    def _empty_sums(self, U: Tensor, n_features: int | None = None) -> RowSums:
        if not self.missing_share_:
            return self.model_.row_sums(U, n_features=n_features)
        if n_features is not None:  # few of them
            return PatternSums(self.model_.kernel, U, n_features)
        return self.model_.masked_sums(U)

    def _final_posterior(self, rows: ArrayRows, ranks: Ranks) -> Posterior:
        Z = torch.as_tensor(self.embedding_, device=self._device)
        if self.active_set_size is not None:
            self._shorten_lengthscales(rows, Z, ranks)
        self.sums_ = self._sums(rows, Z, ranks)
        masked = self.missing_share_ > 0
        local = self.noise_kind_ == "local"
        self.residual_sums_ = self.model_.residual_sums(self.sums_.U, masked=masked) if local else None
        return self._decoder_with(self.sums_, self.residual_sums_, rows, Z, ranks)

    def _shorten_lengthscales(self, rows: ArrayRows, Z: Tensor, ranks: Ranks) -> None:
        """Shorten the kernel's lengthscales as long as the bound on the evidence of all rows grows.

        A rows see less than N do, so training on sets of A rows ends with lengthscales that are too long for all rows.
        The bound is that of a few random mixtures of the features: orthonormal mixtures of functions with one kernel
        are such functions, too.
        """
        kernel = self.model_.kernel
        if not kernels.scale_lengthscales(kernel, 1.0):
            return
        mixed, Z = self._mixed(rows, Z)

        def bound() -> float:
            sums = self._positioned(Z, ROUGHLY, ranks, mixed.array.shape[1])
            return self._add_rows(sums, mixed, Z, ranks, mixed=True).bound(self.model_.noise)

        kept, best = copy.deepcopy(kernel.state_dict()), bound()
        for _ in range(SHORTENED):
            kernels.scale_lengthscales(kernel, SHORTER)
            if (found := bound()) <= best:
                break
            best, kept = found, copy.deepcopy(kernel.state_dict())
        kernel.load_state_dict(kept)

    def _mixed(self, rows: ArrayRows, Z: Tensor) -> tuple[ArrayRows, Tensor]:
        """A few mixtures of the centred features, for all rows or many, in memory; and the latents of these rows."""
        D, draw = self.n_scores_, generator(self.seed_, "mixed features")
        mix: Callable[[Tensor], Tensor]
        if self.missing_share_:  # a mixture would miss a value wherever one of its features does
            chosen = torch.randperm(D, generator=draw)[:MASKED_FEATURES].to(Z.device)
            most, mix = MASKED_ROWS, lambda X: X[:, chosen]
        else:
            Q = torch.linalg.qr(torch.randn(D, min(D, MIXED), generator=draw, dtype=Z.dtype)).Q.to(Z.device)  # [D, F]
            most, mix = MIXED_ROWS, lambda X: X @ Q
        if len(rows) > most:
            some = torch.randperm(len(rows), generator=draw)[:most].sort().values
            rows, Z = rows.subset(some), Z[some.to(Z.device)]
        parts: list[Tensor] = []
        self._pass("mixing features", {}, lambda X, _: parts.append(mix(self.model_.centred(X))), rows, Z, Alone())
        return ArrayRows(torch.cat(parts).cpu().numpy(), self._dtype, self._device), Z

    def _sums(self, rows: ArrayRows, Z: Tensor, ranks: Ranks) -> RowSums:
        """The sums over all rows."""
        return self._add_rows(self._positioned(Z, MISSED, ranks), rows, Z, ranks)

    def _positioned(self, Z: Tensor, missed: float, ranks: Ranks, n_features: int | None = None) -> RowSums:
        """Empty sums of some features or all, at positions that miss this share of the variance."""
        U = Z[self._choose_positions(Z, missed)].clone()
        same_everywhere([U], ranks)  # rounding may differ between machines
        sums = self._empty_sums(U, n_features)
        same_everywhere([sums.L], ranks)
        return sums

    def _choose_positions(self, Z: Tensor, missed: float) -> Tensor:
        """Indices of the rows whose latents become positions; with "auto", they may miss this share of the variance."""
        auto, N = self.support_size == "auto", len(Z)
        most, few = MOST, FEW_ROWS
        if self.missing_share_ and (limit := most_positions(self.n_scores_)):
            most, few = min(most, limit), min(few, limit)  # each feature has sums of its own
        size = N if self.support_size is None else most if auto else int(self.support_size)
        draw = generator(self.seed_, "support")
        if (few if auto else size) >= N:
            # All rows but those that others express to the last digit: the exact Gaussian process
            return positions.choose(self.model_.kernel, Z, N, draw).to(Z.device)
        some = torch.randperm(N, generator=draw)[: max(positions.CHOSEN_FROM, size)].to(Z.device)
        chosen = positions.choose(self.model_.kernel, Z[some], size, draw, missed if auto else 0.0)
        return some[chosen.to(Z.device)]

    def _add_rows(self, sums: RowSums, rows: ArrayRows, Z: Tensor, ranks: Ranks, *, mixed: bool = False) -> RowSums:
        """Add rows with latents Z [N, Q] to sums. With `mixed` they are mixtures of features, and centred already."""

        def add(X: Tensor, Z: Tensor) -> None:
            sums.add(X if mixed else self.model_.centred(X), Z)

        if ranks.world > 1 and isinstance(sums, PatternSums):
            sums.separate()
        title = "choosing lengthscales" if mixed else "conditioning on all rows"
        self._pass(title, sums.tensors, add, rows, Z, ranks)
        if isinstance(sums, FilledSums):
            sums.fill(self.model_.noise, lambda V: self._seen_products(sums, V, rows, Z, ranks))
        return sums

    def _seen_products(self, sums: FilledSums, V: Tensor, rows: ArrayRows, Z: Tensor, ranks: Ranks) -> Tensor:
        """One of the passes that fill in missing values."""
        total = torch.zeros_like(V)

        def add(X: Tensor, Z: Tensor) -> None:
            for part in zip(X.split(ENCODE_ROWS // 4), Z.split(ENCODE_ROWS // 4), strict=True):  # type: ignore[no-untyped-call]
                total.add_(sums.seen_products(*part, V))

        self._pass("filling in missing values", {"products": total}, add, rows, Z, ranks)
        return total

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

        self._pass("local noise", residuals.tensors, add, rows, Z, ranks)
        posterior.local_noise = residuals.noise(posterior.feature_noise)
        return posterior

    def _pass(
        self,
        title: str,
        sums: dict[str, Tensor],
        add: Callable[[Tensor, Tensor], None],
        rows: ArrayRows,
        Z: Tensor,
        ranks: Ranks,
    ) -> None:
        """Walk through rows with latents Z [N, Q]. Each process adds its share to the sums, and all get the total.

        The tensors of the sums are changed in place, if there are several processes.
        """
        N, several = len(rows), ranks.world > 1
        before = {name: tensor.clone() for name, tensor in sums.items()} if several else {}
        part = shares(N, ranks.world, ENCODE_ROWS)[ranks.rank]
        done = part.start
        with (
            torch.no_grad(),
            progress_bar(title, N, show=self.verbose, brief=N <= 10 * ENCODE_ROWS) as update,
        ):
            for X in rows.blocks(ENCODE_ROWS, part):
                add(X, Z[done : done + len(X)])
                done += len(X)
                update((done - part.start) * ranks.world)
            if several:
                for name, tensor in sums.items():
                    tensor -= before[name]
                    ranks.sum_(tensor)
                    tensor += before[name]

    # ------------------------------------------------------------------------------------------------ more rows

    def update(self, X: Any) -> Self:
        """Condition the decoder also on new rows X [M, D], without training again.

        Encoder, kernel and noise stay as they are. Afterwards the decoder is what one pass over all rows, old and new,
        gives. The latents of the new rows follow those of the old ones in `embedding_`. With noise="local", the
        residuals of the new rows are added; those of the old rows are not computed again.

        Parameters
        ----------
        X : array-like [M, D]
            Whatever `fit` takes, with the same features.
        """
        check_is_fitted(self)
        rows = self._rows(X)
        with_spread = self._by_row and self.latents == "bayesian"  # a table keeps the variances of its rows
        latents, std = self._encode(rows, return_std=True) if with_spread else (self._encode(rows), None)
        masked = bool(check_values(rows.array))
        sums = masked_copy(self.sums_) if masked else copy.deepcopy(self.sums_)
        residuals = copy.deepcopy(self.residual_sums_)
        if residuals is not None and masked:
            residuals.count_features()
        Z = torch.as_tensor(latents, device=self._device)
        self._add_rows(sums, rows, Z, Alone())
        posterior = self._decoder_with(sums, residuals, rows, Z, Alone())
        missed = float((sums.t - self.sums_.t) / (sums.k - self.sums_.k))
        parts = [*self._data_parts, [len(rows), sample_fingerprint(rows.array, self.dtype_)]]
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
        triangles = {f"support.{name}": getattr(sums, name)[..., row, column] for name in ("L", "S")}
        if isinstance(sums, PatternSums):
            triangles |= {"support.group": sums.group, "support.groups": torch.stack([sums.t_g, sums.n_g])}
        elif isinstance(sums, FilledSums):
            seen = torch.stack([sums.t_seen, sums.n_seen])
            triangles |= {"support.S_seen": sums.S_seen[row, column], "support.seen": seen}
        scalars = torch.stack([sums.t, sums.e, sums.k, sums.n])
        residuals = {} if self.residual_sums_ is None else self.residual_sums_.tensors
        noise = {f"noise.{name}": tensor for name, tensor in residuals.items()}
        return {"support.U": sums.U, "support.b": sums.b, "support.scalars": scalars, **triangles, **noise}

    def _posterior_shapes(self, tensors: dict[str, Tensor]) -> dict[str, tuple[int | None, ...]]:
        Q, D, U = self.embedding_.shape[1], self.n_scores_, tensors.get("support.U")
        M = 0 if U is None else len(U)
        triangle: tuple[int | None, ...] = (M * (M + 1) // 2,)
        shapes = {"support.U": (M, Q), "support.b": (M, D), "support.scalars": (4,), "support.L": triangle}
        if "support.group" in tensors:
            G = len(tensors["support.S"]) if "support.S" in tensors else 0
            shapes |= {"support.S": (G, *triangle), "support.group": (D,), "support.groups": (2, G)}
        else:
            shapes["support.S"] = triangle
            shapes |= {"support.S_seen": triangle, "support.seen": (2,)} if "support.S_seen" in tensors else {}
        if self.noise_kind_ == "local":
            n = tensors.get("noise.n")
            shapes |= {"noise.R": (M, D), "noise.n": (M, D) if n is not None and n.ndim == 2 else (M,)}
        return shapes

    def _restore_posterior(self, tensors: dict[str, Tensor]) -> None:
        U = tensors["support.U"]
        row, column = torch.tril_indices(len(U), len(U), device=U.device)

        def square(name: str) -> Tensor:
            triangle = tensors[f"support.{name}"].double()
            found = triangle.new_zeros(*triangle.shape[:-1], len(U), len(U))
            found[..., row, column] = triangle
            return found

        L, S = square("L"), square("S")
        if not all(tensor.isfinite().all() for tensor in (U, L, S)) or not (L.diagonal() > 0).all():
            raise NotPositiveDefiniteError("its sums over the rows are none")
        S = S + S.tril(-1).mT
        D, sums = self.n_scores_, self.model_.row_sums(U, L)
        if "support.group" in tensors:
            sums = PatternSums(self.model_.kernel, U, D, L)
            sums.group, (sums.t_g, sums.n_g) = tensors["support.group"], tensors["support.groups"].double()
            if not ((sums.group >= 0) & (sums.group < len(S))).all():
                raise NotPositiveDefiniteError("its groups of features are none")
        elif "support.S_seen" in tensors:
            sums = FilledSums(self.model_.kernel, U, D, L)
            sums.S_seen, (sums.t_seen, sums.n_seen) = square("S_seen"), tensors["support.seen"].double()
            sums.S_seen, sums.held = sums.S_seen + sums.S_seen.tril(-1).T, S.clone()
        sums.S, sums.b = S, tensors["support.b"].double()
        sums.t, sums.e, sums.k, sums.n = tensors["support.scalars"].double()
        local = self.noise_kind_ == "local"
        by_feature = tensors["noise.n"].ndim == 2 if local else False
        residuals = self.model_.residual_sums(U, masked=by_feature) if local else None
        if residuals is not None:
            residuals.R, residuals.n = tensors["noise.R"].double(), tensors["noise.n"].double()
            if not all((tensor.isfinite() & (tensor >= 0)).all() for tensor in residuals.tensors.values()):
                raise NotPositiveDefiniteError("its sums over squared residuals are none")
        self.sums_, self.residual_sums_ = sums, residuals
        self.posterior_ = self.model_.decoder(sums, residuals)
