"""The HTTP service: routes, content types and errors. Answers are made in `answers`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from functools import cache, partial
from importlib.resources import files
from typing import Annotated, Any, NamedTuple, TypeVar

import anyio
import orjson
import pyarrow as pa
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import PlainTextResponse, Response
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from reclick.errors import ReclickError, StoreError
from reclick.runtime.filesystem import Location
from reclick.runtime.time_limit import TimeLimitError, time_limit
from reclick.service import answers, schemas
from reclick.service.arrow_bodies import ARROW_STREAM, read_stream, write_stream
from reclick.service.gathering import PageGatherer, is_small
from reclick.service.hosting import HostedFolder, HostedModel, ModelHost
from reclick.service.measures import Measures
from reclick.service.protection import (
    LOCAL_NAMES,
    OPEN_PATHS,
    BodyTooLargeError,
    Protection,
    Receive,
    Scope,
    Send,
    ServiceLimits,
    route_path,
)

JSON = "application/json"
LOGGED_QUERIES = 100  # of one request
LAB_FILES = {
    "/": ("lab.html", "text/html; charset=utf-8"),
    "/lab.js": ("lab.js", "text/javascript; charset=utf-8"),
    "/lab.css": ("lab.css", "text/css; charset=utf-8"),
}
PROBLEMS = {
    400: "The body cannot be read.",
    401: "The token is missing or wrong.",
    404: "There is no such model.",
    408: "The request took too long.",
    413: "The request exceeds a limit.",
    415: "The body is of another type.",
    421: "The Host is not known.",
    422: "The request is invalid.",
    429: "Too many requests at once.",
    500: "Internal error.",
    503: "No model is loaded yet, or its folder cannot be read.",
}
TOKEN_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "description": "Needed where the service was started with a token.",
}
HIDDEN_ERROR = "The newest content of its folder is not loaded: see the log."
WORD_START = re.compile("(?<=[a-z])(?=[A-Z])")  # in the name of an error
SCHEMA_PREFIX = "#/components/schemas/"
Result = TypeVar("Result")
Parameters = TypeVar("Parameters", bound=schemas.RequestBody)
ErrorHandler = Callable[[Request, Any], Coroutine[Any, Any, Response]]
events = logging.getLogger("reclick.service")


class JsonRoute(NamedTuple):
    """A path, the types of its request and its answer, and the function that answers."""

    path: str
    request: type[schemas.ModelRequest]
    answer: type[schemas.ModelAnswer]
    function: Callable[..., dict[str, Any]]


JSON_ROUTES = (
    JsonRoute("/v1/predict", schemas.PredictRequest, schemas.PredictAnswer, answers.predict),
    JsonRoute(
        "/v1/relevance", schemas.RelevanceRequest, schemas.RelevanceAnswer, answers.relevance
    ),
    JsonRoute("/v1/explain", schemas.ExplainRequest, schemas.ExplainAnswer, answers.explain),
    JsonRoute("/v1/rank", schemas.RankRequest, schemas.RankAnswer, answers.rank),
    JsonRoute("/v1/auction", schemas.AuctionRequest, schemas.AuctionAnswer, answers.auction),
    JsonRoute("/v1/compare", schemas.CompareRequest, schemas.CompareAnswer, answers.compare),
    JsonRoute("/v1/monitor", schemas.MonitorRequest, schemas.MonitorAnswer, answers.monitor_day),
)
STREAM_ANSWERS = frozenset({"/v1/predict", "/v1/relevance"})  # to an Arrow stream


class ProblemError(Exception):
    """An error with its status, a code for programs and a message for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def create_app(
    models: Mapping[str, Location],
    *,
    token: str | None = None,
    limits: ServiceLimits | None = None,
    reload_seconds: float = 2.0,
    allowed_hosts: frozenset[str] | None = None,
    cors_origins: frozenset[str] = frozenset(),
    log_queries: bool = False,
) -> Protection:
    """Make an ASGI app that serves folders of models, the first of which is the default.

    Without a `token` it answers only requests to a loopback name, so that no page of another site
    can reach it through a browser. `allowed_hosts` replaces these names; an empty set allows any
    name. With `log_queries`, log lines contain the queries of the requests.
    """
    service = Service(ModelHost(models), limits or ServiceLimits(), reload_seconds)
    service.log_queries = log_queries
    if allowed_hosts is None:
        allowed_hosts = LOCAL_NAMES if token is None else frozenset()
    return Protection(
        service,
        limits=service.limits,
        token=token,
        measures=service.measures,
        allowed_hosts=allowed_hosts,
        cors_origins=cors_origins,
    )


