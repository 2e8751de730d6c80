"""The package uses Spark's DataFrame API only, so that Spark Connect works too."""

from __future__ import annotations

import re

from tests.contracts.layers import SOURCE


def test_nothing_of_classic_spark_is_used() -> None:
    classic = re.compile(r"sparkContext|SparkContext|\.rdd\b|_jvm\b")
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if classic.search(path.read_text(encoding="utf-8"))
    }
    assert found == set()
