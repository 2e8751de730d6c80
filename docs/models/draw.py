"""Draw the graph of every click model, all in one language: `python docs/models/draw.py` writes <name>.svg beside this file.

Circles are what happens at a position: E the user looks at the ad, A the ad attracts, C it is clicked (filled: the log shows it), S the click
satisfies. Squares are numbers learnt for all pages alike. Arrows are what depends on what; the words on one say how.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

COLUMN, LEFT = 190, 80
ROWS = {"E": 80, "C": 165, "A": 250, "S": 165}  # the vertical place of each kind
RADIUS = 21
BELOW = "₀₁₂₃"
COLOURS = {
    "E": ("#e0ecff", "#1d4ed8"),
    "A": ("#fef3c7", "#b45309"),
    "C": ("#1f2937", "#1f2937"),
    "S": ("#dcfce7", "#15803d"),
    "P": ("#f3f4f6", "#6b7280"),
}
FONT = "font-family='Helvetica, Arial, sans-serif'"


class Node(NamedTuple):
    """A circle, or a square when its kind is P; `note` is its probability, written beside it."""

    kind: str
    x: float
    y: float
    label: str
    note: str = ""


class Edge(NamedTuple):
    """An arrow between two nodes, bent to its left by `bend` pixels, with a label at a share `at` of its way."""

    start: str
    end: str
    label: str = ""
    bend: float = 0.0
    at: float = 0.5


class Graph(NamedTuple):
    """Nodes by name, the arrows, and what the columns are."""

    nodes: dict[str, Node]
    edges: list[Edge]
    heads: tuple[str, ...] = ("position 1", "position 2", "position 3")


def columns(kinds: str, notes: dict[str, str]) -> dict[str, Node]:
    """The nodes of three positions: one of each kind, its note with the position for {i}."""
    nodes = {}
    for i in (1, 2, 3):
        for kind in kinds:
            x = LEFT + (i - 1) * COLUMN + (88 if kind == "S" else 0)
            nodes[f"{kind}{i}"] = Node(
                kind, x, ROWS[kind], f"{kind}{BELOW[i]}", notes.get(kind, "").format(i=BELOW[i])
            )
    return nodes


def down(*pairs: str) -> list[Edge]:
    """Arrows within each position: "EC" is from E to C."""
    return [Edge(f"{pair[0]}{i}", f"{pair[1]}{i}") for i in (1, 2, 3) for pair in pairs]


def along(pair: str, label: str, bend: float = 0.0, at: float = 0.5) -> list[Edge]:
    """Arrows from each position to the next."""
    return [
        Edge(f"{pair[0]}{i}", f"{pair[1]}{i + 1}", label.format(i=BELOW[i]), bend, at)
        for i in (1, 2)
    ]


THETA = {"A": "θ(q, d{i})"}


def cascade(edges: list[Edge], notes: dict[str, str] | None = None, kinds: str = "ECA") -> Graph:
    """A scan down the page: looked at and attractive makes a click, and then the arrows to the next position."""
    return Graph(
        columns(kinds, {**THETA, **(notes or {})}),
        [*down("EC", "AC", *(["CS"] if "S" in kinds else [])), *edges],
    )


def shared(label: str) -> dict[str, Node]:
    """One learnt number for all positions, above the middle one."""
    return {"P": Node("P", LEFT + COLUMN, ROWS["E"], label)}


def browsing(theta: str) -> Graph:
    """UBM and BBM: what is looked at depends on the click before."""
    nodes = columns("ECA", {"A": theta})
    for i, note in ((1, "γ(0, 1)"), (2, "γ(r′, 2)"), (3, "γ(r′, 3)")):
        nodes[f"E{i}"] = nodes[f"E{i}"]._replace(note=note)
    return Graph(
        nodes,
        [
            *down("EC", "AC"),
            Edge("C1", "E2", "r′ = 1"),
            Edge("C2", "E3", "r′ = 2", at=0.4),
            Edge("C1", "E3", "r′ = 1", at=0.64),
        ],
    )


def multiclick() -> Graph:
    """Columns are clicks here, not positions: each may be anywhere."""
    nodes = columns("CS", {"S": "ρ(q, d)"})
    for i in (1, 2, 3):
        nodes[f"A{i}"] = Node("A", LEFT + (i - 1) * COLUMN, ROWS["A"], "A", "θ of the ads left")
        nodes[f"P{i}"] = Node("P", LEFT + (i - 1) * COLUMN, ROWS["E"], f"η{BELOW[i - 1]}")
    edges = [*down("AC", "CS", "PC"), *along("SC", "go on"), *along("CC", "γ(c{i}, ·)", 52)]
    return Graph(nodes, edges, ("first click c₁", "second click c₂", "third click c₃"))


def luceclick() -> Graph:
    """As MultiClick, but the ads left compete with an outside option."""
    graph = multiclick()
    nodes = {
        key: node._replace(label=node.label.replace("η", "ω")) if node.kind == "P" else node
        for key, node in graph.nodes.items()
    }
    return Graph(nodes, graph.edges, graph.heads)


GRAPHS: dict[str, Graph] = {
    "multiclick": multiclick(),
    "luceclick": luceclick(),
    "pm": Graph(
        {**columns("C", {}), **shared("m")}, [Edge("P", f"C{i}", f"m ≥ {i}") for i in (1, 2, 3)]
    ),
    "am": Graph(
        {**columns("CA", THETA), **shared("m")},
        [
            *(Edge("P", f"C{i}") for i in (1, 2, 3)),
            *(Edge(f"A{i}", f"C{j}") for i in (1, 2, 3) for j in (1, 2, 3)),
        ],
    ),
    "icm": Graph(
        {**columns("CA", {}), "P": Node("P", LEFT + COLUMN, 345, "words")},
        [*down("AC"), *(Edge("P", f"A{i}", f"θ(q, d{BELOW[i]})") for i in (1, 2, 3))],
    ),
    "gctr": Graph({**columns("C", {}), **shared("g")}, [Edge("P", f"C{i}") for i in (1, 2, 3)]),
    "rctr": Graph(
        {
            **columns("C", {}),
            **{
                f"P{i}": Node("P", LEFT + (i - 1) * COLUMN, ROWS["E"], f"g{BELOW[i]}")
                for i in (1, 2, 3)
            },
        },
        down("PC"),
    ),
    "dctr": Graph(columns("CA", THETA), down("AC")),
    "pbm": cascade([], {"E": "γ{i}"}),
    "ubm": browsing("θ(q, d{i})"),
    "bbm": browsing("p(θ(q, d{i}))"),
    "cm": cascade([*along("EE", "1"), *along("CE", "stops")]),
    "dcm": cascade([*along("EE", "1"), *along("CE", "λ{i}")]),
    "sdbn": cascade([*along("EE", "1"), *along("SE", "stops")], {"S": "ρ(q, d{i})"}, "ECAS"),
    "dbn": cascade([*along("EE", "λ"), *along("SE", "stops")], {"S": "ρ(q, d{i})"}, "ECAS"),
    "ccm": cascade([*along("EE", "α₁"), *along("CE", "click"), *along("AE", "α₂ or α₃", at=0.33)]),
    "thcm": cascade(
        [*along("EE", "α", 17), *(Edge(f"E{i + 1}", f"E{i}", "γ", 17) for i in (1, 2))]
    ),
}


def _arrow(start: Node, end: Node, edge: Edge) -> str:
    """A line or an arc from rim to rim, with its head and label."""
    dx, dy = end.x - start.x, end.y - start.y
    side = 2 * edge.bend / math.hypot(dx, dy)
    control = ((start.x + end.x) / 2 + side * dy, (start.y + end.y) / 2 - side * dx)
    first, tip = _rim(start, control), _rim(end, control, gap=3)
    angle = math.atan2(tip[1] - control[1], tip[0] - control[0])
    head = [
        (tip[0] - 9 * math.cos(angle + turn), tip[1] - 9 * math.sin(angle + turn))
        for turn in (-0.42, 0.42)
    ]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (tip, *head))
    curve = f"M{first[0]:.1f} {first[1]:.1f} Q{control[0]:.1f} {control[1]:.1f} {tip[0]:.1f} {tip[1]:.1f}"
    line = f"<path d='{curve}' fill='none' stroke='#4b5563' stroke-width='1.4'/>\n<polygon points='{points}' fill='#4b5563'/>"
    t = edge.at
    there = [
        (1 - t) ** 2 * a + 2 * t * (1 - t) * b + t**2 * c
        for a, b, c in zip(first, control, tip, strict=True)
    ]
    return f"{line}\n{_label(there[0], there[1], edge.label)}" if edge.label else line


def _label(x: float, y: float, text: str) -> str:
    """Words on an arrow, on a white ground."""
    wide = 6.6 * len(text) + 6
    ground = f"<rect x='{x - wide / 2:.1f}' y='{y - 8:.1f}' width='{wide:.1f}' height='16' fill='#ffffff'/>"
    return f"{ground}<text x='{x:.1f}' y='{y + 4:.1f}' text-anchor='middle' font-size='12' fill='#374151' {FONT}>{escape(text)}</text>"


def _rim(node: Node, towards: tuple[float, float], gap: float = 0.0) -> tuple[float, float]:
    """Where an arrow meets a node."""
    dx, dy = towards[0] - node.x, towards[1] - node.y
    size = math.hypot(dx, dy)
    reach = (RADIUS if node.kind != "P" else 17 * size / max(abs(dx), abs(dy))) + gap
    return node.x + dx / size * reach, node.y + dy / size * reach


def _node(node: Node) -> str:
    fill, line = COLOURS[node.kind]
    wide = max(17.0, 4.2 * len(node.label) + 5) if node.kind == "P" else RADIUS
    square = f"<rect x='{node.x - wide:.1f}' y='{node.y - 17:.1f}' width='{2 * wide:.1f}' height='34' rx='3'"
    outline = (
        square if node.kind == "P" else f"<circle cx='{node.x:.1f}' cy='{node.y:.1f}' r='{RADIUS}'"
    )
    shape = f"{outline} fill='{fill}' stroke='{line}' stroke-width='1.6'/>"
    ink = "#ffffff" if node.kind == "C" else "#111827"
    text = f"<text x='{node.x:.1f}' y='{node.y + 5:.1f}' text-anchor='middle' font-size='15' fill='{ink}' {FONT}>{escape(node.label)}</text>"
    if not node.note:
        return f"{shape}\n{text}"
    place = node.y + (-28 if node.kind == "E" else 36)
    note = f"<text x='{node.x:.1f}' y='{place:.1f}' text-anchor='middle' font-size='12' fill='{line}' {FONT}>{escape(node.note)}</text>"
    return f"{shape}\n{text}\n{note}"


def _legend(graph: Graph, y: float) -> str:
    """What the kinds in this picture mean."""
    words = {
        "E": "looked at",
        "A": "attracts",
        "C": "clicked (seen in the log)",
        "S": "satisfies",
        "P": "learnt, shared by all pages",
    }
    used = [kind for kind in words if any(node.kind == kind for node in graph.nodes.values())]
    out, x = [], 24.0
    for kind in used:
        fill, line = COLOURS[kind]
        mark = (
            f"<rect x='{x - 6:.1f}' y='{y - 6:.1f}' width='12' height='12'"
            if kind == "P"
            else f"<circle cx='{x:.1f}' cy='{y:.1f}' r='6'"
        )
        name = words[kind] if kind == "P" else f"{kind}: {words[kind]}"
        out.append(
            f"{mark} fill='{fill}' stroke='{line}'/><text x='{x + 11:.1f}' y='{y + 4:.1f}' font-size='11' fill='#374151' {FONT}>{name}</text>"
        )
        x += 26 + 6.1 * len(name)
    return "\n".join(out)


def svg(name: str) -> str:
    """The picture of a model, no larger than its nodes need."""
    graph = GRAPHS[name]
    lift = min(node.y for node in graph.nodes.values()) - ROWS["E"]
    nodes = {key: node._replace(y=node.y - lift) for key, node in graph.nodes.items()}
    width = max(node.x for node in nodes.values()) + LEFT
    legend = max(node.y for node in nodes.values()) + 70
    heads = [
        f"<text x='{LEFT + i * COLUMN}' y='24' text-anchor='middle' font-size='12' font-weight='bold' fill='#111827' {FONT}>{head}</text>"
        for i, head in enumerate(graph.heads)
    ]
    arrows = [_arrow(nodes[edge.start], nodes[edge.end], edge) for edge in graph.edges]
    parts = [*heads, *arrows, *(_node(node) for node in nodes.values()), _legend(graph, legend)]
    size = f"width='{width:.0f}' height='{legend + 24:.0f}' viewBox='0 0 {width:.0f} {legend + 24:.0f}'"
    title = f"<title>The graph of {name}</title><rect width='100%' height='100%' rx='8' fill='#ffffff'/>"
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' {size} role='img'>\n{title}\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    for each in GRAPHS:
        (Path(__file__).parent / f"{each}.svg").write_text(svg(each), encoding="utf-8")
