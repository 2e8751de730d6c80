"""constraints.txt: what pip accepts, so that `make demo` works on a fresh checkout."""

from __future__ import annotations

import re

from tests.contracts.layers import SOURCE

CONSTRAINTS = SOURCE.parents[1] / "constraints.txt"
PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.+!]*( *;.+)?")


def test_every_line_pins_one_package() -> None:
    lines = [line for line in CONSTRAINTS.read_text().splitlines() if line and line[0] != "#"]
    assert lines
    assert [line for line in lines if PIN.fullmatch(line) is None] == []


def test_no_package_is_pinned_twice() -> None:
    names = [
        re.split("==", line)[0].lower().replace("_", "-")
        for line in CONSTRAINTS.read_text().splitlines()
        if "==" in line
    ]
    assert sorted(set(names)) == sorted(names)
