from __future__ import annotations

import inspect
import json
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reclick import cli
from reclick.errors import SettingError, StoreError
from reclick.simulation import Simulation, Truth, simulate
from reclick.simulation_words import KINDS, TOPICS
from reclick.text import tokens

Clicks = tuple[int, ...]


@pytest.fixture(scope="module")
def market() -> Simulation:
    return simulate(20_000, weeks=3, queries=300, seed=5)


def chances(truth: Truth, theta: list[float], rho: list[float], clicks: Clicks) -> dict[int, float]:
    """Return P(next click is j given the clicks so far), written from the model's table of readings."""
    last = clicks[-1] if clicks else 0
    go = (1 - truth.eta[len(clicks)]) * (1 - rho[last - 1] if last else 1)
    free = [j for j in range(1, len(theta) + 1) if j not in clicks]
    eye = {j: truth.gamma[last, j - 1] for j in free}
    weight = {j: theta[j - 1] * eye[j] for j in free}
    whole = {"leftover": 1.0, "examination": sum(eye.values()), "normalised": sum(weight.values())}[truth.settings["reading"]]
    return {j: go * weight[j] / whole for j in free}


def law(truth: Truth, theta: list[float], rho: list[float], clicks: Clicks = (), chance: float = 1.0) -> dict[Clicks, float]:
    """Return the probability of every click sequence of a page."""
    onward = chances(truth, theta, rho, clicks)
    found = {clicks: chance * (1 - sum(onward.values()))}
    for j, step in onward.items():
        found |= law(truth, theta, rho, (*clicks, j), chance * step)
    return found


def portrait(sessions: pa.Table) -> dict[str, float]:
    clicks = sessions["clicks"].to_pylist()
    clicked = [session for session in clicks if session]
    multiple = [session for session in clicked if len(session) > 1]
    first = Counter(session[0] for session in clicked)
    return {
        "clicked": len(clicked) / len(clicks),
        "multiple": len(multiple) / len(clicked),
        "reverse": float(np.mean([session != sorted(session) for session in multiple])),
        **{f"first{position}": first[position] / len(clicked) for position in (1, 2, 3, 4)},
    }


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        simulate(500, weeks=2, queries=20, seed=3).save(tmp_path / name)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    assert simulate(500, weeks=2, queries=20, seed=4).weeks[0] != simulate(500, weeks=2, queries=20, seed=3).weeks[0]


def test_sessions_keep_the_contract(market: Simulation) -> None:
    assert [week.schema.types for week in market.weeks] == [
        [pa.string(), pa.timestamp("ms"), pa.string(), pa.list_(pa.string()), pa.list_(pa.int32())]
    ] * 3
    ids = [name for week in market.weeks for name in week["session_id"].to_pylist()]
    assert len(set(ids)) == len(ids) == 60_000
    for row in market.weeks[1].to_pylist():
        assert 1 <= len(row["ads"]) <= 4
        assert len(set(row["ads"])) == len(row["ads"])
        assert len(set(row["clicks"])) == len(row["clicks"])
        assert all(1 <= click <= len(row["ads"]) for click in row["clicks"])


def test_times_increase_inside_their_week(market: Simulation) -> None:
    start = datetime(2024, 1, 1)
    for week in market.weeks:
        times = week["timestamp"].to_numpy().astype("int64")
        assert np.all(np.diff(times) > 0)
        assert start <= week["timestamp"][0].as_py() < week["timestamp"][-1].as_py() < start + timedelta(days=7)
        start += timedelta(days=7)


def test_every_ad_shown_has_its_text_and_its_truth(market: Simulation) -> None:
    truth = {(row["query"], row["ad"]) for row in market.truth.pairs.to_pylist()}
    shown = {(row["query"], ad) for week in market.weeks for row in week.to_pylist() for ad in row["ads"]}
    assert shown <= truth
    assert len(truth) == market.truth.pairs.num_rows == 300 * 12
    assert {ad for _, ad in truth} == set(market.ads["ad"].to_pylist())
    assert len(set(market.ads["ad"].to_pylist())) == len(market.ads)
    assert all(url.split("/")[0].endswith(".example") for url in market.ads["display_url"].to_pylist())


