"""The site of the documentation: `make docs` builds it from these pages and the docstrings."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

import reclick

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)

project = "Reclick"
version = release = reclick.__version__
author = "The Reclick authors"
project_copyright = author

extensions = ["myst_nb", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"Reclick {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sphinx = False
html_show_search_summary = False  # it would read pages by request, which needs a server
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # the notebooks are run by the tests, and keep their output

default_role = "code"  # docstrings have `names` as in Markdown
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
add_module_names = False


# The public names by where they live; what is listed nowhere here goes to "more".
API = {
    "logs": ("reclick.logs",),
    "models": ("reclick.models",),
    "predictions": ("reclick.predictor", "reclick.rankings", "reclick.clicks"),
    "evaluation": (
        *("reclick.evaluation", "reclick.profile", "reclick.metrics"),
        "reclick.data.frames",
    ),
    "exports": ("reclick.exports",),
    "engines": ("reclick.engines", "reclick.data"),
    "errors": ("reclick.errors",),
}


def api_group(name: str) -> str:
    """The group of a public name."""
    home = reclick._HOME.get(name, f"reclick.{name}")  # a module is its own home
    return next(
        (
            group
            for group, modules in API.items()
            if any(f"{home}.".startswith(f"{module}.") for module in modules)
        ),
        "more",
    )


def autodoc_directive(name: str) -> str:
    """What documents a public name from its docstring."""
    value = getattr(reclick, name)
    if inspect.ismodule(value):
        return f".. automodule:: reclick.{name}\n   :members:\n"
    if not inspect.isclass(value):
        kind = "autofunction" if callable(value) else "autodata"
        return f".. {kind}:: reclick.{name}\n"
    return f".. autoclass:: reclick.{name}\n   :members:\n"


class ApiDirective(SphinxDirective):
    """`{api} logs`: all public names of a group, from their docstrings."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """The names one below the other: classes after functions."""
        names = [name for name in reclick.__all__ if api_group(name) == self.arguments[0]]
        names.sort(key=lambda name: (name[0].isupper(), name.lower()))
        blocks = "\n".join(map(autodoc_directive, names))
        return self.parse_text_to_nodes(f"```{{eval-rst}}\n{blocks}\n```")


def to_mathml(node: nodes.math | nodes.math_block, *, as_block: bool) -> str:
    """A formula as MathML: no script and no font is loaded to show it."""
    tex = node.astext().replace(r"\dots", r"\ldots")  # the converter knows only the latter
    try:
        return str(tex2mathml(tex, as_block=as_block))
    except MathError as error:
        logger.warning("formula %r: %s", tex, error, location=node)
        return ""


def visit_inline_math(page: HTML5Translator, node: nodes.math) -> None:
    """A formula in a line."""
    page.body.append(to_mathml(node, as_block=False))
    raise nodes.SkipNode


def visit_math_block(page: HTML5Translator, node: nodes.math_block) -> None:
    """A formula of its own."""
    page.body.append(f'<div class="math">{to_mathml(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def link_to_site(_app: Sphinx, _page: str, source: list[str]) -> None:
    """Links to the pages at the top of the repository lead to their copies on the site."""
    source[0] = re.sub(
        r"\]\((?:\.\./)+(CHANGELOG|CONTRIBUTING)\.md",
        lambda link: f"](/{link[1].lower()}.md",
        source[0],
    )


def setup(app: Sphinx) -> dict[str, Any]:
    """Register what is above."""
    app.add_directive("api", ApiDirective)
    app.add_html_math_renderer("mathml", (visit_inline_math, None), (visit_math_block, None))
    app.connect("source-read", link_to_site)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
