"""Every reason for a bad row is written once, in validation/reasons.py."""

from __future__ import annotations

import ast
from importlib.resources import files
from pathlib import Path

from reclick.logs.validation import reasons

LOGS = Path(str(files("reclick.logs")))
TEXTS = [
    value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, str)
]


def test_no_two_reasons_have_the_same_text() -> None:
    assert len(set(TEXTS)) == len(TEXTS) > 20


def test_a_good_row_has_the_code_0_and_every_code_is_a_reason() -> None:
    assert reasons.ROW_REASONS[0] == ""
    assert set(reasons.ROW_REASONS[1:]) <= set(TEXTS)


def test_no_other_module_writes_the_text_of_a_reason() -> None:
    copies = [
        (str(path.relative_to(LOGS)), node.value)
        for path in LOGS.rglob("*.py")
        if path.name != "reasons.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in TEXTS
    ]
    assert copies == []
