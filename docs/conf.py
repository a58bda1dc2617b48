"""The documentation site: `sphinx-build -W docs build/site`. Neither making it nor reading it needs a network."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_sphinx"))

import sasgp  # noqa: E402

# ---- the project ----

project = "sasgp"
author = "The sasgp developers"
version = release = sasgp.__version__
html_title = "sasgp"
language = "en"

# ---- what is read ----

extensions = [
    "links",  # the first four are in _sphinx
    "members",
    "parameters",
    "pictures",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_sphinx", "_templates", "gallery/**/*.ipynb", "gallery/**/*.py"]
templates_path = ["_templates"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "index"
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4  # as GitHub makes them, so that links work there and here
suppress_warnings = ["config.cache"]  # the gallery's settings hold functions
smartquotes = False  # types and commands have straight ones
default_role = "py:obj"  # `name` in a docstring: code, and a link if the reference has it

# ---- the reference ----

autosummary_generate = True
autodoc_typehints = "none"  # `parameters` writes types where a docstring has none
autodoc_class_signature = "mixed"
numpydoc_show_class_members = False  # _templates/autosummary/class.rst shows them
numpydoc_class_members_toctree = False
toc_object_entries_show_parents = "hide"  # the column at the right is narrow, and the page has the name of the class

# ---- the gallery: scripts in examples/, each a page and a notebook ----

EXAMPLES = HERE.parent / "examples"
if not any(EXAMPLES.glob("*.py")):
    suppress_warnings.append("toc.not_readable")
else:
    extensions.append("sphinx_gallery.gen_gallery")
    sphinx_gallery_conf = {
        "examples_dirs": str(EXAMPLES),
        "gallery_dirs": "gallery",
        "filename_pattern": r"\.py$",
        "ignore_pattern": r"__init__\.py|conftest\.py",
        "within_subsection_order": "figures.Order",
        "image_scrapers": ("matplotlib", "figures.last_figure"),
        "ignore_repr_types": r"matplotlib\.figure|sasgp\.plots",
        "download_all_examples": False,
        "write_computation_times": False,
        "remove_config_comments": True,
        "show_memory": False,
        "show_signature": False,
        "reference_url": {"sasgp": None},
        "backreferences_dir": "gallery/used",
        "doc_module": ("sasgp",),
        "plot_gallery": os.environ.get("SASGP_GALLERY", "1") == "1",
        "abort_on_example_error": True,
    }

# ---- how it looks ----

html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_show_sourcelink = False
html_copy_source = False
html_last_updated_fmt = None
html_sidebars = {"getting-started": []}
html_theme_options = {
    "logo": {"text": "sasgp", "image_light": "_static/logo.svg", "image_dark": "_static/logo.svg"},
    "header_links_before_dropdown": 8,
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher", "navbar-icon-links"],
    "icon_links": [{"name": "GitHub", "url": "https://github.com/sasgp/sasgp", "icon": "fa-brands fa-github"}],
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_context = {"default_mode": "auto"}
project_copyright = "The sasgp developers. MIT licence"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