class Service:
    """The routes of the service."""

    def __init__(self, host: ModelHost, limits: ServiceLimits, reload_seconds: float) -> None:
        self.host = host
        self.limits = limits
        self.log_queries = False
        self.measures = Measures()
        self._routes = {route.path: route for route in JSON_ROUTES}
        self._arrow_routes = {
            "/v1/predict": self._predict_arrow,
            "/v1/relevance": self._estimate_arrow,
            "/v1/monitor": self._monitor_arrow,
        }
        self._gatherer = PageGatherer(limits, self.measures.count_pages)
        self.reload_seconds = reload_seconds
        self.api = FastAPI(
            title="Reclick",
            description="Click predictions, relevance, best pages and prices.",
            version="1",
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
            lifespan=self._run,
            exception_handlers=_error_handlers(),
        )
        self.api.openapi = cache(self._describe_api)  # type: ignore[method-assign]
        self._add_routes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: a POST directly, in about half the time of FastAPI."""
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        route = self._routes.get(route_path(scope)) if is_post else None
        if route is None:
            await self.api(scope, receive, send)
            return
        scope["route"] = route
        request = Request(scope, receive)
        try:
            response = await self._answer(route, request)
        except Exception as error:
            response = await _answer_error(request, error)
        await response(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _run(self, _: FastAPI) -> AsyncIterator[None]:
        """Load the models in a thread: the service is alive at once, and ready after loading."""
        self.host.on_change = _log_change
        loading_task = asyncio.create_task(anyio.to_thread.run_sync(self._load))
        try:
            yield
        finally:
            self.host.stop()
            loading_task.cancel()

    def _load(self) -> None:
        for folder in self.host.folders.values():
            _log_change(folder, folder.refresh())
        self.host.watch(self.reload_seconds)
        for folder in self.host.folders.values():
            folder.index_queries()

    # routes

    def _add_routes(self) -> None:
        for route in JSON_ROUTES:
            content: dict[str, Any] = {JSON: {"schema": _reference(route.request)}}
            answer: dict[str, Any] = {JSON: {"schema": _reference(route.answer)}}
            stream = {"schema": {"type": "string", "format": "binary"}}
            if route.path in self._arrow_routes:
                content[ARROW_STREAM] = stream
            if route.path in STREAM_ANSWERS:
                answer[ARROW_STREAM] = stream
            self.api.add_api_route(
                route.path,
                partial(self._answer, route),
                methods=["POST"],
                name=route.path,
                summary=(route.request.__doc__ or "").split("\n")[0],
                description=route.function.__doc__,
                responses={200: {"content": answer}, **_describe_problems(*PROBLEMS)},
                openapi_extra={"requestBody": {"required": True, "content": content}},
            )
        refusals = _describe_problems(401, 408, 413, 421, 429, 500)
        get = partial(self.api.get, responses=refusals)
        get("/v1/models", response_model=schemas.ModelsAnswer)(self._list_models)
        get("/livez", response_model=schemas.Health)(self._report_life)
        get("/metrics", response_class=PlainTextResponse)(self._report_measures)
        problems = {**refusals, **_describe_problems(404, 422, 503)}
        self.api.get("/v1/queries", response_model=schemas.QueriesAnswer, responses=problems)(
            self._find_queries
        )
        unready = {**refusals, 503: {"model": schemas.Health, "description": PROBLEMS[503]}}
        self.api.get("/readyz", response_model=schemas.Health, responses=unready)(
            self._report_readiness
        )
        for path in LAB_FILES:
            self.api.add_api_route(path, partial(_serve_lab_file, path), include_in_schema=False)

    async def _answer(self, route: JsonRoute, request: Request) -> Response:
        """Answer a POST: read the body, ask one model, and name it in the answer."""
        content_type = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
        body = await request.body()
        answer_arrow = self._arrow_routes.get(route.path)
        if content_type == ARROW_STREAM and answer_arrow is not None:
            return await answer_arrow(request, body)
        if content_type != JSON:
            expected = JSON if answer_arrow is None else f"{JSON} or {ARROW_STREAM}"
            raise ProblemError(415, "unsupported_type", f"Send the body as {expected}.")
        parsed = _parse(route.request, body)
        hosted = self._find_model(parsed.model)
        if isinstance(parsed, schemas.PredictRequest) and is_small(hosted, parsed):
            content = await self._gatherer.predict(hosted, parsed)
        else:
            count = self.measures.count_pages
            content = await self._run_in_thread(
                partial(route.function, hosted, parsed, self.limits, count)
            )
        self._note(request, hosted, len(getattr(parsed, "pages", ())), parsed.list_queries)
        return _json({"model": hosted.name, "version": hosted.version, **content})

    async def _predict_arrow(self, request: Request, body: bytes) -> Response:
        """Answer a stream of pages with a stream; options are parameters of the URL."""
        parameters = request.query_params
        hosted = self._find_model(parameters.get("model"))
        top = parameters.get("top", "3")
        if not (len(top) <= 3 and top.isascii() and top.isdigit() and int(top) <= 100):
            raise ProblemError(422, "bad_parameter", "top: give a whole number from 0 to 100.")

        def predict(pages: pa.RecordBatch) -> pa.RecordBatch:
            answers.check_batch(pages, self.limits)
            return answers.predict_batch(hosted, pages, int(top), self.measures.count_pages)

        return await self._answer_stream(request, hosted, body, predict)

    async def _estimate_arrow(self, request: Request, body: bytes) -> Response:
        """Answer a stream of pairs with a stream."""
        options = _parse_parameters(schemas.RelevanceParameters, request)
        hosted = self._find_model(options.model)

        def estimate(pairs: pa.RecordBatch) -> pa.RecordBatch:
            return answers.relevance_batch(hosted, pairs, options.level, self.limits)

        return await self._answer_stream(request, hosted, body, estimate)

    async def _monitor_arrow(self, request: Request, body: bytes) -> Response:
        """Answer a stream of sessions with JSON."""
        options = _parse_parameters(schemas.MonitorParameters, request)
        hosted = self._find_model(options.model)

        def monitor() -> tuple[pa.RecordBatch, dict[str, Any]]:
            sessions = read_stream(body)
            return sessions, answers.monitor_batch(hosted, sessions, options, self.limits)

        sessions, content = await self._run_in_thread(monitor)
        queries = partial(answers.list_queries, sessions, LOGGED_QUERIES)
        self._note(request, hosted, sessions.num_rows, queries)
        return _json({"model": hosted.name, "version": hosted.version, **content})

    async def _answer_stream(
        self,
        request: Request,
        hosted: HostedModel,
        body: bytes,
        function: Callable[[pa.RecordBatch], pa.RecordBatch],
    ) -> Response:
        """Answer a stream with a stream, and name the model in its headers."""

        def work() -> tuple[bytes, pa.RecordBatch]:
            answer = function(read_stream(body))
            return write_stream(answer), answer

        content, answer = await self._run_in_thread(work)
        queries = partial(answers.list_queries, answer, LOGGED_QUERIES)
        self._note(request, hosted, answer.num_rows, queries)
        headers = {"x-reclick-model": hosted.name, "x-reclick-version": hosted.version}
        return Response(content, media_type=ARROW_STREAM, headers=headers)

    def _note(
        self, request: Request, hosted: HostedModel, pages: int, queries: Callable[[], list[str]]
    ) -> None:
        """Add fields to the log line of this request; queries only with `log_queries`."""
        fields: dict[str, Any] = {"model": hosted.name, "version": hosted.version, "pages": pages}
        if self.log_queries:
            fields["queries"] = queries()[:LOGGED_QUERIES]
        request.scope["state"]["log"] = fields

    async def _run_in_thread(self, work: Callable[[], Result]) -> Result:
        """Run a function in a thread, which stops by itself at the time limit of the request."""

        def work_in_time() -> Result:
            with time_limit(self.limits.seconds):
                return work()

        return await anyio.to_thread.run_sync(work_in_time)

    def _find_model(self, name: str | None) -> HostedModel:
        hosted = self.host.get(name)
        if hosted is not None:
            return hosted
        if name is None or name in self.host.folders:
            raise ProblemError(503, "not_ready", "The model is not loaded yet. Try again soon.")
        names = ", ".join(self.host.folders)
        raise ProblemError(404, "unknown_model", f"There is no such model. There are: {names}.")

    async def _list_models(self) -> Response:
        """The models that are served."""
        models = [folder.current for folder in self.host.folders.values() if folder.current]
        return _json(
            {
                "models": [
                    {**hosted.describe(), "default": hosted.name == self.host.default}
                    for hosted in models
                ]
            }
        )

    async def _find_queries(
        self,
        prefix: Annotated[str, Query(max_length=1000)] = "",
        limit: Annotated[int, Query(ge=1, le=100)] = 10,
        model: Annotated[str | None, Query(max_length=100)] = None,
    ) -> Response:
        """Queries of the training log that begin with a prefix."""
        hosted = self._find_model(model)
        matches = await self._run_in_thread(lambda: hosted.queries.find(prefix, limit))
        return _json({"model": hosted.name, "version": hosted.version, "queries": matches})

    async def _report_life(self) -> Response:
        """Whether the process runs."""
        return _json({"status": "alive", "models": {}})

    async def _report_readiness(self, request: Request) -> Response:
        """Whether every model is loaded; `models` says, with the token, what is wrong with one."""
        has_token = request.scope["state"]["has_token"]
        detail = {
            name: _describe_state(folder, with_error=has_token)
            for name, folder in self.host.folders.items()
        }
        ready = self.host.ready
        status = "ready" if ready else "not ready"
        return _json({"status": status, "models": detail}, 200 if ready else 503)

    async def _report_measures(self) -> Response:
        """The counters of the service for Prometheus."""
        return Response(self.measures.exposition(self.host), media_type="text/plain; version=0.0.4")

    def _describe_api(self) -> dict[str, Any]:
        """Return the OpenAPI description, with the requests that the routes parse themselves."""
        description = get_openapi(
            title=self.api.title,
            version=self.api.version,
            description=self.api.description,
            routes=self.api.routes,
        )
        models: list[Any] = [
            (model, mode)
            for route in JSON_ROUTES
            for model, mode in ((route.request, "validation"), (route.answer, "serialization"))
        ]
        _, definitions = models_json_schema(models, ref_template=SCHEMA_PREFIX + "{model}")
        description["components"]["schemas"].update(definitions["$defs"])
        description["components"]["securitySchemes"] = {"token": TOKEN_SCHEME}
        description["security"] = [{"token": []}]
        for path in OPEN_PATHS:
            description["paths"][path]["get"]["security"] = []
        # With a token it has details
        description["paths"]["/readyz"]["get"]["security"] = [{}, {"token": []}]
        return description


def _describe_state(folder: HostedFolder, *, with_error: bool) -> str:
    """Whether a folder is served. Its error has paths in it, which are not for everybody."""
    if folder.error:
        return folder.error if with_error else HIDDEN_ERROR
    return "ready" if folder.current else "loading"


def _parse(model: type[schemas.ModelRequest], body: bytes) -> schemas.ModelRequest:
    """Parse a body as JSON; raise an error that names the first wrong field."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "body"
        status = 400 if first["type"] == "json_invalid" else 422
        raise ProblemError(
            status, "bad_body" if status == 400 else "bad_field", f"{where}: {first['msg']}."
        ) from None


