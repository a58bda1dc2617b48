"""One browser for all tests of a process, and what must hold after each of them."""

import pytest
from chromium import SOFTWARE_WEBGL, browser


@pytest.fixture(scope="session")
def page(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("downloads"), *SOFTWARE_WEBGL) as page:
        yield page


@pytest.fixture(autouse=True)
def _clean(request):
    """Whatever a test does: no error is logged, nothing is requested, and nothing that is no number is shown."""
    yield
    if "page" not in request.fixturenames:
        return
    page = request.getfixturevalue("page")
    assert page.log() == []
    assert page.js("return performance.getEntriesByType('resource').filter((e) => !/^(blob|data):/.test(e.name))") == []
    assert page.js("return document.title") != "pwned"
    shown = page.text()
    assert not [word for word in ("NaN", "undefined", "Infinity", "[object") if word in shown]
