"""Who may ask, how much, and what is said to those who may not."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from reclick.service import ServiceLimits, create_app
from reclick.service.arrow_bodies import ARROW_STREAM, write_stream
from reclick.service.measures import Measures
from reclick.service.protection import Protection, is_loopback
from tests.service.conftest import ready_client
from tests.support.service import fit

TOKEN = "a-token-of-the-tests"
PAGE = {"query": "tea", "ads": ["ad0"]}


@pytest.fixture(scope="module")
def guarded(folders: dict[str, Path]) -> Iterator[TestClient]:
    limits = ServiceLimits(
        body_bytes=4096, pages=3, ads=4, text_characters=100, candidates=3, seconds=20
    )
    with ready_client(create_app({"ubm": folders["ubm"]}, token=TOKEN, limits=limits)) as client:
        yield client


def post(client: TestClient, path: str, **arguments: Any) -> Any:
    headers = {"authorization": f"Bearer {TOKEN}", **arguments.pop("headers", {})}
    return client.post(path, headers=headers, **arguments)


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x"],
)
@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/openapi.json"])
def test_without_the_token_nothing_is_said(
    guarded: TestClient, path: str, header: str | None
) -> None:
    answer = guarded.get(path, headers={} if header is None else {"authorization": header})
    assert answer.status_code == 401
    assert answer.json()["error"] == "unauthorized"
    assert answer.headers["www-authenticate"] == "Bearer"


def test_with_the_token_and_for_probes_it_answers(guarded: TestClient) -> None:
    assert guarded.get("/livez").status_code == guarded.get("/readyz").status_code == 200
    for scheme in ("Bearer", "bearer"):
        headers = {"authorization": f"{scheme} {TOKEN}"}
        assert guarded.get("/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize("before", [True, False])  # whether a model is in place
def test_what_is_wrong_with_a_folder_is_said_with_the_token_only(
    tmp_path: Path, before: bool
) -> None:
    folder = tmp_path / "secret-place"
    fit("dctr").save(folder)
    app = create_app({"m": folder}, token=TOKEN, reload_seconds=0.02)
    manifest = folder / "manifest.json"
    if not before:
        manifest.write_text("{}")
    with ready_client(app) if before else TestClient(app) as client:
        manifest.write_text("{}")
        headers = {"authorization": f"Bearer {TOKEN}"}
        deadline = time.monotonic() + 60
        said = ""
        while "altered" not in said and time.monotonic() < deadline:
            said = client.get("/readyz", headers=headers).json()["models"]["m"]
            time.sleep(0.01)
        assert str(folder) in said
        for wrong in ({}, {"authorization": "Bearer wrong"}):
            answer = client.get("/readyz", headers=wrong)
            assert answer.status_code == (200 if before else 503)
            assert "see the log" in answer.json()["models"]["m"]
            assert "secret-place" not in answer.text


def test_the_token_is_asked_for_under_a_prefix_too(folders: dict[str, Path]) -> None:
    app = create_app({"ubm": folders["ubm"]}, token=TOKEN)

    async def with_prefix(scope: Any, receive: Any, send: Any) -> None:
        """What a server does that is told of the prefix of a proxy."""
        if scope["type"] == "http":
            scope = {**scope, "root_path": "/clicks", "path": "/clicks" + scope["path"]}
        await app(scope, receive, send)

    with ready_client(with_prefix) as client:
        for path in ("/v1/models", "/metrics", "/openapi.json", "/v1/queries", "/other"):
            assert client.get(path).status_code == 401, path
        assert client.get("/").status_code == client.get("/lab.js").status_code == 200
        assert post(client, "/v1/predict", json={"pages": [PAGE]}).status_code == 200


@pytest.mark.parametrize(
    "kind",
    [
        pa.large_list(pa.string()),
        pa.list_(pa.string(), 5),
        pa.list_view(pa.string()),
        pa.large_list_view(pa.string()),
    ],
)
def test_long_pages_of_an_arrow_stream_are_refused(guarded: TestClient, kind: pa.DataType) -> None:
    pages = pa.record_batch({"query": ["tea"], "ads": pa.array([list("abcde")], kind)})
    headers = {"content-type": ARROW_STREAM}
    for path in ("/v1/predict", "/v1/monitor"):
        answer = post(guarded, path, content=write_stream(pages), headers=headers)
        assert answer.status_code == 413
        assert "at most 4 per page" in answer.json()["message"]


@pytest.mark.parametrize("path", ["/v1/predict", "/v1/monitor", "/v1/relevance"])
def test_long_streams_are_refused(guarded: TestClient, path: str) -> None:
    columns = {"query": ["q"] * 4, "ads": [["a"]] * 4, "clicks": [[1]] * 4, "ad": ["a"] * 4}
    content, headers = write_stream(pa.record_batch(columns)), {"content-type": ARROW_STREAM}
    answer = post(guarded, path, content=content, headers=headers)
    assert answer.status_code == 413
    assert "at most 3 per request" in answer.json()["message"]


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/v1/predict", {"pages": [PAGE] * 4}, "at most 3 per request"),
        ("/v1/predict", {"pages": [{"query": "q", "ads": ["a"] * 5}]}, "at most 4 per page"),
        (
            "/v1/predict",
            {"pages": [PAGE], "text": [{"ad": "x", "title": "t" * 101}]},
            "at most 100",
        ),
        ("/v1/relevance", {"pairs": [{"query": "q", "ad": "a"}] * 4}, "at most 3 per request"),
        ("/v1/rank", {"query": "q", "ads": ["a", "b", "c", "d"]}, "at most 3"),
        ("/v1/auction", {"query": "q", "bids": {"a": 1, "b": 1, "c": 1, "d": 1}}, "at most 3"),
        ("/v1/monitor", {"pages": [PAGE] * 4}, "at most 3 per request"),
    ],
)
def test_a_request_that_asks_for_too_much_is_refused(
    guarded: TestClient, path: str, body: dict[str, Any], says: str
) -> None:
    answer = post(guarded, path, json=body)
    assert answer.status_code == 413
    assert says in answer.json()["message"]


def test_a_page_too_long_for_exact_probabilities_is_refused_with_advice(
    client: TestClient,
) -> None:
    page = {"query": "tea", "ads": [f"ad{i}" for i in range(13)]}
    answer = client.post("/v1/predict", json={"pages": [PAGE, page], "model": "luceclick"})
    assert (answer.status_code, answer.json()["error"]) == (422, "cannot_answer")
    assert "first 12 ads" in answer.json()["message"]
    assert "sample()" not in answer.json()["message"]  # which the service does not have
    answer = client.post("/v1/predict", json={"pages": [PAGE, page], "model": "ubm"})
    assert answer.status_code == 200


def test_of_a_query_with_many_ads_those_shown_most_are_answered(
    guarded: TestClient, client: TestClient
) -> None:
    every = client.post("/v1/relevance", json={"query": "tea", "model": "ubm"}).json()["pairs"]
    assert len(every) > 3
    assert post(guarded, "/v1/relevance", json={"query": "tea"}).json()["pairs"] == every[:3]


def test_a_large_body_is_refused_with_and_without_its_length(guarded: TestClient) -> None:
    body = b'{"pages": [' + b" " * 5000 + b"]}"
    answer = post(guarded, "/v1/predict", content=body)
    assert (answer.status_code, answer.json()["error"]) == (413, "body_too_large")

    def chunks() -> Iterator[bytes]:
        yield from (body[i : i + 100] for i in range(0, len(body), 100))

    answer = post(
        guarded, "/v1/predict", content=chunks(), headers={"content-type": "application/json"}
    )
    assert (answer.status_code, answer.json()["error"]) == (413, "body_too_large")


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "JSON"),
        (b"{", 400, "JSON"),
        (b"\xff\xfe", 400, "JSON"),
        (b"[]", 422, "body"),
        (b"null", 422, "body"),
        (b'{"pages": []}', 422, "pages"),
        (b'{"pages": [{"query": "q", "ads": []}]}', 422, "pages.0.ads"),
        (b'{"pages": [{"query": "q", "ads": ["a"], "clicks": [2]}]}', 422, "click"),
        (b'{"pages": [{"query": "q", "ads": ["a"], "clicks": [0]}]}', 422, "clicks.0"),
        (b'{"pages": [{"query": "q", "ads": [1]}]}', 422, "ads.0"),
        (b'{"pages": [{"query": "", "ads": ["a"]}]}', 422, "query"),
        (b'{"pages": [{"query": "q", "ads": ["a"], "other": 1}]}', 422, "other"),
        (b'{"pages": [{"query": "q", "ads": ["a"]}], "top": 1e9}', 422, "top"),
        (b'{"pages": [{"query": "q", "ads": ["a"]}], "top": -1}', 422, "top"),
    ],
)
def test_a_wrong_body_is_explained(client: TestClient, body: bytes, status: int, says: str) -> None:
    answer = client.post("/v1/predict", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    assert says in answer.json()["message"]


def test_other_types_methods_and_paths_are_refused(client: TestClient) -> None:
    headers = {"content-type": "application/xml"}
    assert client.post("/v1/predict", content=b"<a/>", headers=headers).status_code == 415
    headers = {"content-type": ARROW_STREAM}
    assert client.post("/v1/rank", content=b"", headers=headers).status_code == 415
    assert client.get("/v1/predict").status_code == 405
    for path in ("/nothing", "/../etc/passwd", "/lab", "/%2e%2e/secret", "/lab.js/", "/static/"):
        answer = client.get(path)
        assert answer.status_code == 404, path
        assert answer.json()["error"] == "http_error"


@pytest.mark.parametrize("name", ["nothing", "../luceclick", "luceclick/../ubm", "%00", "ubm\n"])
def test_a_model_is_found_by_its_exact_name_only(client: TestClient, name: str) -> None:
    answer = client.post("/v1/predict", json={"pages": [PAGE], "model": name})
    assert answer.status_code == 404
    assert name not in answer.json()["message"]
    assert client.get("/v1/queries", params={"model": name}).status_code == 404


def compressed_stream(codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"query": ["tea"] * 999, "ads": [["ad0"]] * 999})
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def changed_offsets() -> bytes:
    """A stream whose list offsets point far outside."""
    body = write_stream(pa.record_batch({"query": ["tea"], "ads": [["ad0", "ad1"]]}))
    return body.replace(struct.pack("<ii", 0, 2), struct.pack("<ii", 0, 2_000_000))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"\xff\xff\xff\xff\x00\x00\x00\x00",
        b"\xff\xff\xff\xff\xff\xff\xff\x7f",
        write_stream(pa.record_batch({"query": ["tea"], "ads": [["ad0"]]}))[:-20],
        write_stream(pa.record_batch({"query": ["tea"]})),
        write_stream(pa.record_batch({"query": ["tea"], "ads": [[]]})),
        write_stream(pa.record_batch({"query": [None], "ads": [["a"]]})),
        write_stream(pa.record_batch({"query": ["tea"], "ads": ["a"]})),
        write_stream(pa.record_batch([["tea"], [["a"]], [["b"]]], names=["query", "ads", "ads"])),
        write_stream(pa.record_batch([["tea"], ["tea"], [["b"]]], names=["query", "query", "ads"])),
        changed_offsets(),
        compressed_stream("zstd"),
        compressed_stream("lz4"),
    ],
)
def test_a_bad_arrow_stream_is_refused(client: TestClient, body: bytes) -> None:
    for path in ("/v1/predict", "/v1/monitor", "/v1/relevance"):
        answer = client.post(path, content=body, headers={"content-type": ARROW_STREAM})
        assert answer.status_code == 422, answer.content
        assert answer.json()["message"]


@pytest.mark.parametrize("top", ["9" * 5000, "101", "-1", "", "٣", "x"])
def test_a_wrong_number_of_sequences_is_refused(client: TestClient, top: str) -> None:
    body = write_stream(pa.record_batch({"query": ["tea"], "ads": [["ad0"]]}))
    headers = {"content-type": ARROW_STREAM}
    answer = client.post("/v1/predict", params={"top": top}, content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (422, "bad_parameter")


def test_a_length_of_thousands_of_digits_is_refused(client: TestClient) -> None:
    answer = client.post("/v1/predict", content=b"{}", headers={"content-length": "9" * 5000})
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_length")


@pytest.mark.parametrize("ads", [1, 7])  # gathered, and in a thread
def test_a_mistake_of_the_service_is_answered_counted_and_logged(
    folders: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    ads: int,
) -> None:
    page = {"query": "a secret illness", "ads": [f"ad{i}" for i in range(ads)]}

    def fail(*_: Any) -> None:
        raise KeyError(page["query"])

    with (
        ready_client(create_app({"ubm": folders["ubm"]})) as client,
        caplog.at_level(logging.INFO, "reclick.service"),
    ):
        monkeypatch.setattr("reclick.service.answers._predict_parts", fail)
        answer = client.post("/v1/predict", json={"pages": [page]})
        assert (answer.status_code, answer.json()["error"]) == (500, "internal_error")
        counted = 'reclick_requests_total{route="/v1/predict",status="500"} 1.0'
        assert counted in client.get("/metrics").text
    lines = [json.loads(each.getMessage()) for each in caplog.records]
    fault, line = [each for each in lines if each.get("request") == answer.headers["x-request-id"]]
    assert (fault["message"], line["status"]) == ("KeyError", 500)
    assert "in fail" in fault["traceback"][-1]
    assert "secret" not in caplog.text


def test_a_damaged_folder_is_no_fault_of_the_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fit("dctr").save(tmp_path / "m", buckets=3)
    with ready_client(create_app({"m": tmp_path / "m"}, reload_seconds=600)) as client:
        for file in (tmp_path / "m").glob("parts-*/*/visit-*"):
            file.unlink()
        hosted = client.app.app.host.get("m")  # type: ignore[attr-defined]
        hosted.model.set_cache(0)
        asked = [
            client.post("/v1/predict", json={"pages": [PAGE]}),
            client.post("/v1/explain", json={"query": "tea", "ad": "ad0"}),
            client.get("/v1/queries"),
        ]
    for answer in asked:
        assert (answer.status_code, answer.json()["error"]) == (503, "store")
        assert str(tmp_path) not in answer.text
    faults = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert len(faults) == len(asked)
    assert all(str(tmp_path) in each and "missing" in each for each in faults)


def test_a_dictionary_code_out_of_range_is_refused(client: TestClient) -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a", "b"]))
    body = write_stream(pa.record_batch({"query": values, "ads": [["x"], ["y"]]}))
    codes = struct.pack("<ii", 0, 1)
    at = body.rindex(codes + b"\0" * 4) if codes + b"\0" * 4 in body else body.rindex(codes)
    forged = body[:at] + struct.pack("<ii", 0, 999_999) + body[at + 8 :]
    good = client.post("/v1/predict", content=body, headers={"content-type": ARROW_STREAM})
    assert good.status_code == 200
    bad = client.post("/v1/predict", content=forged, headers={"content-type": ARROW_STREAM})
    assert bad.status_code == 422


def test_only_known_hosts_are_answered_without_a_token(folders: dict[str, Path]) -> None:
    with ready_client(create_app({"ubm": folders["ubm"]})) as client:
        answer = client.get("/v1/models", headers={"host": "attacker.test"})
        assert (answer.status_code, answer.json()["error"]) == (421, "unknown_host")
        for host in ("localhost", "localhost:8080", "127.0.0.1:1", "[::1]:9"):
            assert client.get("/v1/models", headers={"host": host}).status_code == 200


def test_other_origins_are_allowed_only_when_named(folders: dict[str, Path]) -> None:
    origins = frozenset({"https://shop.test"})
    with ready_client(create_app({"ubm": folders["ubm"]}, cors_origins=origins)) as client:
        for origin, allowed in (("https://shop.test", True), ("https://other.test", False)):
            answer = client.get("/v1/models", headers={"origin": origin})
            assert (answer.headers.get("access-control-allow-origin") == origin) is allowed
            exposed = answer.headers.get("access-control-expose-headers", "")
            assert ("x-reclick-version" in exposed) is allowed
            asked = client.options("/v1/predict", headers={"origin": origin})
            assert (asked.status_code == 204) is allowed


def test_headers_keep_scripts_and_frames_of_others_out(client: TestClient) -> None:
    for path in ("/", "/lab.js", "/lab.css", "/v1/models", "/nothing"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_the_page_has_no_script_and_no_style_of_its_own(client: TestClient) -> None:
    page = client.get("/").text
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=|javascript:", page) == []
    assert re.findall(r"(?:src|href)=\"(?!lab\.|#|data:)", page) == []


def test_no_folder_is_listed_and_no_other_file_is_given(client: TestClient) -> None:
    for path in (
        "/lab/",
        "/lab/lab.js",
        "/lab.html",
        "/app.py",
        "/..%2flab.html",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/lab.js%00.css",
        "//etc/passwd",
        "/v1/",
        "/manifest.json",
        "/docs",
        "/redoc",
    ):
        answer = client.get(path)
        assert answer.status_code == 404, path
        assert set(answer.json()) == {"error", "message"}


def test_a_question_in_metrics_and_errors_is_not_repeated_to_the_log(
    folders: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Bodies that are refused are not logged or counted by what they say either."""
    with (
        ready_client(create_app({"ubm": folders["ubm"]})) as client,
        caplog.at_level(logging.DEBUG),
    ):
        for body in (
            {"pages": [{"query": "a secret illness", "ads": ["a"], "clicks": [7]}]},
            {"pages": [{"query": "q", "ads": ["a"]}], "a secret illness": 1},
            {"pages": [{"query": "q", "ads": ["a"]}], "model": "a secret illness"},
        ):
            assert client.post("/v1/predict", json=body).status_code in (404, 422)
        client.get("/v1/a secret illness?a=a secret illness")
        assert "secret" not in client.get("/metrics").text
    own = [each.getMessage() for each in caplog.records if each.name.startswith("reclick")]
    assert len(own) > 4
    assert "secret" not in "".join(own)