def _parse_parameters(model: type[Parameters], request: Request) -> Parameters:
    """The parameters of the address, or an error that names the first wrong one."""
    try:
        return model.model_validate_strings(dict(request.query_params))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ProblemError(422, "bad_parameter", f"{where}: {first['msg']}.") from None


def _json(content: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type=JSON)


def _log_change(folder: HostedFolder, is_replaced: bool) -> None:
    if is_replaced and folder.current is not None:
        content = {"event": "model_loaded", "version": folder.current.version}
    else:
        content = {"event": "model_not_loaded", "message": folder.error}
    level = logging.INFO if is_replaced else logging.WARNING
    events.log(level, orjson.dumps({**content, "model": folder.name}).decode())


def _serve_lab_file(path: str) -> Response:
    name, media_type = LAB_FILES[path]
    content = (files("reclick.service") / "lab" / name).read_bytes()
    return Response(content, media_type=media_type, headers={"cache-control": "no-cache"})


# errors


def _error_handlers() -> dict[int | type[Exception], ErrorHandler]:
    return {
        ProblemError: _answer_problem,
        BodyTooLargeError: _answer_large_body,
        ClientDisconnect: _answer_incomplete_body,
        HTTPException: _answer_http_error,
        RequestValidationError: _answer_bad_parameters,
        TimeLimitError: _answer_time_limit,
        StoreError: _answer_store_error,
        ReclickError: _answer_reclick_error,
        Exception: _answer_mistake,
    }


