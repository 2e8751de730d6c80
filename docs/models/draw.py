"""Draw the graph of every click model: `python docs/models/draw.py` writes <name>.svg here.

Circles are the random variables of a position: E the ad is examined, A the ad is attractive, C it
is clicked (filled: observed), S the click satisfies. Squares are parameters common to all pages.
Arrows are dependences; the label of an arrow is its probability. Lines without a head are log-odds
of two clicks together.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

COLUMN, LEFT = 190, 80
ROWS = {"E": 80, "C": 165, "A": 250, "S": 165}  # the y coordinate of each type of node
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
LEGEND = {
    "E": "examined",
    "A": "attractive",
    "C": "clicked (observed)",
    "S": "satisfied",
    "P": "parameter common to all pages",
}


class Node(NamedTuple):
    """A circle, or a square for type P; `note` is its probability, written next to it."""

    kind: str
    x: float
    y: float
    label: str
    note: str = ""


class Edge(NamedTuple):
    """An arrow, bent to its left by `bend` pixels, with a label at the fraction `at`.

    A line without a head, where neither end comes first.
    """

    start: str
    end: str
    label: str = ""
    bend: float = 0.0
    at: float = 0.5
    head: bool = True


class Graph(NamedTuple):
    """Nodes by name, the arrows, and the headings of the columns."""

    nodes: dict[str, Node]
    edges: list[Edge]
    heads: tuple[str, ...] = ("position 1", "position 2", "position 3")


def columns(kinds: str, notes: dict[str, str]) -> dict[str, Node]:
    """The nodes of three positions, one of each type; {i} in a note is the position."""
    nodes = {}
    for i in (1, 2, 3):
        for kind in kinds:
            x = LEFT + (i - 1) * COLUMN + (88 if kind == "S" else 0)
            nodes[f"{kind}{i}"] = Node(
                kind, x, ROWS[kind], f"{kind}{BELOW[i]}", notes.get(kind, "").format(i=BELOW[i])
            )
    return nodes


def down(*pairs: str) -> list[Edge]:
    """Arrows within each position: "EC" is an arrow from E to C."""
    return [Edge(f"{pair[0]}{i}", f"{pair[1]}{i}") for i in (1, 2, 3) for pair in pairs]


def along(pair: str, label: str, bend: float = 0.0, at: float = 0.5) -> list[Edge]:
    """Arrows from each position to the next."""
    return [
        Edge(f"{pair[0]}{i}", f"{pair[1]}{i + 1}", label.format(i=BELOW[i]), bend, at)
        for i in (1, 2)
    ]


THETA = {"A": "θ(q, d{i})"}


def cascade(edges: list[Edge], notes: dict[str, str] | None = None, kinds: str = "ECA") -> Graph:
    """A scan down the page: examined and attractive makes a click; `edges` go on from there."""
    return Graph(
        columns(kinds, {**THETA, **(notes or {})}),
        [*down("EC", "AC", *(["CS"] if "S" in kinds else [])), *edges],
    )


def shared(label: str) -> dict[str, Node]:
    """One parameter for all positions, above the middle one."""
    return {"P": Node("P", LEFT + COLUMN, ROWS["E"], label)}


def browsing(theta: str) -> Graph:
    """UBM and BBM: examination depends on the previous click."""
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
    """Columns are clicks here, not positions: a click may be at any position."""
    nodes = columns("CS", {"S": "ρ(q, d)"})
    for i in (1, 2, 3):
        nodes[f"A{i}"] = Node("A", LEFT + (i - 1) * COLUMN, ROWS["A"], "A", "θ of remaining ads")
        nodes[f"P{i}"] = Node("P", LEFT + (i - 1) * COLUMN, ROWS["E"], f"η{BELOW[i - 1]}")
    edges = [*down("AC", "CS", "PC"), *along("SC", "continue"), *along("CC", "γ(c{i}, ·)", 52)]
    return Graph(nodes, edges, ("first click c₁", "second click c₂", "third click c₃"))


def luceclick() -> Graph:
    """As MultiClick, but the remaining ads compete with an outside option."""
    graph = multiclick()
    nodes = {
        key: node._replace(label=node.label.replace("η", "ω")) if node.kind == "P" else node
        for key, node in graph.nodes.items()
    }
    return Graph(nodes, graph.edges, graph.heads)


def two_ads() -> Graph:
    """TCM: which of two ads is examined first depends on both relevances."""
    nodes = {
        key: node
        for key, node in columns("ECA", {"A": "R{i}"}).items()
        if key[1] in "12" and key != "E2"
    }
    nodes["E1"] = nodes["E1"]._replace(x=LEFT + COLUMN / 2, label="E", note="1 or 2 first")
    return Graph(
        nodes,
        [
            *(Edge(f"A{i}", f"C{i}") for i in (1, 2)),
            Edge("E1", "C1", "1 − h"),
            Edge("E1", "C2", "h"),
            Edge("C1", "C2", "β, α", 10),
            Edge("C2", "C1", "", 10),
        ],
        ("position 1", "position 2", ""),
    )


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
    "cm": cascade([*along("EE", "1"), *along("CE", "stop")]),
    "dcm": cascade([*along("EE", "1"), *along("CE", "λ{i}")]),
    "sdbn": cascade([*along("EE", "1"), *along("SE", "stop")], {"S": "ρ(q, d{i})"}, "ECAS"),
    "dbn": cascade([*along("EE", "λ"), *along("SE", "stop")], {"S": "ρ(q, d{i})"}, "ECAS"),
    "ccm": cascade([*along("EE", "α₁"), *along("CE", "click"), *along("AE", "α₂ or α₃", at=0.33)]),
    "thcm": cascade(
        [*along("EE", "α", 17), *(Edge(f"E{i + 1}", f"E{i}", "γ", 17) for i in (1, 2))]
    ),
    "scan": cascade(
        [
            *along("CE", "δ{i} γ", -8, at=0.72),
            *(Edge(f"C{i + 1}", f"E{i}", f"(1 − δ{BELOW[i + 1]}) γ", -8, 0.62) for i in (1, 2)),
        ],
        {"S": "ρ(q, d{i}): ends"},
        "ECAS",
    ),
    "pom": cascade(
        [
            *along("EE", "V", 17),
            *(Edge(f"E{i + 1}", f"E{i}", "V", 17) for i in (1, 2)),
            Edge("E1", "E3", "V", 40),
            Edge("E3", "E1", "V", 40),
        ]
    ),
    "crf": Graph(
        columns("CA", {"A": "a(q, d{i}) + v{i}"}),
        [
            *down("AC"),
            Edge("C1", "C2", "W₁₂ − κ s₁₂", 8, head=False),
            Edge("C2", "C3", "W₂₃ − κ s₂₃", 8, head=False),
            Edge("C1", "C3", "W₁₃ − κ s₁₃", 37, head=False),
        ],
    ),
    "tcm": two_ads(),
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
    way = " ".join(f"{x:.1f} {y:.1f}" for x, y in (control, tip))
    curve = f"M{first[0]:.1f} {first[1]:.1f} Q{way}"
    line = f"<path d='{curve}' fill='none' stroke='#4b5563' stroke-width='1.4'/>"
    if edge.head:
        line += f"\n<polygon points='{points}' fill='#4b5563'/>"
    t = edge.at
    there = [
        (1 - t) ** 2 * a + 2 * t * (1 - t) * b + t**2 * c
        for a, b, c in zip(first, control, tip, strict=True)
    ]
    return f"{line}\n{_label(there[0], there[1], edge.label)}" if edge.label else line


def _text(x: float, y: float, text: str, size: int, fill: str, extra: str = "") -> str:
    """One line of text, centred at x unless `extra` says otherwise."""
    anchor = extra or "text-anchor='middle'"
    place = f"x='{x:.1f}' y='{y:.1f}' {anchor} font-size='{size}' fill='{fill}'"
    return f"<text {place} {FONT}>{escape(text)}</text>"


def _label(x: float, y: float, text: str) -> str:
    """Text on an arrow, on a white background."""
    wide = 6.6 * len(text) + 6
    box = f"x='{x - wide / 2:.1f}' y='{y - 8:.1f}' width='{wide:.1f}' height='16'"
    return f"<rect {box} fill='#ffffff'/>{_text(x, y + 4, text, 12, '#374151')}"


def _rim(node: Node, towards: tuple[float, float], gap: float = 0.0) -> tuple[float, float]:
    """Where an arrow meets a node."""
    dx, dy = towards[0] - node.x, towards[1] - node.y
    size = math.hypot(dx, dy)
    reach = (RADIUS if node.kind != "P" else 17 * size / max(abs(dx), abs(dy))) + gap
    return node.x + dx / size * reach, node.y + dy / size * reach


def _node(node: Node) -> str:
    fill, line = COLOURS[node.kind]
    wide = max(17.0, 4.2 * len(node.label) + 5)
    corner = f"x='{node.x - wide:.1f}' y='{node.y - 17:.1f}'"
    square = f"<rect {corner} width='{2 * wide:.1f}' height='34' rx='3'"
    circle = f"<circle cx='{node.x:.1f}' cy='{node.y:.1f}' r='{RADIUS}'"
    outline = square if node.kind == "P" else circle
    shape = f"{outline} fill='{fill}' stroke='{line}' stroke-width='1.6'/>"
    ink = "#ffffff" if node.kind == "C" else "#111827"
    text = _text(node.x, node.y + 5, node.label, 15, ink)
    if not node.note:
        return f"{shape}\n{text}"
    note = _text(node.x, node.y + (-28 if node.kind == "E" else 36), node.note, 12, line)
    return f"{shape}\n{text}\n{note}"


def _legend(graph: Graph, y: float) -> str:
    """The types of nodes in this picture."""
    used = [kind for kind in LEGEND if any(node.kind == kind for node in graph.nodes.values())]
    out, x = [], 24.0
    for kind in used:
        fill, line = COLOURS[kind]
        square = f"<rect x='{x - 6:.1f}' y='{y - 6:.1f}' width='12' height='12'"
        mark = square if kind == "P" else f"<circle cx='{x:.1f}' cy='{y:.1f}' r='6'"
        name = LEGEND[kind] if kind == "P" else f"{kind}: {LEGEND[kind]}"
        text = _text(x + 11, y + 4, name, 11, "#374151", "text-anchor='start'")
        out.append(f"{mark} fill='{fill}' stroke='{line}'/>{text}")
        x += 26 + 6.1 * len(name)
    return "\n".join(out)


def svg(name: str) -> str:
    """The picture of a model, cropped to its nodes."""
    graph = GRAPHS[name]
    lift = min(node.y for node in graph.nodes.values()) - ROWS["E"]
    nodes = {key: node._replace(y=node.y - lift) for key, node in graph.nodes.items()}
    width = max(node.x for node in nodes.values()) + LEFT
    legend = max(node.y for node in nodes.values()) + 70
    bold = "text-anchor='middle' font-weight='bold'"
    heads = [
        _text(LEFT + i * COLUMN, 24, head, 12, "#111827", bold)
        for i, head in enumerate(graph.heads)
    ]
    arrows = [_arrow(nodes[edge.start], nodes[edge.end], edge) for edge in graph.edges]
    size = f"width='{width:.0f}' height='{legend + 24:.0f}'"
    box = f"viewBox='0 0 {width:.0f} {legend + 24:.0f}'"
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' {size} {box} role='img'>",
        f"<title>The graph of {name}</title>",
        "<rect width='100%' height='100%' rx='8' fill='#ffffff'/>",
        *heads,
        *arrows,
        *(_node(node) for node in nodes.values()),
        _legend(graph, legend),
        "</svg>\n",
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    for each in GRAPHS:
        (Path(__file__).parent / f"{each}.svg").write_text(svg(each), encoding="utf-8")
