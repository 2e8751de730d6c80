"""Tables of metrics: a row a model, our value with its interval, and the paper's figure beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from reclick.report.formatting import DASH, amount, interval, listing, share, shown, signed, written
from reclick.report.markup import Html, element, foreign, join, paragraph, scrolling
from reclick.report.published import HEAD, Theirs, theirs
from reclick.report.results import At, Ranking, Results, Score

MARK = "≈"
MOST = 6  # columns of a table: more do not fit on paper
KEY = (
    f"Bold is the best of a column; {MARK} marks a model that cannot be told from it, since the interval of their paired difference includes 0. "
    "Below a value is its interval; n is how many sessions, positions or pairs are behind a column."
)


def metric_table(
    results: Results,
    caption: str,
    metrics: Sequence[str],
    sessions: str = "all",
    *,
    titles: bool = False,
) -> Html:
    """Tables of metrics for all volumes together, with their footnotes; nothing where no model answers any of them."""
    places = [At(metric, sessions) for metric in metrics if results.values(At(metric, sessions))]
    parts = -(-len(places) // MOST)
    size = -(-len(places) // max(parts, 1))
    tables = (
        _one_table(
            results,
            caption + (f", part {part + 1} of {parts}" if parts > 1 else ""),
            places[part * size : (part + 1) * size],
            titles,
        )
        for part in range(parts)
    )
    return join([*tables, paragraph(join(_notes(results, places), " "), class_="note")])


def _one_table(results: Results, caption: str, places: Sequence[At], titles: bool) -> Html:
    named = [shown(at.metric).title if titles else shown(at.metric).head for at in places]
    parts = (
        element("caption", caption, class_="hidden"),
        element("thead", *_heads(results, places, named)),
        element("tbody", *(_row(results, model, places) for model in results.models)),
        element("tfoot", _support_row(results, places)),
    )
    return scrolling(element("table", *parts), caption)


def printed(model: str, at: At) -> Theirs | None:
    """The paper's figure; it prints none by volume."""
    return theirs(model, at.metric, at.sessions)


def value_text(score: Score, metric: str) -> str:
    """A value, with its deviation where sessions differ by more than hit and miss."""
    text = written(score.value, metric)
    if score.value is None or score.deviation is None or shown(metric).percent:
        return text
    return f"{text} ± {signed(score.deviation, 2)}"


def theirs_text(figure: Theirs | None, metric: str) -> str:
    """A figure of the paper as the paper prints it, or nothing."""
    if figure is None:
        return ""
    return written(figure.value, metric) + (
        f"\u00a0± {figure.deviation:.2f}" if figure.deviation is not None else ""
    )


def has_theirs(results: Results, at: At) -> bool:
    """Whether the paper prints this figure for any of the models."""
    return any(printed(model, at) for model in results.models)


def _heads(results: Results, places: Sequence[At], named: Sequence[str]) -> Iterator[Html]:
    """Two rows where any column has the paper's figure beside ours, else one."""
    two = any(has_theirs(results, at) for at in places)
    first = [element("th", "Model", scope="col", rowspan="2" if two else None)]
    second = []
    for at, name in zip(places, named, strict=True):
        unit = " (%)" if shown(at.metric).percent else ""
        if not has_theirs(results, at):
            first.append(element("th", name + unit, scope="col", rowspan="2" if two else None))
            continue
        first.append(element("th", name + unit, scope="colgroup", colspan="2"))
        second += [
            element("th", "here", scope="col"),
            element("th", HEAD, scope="col", class_="theirs"),
        ]
    yield element("tr", *first)
    if two:
        yield element("tr", *second)


def _row(results: Results, model: str, places: Sequence[At]) -> Html:
    cells = [element("th", foreign(model), scope="row")]
    for at in places:
        cells.append(_cell(results, model, at, results.ranking(at)))
        if has_theirs(results, at):
            cells.append(element("td", theirs_text(printed(model, at), at.metric), class_="theirs"))
    return element("tr", *cells)


def _cell(results: Results, model: str, at: At, ranking: Ranking) -> Html:
    score = results.score(model, at)
    if score.value is None:
        return element("td", element("abbr", DASH, title=f"{model}: {_why(results, model, at)}"))
    parts: list[str] = [
        element("b", value_text(score, at.metric))
        if model in ranking.best
        else value_text(score, at.metric)
    ]
    if model in ranking.tied:
        parts.append(element("span", MARK, class_="tie", title="cannot be told from the best"))
    parts.append(element("small", _below(results, model, at, score)))
    return element("td", *parts, class_="best" if model in ranking.best else None)


def _below(results: Results, model: str, at: At, score: Score) -> str:
    """What stands under a value: its interval, or how many sessions make it infinite."""
    if score.value is None or not math.isinf(score.value):
        return interval(score.low, score.high, at.metric)
    impossible = results.score(model, at._replace(metric="impossible")).value
    bound = (
        "" if at.metric == "log_likelihood" else "≤ "
    )  # clicks that are impossible in their order may be possible in another
    return "" if impossible is None else f"{bound}{share(impossible, 2)} impossible"


def _support_row(results: Results, places: Sequence[At]) -> Html:
    cells = [element("th", "n", scope="row")]
    for at in places:
        support = results.support(at)
        cells.append(element("td", "" if support is None else amount(support)))
        if has_theirs(results, at):
            cells.append(element("td", class_="theirs"))
    return element("tr", *cells)


def _why(results: Results, model: str, at: At) -> str:
    if results.score(model, at).support == 0:
        return "there is no such session in the log."
    return (
        results.reasons.get(model, {}).get(at.metric) or f"no answer, since {shown(at.metric).why}."
    )


def _notes(results: Results, places: Sequence[At]) -> Iterator[str]:
    """Footnotes: what a dash and an infinity mean in this table."""
    mute: dict[str, dict[str, None]] = {}  # why → models, in order
    for at in places:
        silent = [model for model in results.models if results.score(model, at).value is None]
        for model in silent:
            mute.setdefault(_why(results, model, at), {})[model] = None
    yield from (f"{DASH} {listing(list(models))}: {why}" for why, models in mute.items())
    if any(math.isinf(value) for at in places for value in results.values(at).values()):
        yield "∞: the model gives some session that happened the probability 0; below it, the share of such sessions."
