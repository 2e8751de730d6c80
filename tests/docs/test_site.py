"""The site of the documentation: built without a warning, every link leads somewhere, and in a
browser nothing is cut off, nothing is loaded from elsewhere, and everyone can read it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import reclick
from tests.support.browser import Browser, find_chromium, open_browser

ROOT = Path(__file__).parents[2]
COMPLAINTS = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
SIZES = {"phone": (360, 800), "desktop": (1280, 900)}
PAGES = ("index", "quickstart", "models/index", "models/luceclick", "reference/api/exports")
RUN_AXE = "axe.run().then((found) => found.violations.map((one) => [one.id, one.nodes[0].html]))"
# Loaded by the browser when the page opens, in contrast to links that a reader may follow.
LOADED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}

needs_browser = pytest.mark.skipif(
    find_chromium() is None and os.environ.get("RECLICK_BROWSER") != "required",
    reason="no chromium on this machine: apt-get install -y chromium",
)


def build(source: Path, to: Path) -> subprocess.CompletedProcess[str]:
    """Build a site as `make docs` does: every warning is an error."""
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [*command, str(source), str(to)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this checkout, with what the build said beside it."""
    folder = tmp_path_factory.mktemp("docs")
    built = build(ROOT / "docs", folder / "site")
    (folder / "site.log").write_text(built.stdout + built.stderr, encoding="utf-8")
    return folder / "site"


class Page(HTMLParser):
    """The links, the anchors, and what is loaded of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADED and LOADED[tag] in values:
            self.loaded.append(values[LOADED[tag]])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def broken_links(pages: dict[Path, Page]) -> Iterator[str]:
    """Links within the site to a file or an anchor that is not there."""
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            target, anchor = urldefrag(link)
            if "://" in link or link.startswith(("mailto:", "data:")):
                continue
            other = (path.parent / unquote(target.split("?")[0])).resolve() if target else path
            if not other.exists() or (
                other.suffix == ".html" and unquote(anchor) not in pages[other].anchors
            ):
                yield f"{path}: {link}"


def test_it_is_built_without_a_warning(site: Path) -> None:
    assert (site.parent / "site.log").read_text(encoding="utf-8") == ""
    assert (site / "index.html").exists()


def test_every_page_of_the_docs_is_on_it(site: Path) -> None:
    sources = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb")]
    expected = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in sources}
    assert expected <= {path.relative_to(site) for path in site.rglob("*.html")}


def test_every_link_within_it_leads_somewhere(pages: dict[Path, Page]) -> None:
    assert list(broken_links(pages)) == []


def test_nothing_is_loaded_from_elsewhere(pages: dict[Path, Page]) -> None:
    assert [link for page in pages.values() for link in page.loaded if "//" in link] == []


def test_every_public_name_is_in_the_api_reference(site: Path, pages: dict[Path, Page]) -> None:
    anchors = {
        anchor
        for path, page in pages.items()
        if path.is_relative_to(site / "reference" / "api")
        for anchor in page.anchors
    }
    names = {f"reclick.{name}" for name in reclick.__all__ if name not in reclick._MODULES}
    assert names | {f"module-reclick.{name}" for name in reclick._MODULES} <= anchors


def test_a_broken_link_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "docs"
    source.mkdir()
    (source / "conf.py").write_text("extensions = ['myst_nb']\nmyst_heading_anchors = 3\n")
    (source / "index.md").write_text("# Here\n\n[there](there.md) and [below](#below)\n")
    built = build(source, tmp_path / "site")
    assert built.returncode == 1
    assert "there" in built.stderr
    assert "below" in built.stderr


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def events(browser: Browser, *methods: str) -> list[dict[str, object]]:
    return [event["params"] for event in browser.events if event.get("method") in methods]


@needs_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_whole_and_accessible_and_asks_for_nothing_outside(
    browser: Browser, site: Path, page: str, size: str, dark: bool
) -> None:
    width, height = SIZES[size]
    browser.show(site / f"{page}.html", width=width, height=height, dark=dark)
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert events(browser, *COMPLAINTS) == []
    requests = events(browser, "Network.requestWillBeSent")
    addresses = [str(dict(one["request"])["url"]) for one in requests]  # type: ignore[call-overload]
    assert [one for one in addresses if not one.startswith(("file:", "data:"))] == []
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(19, 20, 22)" if dark else "rgb(255, 255, 255)")
    axe = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    browser.evaluate(f"{axe};0")
    assert browser.evaluate(RUN_AXE) == []


@needs_browser
def test_the_search_finds_a_page_without_a_server(browser: Browser, site: Path) -> None:
    browser.show(site / "search.html", width=1280, height=900)
    browser.evaluate("Search.performSearch('propensities'); 0")
    links = "document.querySelectorAll('#search-results li a').length"
    look = f"const look = () => {links} ? done(true) : setTimeout(look, 50)"
    assert browser.evaluate(f"new Promise((done) => {{ {look}; look() }})")
    assert events(browser, *COMPLAINTS) == []
