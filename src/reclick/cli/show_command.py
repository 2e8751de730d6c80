"""The command that shows what is in a model: its logs, parameters, and the values of its pairs."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reclick.cli.command import as_command
from reclick.cli.console import print_result

if TYPE_CHECKING:
    import pyarrow as pa

    from reclick.models import ClickModel

QUANTITIES = ("relevance", "attractiveness", "satisfaction")
MOST_VALUES = 12  # of an array of parameters
CLOSE_NAMES = 3  # suggested in an error
UNSEEN_AD = "(an ad not seen)"
MANY_NAMES = 200_000  # with more, no similar names are searched for


@as_command
def show(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The folder of a model.")],
    query: Annotated[
        str | None, typer.Option(metavar="QUERY", help="Show the ads of this query.")
    ] = None,
    ad: Annotated[
        str | None, typer.Option(metavar="AD", help="Show this ad: on all its queries, or on one.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Maximum number of pairs to show.")] = 20,
    level: Annotated[float, typer.Option(help="Level of the credible intervals.")] = 0.9,
) -> None:
    """Show what a model was fitted to and its parameters; with --query or --ad, fitted values.

    Example:  reclick show model

    The ads of a query, with intervals:  reclick show model --query "hotel prague"
    """
    from reclick.models import load

    fitted_model = load(model)
    if query is None and ad is None:
        data = describe_model(fitted_model)
        print_result(_format_model(data), data)
        return
    table = _select_pairs(fitted_model, query, ad, level)
    unseen = None if query is None or ad is not None else _unseen_pair(fitted_model, query, level)
    rows = table.slice(0, top).to_pylist()
    pairs = {
        "query": query,
        "ad": ad,
        "pairs": len(table),
        "level": level,
        "values": rows,
        "unseen_ad": unseen,
        "words": {
            row["ad"]: words for row in rows if (words := _words_of(fitted_model, row["ad"]))
        },
    }
    print_result(_format_pairs(pairs), pairs)


def describe_model(model: ClickModel) -> dict[str, Any]:
    """Describe a fitted model without its pairs, as JSON values."""
    totals, text = model.training_totals, model._pairs.text
    internal_names = {"provenance_", "objective_"}
    parameters = {
        name: value
        for name in (*model.global_parameters, *sorted(vars(model)))
        if name.endswith("_") and not name.startswith("_") and name not in internal_names
        if name not in model.pair_parameters
        if (value := _to_json(getattr(model, name, None))) is not None
    }
    return {
        "model": model.name,
        "settings": model.get_params(),
        "sessions": totals.sessions,
        "queries": totals.queries,
        "ads": totals.ads,
        "pairs": totals.pairs,
        "impressions": totals.impressions,
        "clicks": totals.clicks,
        "ads_with_text": 0 if text is None else len(text),
        "words": 0 if text is None else len(text.vocabulary),
        "provenance": [record.to_dict() for record in model.provenance_],
        "parameters": parameters,
        "advice": model.advice,
    }


def _to_json(value: object) -> Any:
    """Convert a parameter to JSON types; None if it is not a number, text or array of numbers."""
    import numpy as np

    if isinstance(value, bool | int | float | str | dict):
        return value
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "fiub":
        return np.asarray(value).tolist() if value.size <= 10_000 else None
    return None


def _select_pairs(model: ClickModel, query: str | None, ad: str | None, level: float) -> pa.Table:
    """Select the pairs of a query, of an ad, or of both."""
    import pyarrow as pa

    if query is not None:
        part = model._gather_queries(pa.array([query])) if _is_text(query) else model
        _require_known("query", query, part.query_volumes()["query"].combine_chunks())
        if ad is not None:
            return model.relevance({"query": [query], "ad": [ad]}, level=level)
        return model.relevance(query=query, level=level)
    _require_known("ad", str(ad), model.training_ads)
    queries = model.queries_of_ad(str(ad))
    pairs = {"query": queries, "ad": pa.array([ad] * len(queries))}
    table = model.relevance(pa.table(pairs), level=level)
    return table.sort_by([("impressions", "descending"), ("query", "ascending")])


def _is_text(name: str) -> bool:
    """Whether a name is valid Unicode: a shell may pass any bytes."""
    return name.encode(errors="replace").decode() == name


def _require_known(option: str, name: str, vocabulary: pa.Array) -> None:
    """Raise if the model has not seen a query or an ad, and suggest similar ones."""
    import pyarrow.compute as pc

    from reclick.errors import SettingError

    if _is_text(name) and pc.index(vocabulary, name).as_py() >= 0:
        return
    names = vocabulary.to_pylist() if len(vocabulary) <= MANY_NAMES else []
    close = (
        difflib.get_close_matches(name, names, CLOSE_NAMES) or vocabulary[:CLOSE_NAMES].to_pylist()
    )
    expected = f"one of the {len(vocabulary):,} that the model has seen, such as {', '.join(close)}"
    raise SettingError(f"--{option}", name, expected)


def _unseen_pair(model: ClickModel, query: str, level: float) -> dict[str, Any]:
    """Return the estimates of a query for an ad without impressions: its prior."""
    (row,) = model.relevance({"query": [query], "ad": [UNSEEN_AD]}, level=level).to_pylist()
    return dict(row)


def _words_of(model: ClickModel, ad: str) -> list[str]:
    import pyarrow.compute as pc

    text = model._pairs.text
    row = -1 if text is None else pc.index(text.ads, ad).as_py()
    return text.words(row) if text is not None and row >= 0 else []


# ---- as text


def _format_model(data: dict[str, Any]) -> str:
    settings = ", ".join(f"{name}={value!r}" for name, value in data["settings"].items())
    text = "none" if not data["words"] else f"{data['words']:,} of {data['ads_with_text']:,} ads"
    facts = {
        "settings": settings,
        "sessions": f"{data['sessions']:,.0f}",
        "queries": f"{data['queries']:,}",
        "ads": f"{data['ads']:,}",
        "pairs": f"{data['pairs']:,}",
        "clicks": f"{data['clicks']:,.0f} on {data['impressions']:,.0f} impressions",
        "words": text,
    }
    lines = [data["model"], *(f"  {name:<11}{value}" for name, value in facts.items())]
    lines += ["logs", *map(_format_log, data["provenance"])]
    lines += ["" if data["provenance"] else "  not recorded"]
    lines += ["parameters", *map(_format_parameter, data["parameters"].items())]
    lines += [f"note: {data['advice']}"] if data["advice"] else []
    return "\n".join(line for line in lines if line)


def _format_log(record: dict[str, Any]) -> str:
    period = "" if record["start"] is None else f"  {record['start']} to {record['end']}"
    return (
        f"  {record['use']:<8} {record['date']}  {record['name']}  "
        f"{record['sessions']:,} sessions{period}"
    )


def _format_parameter(item: tuple[str, Any]) -> str:
    import numpy as np

    name, value = item
    if isinstance(value, dict):
        text = ", ".join(f"{key}={_format_number(item)}" for key, item in value.items())
    elif isinstance(value, list):
        array = np.array(value)
        first = " ".join(map(_format_number, array.ravel()[:MOST_VALUES].tolist()))
        more = " …" if array.size > MOST_VALUES else ""
        shape = " × ".join(map(str, array.shape))
        text = f"[{shape}] {first}{more}"
    else:
        text = _format_number(value)
    return f"  {name:<20} {text}"


def _format_number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _format_pairs(data: dict[str, Any]) -> str:
    by_query = data["query"] is not None
    label = "ad" if by_query else "query"
    rows = [*data["values"]]
    if data["unseen_ad"] is not None:
        rows.append(data["unseen_ad"])
    width = max(len(label), *(len(row[label]) for row in rows))
    head = f"{label:<{width}} " + " ".join(f"{name:>21}" for name in QUANTITIES)
    lines = [f"{head} {'impressions':>12} {'clicks':>8}"]
    lines += [
        f"{row[label]:<{width}} {' '.join(_format_estimate(row, name) for name in QUANTITIES)}"
        f" {row['impressions']:>12,.0f} {row['clicks']:>8,.0f}"
        for row in rows
    ]
    n_more = data["pairs"] - len(data["values"])
    what = f"query {data['query']!r}" if by_query else f"ad {data['ad']!r}"
    more = f"; {n_more:,} more: raise --top" if n_more else ""
    lines.append(f"{what}: {data['pairs']:,} pairs, {100 * data['level']:g} % intervals{more}")
    if data["ad"] is not None:
        lines += [f"words: {' '.join(words)}" for words in data["words"].values()]
    return "\n".join(lines)


def _format_estimate(row: dict[str, Any], name: str) -> str:
    if row[name] is None:
        return f"{'–':>21}"
    text = f"{row[name]:.3f} [{row[f'{name}_low']:.3f}, {row[f'{name}_high']:.3f}]"
    return f"{text:>21}"
