"""The wheel as a user gets it: built from the source archive, installed without extras, used outside of the clone.

The environment is new and holds only what the base install depends on, so an import of anything else fails there. These
packages are links to those of this environment: torch alone would take longer to install than all the rest of the test.
"""

import os
import re
import subprocess
import sys
import venv
import zipfile
from email import message_from_bytes
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def run(*command, cwd):
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def dependencies(requirements, found=None):
    """The distributions that requirements without extras lead to, by name."""
    found = {} if found is None else found
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found[name] = metadata.distribution(name)
            dependencies(found[name].requires or (), found)
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def about(wheel):
    """The metadata of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


@pytest.fixture(scope="module")
def installed(wheel, about, tmp_path_factory):
    """The folder of an environment with the wheel, and its dependencies without extras."""
    folder = tmp_path_factory.mktemp("base")
    venv.create(folder / "env", with_pip=False)
    (packages,) = (folder / "env").glob("lib/python*/site-packages")
    for distribution in dependencies(about.get_all("Requires-Dist")).values():
        tops = {Path(file.parts[0]) for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            (packages / top).symlink_to(distribution.locate_file(top))
    pip = (sys.executable, "-m", "pip", "--python", folder / "env/bin/python")
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder)
    run(*pip, "check", cwd=folder)
    return folder


def test_the_wheel_is_the_package_alone(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"sasgp"}
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/sasgp").rglob("*") if path.is_file()}
    assert {name for name in sources if not name.endswith(".pyc")} <= set(names)


def test_links_of_the_readme_work_on_any_page(about):
    # What leads to GitHub leads to a file or folder of the project, and nothing is left that leads nowhere
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)\s]+)\)", about.get_payload(decode=True).decode())
    before = re.findall(r"(!?)\[[^\]]*\]\(([^)\s]+)\)", README)
    assert len(links) == len(before) > 10
    for (image, link), (_, target) in zip(links, before, strict=True):
        assert link.startswith("https://")
        folder = target.endswith("/")
        pages = f"https://github.com/sasgp/sasgp/{'tree' if folder else 'blob'}/"
        place = "https://raw.githubusercontent.com/sasgp/sasgp/" if image else pages
        if not target.startswith("https://"):
            assert link.startswith(place)
            path = ROOT / re.sub(r"^[^/]+/|#.*$", "", link.removeprefix(place))
            assert path.is_dir() if folder else path.is_file(), link


def test_the_base_install_runs_what_the_readme_shows(installed):
    (block,) = re.findall(r"^```python\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
    short = "from sasgp.training import fit_encoder, run\nrun.MAX_EPOCHS, fit_encoder.FIT_STEPS = 20, 50\n"
    here = "import sasgp\nprint(sasgp.__file__)\n"
    out = run(installed / "env/bin/python", "-I", "-c", short + block + here, cwd=installed)
    assert out.startswith(str(installed / "env"))
    assert (installed / "digits.safetensors").is_file()


def test_the_base_install_has_no_extra(installed):
    for name in ("pandas", "pytest", "fastexcel", "h5py", "umap", "tensorboard", "IPython", "anndata"):
        code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is not None)"
        run(installed / "env/bin/python", "-I", "-c", code, cwd=installed)


def test_the_base_install_has_the_command_line_with_pictures_and_tables(installed):
    (installed / "table.csv").write_text(
        "a,b,kind\n" + "".join(f"{i % 7},{i % 5 / 3},{'xyz'[i % 3]}\n" for i in range(60))
    )
    command = installed / "env/bin/sasgp"
    out = run(command, "fit", "table.csv", "--out", "run", "--max-epochs", "3", "--labels", "kind", cwd=installed)
    assert "54" in out  # a tenth of 60 rows is held out
    for name in ("model.safetensors", "embedding.csv", "latent.png", "explorer.html"):
        assert (installed / "run" / name).is_file()
    run(command, "embed", "run", "table.csv", "--out", "latents.csv", cwd=installed)
    assert len((installed / "latents.csv").read_text().splitlines()) == 61
