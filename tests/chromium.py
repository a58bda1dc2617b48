"""A real Chromium for the tests of the explorer, without a network.

Needs Debian's chromium and chromium-driver, and selenium; without them tests are skipped and say why.
"""

import itertools
import shutil
import time
from contextlib import contextmanager

import numpy as np
import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="no chromium or chromedriver on the PATH: apt-get install chromium chromium-driver",
)

HOSTILE = [
    "</script><script>document.title='pwned'</script>",
    "<img src=x onerror=\"document.title='pwned'\">",
    "\"><svg/onload=document.title='pwned'>",
    "javascript:document.title='pwned'",
    "%{customdata} <b>bold</b> ' \" & 😀 \u2028",
    "long " * 40,
]
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--proxy-server=127.0.0.1:9",  # where nobody listens: a request that is made anyway fails, and is logged
]
SOFTWARE_WEBGL = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader"]


class Page:
    """A browser, with what the tests do in it."""

    def __init__(self, flags, downloads):
        from selenium.webdriver import Chrome, ChromeOptions
        from selenium.webdriver.chrome.service import Service

        options = ChromeOptions()
        options.binary_location = CHROMIUM
        for flag in [*FLAGS, *flags]:
            options.add_argument(flag)
        options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = Chrome(options=options, service=Service(DRIVER))
        self.downloads = downloads

    def js(self, code, *arguments):
        return self.driver.execute_script(code, *arguments)

    def window(self, width, height, *, dark=False):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def open(self, explorer, path, *, width=1280, height=720, dark=False):
        self.window(width, height, dark=dark)
        explorer.save(path)
        self.driver.get(path.as_uri())
        self.until("return document.documentElement.dataset.ready === 'true'")
        self.until("return !explorer.plot.pending")
        return self

    def until(self, condition, seconds=30):
        end = time.monotonic() + seconds
        while not (found := self.js(condition)):
            assert time.monotonic() < end, f"{condition}\n{self.text()}\n{self.log()}"
            time.sleep(0.05)
        return found

    def log(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def text(self):
        return self.js("return document.body.innerText")

    def press(self, selector):
        self.driver.find_element("css selector", selector).click()
        self.settle()

    def type(self, selector, text):
        """Clicks into a box and types what a keyboard has."""
        box = self.driver.find_element("css selector", selector)
        box.click()
        box.send_keys("".join(letter for letter in text if ord(letter) < 0x2000))

    def keys(self, *keys):
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def settle(self):
        """What appears or goes may give the plot another size, a moment later."""
        self.until(
            "const { stage, viewport, frame } = explorer.plot;"
            "return !frame && stage.clientHeight - viewport.size[1] === 40"
        )

    def pixel(self, x, y):
        """Where a place of the latent plane is in the window."""
        at = "const b = explorer.plot.area.getBoundingClientRect();"
        at += "const [x, y] = explorer.plot.toScreen(arguments[0], arguments[1]);"
        return self.js(at + "return [b.left + x, b.top + y]", float(x), float(y))

    def mouse(self, *steps):
        """Steps are places of the latent plane, or "down", "up" and "click"."""
        from selenium.webdriver import ActionChains

        actions = ActionChains(self.driver, duration=20)
        for step in steps:
            if isinstance(step, str):
                pointer = actions.w3c_actions.pointer_action
                {"down": pointer.pointer_down, "up": pointer.pointer_up, "click": pointer.click}[step]()
            else:
                actions.w3c_actions.pointer_action.move_to_location(*(round(p) for p in self.pixel(*step)))
        actions.perform()

    def hover(self, x, y):
        """Moves the mouse there, and returns what the page then says: z, mean and sd."""
        self.settle()
        before = self.js("return explorer.shown = 0")
        self.mouse((x, y))
        self.until(f"return Math.hypot(explorer.plane()[0] - {x}, explorer.plane()[1] - {y}) < 0.1 && {before} === 0")
        return self.said()

    def said(self):
        z, mean, sd = self.js("return [[...explorer.z], [...explorer.decoded.mean], explorer.decoded.sd]")
        return np.array(z), np.array(mean), sd

    def downloaded(self, ending):
        end = time.monotonic() + 20
        while not (found := [file for file in self.downloads.iterdir() if file.name.endswith(ending)]):
            assert time.monotonic() < end, f"no {ending} arrived"
            time.sleep(0.1)
        (file,) = found
        content = file.read_bytes()
        file.unlink()
        return content


@contextmanager
def browser(folder, *flags):
    page = Page(flags, folder)
    try:
        yield page
    finally:
        page.driver.quit()


CONTROLS = "button, select, input, summary, #readout, #stage, #hint, #about, h1"
# Where each is on the page, cut off by the box that it scrolls in
RECTANGLES = """
return [...document.querySelectorAll(arguments[0])].filter((e) => e.checkVisibility()).map((e) => {
  const own = e.getBoundingClientRect();
  const box = (e.closest("#legend, .features, #strip-frame") ?? document.documentElement).getBoundingClientRect();
  return {
    name: e.id || e.textContent.trim().slice(0, 20),
    left: Math.max(own.left, box.left), right: Math.min(own.right, box.right),
    top: Math.max(own.top, box.top), bottom: Math.min(own.bottom, box.bottom),
  };
})
"""


def overlapping(page):
    """Pairs of controls that cover one another."""
    boxes = page.js(RECTANGLES, CONTROLS)
    return [
        (a["name"], b["name"])
        for a, b in itertools.combinations(boxes, 2)
        if min(a["right"], b["right"]) - max(a["left"], b["left"]) > 1
        and min(a["bottom"], b["bottom"]) - max(a["top"], b["top"]) > 1
    ]
