"""Help: fast, complete, and made from the settings."""

import os
import shutil
import subprocess
import sys
from dataclasses import fields

import pytest
from command_line import shell

from sasgp import cli, estimators
from sasgp.cli import arguments, fit_options


@pytest.mark.parametrize("tokens", [["--help"], ["fit", "--help"], ["--version"], []])
def test_help_does_not_wait_for_heavy_imports(tokens):
    code = (
        "import sys; from sasgp.cli import main; code = main(sys.argv[1:]); "
        "print({'numpy', 'torch', 'gpytorch', 'sklearn', 'matplotlib', 'polars'} & {*sys.modules}); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *tokens], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_every_setting_is_an_option_with_its_own_help(sasgp, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    text = sasgp("fit", "--help")
    for name in {*cli.Settings.__dataclass_fields__, "kind", "drop", "only", "id", "missing"} - {"columns"}:
        assert f"--{name.replace('_', '-')} " in text
    assert "Dimensions of the latent space, Q." in text
    assert "ANY" not in text
    assert "--empty" not in text


@pytest.mark.parametrize("command", ["explore", "plot"])
def test_help_says_which_rows_are_shown_by_default(sasgp, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "400")
    assert "By default the points of the run's embedding.csv" in sasgp(command, "--help")


def test_the_command_line_is_reproducible_and_shows_progress_by_default():
    assert (cli.DEFAULTS.random_state, cli.DEFAULTS.verbose) == (0, True)
    settings = cli.Settings()
    changed = {name for name, value in vars(settings).items() if getattr(cli.DEFAULTS, name) != value}
    assert changed == {"latents", "random_state", "verbose"}


def test_sasgp_alone_says_where_to_start(sasgp):
    out = sasgp()
    for command in (
        "sasgp fit digits --out runs/digits",
        "sasgp explore runs/digits --open",
        "sasgp fit table.csv --out",
    ):
        assert command in out
    assert "sasgp --help" in out
    assert max(map(len, out.splitlines())) < 80


def test_commands_are_listed_by_what_they_are_for(sasgp, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = sasgp("--help").splitlines()
    listed = [line.split()[1] for line in lines if line.startswith("│ ") and line[2] not in " -"]
    assert listed == [name for commands in arguments.PANELS.values() for name in commands]
    assert listed[0] == "fit"


@pytest.mark.parametrize("name", [name for commands in arguments.PANELS.values() for name in commands])
def test_help_shows_what_is_typed_after_a_command(sasgp, name):
    words = sasgp(name, "--help").splitlines()[0].removeprefix(f"Usage: sasgp {name} ").split()
    found = cli.app[name].assemble_argument_collection()
    places = [argument.name for argument in found if argument.name[0] not in "-*"]
    assert [word.strip("[]") for word in words[: len(places)]] == [place.upper() for place in places]
    assert ("--out" in words) == (name == "fit" or any(a.name == "--out" and a.required for a in found))


def test_every_option_of_fit_is_in_a_group_and_those_of_one_model_in_its_own():
    groups = {group.name: set(names) for group, names in fit_options.GROUPS.items()}
    assert (
        sum(map(len, groups.values())) == len(fields(fit_options.Options)) - 1
    )  # all but `columns`, which has no option
    has = {name: {field.name for field in fields(getattr(estimators, cls))} for name, cls in fit_options.MODELS.items()}
    for model in ("bayesian-gplvm", "vae"):
        others = set.union(*(found for other, found in has.items() if other != model))
        assert groups[f"Only with --model {model}"] == (has[model] - others) & set.union(*groups.values())
    regressor = {field.name for field in fields(estimators.SASGPRegressor)} - set.union(*has.values()) - {"target"}
    assert groups["Only with --target"] == regressor | {"target_map"}


def test_help_has_its_groups_in_this_order():
    lines = shell("fit", "--help", env=os.environ | {"COLUMNS": "100"}).stdout.splitlines()
    titles = [line.strip("╭╮─ ") for line in lines if line.startswith("╭")]
    own = ["Only with --model bayesian-gplvm", "Only with --model vae", "Only with --target"]
    assert titles == ["Arguments", "Data", "Model", "Training", *own, "Output"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_options_choices_and_files(tmp_path):
    (tmp_path / "sasgp.bash").write_text(cli.app.generate_completion(shell="bash"))
    (tmp_path / "table.csv").touch()
    words = ["fi", "fit --n-", "fit --model ba", "fit ta", "embed run ta", "info --j"]
    script = "source sasgp.bash\n" + "".join(
        f'COMP_WORDS=(sasgp {line}); COMP_CWORD=$(({len(line.split())})); _sasgp sasgp; echo "${{COMPREPLY[@]}}"\n'
        for line in words
    )
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    found = ["fit", "--n-components --n-inducing", "bayesian-gplvm", "table.csv", "table.csv", "--json"]
    assert (done.stdout.splitlines(), done.stderr) == (found, "")


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_completion_is_installed_where_the_shell_looks(sasgp, tmp_path, monkeypatch, shell_name):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("ZSH", "ZSH_CUSTOM"):
        monkeypatch.delenv(name, raising=False)
    assert "installed" in sasgp("--install-completion", "--shell", shell_name)
    [script] = [file for file in tmp_path.rglob("*sasgp*") if file.is_file()]
    text = script.read_text()
    assert all(word in text for word in ("n-components", "bayesian-gplvm", "evidence"))
    if shutil.which(shell_name):
        subprocess.run([shell_name, "-n", script], check=True)