def test_attractiveness_is_the_mean_rate_of_the_words(market: Simulation) -> None:
    rate = {(row["topic"], row["word"]): row["rate"] for row in market.truth.words.to_pylist()}
    topic = dict(zip(*(market.truth.queries[name].to_pylist() for name in ("query", "topic")), strict=True))
    words = {row.pop("ad"): tokens(**row) for row in market.ads.to_pylist()}
    for row in market.truth.pairs.to_pylist():
        expected = np.mean([rate[topic[row["query"]], word] for word in words[row["ad"]]])
        assert row["attractiveness"] == pytest.approx(expected, rel=1e-12)


def test_some_words_matter_everywhere_and_some_in_one_topic(market: Simulation) -> None:
    rates: dict[str, list[float]] = {}
    for row in market.truth.words.to_pylist():
        rates.setdefault(row["word"], []).append(row["rate"])
    rates = {word: found for word, found in rates.items() if len(found) >= 5}
    most_common = [Counter(found).most_common(1)[0][1] / len(found) for found in rates.values()]
    assert 0.5 < np.mean(most_common) < 0.9


def test_satisfaction_does_not_depend_on_looks(market: Simulation) -> None:
    theta, rho = (market.truth.pairs[name].to_numpy() for name in ("attractiveness", "satisfaction"))
    assert abs(np.corrcoef(theta, rho)[0, 1]) < 0.1
    assert rho.mean() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("reading", ["leftover", "examination", "normalised"])
def test_clicks_on_a_page_follow_the_law(reading: str) -> None:
    market = simulate(150_000, weeks=1, queries=1, ads_per_query=3, page=(3, 3), reading=reading, seed=11)
    pairs = {row["ad"]: (row["attractiveness"], row["satisfaction"]) for row in market.truth.pairs.to_pylist()}
    rows = [(tuple(row["ads"]), tuple(row["clicks"])) for row in market.weeks[0].select(["ads", "clicks"]).to_pylist()]
    page, count = Counter(ads for ads, _ in rows).most_common(1)[0]
    seen = Counter(clicks for ads, clicks in rows if ads == page)
    theta, rho = ([pairs[ad][field] for ad in page] for field in (0, 1))
    expected = law(market.truth, theta, rho)
    assert count > 20_000
    assert sum(expected.values()) == pytest.approx(1)
    assert len(expected) == 16
    for clicks, chance in expected.items():
        assert abs(seen[clicks] - count * chance) <= 5 * np.sqrt(count * chance * (1 - chance)) + 1


@pytest.mark.parametrize("reading", ["leftover", "examination", "normalised"])
def test_the_log_looks_like_search_ads(reading: str) -> None:
    found = portrait(simulate(60_000, weeks=1, reading=reading, seed=1).weeks[0])
    assert 0.25 < found["clicked"] < 0.40
    assert 0.07 < found["multiple"] < 0.14
    assert 0.22 < found["reverse"] < 0.38
    assert 0.62 < found["first1"] < 0.78
    assert 0.12 < found["first2"] < 0.24
    assert 0.05 < found["first3"] < 0.12
    assert 0.015 < found["first4"] < 0.07


def test_few_queries_have_most_sessions_and_many_have_few(market: Simulation) -> None:
    volumes = sorted(Counter(market.weeks[0]["query"].to_pylist()).values(), reverse=True)
    assert sum(volumes[:30]) > 0.5 * 20_000
    assert volumes[-1] < 50


def test_later_weeks_have_new_queries_and_new_ads(market: Simulation) -> None:
    queries = [set(week["query"].to_pylist()) for week in market.weeks]
    ads = [{ad for page in week["ads"].to_pylist() for ad in page} for week in market.weeks]
    assert queries[1] - queries[0]
    assert queries[2] - queries[1] - queries[0]
    assert 0.02 < len(ads[1] - ads[0]) / len(ads[1]) < 0.25  # the new ones, and old ones that were not shown before
    firsts = dict(zip(*(market.truth.queries[name].to_pylist() for name in ("query", "week")), strict=True))
    assert all(firsts[query] <= number for number, week in enumerate(queries, start=1) for query in week)


