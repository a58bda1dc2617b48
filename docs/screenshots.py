"""The screenshots of the explorer in docs/images, made by a real Chromium.

    python docs/screenshots.py [RUNS]     # a few minutes; MNIST is looked for as `sasgp fit mnist` does

RUNS is a folder with runs of mnist and digits, to take instead of training anew: `sasgp fit mnist --out RUNS/mnist`.
Needs Debian's chromium and chromium-driver, and `pip install -e '.[test]'`.
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image
from selenium.webdriver import ActionChains, Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from sklearn.datasets import load_wine

from sasgp import SASGP
from sasgp.data import load
from sasgp.explorer import Explorer

IMAGES = Path(__file__).parent / "images"
FLAGS = (
    "--headless", "--no-sandbox", "--hide-scrollbars", "--disable-background-networking", "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
)  # fmt: skip


class Camera:
    """A browser that opens explorers, moves the mouse in them and takes pictures."""

    def __init__(self) -> None:
        options = ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for flag in FLAGS:
            options.add_argument(flag)
        self.driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
        self.folder = Path(tempfile.mkdtemp())

    def open(self, explorer: Explorer, width: int = 1280, height: int = 720, *, dark: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.get(explorer.save(self.folder / "explorer.html").as_uri())
        while not self.driver.execute_script("return document.documentElement.dataset.ready && !explorer.plot.pending"):
            time.sleep(0.1)

    def press(self, selector: str) -> None:
        self.driver.find_element("css selector", selector).click()
        time.sleep(0.5)

    def mouse(self, *places: tuple[float, float], click: bool = False) -> None:
        """Moves to places of the plot, in shares of its width and height from the upper left."""
        for x, y in places:
            box = "explorer.plot.overlay.getBoundingClientRect()"
            left, top, width, height = self.driver.execute_script(
                f"const b = {box}; return [b.x, b.y, b.width, b.height]"
            )
            actions = ActionChains(self.driver)
            actions.w3c_actions.pointer_action.move_to_location(round(left + x * width), round(top + y * height))
            if click:
                actions.w3c_actions.pointer_action.click()
            actions.perform()
            time.sleep(0.5)

    def shoot(self, name: str) -> None:
        path = IMAGES / f"{name}.png"
        self.driver.save_screenshot(str(path))
        Image.open(path).convert("RGB").save(path, optimize=True)  # a palette would give two classes one colour


def of_images(name: str, runs: Path | None) -> Explorer:
    """The explorer of a named data set's training rows."""
    data = load(name)
    model = SASGP(random_state=0).fit(data.X) if runs is None else SASGP.load(runs / name / "model.safetensors")
    return model.explorer(data.X, data.y, Z=model.embedding_, image_shape=data.image_shape, title=name)


def main(runs: Path | None) -> None:
    IMAGES.mkdir(exist_ok=True)
    camera = Camera()

    explorer = of_images("mnist", runs)
    camera.open(explorer)
    camera.press("[data-mode=path]")
    camera.mouse((0.45, 0.3), (0.58, 0.72), click=True)
    time.sleep(1)
    camera.shoot("explorer")

    explorer = of_images("digits", runs)
    camera.open(explorer, dark=True)
    camera.mouse((0.5, 0.45))
    camera.shoot("explorer-dark")
    camera.open(explorer, 390, 844)
    camera.shoot("explorer-phone")

    wine = load_wine(as_frame=True)
    X = wine.data.assign(cultivar=np.array(wine.target_names)[wine.target])[["cultivar", *wine.data]]
    model = SASGP(random_state=0, max_epochs=300).fit(X)
    camera.open(model.explorer(X, Z=model.embedding_, title="wine"))
    camera.mouse((0.5, 0.4))
    camera.shoot("explorer-table")
    camera.driver.quit()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
