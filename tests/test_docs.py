"""All code in README and docs runs, the commands of the first pages do, and every link leads somewhere."""

import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from sasgp import cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
WITH_COMMANDS = ("README.md", "getting-started.md", "installing.md")  # elsewhere, commands name files of the reader
# `.ci/run` runs the second, and tests/test_wheel.py installs into a fresh environment
INSTALLING = [
    *re.findall(r"^python3 -m venv .*$", (ROOT / "README.md").read_text(), flags=re.MULTILINE),
    "source .venv/bin/activate",
]
WITH_CODE = [page for page in PAGES if page.name in WITH_COMMANDS or "```python" in page.read_text()]


def files_of_the_readme(n=60):
    """The files that the README's commands name, written here."""
    draw = np.random.default_rng(0)
    group = np.arange(n) % 2
    table = pl.DataFrame({"bill": draw.normal(40 + 5 * group), "mass": draw.normal(4000 + 500 * group, 100)})
    table = table.with_columns(species=pl.Series(np.where(group == 1, "Adelie", "Gentoo")))
    houses = pl.DataFrame({"area": draw.uniform(30, 180, n), "town": draw.choice(["Porto", "Turku"], n)})
    houses = houses.with_columns(price=1000 * pl.col("area") + draw.normal(0, 5000, n))
    table.write_csv("table.csv")
    table.with_columns(mass=pl.when(pl.int_range(n) % 5 > 0).then("mass")).write_csv("gaps.csv")
    houses.write_csv("houses.csv")
    # One file stands for the new rows of both runs. Rows of the training file would be refused by `update`
    pl.concat([table, houses], how="horizontal").with_columns(pl.col("bill") + 0.1).write_csv("new.csv")


def run_commands(text):
    for line in text.splitlines():
        tokens = shlex.split(line, comments=True)
        if tokens and tokens[0] == "sasgp":
            assert cli.main(tokens[1:]) == 0, line
        else:
            assert not tokens or line in INSTALLING, f"no test runs {line}"


def run_page(page):
    """All Python code of a page and, if its files are there, its commands, from top to bottom."""
    names = {"__name__": "__main__"}
    for block in BLOCK.finditer(page.read_text()):
        language, text = block.groups()
        if language == "python":
            above = block.string.count("\n", 0, block.start(2))  # so that a failure shows its line of the page
            exec(compile("\n" * above + text, str(page), "exec"), names)
        elif page.name in WITH_COMMANDS:
            run_commands(text)


@pytest.mark.parametrize("page", WITH_CODE, ids=[page.name for page in WITH_CODE])
def test_code_runs(page, brief, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    if page.name == "README.md":
        files_of_the_readme()
    run_page(page)
    if page.name == "getting-started.md":  # it says what is left
        for name in re.findall(r"`([a-z.]+\.(?:png|html|csv))`", page.read_text().partition("## Use it")[0]):
            assert (tmp_path / "runs" / "wine" / name).exists(), f"{name} is not there"
        assert len(pl.read_csv("latents.csv")) == 178
        assert len(pl.read_csv("samples.csv")) == 3


def headings(text):
    """Of a page, as links name them."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    }


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        other = page.parent / path if path else page
        assert other.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in headings(other.read_text()), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_a_page_has_one_title(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert len(re.findall(r"^# ", text, flags=re.MULTILINE)) == 1
    assert text.startswith("# ")


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name
)
def test_text_that_keeps_its_columns_fits_the_site(page):
    """The site wraps code, but not blocks of text: 92 characters fit into the column of a window of 1280 pixels."""
    for block in re.findall(r"^```text\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE):
        assert max(map(len, block.splitlines())) <= 92


def test_every_page_is_in_the_navigation():
    text = "\n".join(page.read_text() for page in PAGES)
    named = {
        name
        for tree in re.findall(r"^```{toctree}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
        for name in tree.split()
    }
    assert {page.stem for page in PAGES[1:]} - named == {"index"}


def test_the_two_commands_of_the_readme_are_whole():
    # .ci/run reads the second from here; both must set up everything by themselves
    commands = re.findall(r"^(python3 -m venv .*)$", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    assert [command.split("/")[-1] for command in commands] == ["digits", "pytest"]
    for command in commands:
        assert "pip install -q -c constraints.txt -e" in command


@pytest.mark.parametrize("name", ["getting-started.md", "installing.md"])
def test_pages_install_as_the_readme_does(name):
    text = (ROOT / "docs" / name).read_text()
    [block] = re.findall(r"^```console\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    made, installed, _ = INSTALLING[0].split(" && ")
    lines = [line for line in block.splitlines() if not line.startswith("source ")]
    assert lines[0] == made
    assert lines[1].removeprefix(".venv/bin/") == installed.removeprefix(".venv/bin/").replace(" -q", "")
