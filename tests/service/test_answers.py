"""The service answers as the loaded model does, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import reclick as rc
from reclick.predictor import Predictor
from reclick.service import create_app
from reclick.service.arrow_bodies import ARROW_STREAM, read_stream, write_stream
from tests.service.conftest import ready_client
from tests.support.service import ADS, QUERIES, TEXTS, run_service

PAGE_TYPE = pa.list_(pa.string())
PAGES: list[dict[str, Any]] = [
    {"query": "tea", "ads": ["ad2", "ad0", "ad3"], "clicks": [2]},
    {"query": "running shoes", "ads": ["ad0", "never"], "clicks": []},
    {"query": "never asked", "ads": ["ad5"], "clicks": []},
    {"query": "tea", "ads": ["ad1", "ad4"], "clicks": [2, 1]},
]


def batch_of(pages: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.record_batch({name: [page[name] for page in pages] for name in pages[0]})


@pytest.mark.parametrize("name", ["luceclick", "ubm", "multiclick"])
@pytest.mark.parametrize("chunk", [1, 4])
def test_json_answers_are_the_models_own(
    client: TestClient, folders: dict[str, Path], name: str, chunk: int
) -> None:
    model = rc.load(folders[name])
    predictor = Predictor(model, next_click=True, satisfaction=model.satisfaction)
    expected = predictor(batch_of(PAGES)).to_pylist()
    answered = []
    for start in range(0, len(PAGES), chunk):
        body = {"pages": PAGES[start : start + chunk], "model": name}
        answer = client.post("/v1/predict", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["model"] == name
        answered += answer.json()["pages"]
    for page, own in zip(answered, expected, strict=True):
        assert page["click_prob"] == own["click_prob"]
        assert page["expected_clicks"] == own["expected_clicks"]
        assert page["next_click_prob"] == own["next_click_prob"]
        assert page["end_prob"] == own["end_prob"]
        assert page["sequences"] == own["sequences"]
        assert page["satisfaction_prob"] == own.get("satisfaction_prob")


@pytest.mark.parametrize("name", ["luceclick", "ubm"])
def test_arrow_answers_are_the_models_own(
    client: TestClient, folders: dict[str, Path], name: str
) -> None:
    model = rc.load(folders[name])
    pages = batch_of(PAGES * 30)
    answer = client.post(
        f"/v1/predict?model={name}&top=2",
        content=write_stream(pages),
        headers={"content-type": ARROW_STREAM},
    )
    assert answer.status_code == 200
    assert answer.headers["content-type"] == ARROW_STREAM
    assert answer.headers["x-reclick-model"] == name
    predictor = Predictor(model, top=2, next_click=True, satisfaction=model.satisfaction)
    assert read_stream(answer.content).equals(predictor(pages))


def test_text_of_a_new_ad_counts(client: TestClient, folders: dict[str, Path]) -> None:
    model = rc.load(folders["luceclick"])
    text = {"ad": "new", "title": "Fast shoes", "description": "", "display_url": "a.test"}
    body = {"pages": [{"query": "tea", "ads": ["new", "ad2"]}], "text": [text]}
    answer = client.post("/v1/predict", json=body).json()["pages"][0]
    expected = model.click_prob(
        {"query": ["tea"], "ads": [["new", "ad2"]]}, text=pa.Table.from_pylist([text])
    )
    assert answer["click_prob"] == expected[0].tolist()


def test_relevance_of_a_query_and_of_pairs(client: TestClient, folders: dict[str, Path]) -> None:
    model = rc.load(folders["luceclick"])
    of_query = client.post("/v1/relevance", json={"query": "tea"}).json()["pairs"]
    assert {row["ad"] for row in of_query} == set(ADS)
    shown = [row["impressions"] for row in of_query]
    assert shown == sorted(shown, reverse=True)
    pairs = [{"query": row["query"], "ad": row["ad"]} for row in of_query]
    assert client.post("/v1/relevance", json={"pairs": pairs}).json()["pairs"] == of_query
    own = model.relevance(pa.Table.from_pylist(pairs)).to_pylist()
    assert next(row for row in of_query if row["ad"] == "ad2")["words"] == "green tea calm c.test"
    assert own == [{k: v for k, v in row.items() if k != "words"} for row in of_query]
    assert client.post("/v1/relevance", json={"query": "never"}).json()["pairs"] == []
    assert client.post("/v1/relevance", json={}).status_code == 422


def test_explanation_adds_up(client: TestClient, folders: dict[str, Path]) -> None:
    answer = client.post("/v1/explain", json={"query": "tea", "ad": "ad2"}).json()
    own = rc.load(folders["luceclick"]).relevance({"query": ["tea"], "ad": ["ad2"]}).to_pylist()[0]
    assert answer["attractiveness"] == own["attractiveness"]
    assert (answer["low"], answer["high"]) == (
        own["attractiveness_low"],
        own["attractiveness_high"],
    )
    assert answer["known_query"] is answer["known_ad"] is True
    assert [word["word"] for word in answer["words"]] != []
    assert {word["word"] for word in answer["words"]} == {"green", "tea", "calm", "c.test"}
    new = client.post("/v1/explain", json={"query": "tea", "ad": "never"}).json()
    assert new["known_ad"] is False
    assert new["words"] == []
    assert new["attractiveness"] == new["levels"][0]["attractiveness"]


def test_best_page_and_prices(client: TestClient, folders: dict[str, Path]) -> None:
    model = rc.load(folders["luceclick"])
    body: dict[str, Any] = {"query": "tea", "ads": list(ADS), "slots": 3}
    answer = client.post("/v1/rank", json=body).json()
    best = rc.best_page(model, "tea", list(ADS), slots=3)
    assert answer["ads"] == list(best.ads)
    assert answer["exact"] is True
    assert answer["expected_clicks"] == best.expected_clicks.tolist()
    valued = client.post(
        "/v1/rank",
        json={**body, "objective": "value", "value": dict.fromkeys(ADS, 0.0) | {"ad5": 9.0}},
    ).json()
    assert valued["ads"][0] == "ad5"
    bids = {ad: 1.0 + i / 10 for i, ad in enumerate(ADS)}
    for mechanism in ("vcg", "gsp"):
        priced = client.post(
            "/v1/auction", json={"query": "tea", "bids": bids, "slots": 3, "mechanism": mechanism}
        ).json()
        own = rc.run_auction(model, "tea", bids, slots=3, mechanism=mechanism)
        assert [slot["ad"] for slot in priced["slots"]] == list(own.slate)
        prices = [slot["price_per_click"] for slot in priced["slots"]]
        assert prices == own.price_per_click.tolist()
        assert all(slot["why"] and slot["because"] for slot in priced["slots"])
    refused = client.post("/v1/auction", json={"query": "tea", "bids": {"ad0": -1.0}})
    assert refused.status_code == 422


def test_a_vcg_price_is_the_sum_of_its_reasons(client: TestClient) -> None:
    bids = {ad: 1.0 + i / 10 for i, ad in enumerate(ADS)}
    body = {"query": "tea", "bids": bids, "slots": 3, "reserve": 0.1, "satisfaction_weight": 0.5}
    slots = client.post("/v1/auction", json=body).json()["slots"]
    assert {slot["because"] for slot in slots} >= {"displaced clicks"}
    for slot in slots:
        if slot["because"] == "displaced clicks":
            parts = [slot["at_reserve"], slot["satisfaction"]]
            parts += [each["value"] for each in slot["displaced"]]
            paid = slot["price_per_click"] * slot["expected_clicks"]
            assert paid == pytest.approx(sum(parts))


def test_comparison_of_two_rankings(client: TestClient) -> None:
    pages = [{"query": "tea", "ads": ["ad0", "ad1", "ad2"]}]
    other = [{"query": "tea", "ads": ["ad3", "ad4", "ad5"]}]
    same = client.post("/v1/compare", json={"old": pages, "new": pages}).json()["comparisons"]
    clicks = next(each for each in same if "clicks" in each["quantity"])
    assert clicks["change"] == 0
    worse = client.post("/v1/compare", json={"old": pages, "new": other}).json()["comparisons"]
    clicks = next(each for each in worse if "clicks" in each["quantity"])
    assert clicks["change"] < 0
    assert clicks["low"] <= clicks["change"] <= clicks["high"]


def test_queries_by_prefix(client: TestClient) -> None:
    found = client.get("/v1/queries", params={"prefix": "RUN"}).json()["queries"]
    assert {each["query"] for each in found} == {"running shoes", "Running socks"}
    assert client.get("/v1/queries", params={"prefix": "zzz"}).json()["queries"] == []
    everything = client.get("/v1/queries").json()["queries"]
    assert {each["query"] for each in everything} == set(QUERIES)
    sessions = [each["sessions"] for each in everything]
    assert sessions == sorted(sessions, reverse=True)
    assert len(client.get("/v1/queries", params={"limit": 2}).json()["queries"]) == 2


def test_models_are_listed_with_the_default_marked(client: TestClient) -> None:
    models = client.get("/v1/models").json()["models"]
    assert [each["name"] for each in models] == ["luceclick", "ubm", "multiclick"]
    assert [each["default"] for each in models] == [True, False, False]
    assert all(len(each["version"]) == 12 for each in models)


def test_a_day_is_monitored(client: TestClient) -> None:
    answer = client.post("/v1/monitor", json={"pages": PAGES}).json()
    assert answer["sessions"] == len(PAGES)
    assert answer["observed_clicks"] == 3
    assert np.isclose(
        sum(row["expected"] for row in answer["positions"]), answer["expected_clicks"]
    )


def post_stream(client: TestClient, path: str, columns: dict[str, Any], **parameters: Any) -> Any:
    return client.post(
        path,
        params=parameters,
        content=write_stream(pa.record_batch(columns)),
        headers={"content-type": ARROW_STREAM},
    )


@pytest.mark.parametrize("name", ["luceclick", "ubm"])
def test_a_stream_of_pairs_is_estimated_as_json_is(client: TestClient, name: str) -> None:
    pairs = [(query, ad) for query in (*QUERIES, "never asked") for ad in (*ADS, "never")]
    body = {"pairs": [{"query": query, "ad": ad} for query, ad in pairs], "level": 0.5}
    expected = client.post("/v1/relevance", json={**body, "model": name}).json()["pairs"]
    queries, ads = map(list, zip(*pairs, strict=True))
    for query_column in (queries, pa.array(queries).dictionary_encode()):
        columns = {"query": query_column, "ad": ads}
        answer = post_stream(client, "/v1/relevance", columns, model=name, level=0.5)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-reclick-model"] == name
        assert read_stream(answer.content).to_pylist() == expected


def test_the_example_of_a_batch_in_the_docs_works(folders: dict[str, Path]) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/serving.md").read_text(encoding="utf-8")
    example = page.partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    with run_service(str(folders["ubm"]), "--quiet") as service:
        address = str(service.base_url).rstrip("/")
        assert "http://127.0.0.1:8080" in example
        exec(example.replace("http://127.0.0.1:8080", address), names)  # noqa: S102
        version = service.get("/v1/models").json()["models"][0]["version"]
    assert names["version"] == version
    expected = Predictor(rc.load(folders["ubm"]), top=1)(names["pages"].to_batches()[0])
    assert names["predictions"]["click_prob"].to_pylist() == expected["click_prob"].to_pylist()


def test_a_day_is_monitored_as_a_stream_too(client: TestClient) -> None:
    columns: dict[str, Any] = {name: [page[name] for page in PAGES] for name in PAGES[0]}
    answer = post_stream(client, "/v1/monitor", columns, model="ubm")
    assert answer.json() == client.post("/v1/monitor", json={"pages": PAGES, "model": "ubm"}).json()
    weighted = post_stream(client, "/v1/monitor", {**columns, "weight": [2.0] * len(PAGES)})
    assert weighted.json()["sessions"] == 2 * len(PAGES)


def test_a_day_is_held_against_the_limits_of_the_request(client: TestClient) -> None:
    own = client.post("/v1/monitor", json={"pages": PAGES}).json()
    assert own["ok"] is True
    strict = {"unknown_ads": 0.01, "unknown_queries": 0.2}
    body: dict[str, Any] = {"pages": PAGES, "limits": strict}
    answer = client.post("/v1/monitor", json=body).json()
    assert answer["ok"] is False
    assert [each.partition(" unknown ")[2] for each in answer["breaches"]] == [
        "queries, limit 20.0%",
        "ads, limit 1.0%",
    ]
    columns: dict[str, Any] = {name: [page[name] for page in PAGES] for name in PAGES[0]}
    assert post_stream(client, "/v1/monitor", columns, **strict).json() == answer
    for limits in ({"clicks": -1}, {"clicks": "1"}, {"other": 1}, {"calibration": None}):
        refused = client.post("/v1/monitor", json={"pages": PAGES, "limits": limits})
        assert (refused.status_code, refused.json()["error"]) == (422, "bad_field")


@pytest.mark.parametrize(
    ("path", "columns", "parameters"),
    [
        ("/v1/monitor", {"query": ["q"], "ads": [["a"]], "clicks": [[1]]}, {"clicks": "-1"}),
        ("/v1/monitor", {"query": ["q"], "ads": [["a"]], "clicks": [[1]]}, {"clicks": "x"}),
        ("/v1/monitor", {"query": ["q"], "ads": [["a"]], "clicks": [[1]]}, {"group": "nan"}),
        ("/v1/monitor", {"query": ["q"], "ads": [["a"]], "clicks": [[1]]}, {"clicked": "1"}),
        ("/v1/monitor", {"query": ["q"], "ads": [["a"]]}, {}),
        ("/v1/monitor", {"query": ["q"], "ads": [["a"]], "clicks": [[2]]}, {}),
        ("/v1/monitor", {"query": [1.5], "ads": [["a"]], "clicks": [[1]]}, {}),
        (
            "/v1/monitor",
            {"query": ["q"], "ads": [["a"]], "clicks": [[1]], "weight": [0.0]},
            {},
        ),
        ("/v1/monitor", {"query": pa.array([], pa.string()), "ads": pa.array([], PAGE_TYPE)}, {}),
        ("/v1/relevance", {"query": ["q"]}, {}),
        ("/v1/relevance", {"query": ["q"], "ad": [None]}, {}),
        ("/v1/relevance", {"query": ["q"], "ad": [["a"]]}, {}),
        ("/v1/relevance", {"query": ["q"], "ad": ["a"]}, {"level": "1"}),
        ("/v1/relevance", {"query": ["q"], "ad": ["a"]}, {"levels": "0.5"}),
        (
            "/v1/relevance",
            {"query": pa.array([], pa.string()), "ad": pa.array([], pa.string())},
            {},
        ),
    ],
)
def test_a_stream_that_makes_no_sense_is_refused(
    client: TestClient, path: str, columns: dict[str, Any], parameters: dict[str, str]
) -> None:
    answer = post_stream(client, path, columns, **parameters)
    assert answer.status_code == 422, answer.text
    assert answer.json()["message"]


def test_measures_count_pages_and_unknowns_without_their_names(folders: dict[str, Path]) -> None:
    with ready_client(create_app(folders)) as fresh:
        fresh.post("/v1/predict", json={"pages": PAGES})
        text = fresh.get("/metrics").text
    assert 'reclick_pages_total{model="luceclick"} 4.0' in text
    assert 'reclick_unknown_queries_total{model="luceclick"} 1.0' in text
    assert 'reclick_unknown_ads_total{model="luceclick"} 1.0' in text
    assert 'reclick_model_info{model="luceclick",type="luceclick",version="' in text
    assert "never" not in text
    assert TEXTS["title"][0] not in text


def test_the_monitor_uses_the_text_of_new_ads(client: TestClient, folders: dict[str, Path]) -> None:
    model = rc.load(folders["luceclick"])
    text = {"ad": "new", "title": "Fast shoes", "description": "run free", "display_url": ""}
    pages = [{"query": "tea", "ads": ["new", "ad2"], "clicks": [1]}]
    answer = client.post("/v1/monitor", json={"pages": pages, "text": [text]}).json()
    expected = model.expected_clicks(("tea", ["new", "ad2"]), text=pa.Table.from_pylist([text]))
    assert answer["expected_clicks"] == pytest.approx(float(expected[0]))
    without = client.post("/v1/monitor", json={"pages": pages}).json()
    assert without["expected_clicks"] != pytest.approx(answer["expected_clicks"])


@pytest.mark.parametrize("path", ["predict", "monitor", "relevance"])
def test_two_texts_of_one_ad_are_refused(client: TestClient, path: str) -> None:
    body: dict[str, Any] = {"text": [{"ad": "x", "title": "a"}, {"ad": "x", "title": "b"}]}
    if path == "relevance":
        body["pairs"] = [{"query": "tea", "ad": "x"}]
    else:
        body["pages"] = [{"query": "tea", "ads": ["x"]}]
    answer = client.post(f"/v1/{path}", json=body)
    assert answer.status_code == 422, answer.text


@pytest.mark.parametrize("path", ["predict", "compare", "monitor"])
def test_a_position_too_large_for_any_page_is_refused(client: TestClient, path: str) -> None:
    pages = [{"query": "tea", "ads": ["ad1"], "clicks": [10**20]}]
    body = {"old": pages, "new": pages} if path == "compare" else {"pages": pages}
    answer = client.post(f"/v1/{path}", json=body)
    assert answer.status_code == 422, answer.text
    assert "clicks" in answer.json()["message"]


def test_the_description_says_what_each_address_does_and_where_a_token_is_needed(
    client: TestClient,
) -> None:
    described = client.get("/openapi.json").json()
    paths = described["paths"]
    posts = {path: each["post"] for path, each in paths.items() if "post" in each}
    assert len(posts) == 7
    for path, operation in posts.items():
        assert operation["description"], path
        assert "partial" not in operation["description"], path
    assert described["security"] == [{"token": []}]
    assert "token" in described["components"]["securitySchemes"]
    gets = {path: each["get"] for path, each in paths.items() if "get" in each}
    own = {path: each["security"] for path, each in gets.items() if "security" in each}
    assert own == {"/livez": [], "/readyz": [{}, {"token": []}]}
    assert "text/plain" in paths["/metrics"]["get"]["responses"]["200"]["content"]
