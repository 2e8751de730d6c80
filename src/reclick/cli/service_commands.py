"""Commands that serve a model over HTTP and watch it."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reclick.cli.command import as_command
from reclick.cli.console import is_quiet, print_result, progress_bars
from reclick.cli.inputs import (
    Ads,
    Columns,
    FormatName,
    Logs,
    MaxAds,
    OnError,
    ReadOptions,
    open_log,
    report_dropped,
)

if TYPE_CHECKING:
    from reclick.evaluation.monitoring import MonitoredGroup, MonitorReport

TOKEN_VARIABLE = "RECLICK_TOKEN"  # noqa: S105
MOST_FILES = 65_536  # open at once by the service
BREACH = 3  # the exit code of `monitor` above a limit


@as_command
def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="Folders of models, as FOLDER or NAME=FOLDER. The first is the default.",
        ),
    ],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 picks a free one.")] = (
        8080
    ),
    token_file: Annotated[
        Path | None,
        typer.Option(
            help=f"A file with the token that requests must have. Default: ${TOKEN_VARIABLE}."
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A Host name to accept if there is no token. Repeat for more."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="A web origin that may call the service (CORS). Repeat for more."),
    ] = None,
    watch_seconds: Annotated[
        float, typer.Option(min=0.1, help="How often to check for a replaced model on disk.")
    ] = 2.0,
    max_body: Annotated[
        int, typer.Option(min=1024, help="Maximum size of a request, in bytes.")
    ] = 8 << 20,
    max_pages: Annotated[
        int, typer.Option(min=1, help="Maximum number of pages in a request.")
    ] = 10_000,
    max_ads: MaxAds = 100,
    max_requests: Annotated[
        int, typer.Option(min=1, help="Maximum number of concurrent requests.")
    ] = 64,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Maximum time for a request, in seconds.")
    ] = 30.0,
    log_queries: Annotated[
        bool, typer.Option("--log-queries", help="Also write the queries to the log.")
    ] = False,
) -> None:
    """Answer over HTTP: predictions, relevance, best pages and prices, and the ad lab at /.

    Example:  reclick serve model --port 8080

    On an address other than loopback, a token is required:  RECLICK_TOKEN=… reclick serve model --host 0.0.0.0
    """  # noqa: E501
    uvicorn = _import_server()
    from reclick.errors import UsageError
    from reclick.service import ServiceLimits, create_app
    from reclick.service.protection import LOCAL_NAMES, is_loopback

    token = _read_token(token_file)
    if token is None and not is_loopback(host):
        raise UsageError(
            f"{host} can be reached from other machines: set a token in ${TOKEN_VARIABLE} or give "
            "--token-file."
        )
    folders = _name_models(models)
    for folder in folders.values():
        _check_folder(folder)
    limits = ServiceLimits(
        body_bytes=max_body,
        pages=max_pages,
        ads=max_ads,
        concurrency=max_requests,
        seconds=timeout,
    )
    names = frozenset(name.lower() for name in allow_host or ())
    local = LOCAL_NAMES | {_name_in_address(host)}
    application = create_app(
        folders,
        token=token,
        limits=limits,
        reload_seconds=watch_seconds,
        allowed_hosts=(names | local) if names or token is None else frozenset(),
        cors_origins=frozenset(allow_origin or ()),
        log_queries=log_queries,
    )
    _configure_logging()
    _allow_open_files()
    config = uvicorn.Config(
        application,
        host=host,
        port=port,
        http=_close_without_head(timeout),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(timeout) + 1,
        h11_max_incomplete_event_size=64 << 10,
    )
    _run(uvicorn, config)


def _close_without_head(seconds: float) -> Any:
    """The server's protocol, which also closes connections that do not send a request in time."""
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    from reclick.service.protection import HeadTimeout

    parts: tuple[Any, ...] = (HeadTimeout, AutoHTTPProtocol)
    return type("Connection", parts, {"head_seconds": seconds})


