"""The sample of each log format, from its page in the docs."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "formats"
NAMES = {
    "ubi": "ubi/log.ndjson",
    "metarank": "events.jsonl",
    "long": "shown.csv",
    "clax": "part.jsonl",
    "yandex_relevance": "log.txt",
    "yandex_personalized": "train",
    "tiangong": "sogousessiontrack2020.xml",
    "sogou": "train_data",
    "trec_session": "sessiontrack2014.xml",
    "kddcup2012": "training.txt",
}  # the samples of ga4 and snowplow are Parquet, drawn as text


def write_sample(name: str, folder: Path) -> Path:
    """Write the sample of a format to the file that its page names."""
    text = re.findall(
        r"^```text\n(.*?)^```$",
        (DOCS / f"{name}.md").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )[0]
    if NAMES[name].endswith(
        ".xml"
    ):  # a piece of a file, without the rest of it and without what is said beside it
        text = f"<root>{text[: text.index('</session>')]}</session></root>"
    path = folder / NAMES[name]
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
