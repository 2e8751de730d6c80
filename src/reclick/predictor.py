"""Predictions for pages: Arrow batches in memory, and files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reclick.clicks.distribution import Clicks, PageDistribution, TopSequences
from reclick.data.arrow_checks import check_batch
from reclick.data.batch import Float64, Int64, SessionBatch
from reclick.data.hashing import query_buckets
from reclick.data.ragged import starts_from_sizes
from reclick.data.schema import PAGE_COLUMNS, check_types, find_columns
from reclick.engines import Engine, as_engine
from reclick.engines.base import Log
from reclick.engines.local import describe_columns, write_batches
from reclick.engines.parts import LogPart
from reclick.engines.store import Store
from reclick.engines.tasks import TaskEngine, result_of_part
from reclick.errors import (
    Argument,
    BadRowsError,
    LogError,
    UsageError,
    check_fitted_model,
    check_range,
    check_whole,
)
from reclick.logs import SessionLog, read_ads, read_sessions
from reclick.logs.files.csv_writer import write_csv
from reclick.logs.files.source import RawBatch
from reclick.logs.read_summary import ReadSummary
from reclick.logs.validation.validate import validate
from reclick.models.base import ClickModel
from reclick.models.batching import open_pages
from reclick.models.bucketed_model import BucketedModel
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import AnyPath, Location, arrow_input, as_path
from reclick.runtime.outputs import atomic_file, check_targets, scratch_file, scratch_folder
from reclick.runtime.parallel import thread_limit
from reclick.runtime.progress import ProgressOption, track_progress
from reclick.runtime.wording import count_noun
from reclick.text.word_rates import TextIndex

BATCH_LABEL = "the batch"
CSV_SUFFIXES = (".csv", ".csv.gz")
CSV_ROWS = 16_384  # in memory at a time
JOIN_ROWS = 16_384  # per group of buckets, in memory at a time
MOST_ADS = 1 << 30  # of a page whose length was checked before
FEW_ROWS = 16  # of a batch that is encoded row by row
SAFE_ID_CHARACTERS = 16_384  # of a query or an ad id, whose limit is four times as many bytes
NUMBER_LISTS, POSITION_LISTS = pa.list_(pa.float64()), pa.list_(pa.int32())
SEQUENCE = pa.struct([("clicks", POSITION_LISTS), ("probability", pa.float64())])
SEQUENCE_LISTS = pa.list_(SEQUENCE)


class Predictions(NamedTuple):
    """Predictions for pages, concatenated; None if a quantity was not requested."""

    starts: Int64  # [page + 1] where each page starts among the impressions
    click_prob: Float64  # [impression]
    expected_clicks: Float64  # [page]
    sequences: TopSequences | None
    next_click_prob: Float64 | None  # [impression] given the clicks so far
    end_prob: Float64 | None  # [page] likewise
    satisfaction_prob: Float64 | None  # [page]

    def to_columns(self) -> dict[str, pa.Array]:
        """Return the columns that `Predictor` adds, by name."""
        columns = {
            "click_prob": self._number_lists(self.click_prob),
            "expected_clicks": _array(pa.float64(), self.expected_clicks),
        }
        if self.sequences is not None:
            columns["sequences"] = _sequence_lists(self.sequences)
        if self.next_click_prob is not None:
            columns["next_click_prob"] = self._number_lists(self.next_click_prob)
            columns["end_prob"] = _array(pa.float64(), self.end_prob)
        if self.satisfaction_prob is not None:
            columns["satisfaction_prob"] = _array(pa.float64(), self.satisfaction_prob)
        return columns

    def _number_lists(self, values: Float64) -> pa.ListArray:
        return _lists(NUMBER_LISTS, self.starts, _array(pa.float64(), values))


class Predictor:
    """Adds the predictions of a fitted model to Arrow batches of pages.

    A batch has the columns `query` and `ads`, and `clicks` if there are clicks so far. The added
    columns are `click_prob` (one probability per position), `expected_clicks` and `sequences`, the
    `top` most likely click sequences with their probabilities (no such column with top=0). With
    `next_click`, there are `next_click_prob` (per position) and `end_prob`, given the clicks so
    far; with `satisfaction`, `satisfaction_prob`, the probability that the session ends because an
    ad satisfied the user; with `noise`, `noise_prob`, the probability that its clicks are random,
    under a model that was fitted with noise. With `noise_of_users`, a table with columns user and
    noise_prob, it is that of the user of the session. Sessions above `max_noise` are left out.

    No log is opened, and no thread is started unless `threads` is more than 1 and the batch is
    large. Many threads may use a Predictor at once.

    >>> log = {"query": ["pizza"] * 3, "ads": [["a", "b"]] * 3, "clicks": [[1], [], [2, 1]]}
    >>> from reclick.models import DCTR
    >>> model = DCTR(attractiveness_prior=0.5, attractiveness_strength=2).fit(log)
    >>> predictor = Predictor(model, top=1)
    >>> predictor(pa.record_batch({"query": ["pizza"], "ads": [["b", "a"]]})).to_pylist()
    ... # doctest: +NORMALIZE_WHITESPACE
    [{'query': 'pizza', 'ads': ['b', 'a'], 'click_prob': [0.4, 0.6], 'expected_clicks': 1.0,
      'sequences': [{'clicks': [2], 'probability': 0.36}]}]
    """

    @check_arguments
    def __init__(
        self,
        model: ClickModel,
        *,
        top: int = 3,
        next_click: bool = False,
        satisfaction: bool = False,
        noise: bool = False,
        noise_of_users: pa.Table | None = None,
        max_noise: float | None = None,
        max_ads: int = 100,
        threads: int = 1,
    ) -> None:
        check_fitted_model(model)
        if noise or max_noise is not None:
            _check_noise(model, max_noise)
        self.noise, self.noise_of_users, self.max_noise = noise, noise_of_users, max_noise
        self.model = model
        self.top = check_whole("top", top, 0)
        self.next_click = next_click
        self.satisfaction = satisfaction
        self.max_ads = check_whole("max_ads", max_ads, 1)
        self.threads = check_whole("threads", threads, 1)
        self._columns: tuple[pa.Schema, dict[str, str]] | None = None  # of the last batch

    def __call__(self, pages: pa.RecordBatch, *, text: object = None) -> pa.RecordBatch:
        """Return the pages with predictions; `text` is an ads table of ads new to the model."""
        batch = self.validate(pages)
        index = None if text is None else self.model._index_text(read_ads(text))
        return self.predict_sessions(batch, index)

    def predict_sessions(
        self, sessions: SessionBatch, text: TextIndex | None = None
    ) -> pa.RecordBatch:
        """Return the rows of valid sessions with predictions; `text` is the model's `_index_text`.

        An engine maps this function over a log.
        """
        chunks = list(
            self.model.map_batch(sessions, self.predict_chunk, text=text, threads=self.threads)
        )
        return chunks[0] if len(chunks) == 1 else pa.concat_batches(chunks)

    def predict_chunk(self, sessions: SessionBatch, pages: PageDistribution) -> pa.RecordBatch:
        """Return the rows of some sessions with the predictions for their pages.

        A column of the input with the name of an added column is replaced.
        """
        rows: pa.RecordBatch = sessions.rows
        new_columns = self.predict_pages(sessions, pages).to_columns()
        if self.noise:
            new_columns["noise_prob"] = self._noise_prob(sessions, pages)
        old_columns = [
            (name, column)
            for name, column in zip(rows.schema.names, rows.columns, strict=True)
            if name not in new_columns
        ]
        names, columns = zip(*old_columns, *new_columns.items(), strict=True)
        duplicates = [name for name, times in Counter(names).items() if times > 1]
        if duplicates:
            raise LogError(
                f"The pages have two columns {duplicates[0]!r}, and most readers reject such a "
                "file. Drop or rename one of them."
            )
        batch = pa.RecordBatch.from_arrays(list(columns), names=names)
        if self.max_noise is None:
            return batch
        return batch.filter(pc.less_equal(new_columns["noise_prob"], self.max_noise))

    def _noise_prob(self, sessions: SessionBatch, pages: PageDistribution) -> pa.Array:
        """Return P(noise) of each session, or of its user if that is known."""
        noise = self.model.noise_
        assert noise is not None  # noqa: S101, it was checked
        of_session = noise.posterior(self.model, sessions, pages)
        if self.noise_of_users is None or sessions.rows is None:
            return _array(pa.float64(), of_session)
        users = sessions.rows.column("user").cast(pa.string())
        row = pc.index_in(users, value_set=self.noise_of_users["user"], skip_nulls=True)
        of_user = self.noise_of_users["noise_prob"].combine_chunks().take(row)
        return pc.coalesce(of_user, _array(pa.float64(), of_session))

    def predict_pages(self, sessions: SessionBatch, pages: PageDistribution) -> Predictions:
        """Predict pages, given the clicks so far of their sessions."""
        marginals = np.asarray(pages.click_prob(), np.float64)
        following = end = None
        if self.next_click:
            following, end = pages.next_click_prob(Clicks(sessions.click, sessions.clicks))
        return Predictions(
            starts=pages.starts,
            click_prob=marginals,
            expected_clicks=np.add.reduceat(marginals, pages.starts[:-1]),
            sequences=pages.top_sequences(None, self.top) if self.top else None,
            next_click_prob=following,
            end_prob=end,
            satisfaction_prob=pages.satisfaction_prob() if self.satisfaction else None,
        )

    def validate(self, pages: pa.RecordBatch) -> SessionBatch:
        """Return the pages as sessions; the error for bad rows has the reasons and examples."""
        if not isinstance(pages, pa.RecordBatch):
            raise LogError(
                f"pages: got a {type(pages).__name__}, expected a pyarrow.RecordBatch. "
                "rc.predict and the model's own methods take tables and files."
            )
        if pages.num_rows == 0:
            raise LogError("The batch has no rows: give at least one page.")
        check_batch(pages, BATCH_LABEL)
        names = self._find_columns(pages.schema)
        if pages.num_rows <= FEW_ROWS and (few := self._encode_few(pages, names)):
            return few
        columns = {name: pages.column(source_name) for name, source_name in names.items()}
        result = validate(RawBatch("table", 1, columns, pages.num_rows, rows=pages), self.max_ads)
        if result.totals.sessions < pages.num_rows:
            raise BadRowsError(_describe_bad_rows(pages, self.max_ads))
        return result.sessions

    def _encode_few(self, pages: pa.RecordBatch, names: dict[str, str]) -> SessionBatch | None:
        """Return a few rows as sessions; None if one may be bad: then `validate` finds out."""
        if "weight" in names:
            return None
        try:
            columns = {
                name: pages.column(source_name).to_pylist() for name, source_name in names.items()
            }
        except UnicodeDecodeError:
            return None
        clicks = columns.get("clicks") or [None] * pages.num_rows
        return encode_pages(columns["query"], columns["ads"], clicks, self.max_ads, rows=pages)

    def _find_columns(self, schema: pa.Schema) -> dict[str, str]:
        last = self._columns
        if last is not None and last[0].equals(schema):
            return last[1]
        names = find_columns(schema.names, PAGE_COLUMNS, {}, BATCH_LABEL)
        check_types(schema, PAGE_COLUMNS, names, BATCH_LABEL)
        self._columns = schema, names
        return names


def _check_noise(model: ClickModel, max_noise: float | None) -> None:
    if model.noise_ is None:
        raise UsageError(
            f"The {type(model).__name__} has no component of random clicks: fit it with ",
            Argument("noise", "session"),
            ".",
        )
    if max_noise is not None:
        check_range("max_noise", max_noise, 0, 1)


def _describe_bad_rows(pages: pa.RecordBatch, max_ads: int) -> str:
    log = read_sessions(pages, on_error="drop", max_ads=max_ads, clicks_required=False)
    dropped, examples = log.summary.dropped, log.summary.examples
    bad = sum(dropped.values())
    reasons = ", ".join(
        f"{count:,} {reason} ({examples[reason][0].to_text()})" for reason, count in dropped.items()
    )
    verb = "is" if bad == 1 else "are"
    rows = f"{bad:,} of {pages.num_rows:,} rows of {BATCH_LABEL}"
    return f"{rows} {verb} bad: {reasons}. Leave them out."


def encode_pages(
    queries: Sequence[Any],
    ads_lists: Sequence[Any],
    click_lists: Sequence[Any],
    max_ads: int,
    rows: pa.RecordBatch | None = None,
) -> SessionBatch | None:
    """Return pages that are lists as sessions; None if a page may be bad.

    It works row by row in Python: for a few rows, it takes a sixth of the time of Arrow's
    functions.
    """
    codes: dict[str, int] = {}
    ad: list[int] = []
    click: list[int] = []
    page, clicks = [0], [0]
    for query, ads, clicked in zip(queries, ads_lists, click_lists, strict=True):
        if not _is_id(query) or not ads or len(ads) > max_ads or not all(map(_is_id, ads)):
            return None
        ad.extend([codes.setdefault(name, len(codes)) for name in ads])
        page.append(len(ad))
        if clicked:
            if not all(type(position) is int and 0 < position <= len(ads) for position in clicked):
                return None
            click.extend(dict.fromkeys(clicked))
        clicks.append(len(click))
    return SessionBatch(
        queries=pa.array(queries, pa.string()),
        ads=pa.array(list(codes), pa.string()),
        query=np.arange(len(queries), dtype=np.int32),
        ad=np.array(ad, np.int32),
        page=np.array(page, np.int64),
        click=np.array(click, np.int32),
        clicks=np.array(clicks, np.int64),
        rows=rows,
    )


def _is_id(value: object) -> bool:
    """Whether a query or an ad id is text that is not empty and certainly not too long."""
    return type(value) is str and 0 < len(value) <= SAFE_ID_CHARACTERS


def _sequence_lists(best: TopSequences) -> pa.ListArray:
    """Return the most likely sequences per page, as lists of {clicks, probability}."""
    is_listed = best.lengths >= 0
    clicks = _array(pa.int32(), best.sequences[best.sequences > 0])
    probabilities = _array(pa.float64(), best.probabilities[is_listed])
    lists = _lists(POSITION_LISTS, starts_from_sizes(best.lengths[is_listed]), clicks)
    values = pa.Array.from_buffers(SEQUENCE, len(lists), [None], children=[lists, probabilities])
    return _lists(SEQUENCE_LISTS, starts_from_sizes(is_listed.sum(axis=1)), values)


def _lists(kind: pa.DataType, starts: Int64, values: pa.Array) -> pa.ListArray:
    offsets = pa.py_buffer(starts.astype(np.int32))
    return pa.Array.from_buffers(kind, len(starts) - 1, [None, offsets], children=[values])


def _array(kind: pa.DataType, values: Any) -> pa.Array:
    # A model of a user may return another type, or an array that is not contiguous.
    content = np.ascontiguousarray(values, kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(content), [None, pa.py_buffer(content)])


class PredictionSummary(NamedTuple):
    """The number of predicted pages, their expected clicks and, if known, the observed clicks."""

    pages: int
    expected_clicks: float
    observed_clicks: int | None

    @property
    def ratio(self) -> float | None:
        """Expected divided by observed clicks; None if there are no clicks."""
        return self.expected_clicks / self.observed_clicks if self.observed_clicks else None

    def __str__(self) -> str:
        expected = f"{count_noun(self.pages, 'page')}, {self.expected_clicks:,.1f} clicks expected"
        if self.observed_clicks is None:
            return expected
        ratio = "" if self.ratio is None else f": {self.ratio:.2f} × the observed"
        return f"{expected}, {self.observed_clicks:,} observed{ratio}"


@check_arguments
def predict(
    model: ClickModel,
    pages: object,
    to: Location,
    *,
    top: int = 3,
    max_noise: float | None = None,
    text: object = None,
    engine: Engine | None = None,
    overwrite: bool = False,
    progress: ProgressOption = None,
) -> PredictionSummary:
    """Write a file of pages with predictions, and return the numbers of pages and clicks.

    The added columns are those of `Predictor`. The file is Parquet, or CSV if its name ends in
    .csv or .csv.gz, and appears when it is complete. `text` is the text of ads that the model does
    not know. `engine` predicts the pages: by default `LocalEngine()`. Under a model fitted with
    noise, sessions have `noise_prob`: that of their user if the model has noise of users. Sessions
    above `max_noise` are left out, so that the file is the log without its noise. A file that
    Reclick did not write is replaced only with `overwrite`.
    """
    check_fitted_model(model)
    engine, log, target = as_engine(engine), open_pages(pages, text), as_path(to)
    is_csv = target.name.lower().endswith(CSV_SUFFIXES)
    if not is_csv and target.suffix.lower() not in {".parquet", ".pq"}:
        raise UsageError(
            f"{to}: predictions are written as Parquet or CSV. Give a name that ends in .parquet, "
            ".csv or .csv.gz."
        )
    log.refuse_target(target)
    check_targets([target], overwrite=overwrite)
    if max_noise is not None and not log.has_clicks:
        raise UsageError(f"{log.name} has no clicks to judge by: leave out ", Argument("max_noise"))
    predictor = Predictor(
        model,
        top=top,
        noise=model.noise_ is not None and log.has_clicks,
        noise_of_users=_judge_users(model, log),
        max_noise=max_noise,
    )
    predict_sessions = partial(predictor.predict_sessions, text=model._index_text(log.ads))
    with track_progress(progress, f"Predicting {log.name}"):
        if not is_csv:
            n_pages = _map_log(engine, predict_sessions, log, target, model)
            expected_clicks = _sum_expected_clicks(to)
        else:
            with scratch_folder() as folder, atomic_file(target, overwrite=True) as temporary:
                parquet = folder / "predictions.parquet"
                n_pages = _map_log(engine, predict_sessions, log, parquet, model)
                expected_clicks = _sum_expected_clicks(parquet)
                with pq.ParquetFile(parquet, pre_buffer=False) as file:
                    compress = target.name.lower().endswith(".gz")
                    batches = file.iter_batches(CSV_ROWS, use_threads=thread_limit() > 1)
                    write_csv(batches, temporary, compress=compress)
    observed_clicks = log.summary.clicks if log.has_clicks else None
    return PredictionSummary(n_pages, expected_clicks, observed_clicks)


def _judge_users(model: ClickModel, log: SessionLog) -> pa.Table | None:
    """Return P(noise) per user of a log; None if the noise is of sessions, or without clicks."""
    if model.noise_ is None or model.noise_.user_share is None or not log.has_clicks:
        return None
    from reclick.models.noise import judge_users

    return judge_users(model, log)


def _sum_expected_clicks(predictions: Location) -> float:
    with pq.ParquetFile(arrow_input(predictions), pre_buffer=False) as file:
        in_threads = thread_limit() > 1
        batches = file.iter_batches(columns=["expected_clicks"], use_threads=in_threads)
        return float(sum(np.asarray(batch.column(0)).sum() for batch in batches))


# ---- joins with a model in buckets

ROW = "\0row"  # the column with row numbers: no source has a column of this name


def _map_log(
    engine: Engine,
    function: Callable[[SessionBatch], pa.RecordBatch],
    log: Log,
    target: Location,
    model: ClickModel,
) -> int:
    """Run `engine.map`; bucket by bucket if the model is in buckets that do not fit in memory.

    Pages are written to a temporary file per group of buckets, predicted group by group, so that
    each bucket is read once, and merged in their original order.
    """
    group = model.group_buckets() if isinstance(model, BucketedModel) else None
    if group is None or group.max(initial=0) == 0:
        return engine.map(function, log, target)
    if isinstance(engine, TaskEngine):
        return _join_in_tasks(engine, function, log, target, cast(BucketedModel, model))
    with scratch_folder() as folder, atomic_file(target, overwrite=True) as temporary:
        answers = []
        for number in _split_pages(log, group, folder, "pages"):
            pages = folder / _group_file("pages", number)
            answers.append(folder / _group_file("answers", number))
            engine.map(function, _GroupLog(log.name, pages), answers[-1])
            pages.unlink()
        log.require_rows()
        return write_batches(_merge_rows(answers), temporary)


def _join_in_tasks(
    engine: TaskEngine,
    function: Callable[[SessionBatch], pa.RecordBatch],
    log: Log,
    target: Location,
    model: BucketedModel,
) -> int:
    """Predict in tasks: split the parts of a log, predict groups of buckets, merge the parts."""
    group = model.group_buckets(engine.n_tasks)
    with engine.scratch() as store:
        store.put("function", [function])
        split = engine.run_parts(
            partial(_split_part, store, group), log, store, "parts read", with_rows=True
        )
        groups = [part.groups for part in split]
        answer = partial(_answer_group, store, log.name, groups)
        engine.run(answer, int(group.max()) + 1, "groups of buckets done")
        store.discard(
            _group_file(f"pages-{i}", number)
            for i, part_groups in enumerate(groups)
            for number in part_groups
        )
        engine.run(partial(_merge_part, store, groups), len(split), "parts done")
        return engine.join_parts(store, log, [part.summary for part in split], target)


class _SplitPart(NamedTuple):
    """What the driver learns of a part of a log whose pages were split."""

    groups: list[int]  # groups of buckets that have pages
    summary: ReadSummary | None


def _split_part(store: Store, group: Int64, part: LogPart, i: int) -> _SplitPart:
    """In a task: write the pages of a part to a file for each group of buckets."""
    groups = _split_pages(part, group, store.folder, f"pages-{i}")
    return _SplitPart(groups, part.summary)


def _answer_group(store: Store, name: str, groups: list[list[int]], number: int) -> None:
    """In a task: write the predictions for the pages of a group, to a file for each part."""
    function = store.keep("function")
    for i, part_groups in enumerate(groups):
        if number in part_groups:
            pages = _GroupLog(name, store.folder / _group_file(f"pages-{i}", number))
            target = store.folder / _group_file(f"answers-{i}", number)
            with scratch_file(target) as temporary:
                write_batches(map(function, pages.batches()), temporary)


def _merge_part(store: Store, groups: list[list[int]], i: int) -> None:
    """In a task: write the predictions for the pages of a part, in the order of its rows."""
    answers = [store.folder / _group_file(f"answers-{i}", number) for number in groups[i]]
    with scratch_file(store.folder / result_of_part(i)) as temporary:
        write_batches(_merge_rows(answers), temporary)
        if not temporary.exists():  # every row was bad
            temporary.touch()


def _group_file(what: str, number: int) -> str:
    return f"{what}-{number}.parquet"


def _split_pages(log: LogPart | Log, group: Int64, folder: AnyPath, name: str) -> list[int]:
    """Write the pages of each group of buckets to a file, with their row numbers.

    Return the groups that have pages.
    """
    writers: dict[int, pq.ParquetWriter] = {}
    first_row = 0
    with ExitStack() as stack:
        for batch in log.batches(with_rows=True):
            table = _to_table(batch, first_row)
            first_row += len(batch)
            page_group = group[query_buckets(batch.queries, len(group))[batch.query]]
            for number in np.unique(page_group).tolist():
                if number not in writers:
                    path = stack.enter_context(scratch_file(folder / _group_file(name, number)))
                    writers[number] = stack.enter_context(pq.ParquetWriter(path, table.schema))
                _check_columns(writers[number].schema, table.schema)
                writers[number].write_table(table.filter(pa.array(page_group == number)))
    return sorted(writers)


def _check_columns(first: pa.Schema, other: pa.Schema) -> None:
    if not other.equals(first):
        old, new = (pa.schema(list(each.field("rows").type)) for each in (first, other))
        raise LogError(describe_columns(old, new))


def _to_table(batch: SessionBatch, first_row: int) -> pa.Table:
    """Return sessions as a table, with the columns of the source in a column of structs."""
    rows: pa.RecordBatch = batch.rows
    numbered_rows = rows.append_column(ROW, pa.array(np.arange(first_row, first_row + len(batch))))
    page, clicks = batch.page.astype(np.int32), batch.clicks.astype(np.int32)
    return pa.table(
        {
            "query": batch.queries.take(pa.array(batch.query)),
            "ads": pa.ListArray.from_arrays(page, batch.ads.take(pa.array(batch.ad))),
            "clicks": pa.ListArray.from_arrays(clicks, pa.array(batch.click)),
            "rows": numbered_rows.to_struct_array(),
        }
    )


class _GroupLog(NamedTuple):
    """The pages of one group of buckets: a log that was validated before."""

    name: str
    path: AnyPath

    def batches(self, *, with_rows: bool = False) -> Iterator[SessionBatch]:
        with pq.ParquetFile(arrow_input(self.path), pre_buffer=False) as file:
            for batch in file.iter_batches(JOIN_ROWS, use_threads=thread_limit() > 1):
                columns = {name: batch.column(name) for name in ("query", "ads", "clicks")}
                rows = pa.RecordBatch.from_struct_array(batch.column("rows"))
                raw = RawBatch(self.name, 1, columns, batch.num_rows, rows=rows)
                yield validate(raw, MOST_ADS).sessions

    def require_rows(self) -> None:
        """Do nothing: every group with a file has rows."""


def _merge_rows(paths: Sequence[AnyPath]) -> Iterator[pa.RecordBatch]:
    """Merge files that are sorted by row number."""
    with ExitStack() as stack:
        sources = map(arrow_input, paths)
        files = [stack.enter_context(pq.ParquetFile(each, pre_buffer=False)) for each in sources]
        parts = [file.iter_batches(JOIN_ROWS) for file in files]
        buffers: list[pa.Table | None] = [None] * len(parts)
        first, n_merged = 0, 0
        while first == 0 or any(buffer is not None for buffer in buffers):
            end, ready = first + JOIN_ROWS, []
            for i, part in enumerate(parts):
                tables, buffers[i] = _take_until(buffers[i], part, end)
                ready += tables
            if ready:  # there are none where all of these pages were left out as noise
                table = pa.concat_tables(ready)
                table = table.take(pa.array(np.argsort(table[ROW].to_numpy())))
                n_merged += table.num_rows
                yield table.drop_columns([ROW]).combine_chunks().to_batches()[0]
            first = end
        if files and not n_merged:
            schema = files[0].schema_arrow
            yield pa.RecordBatch.from_pylist([], schema.remove(schema.get_field_index(ROW)))


def _take_until(
    table: pa.Table | None, rest: Iterator[pa.RecordBatch], end: int
) -> tuple[list[pa.Table], pa.Table | None]:
    """Return the rows with numbers below `end`, and rows beyond them that were read."""
    tables: list[pa.Table] = []
    while True:
        if table is None:
            batch = next(rest, None)
            if batch is None:
                return tables, None
            table = pa.Table.from_batches([batch])
        size = int(np.searchsorted(table[ROW].to_numpy(), end))
        if size:
            tables.append(table.slice(0, size))
        if size < table.num_rows:
            return tables, table.slice(size)
        table = None