def _allow_open_files() -> None:
    """Raise the limit of open files, and so of connections: the usual 1,024 are too few."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _import_server() -> Any:
    try:
        import fastapi  # noqa: F401
        import orjson  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn
    except ImportError as error:
        from reclick.errors import MissingExtraError

        raise MissingExtraError(
            f"The service needs {error.name}. Install it with: pip install 'reclick[serve]'."
        ) from error
    return uvicorn


def _read_token(path: Path | None) -> str | None:
    """Read the token from a file or from the environment; None if there is none."""
    from reclick.errors import UsageError

    if path is None:
        token = os.environ.get(TOKEN_VARIABLE)
        if token is None:
            return None
    else:
        try:
            token = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--token-file: {path} cannot be read ({error}).") from error
    token = token.strip()
    if len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            "The token is too weak or cannot be sent: give 16 or more visible ASCII characters, "
            "e.g. from: python -c 'import secrets; print(secrets.token_urlsafe())'."
        )
    return token


def _name_models(models: list[str]) -> dict[str, str]:
    """Return folders by name: NAME=FOLDER, or the last part of the folder."""
    from reclick.errors import UsageError

    folders: dict[str, str] = {}
    for text in models:
        name, separator, folder = text.partition("=")
        if not separator or "/" in name:
            name, folder = Path(text.rstrip("/")).name or "model", text
        if name in folders:
            raise UsageError(f"Two models are called {name}. Give them names: NAME=FOLDER.")
        folders[name] = folder
    return folders


def _check_folder(folder: str) -> None:
    """Refuse a local folder that is not there, or holds other files.

    An empty one may wait for its first model.
    """
    from reclick.errors import StoreError
    from reclick.runtime import artifact
    from reclick.runtime.filesystem import RemotePath, as_path

    path = as_path(folder)
    if isinstance(path, RemotePath):
        return
    if path.is_dir():
        try:
            artifact.check_target(path, "model")
        except StoreError:
            if not _holds_model(path):
                raise StoreError(
                    f"{path} holds no model, but other files. Give the folder of a model, or make "
                    "an empty one: its model is served when it is written."
                ) from None
        return
    problem = "is not a folder" if path.exists() else "does not exist"
    raise StoreError(
        f"{path} {problem}. Give the folder of a model, or make an empty one: its model is served "
        "when it is written."
    )


def _holds_model(path: Path) -> bool:
    """Whether a folder holds a model, which may be damaged and be replaced later."""
    from reclick.errors import StoreError
    from reclick.runtime import artifact

    try:
        return artifact.is_artifact(path) and artifact.get_kind(path) == "model"
    except StoreError:
        return True


def _configure_logging() -> None:
    """Log to standard error: lines of the service as JSON, those of the server as plain text."""
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    for name, level in (
        ("reclick.service", logging.WARNING if is_quiet() else logging.INFO),
        ("uvicorn.error", logging.WARNING),
    ):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


def _name_in_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _run(uvicorn: Any, config: Any) -> None:
    """Listen, print the address, and answer until a signal."""
    import logging

    from reclick.errors import UsageError

    server_log = logging.getLogger("uvicorn.error")
    server_log.disabled = True  # it would print the error of the system on a line of its own
    try:
        listener = config.bind_socket()
    except SystemExit as end:
        error = end.__context__
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise UsageError(f"Port {config.port} is in use: give another --port.") from None
        reason = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
        raise UsageError(
            f"Cannot listen on {config.host}:{config.port}{reason}. Give another --port or --host."
        ) from None
    finally:
        server_log.disabled = False
    listener.listen(config.backlog)  # early connections wait until the server runs
    name = _name_in_address(config.host)
    typer.echo(f"Serving on http://{name}:{listener.getsockname()[1]}/")
    with suppress(KeyboardInterrupt):  # raised after the last requests are answered
        uvicorn.Server(config).run(sockets=[listener])


@as_command
def monitor(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The folder of a model.")],
    logs: Logs,
    clicks: Annotated[
        float,
        typer.Option(help="Limit of the relative difference between expected and observed clicks."),
    ] = 0.10,
    group: Annotated[
        float, typer.Option(help="The same limit for each position and query volume.")
    ] = 0.25,
    calibration: Annotated[float, typer.Option(help="Limit of the calibration error.")] = 0.02,
    unknown_queries: Annotated[
        float, typer.Option(help="Limit of the share of sessions with an unknown query.")
    ] = 0.5,
    unknown_ads: Annotated[
        float, typer.Option(help="Limit of the share of impressions of unknown ads.")
    ] = 0.5,
    ads: Ads = None,
    format: FormatName = None,
    column: Columns = None,
    on_error: OnError = "raise",
    max_ads: MaxAds = 100,
) -> None:
    """Compare the clicks of a day with a model's predictions; exit with 3 above a limit.

    Example:  reclick monitor model logs/day8.parquet
    """
    from reclick.evaluation.monitoring import MonitorLimits
    from reclick.evaluation.monitoring import monitor as run_monitor
    from reclick.models import load

    limits = MonitorLimits(clicks, group, calibration, unknown_queries, unknown_ads)
    fitted_model = load(model)
    log = open_log(logs, ReadOptions(column, on_error, max_ads, format), ads)
    with progress_bars() as progress:
        report = run_monitor(fitted_model, log, limits=limits, progress=progress)
    report_dropped(log)
    print_result(_format_report(report), report.to_dict())
    if not report.ok:
        raise typer.Exit(BREACH)


def _format_report(report: MonitorReport) -> str:
    ratio = "–"
    if report.ratio is not None:
        ratio = f"{report.ratio:.3f} [{report.low:.3f}, {report.high:.3f}]"
    clicks = (
        f"{report.expected_clicks:,.1f} clicks expected, {report.observed_clicks:,.0f} observed"
    )
    unknown = f"{report.unknown_queries:.1%} of queries, {report.unknown_ads:.1%} of ads"
    lines = [
        f"{report.sessions:,.0f} sessions: {clicks}, ratio {ratio}",
        f"calibration error {report.calibration_error:.4f}; unknown: {unknown}",
    ]
    for title, groups in (
        ("position", report.positions),
        ("training sessions of the query", report.volumes),
        ("predicted probability", report.levels),
    ):
        head = f"{title:<32}{'impressions':>13}{'observed':>11}{'expected':>11}{'ratio':>8}"
        lines += ["", head, *map(_format_group, groups)]
    breaches = [f"Limit broken: {breach}." for breach in report.breaches]
    return "\n".join([*lines, "", *(breaches or ["Every limit holds."])])


def _format_group(group: MonitoredGroup) -> str:
    ratio = "–" if group.ratio is None else f"{group.ratio:.2f}"
    return (
        f"{group.name:<32}{group.impressions:>13,.0f}{group.observed:>11,.0f}"
        f"{group.expected:>11,.1f}{ratio:>8}"
    )
