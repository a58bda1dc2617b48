"""The screenshots of the explorer in docs/images, made by a real Chromium.

    python docs/screenshots.py RUNS     # a minute, or more without runs of mnist and digits

RUNS is a folder with seaborn's penguins.csv. It may also have runs of mnist and digits, to take instead of training
anew: `sasgp fit mnist --out RUNS/mnist`. Needs Debian's chromium and chromium-driver, and `pip install -e '.[test]'`.
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
from anndata import AnnData
from PIL import Image
from selenium.webdriver import ActionChains, Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

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

    def open(self, explorer: Explorer, width: int = 1280, height: int = 800, *, dark: bool = False) -> None:
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
            box = "explorer.plot.area.getBoundingClientRect()"
            left, top, width, height = self.driver.execute_script(
                f"const b = {box}; return [b.x, b.y, b.width, b.height]"
            )
            actions = ActionChains(self.driver)
            actions.w3c_actions.pointer_action.move_to_location(round(left + x * width), round(top + y * height))
            if click:
                actions.w3c_actions.pointer_action.click()
            actions.perform()
            time.sleep(0.5)

    def lasso(self, *corners: tuple[float, float]) -> None:
        """Draws around places, with the mouse pressed."""
        box = "const b = explorer.plot.area.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]"
        left, top, width, height = self.driver.execute_script(box)
        actions = ActionChains(self.driver, duration=20)
        for i, (x, y) in enumerate([*corners, corners[0]]):
            actions.w3c_actions.pointer_action.move_to_location(round(left + x * width), round(top + y * height))
            if not i:
                actions.w3c_actions.pointer_action.pointer_down()
        actions.w3c_actions.pointer_action.pointer_up()
        actions.perform()
        time.sleep(0.5)

    def row(self, i: int) -> None:
        """Moves to a row's point."""
        place = "const { plot } = explorer; const [x, y] = plot.toScreen(plot.x(arguments[0]), plot.y(arguments[0]));"
        self.mouse(
            tuple(self.driver.execute_script(place + "const [w, h] = plot.viewport.size; return [x / w, y / h]", i))
        )

    def wait(self, condition: str) -> None:
        while not self.driver.execute_script(f"return {condition}"):
            time.sleep(0.1)

    def shoot(self, name: str) -> None:
        path = IMAGES / f"{name}.png"
        self.driver.save_screenshot(str(path))
        Image.open(path).convert("RGB").save(path, optimize=True)  # a palette would give two classes one colour


def of_images(name: str, runs: Path) -> Explorer:
    """The explorer of a named data set's training rows."""
    data, file = load(name), runs / name / "model.safetensors"
    model = SASGP.load(file) if file.is_file() else SASGP(random_state=0).fit(data.X)
    return model.explorer(data.X, data.y, Z=model.embedding_, image_shape=data.image_shape, title=name)


def of_penguins(runs: Path) -> Explorer:
    """The explorer of a table: species and island are known, but not trained on."""
    frame = pl.read_csv(runs / "penguins.csv", null_values="").drop_nulls("bill_length_mm")
    rows = frame.drop("species", "island")
    model = SASGP(random_state=0, max_epochs=300).fit(rows)
    columns = {"island": frame["island"].to_list()}
    return model.explorer(rows, frame["species"].to_list(), columns=columns, Z=model.embedding_, title="penguins")


def of_cells() -> Explorer:
    """The explorer of made-up cells: five types with marker genes, two of them on the way to the next."""
    draw = np.random.default_rng(0)
    n, genes = 1500, 60
    kind = draw.choice(5, n, p=[0.35, 0.25, 0.2, 0.12, 0.08])
    age = draw.random(n)  # how far a cell is on its way
    rate = np.full((n, genes), 0.6) * draw.gamma(4, 0.25, genes)
    for k in range(5):  # ten markers each; in the first two types, those of the next rise with age
        rate[kind == k, 10 * k : 10 * k + 10] += draw.gamma(4, 1.5, 10)
        if k < 2:
            rate[kind == k, 10 * k + 10 : 10 * k + 20] += 5 * age[kind == k, None]
    depth = draw.lognormal(0, 0.3, (n, 1))
    names = ["stem", "progenitor", "mature", "B cell", "monocyte"]
    cells = AnnData(
        draw.poisson(rate * depth).astype(np.float32),
        obs=pd.DataFrame({"age": age.round(2)}, index=[f"cell-{i:04d}" for i in range(n)]),
        var=pd.DataFrame(index=[f"{names[g // 10]}-{g % 10}" if g < 50 else f"gene-{g}" for g in range(genes)]),
    )
    model = SASGP(random_state=0).fit(cells)
    labels = [names[k] for k in kind]
    return model.explorer(cells, labels, columns={"age": age.round(2)}, Z=model.embedding_, title="made-up cells")


def main(runs: Path) -> None:
    IMAGES.mkdir(exist_ok=True)
    camera = Camera()

    camera.open(of_images("mnist", runs))
    camera.press("#options")
    camera.press("#labels")
    camera.press("#options")
    camera.press("[data-mode=path]")
    camera.mouse((0.4, 0.25), (0.62, 0.75), click=True)
    camera.wait("explorer.path.frames.length")
    camera.mouse((0.62, 0.75))
    camera.shoot("explorer")

    digits = of_images("digits", runs)
    camera.open(digits, dark=True)
    camera.press("#options")
    camera.press("#labels")
    camera.press("#contours")
    camera.press("[data-mode=select]")
    camera.lasso((0.36, 0.1), (0.5, 0.12), (0.48, 0.4), (0.34, 0.36))
    camera.mouse((0.44, 0.3))
    camera.shoot("explorer-dark")
    camera.open(digits, 390, 844)
    camera.shoot("explorer-phone")

    camera.open(of_penguins(runs))
    camera.press("[data-mode=select]")
    camera.lasso((0.5, 0.02), (0.9, 0.02), (0.9, 0.9), (0.5, 0.9))
    camera.press("[data-mode=look]")
    camera.row(250)
    camera.shoot("explorer-table")

    camera.open(of_cells())
    camera.press("[data-mode=path]")
    camera.mouse((0.64, 0.45), (0.35, 0.56), click=True)
    camera.wait("explorer.path.frames.length")
    camera.shoot("explorer-cells")
    camera.driver.quit()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
