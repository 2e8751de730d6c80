"""Click propensities for unbiased learning to rank: examination relative to position 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reclick.clicks.distribution import PageDistribution
from reclick.data.batch import SessionBatch
from reclick.data.ragged import Float64, positions_in_runs
from reclick.errors import Argument, CannotAnswerError, UsageError
from reclick.exports.request import ExportRequest, ExportResult
from reclick.exports.text_rows import concatenate, get_column, write_rows
from reclick.logs import as_log
from reclick.models.base import ClickModel
from reclick.runtime.arguments import check_arguments
from reclick.runtime.outputs import write_files
from reclick.runtime.progress import ProgressOption, track_progress


@check_arguments
def propensities(
    model: ClickModel, log: object = None, *, progress: ProgressOption = None
) -> pa.Table:
    """A table of position, propensity (1 at position 1) and impressions.

    propensity(k) = c(k) / c(1), where c(k) = Σ P(click at k) / Σ attractiveness over the ads at
    position k on the pages of `log`; its clicks are not used. It is the examination probability at
    position k, averaged with attractiveness as weight. If examination depends only on the position,
    as in PBM, no log is needed.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"], ["b", "a"]] * 2}
    >>> log["clicks"] = [[1], [1], [1, 2], [1]]
    >>> from reclick.models import DCTR
    >>> propensities(DCTR().fit(log), log)["propensity"].to_pylist()  # DCTR ignores the position
    [1.0, 1.0]
    """
    examination = model.examination_by_position()
    if examination is not None and log is None:
        return _propensity_table(examination, None)
    name = type(model).__name__
    if not model.attractiveness:
        raise CannotAnswerError(
            f"{name} has no propensities: they are click probabilities divided by attractiveness,"
            " and it has no attractiveness."
        )
    if log is None:
        raise UsageError(
            f"{name}'s propensities are means over pages: give a log with ",
            Argument("log", ...),
            ".",
        )
    clicks, attractiveness = _PositionSums(), _PositionSums()
    with track_progress(progress, "Averaging over pages"):
        for sums in model.map_pages(log, _sum_click_prob):
            clicks.add(*sums)
        for batch in as_log(log, clicks_required=False, one_pass=True).batches():
            attractiveness.add(*_sum_by_position(batch, _attractiveness(model, batch)))
    total = np.where(attractiveness.values > 0, attractiveness.values, np.nan)
    return _propensity_table(clicks.values / total, clicks.impressions)


@dataclass
class _PositionSums:
    """Sums by position [position]."""

    values: Float64 = field(default_factory=lambda: np.zeros(0))
    impressions: Float64 = field(default_factory=lambda: np.zeros(0))

    def add(self, values: Float64, impressions: Float64) -> None:
        self.values = _add_padded(self.values, values)
        self.impressions = _add_padded(self.impressions, impressions)


def _add_padded(a: Float64, b: Float64) -> Float64:
    size = max(len(a), len(b))
    return np.pad(a, (0, size - len(a))) + np.pad(b, (0, size - len(b)))


def _sum_click_prob(batch: SessionBatch, pages: PageDistribution) -> tuple[Float64, Float64]:
    return _sum_by_position(batch, pages.click_prob())


def _sum_by_position(batch: SessionBatch, values: Float64) -> tuple[Float64, Float64]:
    """The weighted values of impressions, and the weight of impressions, by position."""
    position = positions_in_runs(batch.page)
    n_ads = np.diff(batch.page)
    weight = np.ones(len(position)) if batch.weight is None else np.repeat(batch.weight, n_ads)
    sums = (np.bincount(position, weight * values), np.bincount(position, weight))
    return sums[0].astype(np.float64), sums[1].astype(np.float64)


def _attractiveness(model: ClickModel, batch: SessionBatch) -> Float64:
    """The attractiveness of each impression; each distinct pair is looked up once."""
    keys = (np.repeat(batch.query, np.diff(batch.page)).astype(np.int64) << 32) | batch.ad
    distinct, index = np.unique(keys, return_inverse=True)
    query = batch.queries.take(pa.array(distinct >> 32))
    ad = batch.ads.take(pa.array(distinct & 0xFFFFFFFF))
    values = model.relevance({"query": query, "ad": ad})["attractiveness"].to_numpy()
    return np.asarray(values[index])


def _propensity_table(examination: Float64, impressions: Float64 | None) -> pa.Table:
    if not np.isfinite(examination[0]) or examination[0] <= 0:
        raise CannotAnswerError(
            "No ad at position 1 attracts clicks, so propensities relative to it are undefined."
        )
    share, n = examination / examination[0], len(examination)
    return pa.table(
        {
            "position": np.arange(1, n + 1),
            "propensity": pa.array(share, mask=np.isnan(share)),
            "impressions": pa.nulls(n, pa.float64()) if impressions is None else impressions,
        }
    )


# ---- files


def write_propensities(request: ExportRequest) -> ExportResult:
    """Write propensities as CSV or Parquet, depending on the suffix of the file."""
    suffix = request.to.suffix.lower()
    if suffix not in TABLE_WRITERS:
        raise UsageError(
            f"{request.to}: propensities are written as CSV or Parquet. Give a name that ends in"
            " .csv or .parquet."
        )
    table = propensities(request.model, request.log)
    write = partial(TABLE_WRITERS[suffix], table)
    files = write_files(request.to.parent, {request.to.name: write}, overwrite=request.overwrite)
    return ExportResult(tuple(files), table.num_rows)


def _write_csv(table: pa.Table, path: Path) -> None:
    position, propensity, impressions = (get_column(table, name) for name in table.column_names)
    with path.open("wb") as file:
        file.write((",".join(table.column_names) + "\n").encode())
        write_rows(file, concatenate(position, ",", propensity, ",", impressions, "\n"))


_write_parquet = partial(pq.write_table, compression="zstd")
TABLE_WRITERS: dict[str, Callable[[pa.Table, Path], object]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".pq": _write_parquet,
}
