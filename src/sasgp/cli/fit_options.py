"""What `sasgp fit` is asked for: its options, which are the settings of the estimators, and the request as JSON."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from cyclopts import Group, Parameter

from sasgp.cli.arguments import DATA, LINE, MODEL, OUTPUT, TRAINING, Metadata
from sasgp.cli.config import FROM_FILE
from sasgp.data.files import at_home
from sasgp.errors import InputError
from sasgp.models.settings import (
    InducingSettings,
    NetworkSettings,
    Settings,
    SupervisedSettings,
    TargetSettings,
    documented,
)

__all__ = ["AS_FOUND", "DEFAULTS", "ModelName", "Options", "Request", "TableOptions", "Target", "chosen", "hint"]

ModelName = Annotated[Literal["sasgp", "gplvm", "bayesian-gplvm", "vae"], Parameter(group=MODEL)]
Several = Annotated[tuple[str, ...], Parameter(group=DATA, consume_multiple=True, negative=(), show_default=False)]
MODELS = {"sasgp": "SASGP", "gplvm": "GPLVM", "bayesian-gplvm": "BayesianGPLVM", "vae": "VAE"}


SUPERVISED = {field.name: field for field in fields(SupervisedSettings)}
SHARED = SUPERVISED.keys() & {field.name for field in fields(Settings)}  # options of both kinds of models
AS_TYPED = ("random_state", "verbose", "columns")  # whose defaults are those of the command line
_ONLY_SUPERVISED = documented(SupervisedSettings, without=tuple(SHARED)).partition("----------\n")[2]
_MAP = documented(TargetSettings).partition("----------\n")[2].replace("target\n", "target_map\n", 1)

# The panel of the help that each option is in. What all models have, and then what one of them has
GROUPS = {
    DATA: ("image_shape",),
    MODEL: ("n_components", "latents", "encoder", "kernel", "noise", "active_set_size", "support_size"),
    TRAINING: (
        "init",
        "layout_weight",
        "max_epochs",
        "batch_size",
        "learning_rate",
        "hyper_learning_rate",
        "encoder_noise",
        "early_stopping",
        "validation_fraction",
        "dtype",
        "precision",
        "device",
        "random_state",
    ),
    Group("Only with --model bayesian-gplvm", sort_key=13): ("n_inducing",),
    Group("Only with --model vae", sort_key=14): ("output", "variance"),
    Group("Only with --target", sort_key=15): ("prediction", "neighbours", "target_map"),
    OUTPUT: ("verbose",),
}


def _defaults_of_targets() -> str:
    """The defaults that differ with --target."""
    usual = {field.name: field.default for field in fields(Settings)}
    other = [f for name, f in SUPERVISED.items() if name in SHARED - set(AS_TYPED) and f.default != usual[name]]
    return ", ".join(f"--{field.name.replace('_', '-')} {field.default}" for field in other)


Target = Annotated[
    str | None,
    Parameter(
        group=DATA,
        help="The column to predict from all others, by a regression if it holds numbers, and by a classification if "
        "it holds text or few levels; --kind says otherwise. In a named data set or a folder of images it is `label`; "
        "for an array, a file with one target per row. Then there are no latents, and their options do not apply. The "
        f"defaults are {_defaults_of_targets()}; --kernel may also be deep.",
    ),
]


@dataclass(eq=False, repr=False)
class Options(NetworkSettings, InducingSettings, Settings):
    __doc__ = (
        "What a user may choose.\n" + documented(Settings, InducingSettings, NetworkSettings) + _ONLY_SUPERVISED + _MAP
    )

    prediction: Literal["auto", "nearest", "all-rows", "exact"] = SupervisedSettings.prediction
    neighbours: int = SupervisedSettings.neighbours
    target_map: Literal["auto", "plain"] = TargetSettings.target  # --target names the column
    latents: Literal["bayesian", "point"] | None = None  # type: ignore[assignment]  # the model's own default
    random_state: int | None = 0  # a command gives the same result again unless asked not to
    verbose: bool = True
    image_shape: Annotated[tuple[int, ...] | None, Parameter(consume_multiple=True, negative=())] = None
    columns: Annotated[str, Parameter(parse=False)] = "auto"  # type: ignore[assignment]  # `TableOptions` say it instead


def _typeable(kind: Any) -> Any:
    """A setting's type without what only Python can pass: from `Literal["pca", "random"] | Any`, the names."""
    return next((part for part in get_args(kind) if Any in get_args(kind) and part is not Any), kind)


