"""The report of an evaluation, as one self-contained HTML file, as Markdown, or as text."""

from __future__ import annotations

from reclick.report.auction import render_comparison, write_comparison
from reclick.report.pages import render_html, render_markdown, render_text, write_html

__all__ = [
    "render_comparison",
    "render_html",
    "render_markdown",
    "render_text",
    "write_comparison",
    "write_html",
]
