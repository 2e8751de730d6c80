"""The report of an evaluation: one HTML file that needs nothing else, Markdown, or plain text; from aggregates only."""

from __future__ import annotations

from reclick.report.html_page import render, write_html
from reclick.report.markdown_page import markdown
from reclick.report.text_page import text

__all__ = ["markdown", "render", "text", "write_html"]
