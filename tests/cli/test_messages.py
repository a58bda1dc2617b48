"""The library's messages name arguments; the command line turns them into options of the command that was typed."""

from pathlib import Path

import pytest
from command_line import table

from sasgp.cli import arguments, messages

LIBRARY = Path(arguments.__file__).parents[1]


@pytest.fixture
def typed(monkeypatch):
    return lambda line: monkeypatch.setattr(messages, "LINE", line.split())


@pytest.mark.parametrize(
    ("message", "argument", "expected"),
    [
        ("x.csv: choose one with labels='age'.", "labels", "x.csv: choose one with --labels age."),
        ("x.csv: say labels='two words'.", "labels", "x.csv: say --labels 'two words'."),
        ("labels must be a column.", "labels", "--labels must be a column."),
        ("The file has no label in row 3.", "labels", "The file has no label in row 3. The option is --labels."),
        (
            "digits has its own. Leave out test_fraction=0.5.",
            None,
            "digits has its own. Leave out --test-fraction 0.5.",
        ),
        ("Lower test_fraction.", "test_fraction", "Lower --test-fraction."),
        ('n_components must be 1. Use dtype="float64".', None, "--n-components must be 1. Use --dtype float64."),
        ("max_epochs needs batch_size=3, or batch_size.", None, "--max-epochs needs --batch-size 3, or --batch-size."),
        # What is not an argument of the command, or not at fault, stays
        ("Save it with index=False.", None, "Save it with index=False."),
        ("Save np.asarray(X, dtype=float).", None, "Save np.asarray(X, dtype=float)."),
        ("Column 'batch_size' is text.", "labels", "Column 'batch_size' is text. The option is --labels."),
        ("batch_size has already finished.", None, "batch_size has already finished."),
        ("refine must be at least 0.", "refine", "refine must be at least 0."),
        ("no argument is at fault.", "X", "no argument is at fault."),
    ],
)
def test_arguments_become_options(typed, message, argument, expected):
    typed("fit x.csv --out run")
    assert messages.in_options(message, argument) == expected


def test_only_the_options_of_the_command_are_named(typed):
    typed("embed run x.csv --out z.csv")
    assert messages.in_options("refine must be at least 0.", "refine") == "--refine must be at least 0."
    assert messages.in_options("Use batch_size=3.", "batch_size") == "Use batch_size=3."
    typed("--version")
    assert messages.in_options("Use labels='y'.", "labels") == "Use labels='y'."


def test_the_user_reads_options(here, error):
    table(9).with_columns(y=1, label=2).write_csv("two.csv")
    expected = "two.csv: columns 'y', 'label' may all hold the labels. Choose one with --labels y, or drop the others."
    assert error("fit", "two.csv", "--out", "run") == f"sasgp: error: {expected}\n"
    table(9).write_csv("x.csv")
    tokens = ("fit", "x.csv", "--labels", "species", "--out", "run", "--test-fraction")
    assert "error: --test-fraction must be at least 0 and less than 1. Got 1.5." in error(*tokens, "1.5")
    assert "error: --test-fraction must leave at least 2 rows to train on." in error(*tokens, "0.9")


def test_the_library_mentions_no_option(sasgp):
    """Below the command line, the words of an option are in no message and in no docstring."""
    text = sasgp("fit", "--help")
    options = {word for word in text.split() if word.startswith("--")} | {"--refine", "--json", "--std"}
    assert "--labels" in options
    usage = ("sasgp ", "torchrun ", "python ")  # a line that shows a command
    for path in LIBRARY.rglob("*.py"):
        if path.relative_to(LIBRARY).parts[0] == "cli":
            continue
        lines = [line for line in path.read_text().splitlines() if not any(start in line for start in usage)]
        found = {word.strip("`'\".,:;()") for line in lines for word in line.split()} & options
        assert not found, f"{path} mentions {found}"
