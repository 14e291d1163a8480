"""Settings of Sphinx for the site. `make site` copies the pages, adds those of the API, and builds them."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.site import setup as setup  # noqa: E402, PLC0414 - Sphinx calls it

project = "sealpoint"
version = release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
project_copyright = "sealpoint contributors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
nitpicky = True
default_role = "py:obj"
suppress_warnings = ["ref.python"]  # a name that two modules have

myst_heading_anchors = 4

autoclass_content = "both"  # of the class and of its constructor
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
napoleon_custom_sections = [("Attributes", "params_style")]
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"sealpoint {version}"
html_copy_source = False
html_use_index = False  # the search finds names, too
html_show_sourcelink = False
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_theme_options = {"source_view_link": ""}
