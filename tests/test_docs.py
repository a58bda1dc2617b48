"""Every Python block in README and docs runs, and every file and anchor they point to is there."""

import re
from pathlib import Path

import pytest
from starts import shorten_start

from sasgp.estimators import supervised
from sasgp.training import regression
from sasgp.training import run as fitting

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ids = [page.name for page in PAGES]


WITH_CODE = [page for page in PAGES if "```python" in page.read_text()]


@pytest.mark.parametrize("page", WITH_CODE, ids=[page.name for page in WITH_CODE])
def test_code_runs(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fitting, "MAX_EPOCHS", 60)  # the pages train to the end; here it is enough that they run
    monkeypatch.setattr(supervised, "STEPS", 60)
    monkeypatch.setattr(regression, "SHARP_STEPS", 10)
    shorten_start(monkeypatch, 50)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    exec(compile("\n".join(blocks), str(page), "exec"), {"__name__": "__main__"})
    assert blocks


def headings(text):
    """Of a page, as links name them."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    }


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        other = page.parent / path if path else page
        assert other.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in headings(other.read_text()), f"{page.name} links to {target}"


def test_the_two_commands_of_the_readme_are_whole():
    # .ci/run reads the second from here; both must set up everything by themselves
    commands = re.findall(r"^(python3 -m venv .*)$", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    assert [command.split("/")[-1] for command in commands] == ["digits", "pytest"]
    for command in commands:
        assert "pip install -q -c constraints.txt -e" in command
