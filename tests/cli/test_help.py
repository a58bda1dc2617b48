"""Help: fast, complete, and made from the settings."""

import subprocess
import sys

import pytest

from sasgp import cli


@pytest.mark.parametrize("tokens", [["--help"], ["fit", "--help"], ["--version"], []])
def test_help_does_not_wait_for_heavy_imports(tokens):
    code = (
        "import sys; from sasgp.cli import main; code = main(sys.argv[1:]); "
        "print({'torch', 'gpytorch', 'sklearn', 'matplotlib', 'polars'} & {*sys.modules}); sys.exit(code)"
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
