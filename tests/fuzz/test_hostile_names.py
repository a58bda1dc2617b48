"""Labels, names of columns and names of files as nobody expects them: a run draws and writes them as they are."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from mutation import generator, walls

from sasgp import cli

FEW = 2
PIECES = [
    *(
        "a",
        "B",
        "7",
        "$",
        "$x_{$",
        "\\alpha",
        "\\",
        "{",
        "}",
        "^",
        "_",
        "%",
        "#",
        "~",
        "&",
        "<b>",
        "</script>",
        "&lt;",
        "'",
        '"',
    ),
    *(
        ",",
        ";",
        "|",
        "=",
        "+",
        "-",
        "@",
        "=1+1",
        "*",
        "?",
        "[1]",
        "(",
        ")",
        ":",
        "!",
        "`",
        "\t",
        "\n",
        "\r",
        " ",
        "\u2028",
        "\x1b[31m",
    ),
    *(
        "é",
        "e\u0301",
        "ß",
        "日本",
        "🦊",
        "عربي",
        "\u202e",
        "\u200d",
        "\ufeff",
        "İ",
        "١",
        "０",
        "null",
        "None",
        "true",
        "count",
        "value",
    ),
    *(
        "^a$",
        "label",
        "z0",
        "row",
        "id",
        "split",
        "_std",
        "_low",
        "x" * 300,
        "[bold]",
        "{x}",
        "%s",
        "%%",
        "../",
        "C:\\",
    ),
]


def content_of(page):
    return json.loads(page.read_text(encoding="utf-8").partition('id="content">')[2].partition("</script>")[0])


def hostile(draw):
    return "".join(draw.choices(PIECES, k=draw.choice([1, 1, 2, 3])))


def names(draw, n):
    """Names that differ, none of which is blank or looks like the usual labels."""
    found = {}
    while len(found) < n:
        name = hostile(draw).strip()
        if name and name not in ("label", "labels", "class", "target", "y") and name.replace("\r", "").strip():
            found[name] = None
    return list(found)


@pytest.mark.filterwarnings("ignore:Glyph:UserWarning")  # that the font of a picture does not have
@pytest.mark.filterwarnings("ignore:Matplotlib currently does not support:UserWarning")
def test_runs_with_hostile_names(tmp_path, monkeypatch, capsys, seed):
    monkeypatch.chdir(tmp_path)
    draw = generator("names", seed)
    N, columns, levels = 24, names(draw, 5), names(draw, 3)
    folder = Path("".join(c for c in hostile(draw) if c not in "/\x00\n\r")[:80].lstrip("-.~ ") or "f")
    folder.mkdir()
    table, run = folder / f"{draw.choice(['t', 'run*', 'data[1]', 'a b', '$x', '%s'])}.csv", folder / "run"
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*columns, "class"])
        for i, row in enumerate(np.random.default_rng(seed).normal(size=(N, 3)).round(3).tolist()):
            writer.writerow([*row, levels[i % 3], levels[i % 2], levels[i % 3]])

    def command(*tokens):
        with walls():
            code = cli.main([str(token) for token in tokens])
        error = capsys.readouterr().err
        assert code == 0 or (code == 2 and error.count("\n") == 1), error
        return code == 0

    if not command("fit", table, "--out", run, "--max-epochs", "1", "--random-state", "0"):
        return
    expected = [levels[i % 3].strip() for i in range(N)]
    with (run / "embedding.csv").open(newline="", encoding="utf-8") as file:
        assert [line["label"] for line in csv.DictReader(file)] == expected
    content = content_of(run / "explorer.html")
    [shown] = [column["classes"] for column in content["columns"] if column["name"] == "label"]
    assert set(shown) == set(expected)
    command("decode", run, run / "embedding.csv", "--std", "--out", folder / "d.csv")
    command("embed", run, table, "--out", folder / "e.csv")
    command("plot", run, "--out", folder / "figures")
    command("score", run, table)