def test_log_lines_have_no_query_and_no_ad(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "reclick.service"):
        body = {"pages": [{"query": "a secret illness", "ads": ["a secret ad"]}]}
        assert client.post("/v1/predict", json=body).status_code == 200
        client.get("/v1/queries", params={"prefix": "a secret illness"})
        client.get("/a/secret/path")
    lines = [json.loads(record.getMessage()) for record in caplog.records]
    assert [line["status"] for line in lines] == [200, 200, 404]
    assert lines[0]["pages"] == 1
    assert lines[0]["model"] == "luceclick"
    assert "secret" not in caplog.text


def test_log_lines_have_the_queries_where_that_was_asked_for(
    folders: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    page = {"query": "tea", "ads": ["an ad of mine"]}
    columns = {name: [value] for name, value in page.items()}
    stream = write_stream(pa.record_batch(columns))
    with (
        ready_client(create_app({"ubm": folders["ubm"]}, log_queries=True)) as client,
        caplog.at_level(logging.INFO, "reclick.service"),
    ):
        client.post("/v1/predict", json={"pages": [page, page]})
        client.post("/v1/predict", content=stream, headers={"content-type": ARROW_STREAM})
        client.post("/v1/explain", json={"query": "shoes", "ad": "an ad of mine"})
        client.post("/v1/relevance", json={"pairs": [{"query": "shoes", "ad": "an ad of mine"}]})
        client.post("/v1/compare", json={"old": [page], "new": [page]})
        pairs = write_stream(pa.record_batch({"query": ["tea"], "ad": ["an ad of mine"]}))
        client.post("/v1/relevance", content=pairs, headers={"content-type": ARROW_STREAM})
        stream = write_stream(pa.record_batch({**columns, "clicks": [[1]]}))
        client.post("/v1/monitor", content=stream, headers={"content-type": ARROW_STREAM})
    lines = [json.loads(record.getMessage()) for record in caplog.records]
    found = [line["queries"] for line in lines if line.get("method") == "POST"]
    assert found == [["tea", "tea"], ["tea"], ["shoes"], ["shoes"], ["tea"], ["tea"], ["tea"]]
    assert "an ad of mine" not in caplog.text


def test_a_header_with_a_line_break_changes_nothing(client: TestClient) -> None:
    headers = {"x-request-id": "1", "origin": "https://a.test\r\nx-evil: 1"}
    answer = client.get("/v1/models", headers=headers)
    assert "x-evil" not in answer.headers
    assert answer.headers["x-request-id"] != "1"


def ask_slowly(limits: ServiceLimits, requests: int = 1) -> list[int]:
    """The statuses of requests at once to an app that answers when all have come, or never."""
    statuses: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(5)

    async def ask(protection: Protection) -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        scope = {"type": "http", "method": "POST", "path": "/v1/predict", "headers": []}
        await protection(scope, receive, send)

    async def ask_all() -> None:
        protection = Protection(
            app, limits=limits, token=None, measures=Measures(), allowed_hosts=frozenset()
        )
        await asyncio.gather(*(ask(protection) for _ in range(requests)))
        assert protection.running == 0

    asyncio.run(ask_all())
    return statuses


def test_a_request_that_takes_too_long_is_ended() -> None:
    assert ask_slowly(ServiceLimits(seconds=0.05)) == [408]


def test_more_requests_than_allowed_at_once_are_refused() -> None:
    statuses = ask_slowly(ServiceLimits(seconds=0.1, concurrency=3), requests=5)
    assert sorted(statuses) == [408, 408, 408, 429, 429]


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("0.0.0.0", False), ("::", False)],
)
def test_loopback_addresses_are_recognised(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
