"""Fitting LuceClick: 1 M sessions of 10 results, of 1,000 and of 200,000 queries, and 4 M.

An iteration is one pass over all sessions with the step that follows; its time is that of a fit of 40 iterations, divided by them, of sessions that
were read and grouped before, kernels compiled, with the options given (what "auto" decides is decided on a sample of 20,000 sessions, whatever the
log's length; its time stands beside). The number of iterations is that to the default tolerance, both stages of a fit together.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench import em
from bench.em import _write_log
from bench.measure import WORK, Measured, line, measure

OPTIONS = "attractiveness_strength=1.0, satisfaction_strength=5.0, query_strength=2.0, transition_strength=4.0, kinds=1"
SETUP = """
import logging
from reclick.models import MODELS
from reclick.sessions import as_sessions
logging.disable()
small = {{"query": ["q"] * 3, "ads": [["a", "b"]] * 3, "clicks": [[1], [], [2, 1]]}}
MODELS["luceclick"]({options}).fit(small)  # loads the kernels
sessions = as_sessions({log!r})
"""
FIT = "MODELS['luceclick']({options}, max_iterations={many}, tolerance=0).fit(sessions)"
LIMIT, MOST, MEMORY, LINEAR = 0.3, 40, 1_500, 1.25


def main() -> bool:
    """Print the table; whether every limit holds."""
    print("\nFitting LuceClick to 1 M sessions of 10 results: seconds an iteration, and iterations to the default tolerance.\n")
    good = True
    for queries in em.QUERIES:
        log = str(_write_log(WORK / f"em{queries}.parquet", queries))
        once = _iteration(log)
        good &= line(f"an iteration, {queries:,} queries", f"{once:.3f} s", f"≤ {LIMIT} s", once <= LIMIT)
        whole, iterations = _whole(log, OPTIONS)
        good &= line(f"iterations, {queries:,} queries", f"{iterations}", f"≤ {MOST}", iterations <= MOST)
        good &= line(f"peak memory, {queries:,} queries", f"{whole.memory:,.0f} MB", f"≤ {MEMORY:,} MB", whole.memory <= MEMORY)
        decided, _ = _whole(log, "")
        print(f"    the whole fit {whole.seconds:.1f} s; with all settings decided by the log {decided.seconds:.1f} s")
    small, large = (_iteration(str(_times(WORK / "em1000.parquet", many))) for many in (1, 4))
    times = large / small
    return good & line("an iteration of 4 M sessions, as a multiple of 1 M's", f"{times:.2f}", f"≤ {4 * LINEAR:g}", times <= 4 * LINEAR)


def _iteration(log: str) -> float:
    """Seconds of one iteration: the difference of fits of 45 and of 5."""
    long, short = (measure(FIT.format(options=OPTIONS, many=many), setup=SETUP.format(options=OPTIONS, log=log), runs=1) for many in (45, 5))
    return (long.seconds - short.seconds) / 40


def _whole(log: str, options: str) -> tuple[Measured, int]:
    told = WORK / "luce.txt"
    code = f"model = MODELS['luceclick']({options}).fit(sessions)\nopen({str(told)!r}, 'w').write(str(model.pooled_iterations_ + model.iterations_))"
    done = measure(code, setup=SETUP.format(options=options, log=log), runs=1)
    return done, int(told.read_text())


def _times(path: Path, many: int) -> Path:
    """The log, so many times over, each time with queries of its own."""
    if many == 1:
        return path
    to = path.with_name(f"{path.stem}x{many}.parquet")
    if not to.exists():
        table = pq.read_table(path)
        mark = [pc.binary_join_element_wise(table["query"], pa.scalar(str(i)), pa.scalar("#")) for i in range(many)]
        whole = pa.concat_tables([table.set_column(table.schema.get_field_index("query"), "query", query) for query in mark])
        pq.write_table(whole, to.with_suffix(".writing"))
        to.with_suffix(".writing").replace(to)
    return to