async def _answer_error(request: Request, error: Exception) -> Response:
    """Answer an error, by the handler of its nearest class."""
    handlers = _error_handlers()
    nearest = next(kind for kind in type(error).__mro__ if kind in handlers)
    return await handlers[nearest](request, error)


async def _answer_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)  # noqa: S101
    return _problem(error.status, error.code, error.message)


async def _answer_large_body(_: Request, error: Exception) -> Response:
    return _problem(413, "body_too_large", str(error), {"connection": "close"})


async def _answer_incomplete_body(_: Request, __: Exception) -> Response:
    return _problem(400, "incomplete_body", "The connection ended within the body.")


async def _answer_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    headers = dict(error.headers or {})
    return _problem(error.status_code, "http_error", str(error.detail), headers)


async def _answer_bad_parameters(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    first = error.errors()[0]
    return _problem(422, "bad_parameter", f"{'.'.join(map(str, first['loc']))}: {first['msg']}.")


async def _answer_time_limit(_: Request, error: Exception) -> Response:
    return _problem(408, "timeout", str(error), {"connection": "close"})


async def _answer_store_error(request: Request, error: Exception) -> Response:
    """Answer an error of a model's folder, not of the request; only the log has its path."""
    _log_fault(request, error, str(error))
    message = "The model cannot be read at the moment. Try again later; the log of the service "
    return _problem(503, "store", f"{message}says what is wrong.")


async def _answer_mistake(request: Request, error: Exception) -> Response:
    """Answer an unexpected error. Its message may contain a query, so it is not logged."""
    _log_fault(request, error, type(error).__name__)
    message = "Internal error: see the log of the service. Try another request."
    return _problem(500, "internal_error", message)


def _log_fault(request: Request, error: Exception, message: str) -> None:
    content = {
        "event": "fault",
        "request": request.scope["state"].get("request"),
        "message": message,
        "traceback": traceback.format_tb(error.__traceback__),
    }
    events.error(json.dumps(content))


async def _answer_reclick_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ReclickError)  # noqa: S101
    is_limit = isinstance(error, answers.LimitError)
    code = WORD_START.sub("_", type(error).__name__.removesuffix("Error")).lower()
    return _problem(413 if is_limit else 422, code, error.render(str))


def _problem(status: int, code: str, message: str, headers: Any = None) -> Response:
    content = orjson.dumps({"error": code, "message": message})
    return Response(content, status, headers=headers, media_type=JSON)


def _describe_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"model": schemas.Problem, "description": PROBLEMS[status]} for status in statuses
    }


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": SCHEMA_PREFIX + model.__name__}
