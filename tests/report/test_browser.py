"""The report in a real browser: nothing cut off, nothing loaded, readable for everyone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reclick.auction import compare_mechanisms
from reclick.report import write_html
from tests.support.auction_models import fit_model
from tests.support.browser import Browser, find_chromium, open_browser
from tests.support.report_data import (
    MODELS,
    invented_evaluation,
    with_hostile_texts,
    with_long_pages,
)

# With RECLICK_BROWSER=required a missing browser is a failure; else these tests are skipped.
pytestmark = pytest.mark.skipif(
    find_chromium() is None and os.environ.get("RECLICK_BROWSER") != "required",
    reason="no chromium on this machine: apt-get install -y chromium",
)
CHECKS = Path(__file__).with_name("checks.js").read_text(encoding="utf-8")
OPEN_ALL = "document.querySelectorAll('details').forEach((one) => { one.open = true })"
SIZES = {"phone": (360, 800), "desktop": (1280, 900)}
COMPLAINTS = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_html(invented_evaluation(), path)
    return path


def faults(browser: Browser) -> list[str]:
    """What is wrong with the page that is shown; all is checked with the numbers unfolded."""
    folded = (
        []
        if browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
        else ["the page is too wide before anything is unfolded"]
    )
    browser.evaluate(OPEN_ALL)
    return [*folded, *browser.evaluate(CHECKS)]


def requests(browser: Browser) -> list[str]:
    return [
        event["params"]["request"]["url"]
        for event in browser.events
        if event.get("method") == "Network.requestWillBeSent"
    ]


def complaints(browser: Browser) -> list[Any]:
    return [event["params"] for event in browser.events if event.get("method") in COMPLAINTS]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_nothing_is_cut_off_or_hard_to_read_and_nothing_leaves_the_page(
    browser: Browser, page: Path, size: str, dark: bool
) -> None:
    width, height = SIZES[size]
    browser.show(page, width=width, height=height, dark=dark)
    assert faults(browser) == []
    assert complaints(browser) == []
    assert requests(browser) == [page.as_uri()]
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(20, 22, 26)" if dark else "rgb(251, 250, 247)")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_first_screen_is_complete_on_a_desktop(
    browser: Browser, page: Path, dark: bool
) -> None:
    browser.show(page, width=1280, height=800, dark=dark)
    section = "document.getElementById('in-short')"
    assert browser.evaluate(f"{section}.getBoundingClientRect().bottom + scrollY <= innerHeight")
    assert browser.evaluate(f"{section}.querySelectorAll('figure svg').length") == 3
    assert browser.evaluate(f"{section}.querySelectorAll('.teasers a').length") == 2
    assert "Use MultiClick" in browser.evaluate(f"{section}.querySelector('.lede').textContent")


def test_the_papers_tables_are_shown_when_they_are_asked_for(browser: Browser, page: Path) -> None:
    browser.show(page, width=1280, height=800)
    shown = "document.querySelector('.switch table').checkVisibility()"
    assert not browser.evaluate(shown)
    browser.evaluate("document.querySelector('.switch > summary').click()")
    assert browser.evaluate(shown)


EVALUATIONS = {
    "hostile texts": with_hostile_texts(
        invented_evaluation(["MultiClick", "<b>Bold & Co</b>", "A" * 70, "نموذج"])
    ),
    "sixteen models": invented_evaluation([*MODELS, *(f"ModelNumber{n}" for n in range(10))]),
    "pages of ten": with_long_pages(invented_evaluation(MODELS[:2])),
    "one model": invented_evaluation(MODELS[:1]),
    "long names": invented_evaluation(
        [
            "MultiClick",
            "MultiClick, normalised",
            "model-2026-11-14-strength10-paper",
            "a model of many plain words",
        ]
    ),
}


@pytest.mark.parametrize("kind", EVALUATIONS)
def test_a_phone_shows_any_evaluation_whole(browser: Browser, tmp_path: Path, kind: str) -> None:
    page = tmp_path / "report.html"
    write_html(EVALUATIONS[kind], page)
    browser.show(page, width=360, height=800)
    assert faults(browser) == []
    assert complaints(browser) == []
    assert requests(browser) == [page.as_uri()]


@pytest.mark.parametrize("size", SIZES)
def test_a_comparison_of_mechanisms_is_shown_whole(
    browser: Browser, tmp_path: Path, size: str
) -> None:
    bids = {
        "query": ["q"] * 4,
        "ad": ["a", "b", "c", "an advertiser of a rather long name <b>"],
        "bid": [1.0, 2.0, 0.7, 1.2],
    }
    page = tmp_path / "auctions.html"
    compare_mechanisms(fit_model("luce"), bids, slots=2, resamples=20).to_html(page)
    width, height = SIZES[size]
    browser.show(page, width=width, height=height)
    assert faults(browser) == []
    assert complaints(browser) == []
    assert requests(browser) == [page.as_uri()]


def test_every_drawing_link_region_and_table_has_a_name_for_a_screen_reader(
    browser: Browser, page: Path
) -> None:
    browser.show(page, width=1280, height=900)
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    nodes_by_role = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node.get("ignored")
    ]
    wanted = {
        "image",
        "img",
        "link",
        "region",
        "navigation",
        "table",
        "heading",
        "DisclosureTriangle",
        "figure",
    }
    named = [(role, name) for role, name in nodes_by_role if role in wanted]
    assert {"link", "heading", "table"} <= {role for role, _ in named}
    assert {"image", "img"} & {role for role, _ in named}
    assert [role for role, name in named if not name.strip() and role != "figure"] == []


def test_a_wide_table_takes_the_focus_and_scrolls_inside_its_own_box(
    browser: Browser, page: Path
) -> None:
    browser.show(page, width=360, height=800)
    find = (
        "[...document.querySelectorAll('.scroll')].filter((one) => !one.closest('details'))"
        ".sort((a, b) => b.scrollWidth - a.scrollWidth)[0]"
    )
    browser.evaluate(f"box = {find}; box.focus(); box.scrollLeft = 50")
    assert browser.evaluate("box.scrollWidth > innerWidth")
    assert browser.evaluate("document.activeElement === box")  # so the arrow keys scroll it
    assert browser.evaluate("[box.scrollLeft, scrollX]") == [50, 0]


def test_on_paper_the_report_is_light_and_fits_the_sheet(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write_html(invented_evaluation([*MODELS, "AnotherModel"]), page)
    browser.show(page, width=687, height=1000, dark=True, print_=True)  # A4 less its margins
    assert (
        browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    )
    too_wide = "!one.closest('.hidden') && one.getBoundingClientRect().right > innerWidth + 1"
    assert (
        browser.evaluate(
            f"[...document.querySelectorAll('main *')].filter((one) => {too_wide})"
            ".map((one) => one.outerHTML.slice(0, 90))"
        )
        == []
    )
    browser.paper(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")


def test_the_checks_see_what_is_wrong(browser: Browser, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        """<!doctype html><html><head><meta charset="utf-8"></head>
        <body style="background:#fff"><h1>One</h1><h3>Three</h3>
        <p style="color:#999">Pale</p><div style="width:2000px">Wide</div>
        <svg viewBox="0 0 100 20" width="100"><text x="90" y="15">Outside</text>
        <text x="1" y="15">Over</text><text x="3" y="15">Over</text></svg>
        <a href="#nowhere">x</a><img src="https://elsewhere.example/x.png" alt="">
        <table><tr><th>a</th></tr></table><script>console.error("no")</script></body></html>""",
        encoding="utf-8",
    )
    browser.show(bad, width=360, height=800)
    found = "\n".join(browser.evaluate(CHECKS))
    for fault in (
        "wide on a screen",
        "outside the screen",
        "level 3 after 1",
        "contrast 2.85",
        "text outside its drawing",
        "texts over each other",
        "a drawing without a name",
        "leads nowhere",
        "without caption",
        "no language",
    ):
        assert fault in found
    assert complaints(browser)
    assert "https://elsewhere.example/x.png" in requests(browser)