Options.__annotations__ = {field.name: _typeable(field.type) for field in fields(Options)}
Options.__annotations__["kernel"] = Literal[(*get_args(Options.__annotations__["kernel"]), "deep")]
Options.__annotations__ |= {
    name: Annotated[Options.__annotations__[name], Parameter(group=group)]
    for group, names in GROUPS.items()
    for name in names
}
DEFAULTS = Options()


@dataclass(frozen=True)
class TableOptions:
    """How to read a table.

    Parameters
    ----------
    kind
        What a column holds, such as --kind age=count: real, skewed, count, binary, ordinal, category or date. By
        default it is recognised, and the report says as what. --kind '*=real' takes all columns as numbers.
    drop
        Columns to leave out.
    only
        The columns to train on; all others are left out.
    id
        The column that names the rows. It goes to embedding.csv and the explorer, and is not trained on.
    missing
        Codes of missing cells besides the usual ones (empty, NA, ?, …), such as -999.
    """

    kind: Several = ()
    drop: Several = ()
    only: Several = ()
    id: Annotated[str | None, Parameter(group=DATA)] = None
    missing: Several = ()
    metadata: Metadata = ()

    def kinds(self, names: Sequence[str]) -> dict[str, str]:
        """What the columns of a table with these names hold, as far as it was said."""
        found: dict[str, str] = {}
        for pair in self.kind:
            name, equals, kind = pair.rpartition("=")
            if not equals:
                raise InputError(f"--kind must be COLUMN=KIND, such as age=count. Got {pair}.")
            found |= dict.fromkeys(names if name == "*" else [name], kind)
        if self.only:
            found |= {name: "drop" for name in names if name not in self.only}
            found |= {name: found.get(name, "") for name in self.only if name not in names}
        found |= dict.fromkeys(self.drop, "drop") | ({} if self.id is None else {self.id: "id"})
        if absent := [name for name in found if name not in names]:
            raise InputError(f"The table has no column {', '.join(absent)}. {hint(absent[0], names)}")
        return found


def hint(name: str, names: Sequence[str]) -> str:
    """What a name may have been meant for, in a sentence."""
    if close := difflib.get_close_matches(name, names, 1):
        return f"Did you mean {close[0]}?"
    return f"It has {', '.join(names[:10])}{', …' * (len(names) > 10)}."


AS_FOUND = TableOptions()


