"""How probable data are under a trained decoder: the methods of SASGP that use `sasgp.gp.evidence`."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from sasgp.data.memory import amount
from sasgp.data.progress import progress_bar
from sasgp.data.rows import ArrayRows, check_values
from sasgp.errors import InputError
from sasgp.estimators.gp import GPEstimator
from sasgp.estimators.validation import check_curve, check_evidence, seed_of
from sasgp.gp.evidence import Evidence, EvidenceCurve, bound, curve, doublings, exact, sas, unbiased
from sasgp.gp.factor import GP, memory_needed
from sasgp.gp.masked_factor import MaskedGP
from sasgp.models.encoders import ENCODE_ROWS
from sasgp.models.settings import Settings
from sasgp.training.loop import generator

__all__ = ["EvidenceMethods"]


class EvidenceMethods(GPEstimator):
    """`evidence` and `evidence_curve`."""

    active_set_size_: int

    def evidence(
        self,
        X: Any,
        *,
        method: Literal["exact", "bound", "sas", "unbiased"] = "exact",
        Z: Any = None,
        active_set_size: int | None = None,
        batch_size: int | None = None,
        n_estimates: int = 20,
        dtype: Literal["float64", "float32"] = "float64",
        random_state: Any = None,
    ) -> Evidence:
        """How probable rows are under the decoder, given their latents: log p(X|Z) in nats.

        Z are the latents that `transform` finds; for Bayesian latents, their means. So this is the likelihood at one Z.
        The training objective is another number: an average over q(Z), minus the divergence from the prior. With
        noise="local" the evidence keeps the global noise, which training learned.

        Parameters
        ----------
        X : array-like [N, D]
            Usually the rows that the model was trained on.
        method : str
            "exact": the number itself, in N³/3 operations and half of an N×N matrix.
            "bound": a lower bound through the decoder's positions, in one pass over the rows, for any N.
            "sas": the mean of the training estimate (Eq. 6) over random active sets, for A²·N operations each. It is
            too low on average as long as larger active sets predict better.
            "unbiased": SAS plus a random correction; its mean is the exact number. An estimate costs about N³/12.
        Z : array-like [N, Q], optional
            Latents if they are known, such as `embedding_` for the training rows with encoder="table".
        active_set_size : int, optional
            A of "sas" and "unbiased". By default, that of training.
        batch_size : int, optional
            Rows of one "sas" estimate, active ones included. By default, all N.
        n_estimates : int
            Independent repetitions of "sas" and "unbiased".
        dtype : str
            Precision of the factor: "float32" takes half the memory and half the time.
        random_state : int, RandomState or None
            None: a new draw each time.

        Returns
        -------
        Evidence
            It has `mean`, `standard_error`, `per_value`, and the cost.
        """
        check_is_fitted(self)
        rows = self._rows(X)
        A = self._active_rows(len(rows)) if active_set_size is None else active_set_size
        check_evidence(len(rows), method, A, batch_size, n_estimates, dtype)
        gp, draw = self._gp(rows, Z, dtype), generator(seed_of(random_state), "evidence")
        memory = f", {amount(memory_needed(gp, len(rows)))}" if method == "exact" else ""
        with progress_bar(f"evidence{memory}", 1, show=self.verbose) as update:
            if method == "exact":
                return exact(gp, update)
            if method == "bound":
                return bound(gp, self.posterior_.Z, update)
            if method == "sas":
                return sas(gp, A, n_estimates, draw, B=batch_size, update=update)
            return unbiased(gp, A, n_estimates, draw, update=update)

    def evidence_curve(
        self,
        X: Any,
        *,
        sizes: Sequence[int] | None = None,
        Z: Any = None,
        n_estimates: int = 20,
        dtype: Literal["float64", "float32"] = "float64",
        random_state: Any = None,
    ) -> EvidenceCurve:
        """How well a row is predicted from `a` others drawn at random, for several a: it shows whether more would help.

        If the curve is flat at `active_set_size`, more active points would not help. Printing the curve says so in
        words, and `plots.evidence_curve` draws it.

        Parameters
        ----------
        X : array-like [N, D]
            Usually the rows that the model was trained on.
        sizes : sequence of int, optional
            Sizes of the active set, each below N. By default, that of the model, its halves and doubles.
        Z : array-like [N, Q], optional
            As for `evidence`.
        dtype : str
            As for `evidence`.
        random_state : int, RandomState or None
            None: a new draw each time.
        n_estimates : int
            Independent repetitions, each with its own active sets and predicted rows.

        Returns
        -------
        EvidenceCurve
            It has `sizes`, and `mean` and `standard_error` in nats per row.
        """
        check_is_fitted(self)
        rows = self._rows(X)
        A = self._active_rows(len(rows))
        sizes = doublings(A, len(rows)) if sizes is None else sorted({*np.atleast_1d(sizes).tolist()})
        check_curve(len(rows), sizes, n_estimates, dtype)
        gp, draw = self._gp(rows, Z, dtype), generator(seed_of(random_state), "evidence")
        with progress_bar("curve", 1, show=self.verbose) as update:
            return curve(gp, sizes, A, n_estimates, draw, update=update)

    def _active_rows(self, N: int) -> int:
        """A for the evidence of N rows: that of training, or the default if all rows were active."""
        A = Settings.active_set_size if self.active_set_size is None else self.active_set_size_
        assert A is not None
        return min(A, N - 1)

    def _gp(self, rows: ArrayRows, Z: Any, dtype: str) -> GP:
        """Rows and their latents under the trained kernel, in float64 until they are factored."""
        if Z is None:
            Z = self._encode(rows)
        elif np.shape(Z) != (len(rows), self.n_components_):
            raise InputError(
                f"Z must have n_components={self.n_components_} columns and one row for each of the {len(rows)} rows "
                f"of X. Got shape {np.shape(Z)}.",
                argument="Z",
            )
        mean, scales, D = self.model_.mean.double(), self.posterior_.scales, self.n_scores_
        places = torch.as_tensor(np.asarray(Z, np.float64), device=self._device)
        about = (
            self.model_.kernel,
            float(self.posterior_.noise),
            places,
            lambda index: (rows.gather(index.cpu()).double() - mean) / scales,
            D,
        )
        if check_values(rows.array):
            seen = torch.cat([~X.isnan() for X in rows.blocks(ENCODE_ROWS)])
            return MaskedGP(*about, seen=seen, offsets=-scales.log().expand(D), dtype=getattr(torch, dtype))
        return GP(*about, row_offset=-D * float(scales.log().mean()), dtype=getattr(torch, dtype))
