"""What a notebook shows of an estimator: scikit-learn's diagram and, once it is fitted, a card with its numbers."""

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from sasgp.estimators import card
from sasgp.estimators.card import Line, number, percent, several, time_of
from sasgp.estimators.tables import input_names
from sasgp.gp import kernels

if TYPE_CHECKING:
    from sasgp.estimators.base import LatentEstimator
    from sasgp.estimators.imputer import SASGPImputer
    from sasgp.estimators.supervised import SupervisedEstimator

__all__ = ["FittedCard", "imputer_card", "latent_card", "supervised_card"]


class FittedCard:
    """Puts a card above the HTML that scikit-learn makes of an estimator. It stands before BaseEstimator."""

    def _card(self) -> str:
        """The card, or "" as long as there is nothing to tell."""
        raise NotImplementedError

    def _repr_html_inner(self) -> str:
        return self._card() + super()._repr_html_inner()  # type: ignore[misc]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        return {kind: self._card() + text if kind == "text/html" else text for kind, text in bundle.items()}


def latent_card(model: "LatentEstimator", title: str) -> str:
    """The card of a model with a latent space: its numbers, and the latents in the two dimensions used most."""
    if not {"embedding_", "posterior_"} <= vars(model).keys():  # unfitted, or shown by a callback while it is fitted
        return ""
    N, Q = model.embedding_.shape
    lines: list[Line] = [("rows", f"{N:,}"), ("features", _features(model))]
    if model.missing_share_:
        lines.append(
            ("missing", f"{percent(model.missing_share_)} of the {'values' if model.columns_ is None else 'scores'}")
        )
    lines += [("latent space", f"{Q} dimension{'s' * (Q > 1)}, {model.latents}"), ("noise", _noise(model))]
    kernel = getattr(model, "kernel_", None)
    if kernel is not None and math.isfinite(max(lengths := kernels.lengthscales(kernel, Q))):
        lines.append(("lengthscale", several(lengths)))
    if hasattr(model, "missed_share_"):
        missed = f"{model.support_size_:,} positions, which miss {percent(model.missed_share_)} of the prior's variance"
        lines.append(("decoder", missed))
    elif hasattr(model, "n_inducing_"):
        lines.append(("decoder", f"{model.n_inducing_:,} inducing points"))
    spread = model.embedding_.std(0)
    if kernel is not None:
        spread = model.relevance_
    dims = sorted(np.argsort(-spread, kind="stable")[:2].tolist())
    picture = card.latent_picture(model.embedding_[:, dims].astype(np.float64), dims)
    return card.card(title, lines + _training(model.history_), picture)


def supervised_card(model: "SupervisedEstimator") -> str:
    """The card of a regressor or classifier: its numbers, and the relevance of its inputs."""
    if "posterior_" not in vars(model):
        return ""
    lines: list[Line] = [("rows", f"{len(model._targets):,}"), ("inputs", _features(model))]
    if hasattr(model, "classes_"):
        classes = ", ".join(map(str, model.classes_[:8])) + ", …" * (len(model.classes_) > 8)
        lines.append(("classes", f"{len(model.classes_)}: {classes}"))
    else:
        lines.append(("target", ", ".join(model.targets_.names)))
        lines.append(("noise", f"standard deviation {several(model.noise_)}"))
    lines.append(("predictions", _predictions(model)))
    picture = ""
    if model.model_.features is None:  # a deep kernel mixes its inputs
        picture = card.bars(model.relevance_, input_names(model), "relevance: spread of each input in lengthscales")
    return card.card(type(model).__name__, lines + _training(model.history_), picture)


def imputer_card(model: "SASGPImputer") -> str:
    """The card of an imputer: how well each column is predicted by the others, or the card of its decoder."""
    found = getattr(model, "regressions_", None)
    if found is not None:
        lines = [
            ("rows", f"{found.n_rows:,}"),
            ("columns", str(model.n_features_in_)),
            ("missing", f"{percent(found.missing_share)} of the values"),
            ("method", f"each column is regressed on {found.n_inputs} other{'s' * (found.n_inputs != 1)}"),
        ]
        shares = np.zeros(model.n_features_in_)
        for d, column in found.columns.items():
            shares[d] = column.explained
        names = [str(name) for name in getattr(model, "feature_names_in_", range(model.n_features_in_))]
        return card.card(type(model).__name__, lines, card.bars(shares, names, "share of variance that is predicted"))
    decoder = getattr(model, "model_", None)
    return "" if decoder is None else latent_card(decoder, type(model).__name__)


def _features(model: Any) -> str:
    """How many features there are and, in a table, of which kinds."""
    if model.columns_ is not None:
        kinds = Counter(column.kind for column in model.columns_.columns)
        listed = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
        return f"{len(model.columns_)} columns: {listed}"
    shape = getattr(model, "image_shape_", None)
    images = "" if shape is None else f", images of {' × '.join(map(str, shape))}"
    return f"{model.n_features_in_:,}{images}"


def _noise(model: Any) -> str:
    values = np.atleast_1d(model.noise_)
    kind = {"feature": ", one for each feature", "local": " far from the data"}.get(model.noise_kind_, "")
    return f"variance {several(values.tolist())}{kind if len(values) > 1 or model.noise_kind_ == 'local' else ''}"


def _predictions(model: "SupervisedEstimator") -> str:
    if model.prediction_ == "exact":
        return "from all rows, exactly"
    if model.prediction_ == "all-rows":
        return f"from all rows, through {int(model.support_size):,} positions"
    return f"from the {min(int(model.neighbours), len(model._targets)):,} nearest rows"


def _training(history: list[dict[str, Any]]) -> list[Line]:
    """The epochs, their time, and the last loss."""
    if not history:
        return []
    last = history[-1]
    held_out = f", held out {number(last['held_out_loss'])}" if "held_out_loss" in last else ""
    return [
        ("epochs", f"{len(history):,} in {time_of(last['seconds'])}"),
        ("loss", f"{number(last['loss'])} nats per value{held_out}"),
    ]
