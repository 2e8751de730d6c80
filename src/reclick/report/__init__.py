"""The report of an evaluation: one HTML file that needs nothing else, or Markdown; from aggregates only."""

from __future__ import annotations

from reclick.report.html_page import render, write_html
from reclick.report.markdown_page import markdown

__all__ = ["markdown", "render", "write_html"]
