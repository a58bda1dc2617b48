"""The built site: no broken link, a title on every page, everything public in the reference, no request to anywhere.

    .venv/bin/sphinx-build -W docs build/site

builds it, as `.ci/run` does. Without it, these tests are skipped.
"""

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from test_public_surface import SURFACE

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build" / "site"
PAGES = sorted(page for page in SITE.rglob("*.html") if "_static" not in page.parts)
pytestmark = pytest.mark.skipif(not PAGES, reason="no built site: sphinx-build docs build/site")
pages = pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(SITE)) for page in PAGES])

LOADS = {("link", "href"), ("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("img", "srcset")}
KINDS_OF_LINKS = {"stylesheet", "icon", "preload", "modulepreload"}  # of <link>, those that a browser fetches


class Reader(HTMLParser):
    """Ids, titles, links, and what the browser loads without being asked."""

    def __init__(self):
        super().__init__()
        self.ids, self.links, self.loaded, self.text = set(), [], [], {"title": "", "h1": ""}
        self.inside = None

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids |= {found[key] for key in ("id", "name") if found.get(key)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        for key in found:
            fetched = tag != "link" or set((found.get("rel") or "").split()) & KINDS_OF_LINKS
            if (tag, key) in LOADS and fetched:
                self.loaded += [part.split()[0] for part in found[key].split(",")] if key == "srcset" else [found[key]]
        if tag in self.text:
            self.inside = tag

    def handle_endtag(self, tag):
        if tag == self.inside:
            self.inside = None

    def handle_data(self, data):
        if self.inside:
            self.text[self.inside] += data


@cache
def read(page):
    reader = Reader()
    reader.feed(page.read_text())
    return reader


def target(page, address):
    """The file and the anchor that an address on a page means."""
    parts = urlsplit(address)
    path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    return path, unquote(parts.fragment)


@pages
def test_links_lead_somewhere(page):
    for address in {*read(page).links, *read(page).loaded}:
        if re.match(r"https?://[\w.-]+\.[a-z]+(/\S*)?$", address):
            continue
        assert not urlsplit(address).scheme or address.startswith("data:"), f"{address} is no address"
        path, anchor = target(page, address)
        assert path.is_file(), f"{page.name} links to {address}"
        if anchor and path.suffix == ".html":
            assert anchor in read(path).ids, f"{page.name} links to {address}"


@pages
def test_a_page_has_a_title(page):
    text = read(page).text
    assert text["title"].strip(" -—\n")
    if page.name not in ("genindex.html", "py-modindex.html", "search.html"):
        assert text["h1"].strip("#\n ")


@pages
def test_reading_needs_no_network(page):
    for address in read(page).loaded:
        assert not address.startswith(("http:", "https:", "//")), f"{page.name} loads {address}"


def test_styles_and_scripts_load_nothing_from_elsewhere():
    for path in SITE.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import\s+['\"](https?:)?//", path.read_text()), path.name


def test_everything_public_is_in_the_reference():
    known = set().union(*(read(page).ids for page in (SITE / "api").rglob("*.html")))
    for module, names in SURFACE.items():
        for name in names - {"__version__"}:
            assert f"{module}.{name}" in known, f"{module}.{name} is not in the reference"


def test_the_navigation_has_the_parts_of_the_site():
    home = read(SITE / "index.html")
    assert {
        *("getting-started.html", "guides.html", "gallery/index.html", "api/index.html"),
        *("questions.html", "results.html", "contributing.html"),
    } <= set(home.links)


def test_examples_in_docstrings_are_code():
    """Indented lines without `::` before them become a quotation, in which all lines run together."""
    for page in (SITE / "api").rglob("*.html"):
        assert "<blockquote" not in page.read_text(), page.name


def test_a_wide_picture_opens_at_its_full_size():
    """It is 1080 pixels wide, and the column of text about 776."""
    assert "_images/infinite-mnist.png" in read(SITE / "how-good.html").links
