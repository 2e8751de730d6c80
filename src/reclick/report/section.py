"""A section of the report and its parts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reclick.report.markup import Html, element, join, slug


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a section under a heading of its own, or straight under the section's."""

    title: str
    body: Html


@dataclass(frozen=True, slots=True)
class Section:
    """A section and its parts that have something to show."""

    title: str
    parts: tuple[Part, ...]

    @property
    def anchor(self) -> str:
        """Where the contents lead."""
        return slug(self.title)

    def part_anchor(self, part: Part) -> str:
        """Where the contents lead to a part."""
        return f"{self.anchor}-{slug(part.title)}"

    def html(self) -> Html:
        """The section as it stands on the page."""
        heading = element("h2", self.title, id=f"{self.anchor}-heading")
        return element(
            "section",
            heading,
            *(self._part(part) for part in self.parts),
            id=self.anchor,
            aria_labelledby=f"{self.anchor}-heading",
        )

    def _part(self, part: Part) -> Html:
        return (
            join([element("h3", part.title, id=self.part_anchor(part)), part.body])
            if part.title
            else part.body
        )

    def contents(self) -> Html:
        """The section's line in the contents, with a line for each part below it."""
        parts = [
            element("li", _link(self.part_anchor(part), part.title))
            for part in self.parts
            if part.title
        ]
        return element(
            "li", _link(self.anchor, self.title), *([element("ol", *parts)] if parts else [])
        )


def section(title: str, parts: Iterable[Part]) -> Section | None:
    """A section of the parts that are not empty; None when all are."""
    kept = tuple(part for part in parts if part.body)
    return Section(title, kept) if kept else None


def _link(anchor: str, text: str) -> Html:
    return element("a", text, href=f"#{anchor}")