def test_better_looking_ads_stand_higher(market: Simulation) -> None:
    theta = {(row["query"], row["ad"]): row["attractiveness"] for row in market.truth.pairs.to_pylist()}
    full = [row for row in market.weeks[0].to_pylist() if len(row["ads"]) == 4]
    means = np.mean([[theta[row["query"], ad] for ad in row["ads"]] for row in full], axis=0)
    assert np.all(np.diff(means) < 0)


def test_fatigue_and_transitions_are_proper_for_any_page_length() -> None:
    for longest in (1, 2, 4, 10):
        truth = simulate(50, queries=2, ads_per_query=12, page=(1, longest)).truth
        assert truth.eta.shape == (longest + 1,)
        assert truth.eta[-1] == 1
        assert np.all(np.diff(truth.eta) > 0)
        assert truth.gamma.shape == (longest + 1, longest)
        assert np.all(np.diag(truth.gamma[1:]) == 0)
        assert truth.gamma.sum(axis=1) == pytest.approx([1] * (longest + 1) if longest > 1 else [1, 0])


def test_a_simulation_is_saved_whole(tmp_path: Path) -> None:
    market = simulate(200, weeks=2, queries=10, page=(2, 3), seed=9)
    paths = market.save(tmp_path / "new" / "folder")
    names = ["week1.parquet", "week2.parquet", "ads.parquet", "truth.parquet", "truth_words.parquet", "truth_queries.parquet", "truth.json"]
    assert [path.name for path in paths] == names
    assert sorted(path.name for path in paths[0].parent.iterdir()) == sorted(names)
    assert pq.read_table(paths[0]) == market.weeks[0]
    assert pq.read_table(paths[2]) == market.ads
    assert pq.read_table(paths[3]).column_names == ["query", "ad", "attractiveness", "satisfaction"]
    settings = json.loads(paths[-1].read_text(encoding="utf-8"))
    assert settings["eta"] == market.truth.eta.tolist()
    assert settings["gamma"] == market.truth.gamma.tolist()
    again = {name: settings[name] for name in ("sessions", "weeks", "queries", "ads_per_query", "reading", "seed")}
    assert simulate(**again, page=tuple(settings["page"])).weeks == market.weeks


def test_a_failed_save_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = simulate(100, queries=5, seed=1)
    first.save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(StoreError, match=r"cannot be written .*The disk is full: free some space or give another folder\. Every file there is whole"):
        simulate(100, queries=5, seed=2).save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"file/logs cannot be written \(.*\)\. Give a folder that can be written"):
        simulate(20, weeks=1, queries=2).save(tmp_path / "file" / "logs")


def test_three_weeks_are_drawn_unless_told_otherwise_also_on_the_command_line() -> None:
    options = inspect.signature(cli.simulate).parameters
    for name, given in inspect.signature(simulate).parameters.items():
        assert name == "page" or options[name].default == given.default
    assert len(simulate(20, queries=2).weeks) == 3


def test_two_simulations_are_not_mixed_in_one_folder(tmp_path: Path) -> None:
    simulate(50, weeks=2, queries=5).save(tmp_path)
    with pytest.raises(SettingError, match=r"week2\.parquet is of another simulation"):
        simulate(50, weeks=1, queries=5).save(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sessions": 0}, "sessions=0"),
        ({"weeks": 0}, "weeks=0"),
        ({"queries": 10**9}, "words make only"),
        ({"reading": "luce"}, "one of leftover, examination, normalised"),
        ({"page": (3, 2)}, r"page=\(3, 2\)"),
        ({"page": (1, 13)}, "at most ads_per_query=12"),
        ({"seed": -1}, "seed=-1"),
        ({"sessions": -5}, "sessions=-5"),
        ({"sessions": 1e3}, r"sessions=1000\.0: it must be a whole number"),
        ({"weeks": True}, "weeks=True"),
    ],
)
def test_senseless_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        simulate(**settings)  # type: ignore[arg-type]


def test_the_words_are_well_formed() -> None:
    assert len(TOPICS) >= 40
    for kind, nouns in TOPICS.values():
        assert kind in KINDS
        assert len(set(nouns.split())) == len(nouns.split()) >= 2
    for words in KINDS.values():
        assert all(len(set(field.split())) == len(field.split()) >= 2 for field in words)
