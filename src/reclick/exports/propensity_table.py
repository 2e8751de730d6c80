"""Click propensities: how often an ad at each position is looked at, as a share of the first, for unbiased learning to rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reclick.clicks.distribution import Pages
from reclick.data.batch import Float64, Int64, SessionBatch
from reclick.errors import CannotAnswerError, SettingError
from reclick.exports.request import Exported, Job
from reclick.exports.text_rows import column, joined, write_rows
from reclick.logs import as_log
from reclick.models.base import ClickModel
from reclick.models.pbm import PBM
from reclick.runtime.atomic_write import write_files
from reclick.runtime.progress import Progress


def propensities(
    model: ClickModel, log: object = None, *, progress: Progress | None = None
) -> pa.Table:
    """A table of position, propensity (1 at position 1) and impressions.

    propensity(k) = c(k) / c(1), c(k) = Σ P(click at k) / Σ attractiveness, over what stood at position k on the pages of `log` (its clicks are not
    used). It is the chance of a look at position k, averaged with attractiveness as weight. PBM's chance of a look depends on nothing but the
    position, so it needs no log.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"], ["b", "a"]] * 2, "clicks": [[1], [1], [1, 2], [1]]}
    >>> from reclick.models import DCTR
    >>> propensities(DCTR().fit(log), log)["propensity"].to_pylist()  # to DCTR a position is no matter
    [1.0, 1.0]
    """
    if not model.fitted:
        model.relevance()  # which says so
    if isinstance(model, PBM) and log is None:
        return _table(model.gamma_, None)
    if not model.attractiveness:
        raise CannotAnswerError(
            f"{type(model).__name__} has no propensities: they are click probabilities over attractiveness, and it knows none of an ad."
        )
    if log is None:
        raise SettingError(
            f"{type(model).__name__}'s propensities are means over pages: give a log with log= (on the command line --log)."
        )
    clicks, attractiveness = _Sums(), _Sums()
    for sums in model.answers(log, partial(_clicks, model), progress=progress):
        clicks.add(*sums)
    for batch in as_log(log, clicks_required=False).batches():
        attractiveness.add(*_sums(batch, _attractiveness(model, batch)))
    return _table(
        clicks.values / np.where(attractiveness.values > 0, attractiveness.values, np.nan),
        clicks.impressions,
    )


def _write_csv(table: pa.Table, path: Path) -> None:
    position, propensity, impressions = (column(table, name) for name in table.column_names)
    with path.open("wb") as file:
        file.write((",".join(table.column_names) + "\n").encode())
        write_rows(file, joined(position, ",", propensity, ",", impressions, "\n"))


_write_parquet = partial(pq.write_table, compression="zstd")
WRITERS: dict[str, Callable[[pa.Table, Path], object]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".pq": _write_parquet,
}


def write_propensities(job: Job) -> Exported:
    """Write them as CSV or Parquet, by the file's ending."""
    ending = job.to.suffix.lower()
    if ending not in WRITERS:
        raise SettingError(
            f"{job.to}: propensities are written as CSV or Parquet. Give a name that ends in .csv or .parquet."
        )
    table = propensities(job.model, job.log, progress=job.progress)
    return Exported(
        tuple(write_files(job.to.parent, {job.to.name: lambda path: WRITERS[ending](table, path)})),
        table.num_rows,
    )


@dataclass
class _Sums:
    """Sums by position [position]."""

    values: Float64 = field(default_factory=lambda: np.zeros(0))
    impressions: Float64 = field(default_factory=lambda: np.zeros(0))

    def add(self, values: Float64, impressions: Float64) -> None:
        self.values, self.impressions = (
            _longer(self.values, values),
            _longer(self.impressions, impressions),
        )


def _longer(a: Float64, b: Float64) -> Float64:
    size = max(len(a), len(b))
    return np.pad(a, (0, size - len(a))) + np.pad(b, (0, size - len(b)))


def _clicks(model: ClickModel, part: SessionBatch, pages: Pages) -> tuple[Float64, Float64]:
    return _sums(part, model.marginals(part, pages))


def _sums(part: SessionBatch, values: Float64) -> tuple[Float64, Float64]:
    """The values of impressions, and their number, by position."""
    sizes: Int64 = np.diff(part.page)
    position = np.arange(len(part.ad)) - np.repeat(part.page[:-1], sizes)
    weight = np.ones(len(part.ad)) if part.weight is None else np.repeat(part.weight, sizes)
    return np.bincount(position, weight * values).astype(np.float64), np.bincount(
        position, weight
    ).astype(np.float64)


def _attractiveness(model: ClickModel, batch: SessionBatch) -> Float64:
    """The attractiveness of each impression; each distinct pair is asked for once."""
    keys = (np.repeat(batch.query, np.diff(batch.page)).astype(np.int64) << 32) | batch.ad
    distinct, back = np.unique(keys, return_inverse=True)
    query, ad = (
        batch.queries.take(pa.array(distinct >> 32)),
        batch.ads.take(pa.array(distinct & 0xFFFFFFFF)),
    )
    return np.asarray(
        model.relevance({"query": query, "ad": ad})["attractiveness"].to_numpy()[back]
    )


def _table(looks: Float64, impressions: Float64 | None) -> pa.Table:
    if not np.isfinite(looks[0]) or looks[0] <= 0:
        raise CannotAnswerError(
            "Nothing at position 1 attracts a click, so there is nothing to relate other positions to."
        )
    share = looks / looks[0]
    shown = pa.nulls(len(looks), pa.float64()) if impressions is None else pa.array(impressions)
    return pa.table(
        {
            "position": np.arange(1, len(looks) + 1),
            "propensity": pa.array(share, mask=np.isnan(share)),
            "impressions": shown,
        }
    )
