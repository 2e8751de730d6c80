"""Models in buckets on the command line: fit, update, show, predict, export and check."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.commands import Run, write_log
from tests.support.inline_engine import InlineEngine


def test_a_model_in_buckets_does_what_a_model_does(run: Run) -> None:
    write_log("log.parquet")
    write_log("more.parquet", query="tea")
    assert run("fit", "log.parquet", "--model", "multiclick", "--to", "whole")[0] == 0
    code, out, _ = run("fit", "log.parquet", "--model", "multiclick", "--to", "m", "--buckets", "4")
    assert code == 0
    assert run("fit", "more.parquet", "--update", "--to", "whole")[0] == 0
    assert run("fit", "more.parquet", "--update", "--to", "m")[0] == 0
    assert len(list(Path("m").glob("parts-*"))) == 2
    for name in ("m", "whole"):
        target = f"{name}.parquet"
        assert run("predict", name, "log.parquet", "more.parquet", "--to", target)[0] == 0
        assert run("export", name, "--to", f"{name}.qrels", "--min-support", "1")[0] == 0
    assert pq.read_table("m.parquet").equals(pq.read_table("whole.parquet"))
    lines = [sorted(Path(f"{name}.qrels").read_text().splitlines()) for name in ("m", "whole")]
    assert len(lines[0]) == len(lines[1])
    for words in (["--query", "tea"], ["--ad", "a"], ["--query", "tea", "--ad", "b"]):
        assert run("show", "m", *words)[1] == run("show", "whole", *words)[1]
    code, out, _ = run("show", "m")
    assert code == 0
    assert "120" in out
    code, _, err = run("show", "m", "--query", "coffee")
    assert code == 2
    assert "one of the" in err
    code, out, _ = run("check", "m")
    assert code == 0
    assert "2 queries" in out


def test_check_reads_every_bucket(run: Run) -> None:
    write_log("log.parquet")
    run("fit", "log.parquet", "--model", "dctr", "--to", "m", "--buckets", "4")
    (bucket,) = Path("m").glob("parts-*/*")
    next(bucket.glob("visit-*")).write_bytes(b"PAR1")
    code, _, err = run("check", "m")
    assert code == 2
    assert "altered" in err


def test_the_tasks_of_an_engine_write_the_buckets(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reclick.cli.inputs.EngineOptions.open", lambda _: InlineEngine())
    write_log("log.parquet")
    write_log("more.parquet", query="tea")
    logs = ["log.parquet", "more.parquet"]
    assert run("count", *logs, "--to", "counts")[0] == 0
    for name, model, data in (
        ("a", "ubm", [*logs, "--history", "more.parquet"]),
        ("b", "dctr", ["counts"]),
        ("c", "am", logs),
    ):
        given = ["fit", *data, "--model", model, "--buckets", "4", "--to", name, "--engine", "pool"]
        code, out, err = run(*given)
        assert code == 0
        assert "120" in out
        assert ("in the memory of this process" in err) == (model == "am")
        assert run("check", name)[0] == 0
        assert len(list(Path(name).glob("parts-*/*"))) == 2
    given = ["--model", "ubm", "--set", "noise=session", "--engine", "pool"]
    code, _, err = run("fit", *logs, *given, "--buckets", "4", "--to", "e")
    assert code == 2
    assert "without --engine" in err
