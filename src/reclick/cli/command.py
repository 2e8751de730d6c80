"""What all commands have in common: --json, --quiet and --threads, panels of options, metavars.

An option has one meaning in all commands, so its panel is looked up by its name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand
from typer.models import OptionInfo, ParameterInfo

from reclick.cli.console import output_mode

PANELS = {
    "Input": (
        *("ads", "click", "column", "cut", "by", "format", "history", "labels", "log", "max_ads"),
        *("max_bad", "on_error", "pages", "pairs", "features", "quick_return_seconds", "test"),
        "train",
    ),
    "Cleaning": (
        *("first", "max_clicks", "max_clicks_per_hour", "max_pages_per_hour", "normalise"),
        "reload_seconds",
    ),
    "Model": ("again", "decay", "forget", "in_sample", "model", "models", "settings", "update"),
    "Market": ("ads_per_query", "bots", "queries", "sessions", "weeks"),
    "Service": (
        *("allow_host", "allow_origin", "host", "max_body", "max_pages", "max_requests", "port"),
        *("timeout", "token_file", "watch_seconds"),
    ),
    "Engine": ("engine", "master", "shared_folder", "tasks", "workers"),
    "Limits": ("calibration", "clicks", "group", "unknown_ads", "unknown_queries"),
    "Slate": (
        *("auction", "auctions", "compare", "draws", "mechanism", "objective", "refit", "reserve"),
        *("satisfaction_weight", "slots", "squashing"),
    ),
}
OTHER_PANEL = "Output"
METAVARS: dict[object, str] = {int: "N", float: "NUMBER", str: "TEXT", bool: ""}

Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print errors only.", rich_help_panel="General"),
]
Threads = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Maximum number of threads. Default: RECLICK_THREADS, or one per processor.",
        rich_help_panel="General",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


class ReclickCommand(TyperCommand):
    """A command whose help has its panels in a fixed order, and does not show Python types."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the arguments, then the options by panel."""
        parameters = hide_types(super().get_params(ctx))
        for parameter in parameters:
            if parameter.name == "help":
                parameter.rich_help_panel = "General"
        return sorted(parameters, key=_panel_order)


def hide_types(parameters: list[Any]) -> list[Any]:
    """Hide the types of parameters: a switch has none, an argument has its metavar."""
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            vars(parameter)["display_type_rich"] = lambda ctx: None
        elif getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


def _panel_order(parameter: Any) -> int:
    panel = getattr(parameter, "rich_help_panel", None)
    panels = (None, *PANELS, OTHER_PANEL, "General")
    return panels.index(panel) if panel in panels else len(panels)


def as_command(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of all commands to the function of a command."""
    common: dict[str, Any] = {"as_json": Json, "quiet": Quiet, "threads": Threads}
    defaults = {"quiet": False, "threads": None, "as_json": False}
    hints = get_type_hints(function, include_extras=True)
    parameters = [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in inspect.signature(function).parameters.values()
    ]
    parameters += [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=kind
        )
        for name, kind in common.items()
    ]
    for parameter in parameters:
        _describe(parameter.name, parameter.annotation)

    signature = inspect.Signature(parameters)

    @wraps(function)
    def run(*positional: Any, **keywords: Any) -> None:
        from reclick.runtime.parallel import limit_threads

        bound = signature.bind(*positional, **keywords)
        bound.apply_defaults()
        values = dict(bound.arguments)
        options = {name: values.pop(name) for name in common}
        mode = output_mode(quiet=options["quiet"], as_json=options["as_json"])
        with mode, limit_threads(options["threads"]):
            function(**values)

    del run.__wrapped__  # its signature differs
    vars(run)["__signature__"] = signature
    run.__annotations__ = {item.name: item.annotation for item in parameters} | {"return": None}
    return run


def _describe(name: str, annotation: Any) -> None:
    """Put an option into its panel, and give it a metavar."""
    kind, *infos = get_args(annotation) or (annotation,)
    for info in infos:
        if isinstance(info, ParameterInfo) and info.metavar is None:
            info.metavar = _choose_metavar(kind)
        if isinstance(info, OptionInfo) and info.rich_help_panel is None:
            panels = (panel for panel, names in PANELS.items() if name.rstrip("_") in names)
            info.rich_help_panel = next(panels, OTHER_PANEL)


def _choose_metavar(kind: Any) -> str:
    """Return the metavar of an option in the help; empty for a switch."""
    for alternative in (kind, *get_args(kind)):
        if alternative in METAVARS:
            return METAVARS[alternative]
        inner = [part for part in get_args(alternative) if part in METAVARS]
        if inner:
            return METAVARS[inner[0]]
    return "TEXT"