@dataclass(frozen=True)
class Request:
    """What `sasgp fit` was asked for. `command` is the line that was typed."""

    data: str | None
    labels: str | None
    target: str | None
    model: ModelName
    test_fraction: float | None
    overwrite: bool
    tensorboard: bool
    table: TableOptions
    options: Options
    command: str

    def resumed(self, run: Path) -> "Request":
        """The request that began an unfinished run. Raises InputError if this one differs from it in what was typed."""
        from sasgp.cli import unfinished

        asked = unfinished.request(run, self.given())
        options = {field.name: asked.get(field.name, field.default) for field in fields(Options)}
        own = {field.name: asked[field.name] for field in fields(Request) if field.name not in ("options", "table")}
        said: dict[str, Any] = {field.name: asked[field.name] for field in fields(TableOptions)}
        table: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
        table = TableOptions(**table)
        return Request(**own | {"overwrite": True, "table": table, "options": Options(**options)})

    def given(self) -> dict[str, Any]:
        """What was typed, with the names and values of `as_json`."""
        typed = _typed()
        return {name: value for name, value in self.as_json().items() if name in typed or (name == "data" and value)}

    def as_json(self) -> dict[str, Any]:
        """The request as JSON. Paths become absolute, so that it means the same from any folder."""
        from sasgp.data.named import NAMES

        own = {field.name: getattr(self, field.name) for field in fields(Request) if field.name != "options"}
        table = asdict(own.pop("table"))
        own |= {name: list(value) if isinstance(value, tuple) else value for name, value in table.items()}
        own |= {
            "data": self.data if self.data in NAMES else _absolute(self.data, folder=True),
            "labels": _absolute(self.labels),
            "target": _absolute(self.target),
            "metadata": [_absolute(name) for name in self.table.metadata],
        }
        options = {field.name: getattr(self.options, field.name) for field in fields(Options)}
        shape = self.options.image_shape
        return own | options | {"image_shape": None if shape is None else list(shape)}

    def for_target(self) -> "Request":
        """The request with the defaults of a regression in place of those of a decoder, if a target was named."""
        if self.target is None:
            return self
        typed = _typed()
        latents = {
            "labels": "labels",
            "metadata": "columns",
            "model": "model",
            "tensorboard": "tensorboard",
            "open": "open",
        }
        if wrong := [option for name, option in latents.items() if name in typed]:
            raise InputError(f"--{wrong[0]} is for models with latents. Leave it out, or leave out --target.")
        fixed: Any = {name: field.default for name, field in SUPERVISED.items() if name not in {*typed, *AS_TYPED}}
        return replace(self, options=replace(self.options, **fixed))

    def supervised(self, *, classes: bool, columns: Any) -> Any:
        """The regressor or classifier that was asked for."""
        from sasgp import estimators

        cls = "SASGPClassifier" if classes else "SASGPRegressor"
        own = {"target_map"} if not classes else set()
        for name in sorted(_typed() & {field.name for field in fields(Options)} - SUPERVISED.keys() - own):
            raise InputError(f"{cls} has no option --{name.replace('_', '-')}. Leave it out, or leave out --target.")
        values = {name: getattr(self.options, name) for name in SUPERVISED} | {"columns": columns}
        mapped = {} if classes else {"target": self.options.target_map}
        return getattr(estimators, cls)(**values | mapped)

    def estimator(self, options: Options) -> Any:
        """The estimator that was asked for. Options that were not typed are left to its own defaults."""
        from sasgp import estimators

        cls: Any = getattr(estimators, MODELS[self.model])
        values = {field.name: getattr(options, field.name) for field in fields(Options)}
        chosen = {name: value for name, value in values.items() if value != getattr(DEFAULTS, name)}
        for name in sorted((chosen.keys() | (_typed() & values.keys())) - _settings(self.model)):
            option = f"--{name.replace('_', '-')}"
            if name in {*SUPERVISED.keys() - SHARED, "target_map"}:
                raise InputError(
                    f"{option} is for predictions of a column. Name it with --target, or leave {option} out."
                )
            why = f"has no option {option}"
            if name in ("active_set_size", "batch_size") and self.model == "gplvm":
                why = f"makes every row active, so it has no option {option}"
            other = next(other for other in MODELS if name in _settings(other))
            raise InputError(f"--model {self.model} {why}. Leave it out, or use --model {other}.")
        return cls(**chosen | {"random_state": options.random_state, "verbose": options.verbose})


def chosen(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What differs from the defaults in the JSON of a request, with the names of options: what a file for --config has.

    What makes no difference to the model is left out: the command itself, --overwrite and --verbose.
    """
    usual: dict[str, Any] = {"labels": None, "target": None, "model": "sasgp", "test_fraction": None}
    usual |= {"tensorboard": False, "metadata": []} | {
        field.name: getattr(DEFAULTS, field.name) for field in fields(Options)
    }
    usual |= {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(AS_FOUND).items()}
    if asked.get("target") is not None:
        usual |= {name: field.default for name, field in SUPERVISED.items() if name not in AS_TYPED}
    names = {name: name for name in ("data", *usual) if name not in ("verbose", "columns")} | {"metadata": "columns"}
    return {
        option.replace("_", "-"): asked[name]
        for name, option in names.items()
        if name in asked and (name == "data" or asked[name] != usual[name])
    }


def _absolute(path: str | None, *, folder: bool = False) -> str | None:
    """The absolute path of a file, or also of a folder, or the text as it is if it names none."""
    if path is None:
        return None
    place = at_home(path)
    return str(place.resolve()) if place.is_file() or (folder and place.is_dir()) else path


def _typed() -> set[str]:
    """The names of the options that were typed, even if their value is the default."""
    options = (token[2:].partition("=")[0] for token in LINE if token.startswith("--"))
    names = {name.removeprefix("no-").replace("-", "_") for name in options}
    return FROM_FILE | {"metadata" if name == "columns" else name for name in names}  # --columns is no setting


def _settings(model: str) -> set[str]:
    from sasgp import estimators

    return {field.name for field in fields(getattr(estimators, MODELS[model])) if field.init}
