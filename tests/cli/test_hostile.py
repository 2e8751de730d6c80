"""Arguments that make no sense: one clear line, an exit code, and nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import Run, write_log

EVALUATE = ("evaluate", "--train", "train.parquet", "--test", "log.parquet", "--to", "out")
FIT = ("fit", "log.parquet", "--model", "dctr", "--to", "out")
WORDS = [
    ("check", ""),
    ("check", "log.parquet", "--format", ""),
    ("check", "log.parquet", "--column", "="),
    ("check", "log.parquet", "--column", "query"),
    ("check", "log.parquet", "--column", "query="),
    ("check", "log.parquet", "--max-ads", "0"),
    ("check", "log.parquet", "--threads", "0"),
    ("check", "\x00"),
    ("convert", "log.parquet", "--to", ""),
    ("convert", "log.parquet", "--to", "out.parquet", "--max-bad", "nan"),
    ("convert", "log.parquet", "--to", "out.parquet", "--max-bad", "-1%"),
    ("convert", "log.parquet", "--to", "out.parquet", "--max-bad", "%"),
    ("convert", "log.parquet", "--to", "out.parquet", "--on-error", "perhaps"),
    ("count", "log.parquet", "--to", "log.parquet"),
    ("split", "log.parquet", "--to", "out", "--by", ""),
    ("split", "log.parquet", "--to", "out", "--by", "query", "--cut", "1", "--cut", "0"),
    (*FIT, "--decay", "nan", "--update"),
    (*FIT, "--set", "="),
    (*FIT, "--set", "attractiveness_strength"),
    (*FIT, "--set", "attractiveness_strength=nan"),
    (*FIT, "--set", "attractiveness_strength=[[]]"),
    (*FIT, "--set", "__class__=1"),
    (*FIT, "--again"),
    (*FIT, "--model", "../dctr"),
    (*EVALUATE, "--models", ""),
    (*EVALUATE, "--models", ","),
    (*EVALUATE, "--models", ":"),
    (*EVALUATE, "--models", "dctr:"),
    (*EVALUATE, "--models", "dctr:x=1"),
    (*EVALUATE, "--models", "dctr:attractiveness_strength"),
    (*EVALUATE, "--models", "dctr:attractiveness_strength=-1"),
    (*EVALUATE, "--models", "nothing:a=b"),
    (*EVALUATE, "--models", "dctr", "--level", "1"),
    (*EVALUATE, "--models", "dctr", "--resamples", "-1"),
    (*EVALUATE, "--models", "dctr", "--seed", "-1"),
    ("predict", "model", "log.parquet", "--to", "out.doc"),
    ("predict", "model", "log.parquet", "--to", "out.csv", "--top", "-1"),
    ("predict", "log.parquet", "log.parquet", "--to", "out.csv"),
    ("show", ""),
    ("show", "log.parquet"),
    ("show", "model", "--query", "\ud800"),
    ("show", "model", "--query", "shoes", "--level", "nan"),
    ("export", "model", "--to", "out.csv", "--quantity", "beauty"),
    ("export", "model", "--to", "out.csv", "--output-format", "poem"),
    ("export", "model", "--to", "out"),
    ("models", ""),
    ("models", "x" * 10_000),
    ("formats", "'; DROP TABLE"),
    ("simulate", "--to", "out", "--sessions", "-5"),
    ("simulate", "--to", "out", "--bots", "2"),
    ("check", "log.parquet", "--nonsense"),
    ("nonsense",),
]


@pytest.mark.parametrize(
    "words", WORDS, ids=lambda words: " ".join(words)[:60].encode("ascii", "replace").decode()
)
def test_an_argument_without_sense_is_one_clear_line(run: Run, words: tuple[str, ...]) -> None:
    write_log("log.parquet")
    write_log("train.parquet", [[1], [2], []] * 4)
    assert run("fit", "log.parquet", "--model", "dctr", "--to", "model", "-q")[0] == 0
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    code, out, err = run(*words)
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    assert 0 < len(err) < 3000
    after = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    assert after == before
