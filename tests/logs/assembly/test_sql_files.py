"""The SQL files are data of the package, and hold every statement that the code names."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from reclick.logs.assembly.spill import load_sql

USERS = {  # SQL file -> the module that runs it
    ("reclick.logs.assembly", "page_join.sql"): "assembly/page_join.py",
    ("reclick.logs", "cleaning.sql"): "cleaning.py",
    ("reclick.logs.assembly", "sessionise.sql"): "formats/helpers/analytics_events.py",
    ("reclick.logs.formats", "kddcup2012.sql"): "formats/kddcup2012.py",
    ("reclick.logs.formats", "ubi.sql"): "formats/ubi.py",
}
LOGS = Path(str(files("reclick.logs")))


def test_every_sql_file_has_a_user() -> None:
    found = {str(path.relative_to(LOGS)) for path in LOGS.rglob("*.sql")}
    assert found == {
        f"{package}.".removeprefix("reclick.logs.").replace(".", "/") + name
        for package, name in USERS
    }


@pytest.mark.parametrize(("package", "name"), USERS)
def test_every_statement_is_run_and_every_statement_that_is_run_exists(
    package: str, name: str
) -> None:
    statements = load_sql(name, package)
    code = (LOGS / USERS[package, name]).read_text(encoding="utf-8")
    words = set(re.findall(r'"([a-z_]+)"', code))
    assert set(statements) <= words
    assert all(
        statement.strip() and not statement.endswith(";") for statement in statements.values()
    )


def test_a_file_is_read_once() -> None:
    assert load_sql("page_join.sql") is load_sql("page_join.sql")


def test_sql_is_declared_as_data_of_the_package() -> None:
    declared = (LOGS.parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'^reclick = \[.*"\*\*/\*\.sql"', declared, re.MULTILINE)
