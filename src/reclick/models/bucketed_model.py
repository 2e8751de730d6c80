"""A model in buckets, opened lazily: a bucket is read when one of its queries is needed.

Each answer comes from an ordinary model with only the queries that it needs: their rows are read
from the buckets and concatenated, and the values common to all queries are shared. So the answers
are identical to those of the whole model, to the last bit. Buckets stay in memory up to a limit;
the least recently used bucket is dropped first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.clicks.distribution import PageDistribution
from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.hashing import query_buckets
from reclick.data.ragged import Int64
from reclick.data.stored_tables import read_codes, read_lists, read_numbers, read_strings
from reclick.data.string_index import Interner
from reclick.errors import Argument, CannotAnswerError, StoreError, check_whole
from reclick.logs import as_pairs
from reclick.models.base import ClickModel
from reclick.models.buckets import (
    OF_LOG,
    BucketWriter,
    WrittenBucket,
    bucket_folder,
    read_corpus,
)
from reclick.models.loading import check_answers, explain_load_errors, load
from reclick.models.query_rows import (
    AD,
    COMMON_TABLES,
    QUERY,
    ROW_TYPES,
    SEQUENCE,
    WHOLE_LOG,
    QueryRows,
    TrainingTotals,
    concatenate_rows,
)
from reclick.models.registry import MODELS
from reclick.models.text_pair_index import counts_from_tables
from reclick.runtime import artifact
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import AnyPath, Location, as_path, resolve
from reclick.text.word_rates import TextIndex

CACHE_BYTES = 1 << 30  # of buckets in memory, by default
BUILD_SHARE = 8  # a bucket becomes a model after requests for an eighth of its queries
MODEL_FACTOR = 3  # memory of a model built from rows, relative to the rows
ROWS_FACTOR = 1.5  # memory of a bucket with its index, relative to its rows
MOST_GROUPS = 64  # of buckets: a join writes a file for each group
PAIRS_AT_ONCE = 1 << 18  # whose relevance is computed together


class Bucket:
    """The rows of the queries of one bucket, which were checked."""

    def __init__(self, rows: QueryRows, restore: Callable[[QueryRows], ClickModel]) -> None:
        self.rows = rows
        self._restore = restore
        self._n_requests = 0
        self._index = Interner()
        self._index.codes(rows.queries)
        self._size = rows.nbytes

    @cached_property
    def model(self) -> ClickModel:
        """The model of these queries."""
        return self._restore(self.rows)

    def is_worth_building(self, n_queries: int) -> bool:
        """Whether to build the model, after a request for some more of its queries."""
        self._n_requests += n_queries
        return "model" in vars(self) or self._n_requests * BUILD_SHARE >= self.rows.query.num_rows

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        model_factor = MODEL_FACTOR if "model" in vars(self) else 0
        return self._size * (1 + model_factor) + self._index.nbytes

    def find(self, queries: pa.Array) -> Int64:
        """The rows of the queries that are in this bucket, ascending."""
        code = self._index.find(queries)
        return np.unique(code[code >= 0]).astype(np.int64)


class BucketCache:
    """The most recently used buckets of a folder, up to a number of bytes."""

    def __init__(self, limit: int, load: Callable[[int], Bucket]) -> None:
        self.limit = limit
        self.loads = 0  # how often a bucket was read
        self._load = load
        self._buckets: OrderedDict[int, Bucket] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, number: int) -> Bucket:
        """A bucket, read if it is not in memory."""
        with self._lock:
            if number not in self._buckets:
                self._buckets[number] = self._load(number)
                self.loads += 1
            self._buckets.move_to_end(number)
            bucket = self._buckets[number]
            self._trim()
            return bucket

    def _trim(self) -> None:
        size = sum(each.nbytes for each in self._buckets.values())
        while size > self.limit and len(self._buckets) > 1:
            _, oldest = self._buckets.popitem(last=False)
            size -= oldest.nbytes


class BucketedModel(ClickModel):
    """A saved model whose buckets are read when they are needed.

    `rc.load` returns one for a folder that was saved with `buckets`: an object that is also an
    instance of the class of the saved model. Methods that would change the model raise an error.
    The buckets in memory take at most about `cache_bytes`, or one bucket if that is more.
    """

    cache_bytes: int
    _folder: AnyPath
    _artifact: artifact.Artifact
    _bucket_entries: dict[int, WrittenBucket]
    _head: ClickModel  # of one query, for answers about unknown queries
    _cache: BucketCache
    _whole_class: ClassVar[type[ClickModel]]

    @classmethod
    def open(
        cls, folder: Location, contents: artifact.Artifact, cache_bytes: int | None = None
    ) -> BucketedModel:
        """Open the model of a folder, given its manifest and its tables of the whole log."""
        settings = contents.settings
        model = make_class(MODELS[str(settings["model"])])(**settings["settings"])
        model._artifact = contents
        model._folder = as_path(folder)
        model.set_cache(CACHE_BYTES if cache_bytes is None else cache_bytes)
        model._bucket_entries = {
            int(each["bucket"]): WrittenBucket(**each) for each in settings["written"]
        }
        totals = model.training_totals
        overall = totals.clicks / totals.impressions if totals.impressions else 0.5
        model._corpus = read_corpus(settings["values"], contents.tables, overall)
        model._head = head = model._open_head()
        by_row = {*model.pair_parameters, *model.query_parameters, "counts_", *vars(model)}
        common = {name: value for name, value in vars(head).items() if name not in by_row}
        vars(model).update(common)
        return model

    # buckets

    @check_arguments
    def set_cache(self, cache_bytes: int) -> None:
        """Keep at most about so many bytes of buckets in memory."""
        self.cache_bytes = check_whole("cache_bytes", cache_bytes, 0)
        self._cache = BucketCache(self.cache_bytes, self._load_bucket)

    def _load_bucket(self, number: int) -> Bucket:
        """Read a bucket; raises `StoreError` if it is not the bucket of the manifest."""
        with self._explain_damage(number) as folder:
            part = artifact.read(folder, kind="bucket")
            rows = QueryRows(*(part.tables[each] for each in ROW_TYPES)).without_totals()
            counts_from_tables(rows.to_tables() | self._log_tables)  # checks codes and order
            self._check_bucket(number, part.fingerprint, rows.queries)
        return Bucket(rows, self._restore)

    def _read_volumes(self, number: int) -> pa.Table:
        """Read the queries of a bucket and their sessions, without its pairs."""
        log_tables = (f"{OF_LOG}{name}" for name in self._artifact.tables)
        tables_to_skip = {"pair", "ad", "sequence", *log_tables}
        with self._explain_damage(number) as folder:
            part = artifact.read(folder, kind="bucket", leave_out=tables_to_skip)
            queries = read_strings(part.tables, "query", QUERY, ascending=True)
            code = read_codes(part.tables, "visit", "counts_visits.query", len(queries))
            sessions = read_numbers(
                part.tables, "visit", "counts_visits.sessions", length=len(code)
            )
            self._check_bucket(number, part.fingerprint, queries)
        volumes = np.bincount(code, sessions, minlength=len(queries)).astype(np.float64)
        return pa.table({"query": queries, "sessions": volumes})

    @contextmanager
    def _explain_damage(self, number: int) -> Iterator[AnyPath]:
        """Yield the folder of a bucket; errors become a `StoreError` that names the folder."""
        folder = bucket_folder(self._folder, self._artifact.settings["parts"], number)
        try:
            yield folder
        except Exception as error:  # an altered folder may raise anything
            self._check_unchanged()
            reason = str(error) if isinstance(error, StoreError) else f"{type(error)}: {error}"
            raise StoreError(
                f"{folder} cannot be loaded. {reason} Save the model again, or restore the folder "
                "from a copy."
            ) from error

    def _check_bucket(self, number: int, fingerprint: str, queries: pa.Array) -> None:
        if fingerprint != self._bucket_entries[number].fingerprint:
            raise StoreError("It is not the bucket that the manifest of the model names.")
        if (query_buckets(queries, self.buckets) != number).any():
            raise StoreError("It has queries that belong to other buckets.")

    def _check_unchanged(self) -> None:
        """Raise if the model was saved again since it was loaded: its buckets may be gone."""
        if artifact.fingerprint(self._folder) != self._artifact.fingerprint:
            raise _saved_again(self._folder, "loaded")

    @property
    def training_totals(self) -> TrainingTotals:
        """The size of the training log."""
        return TrainingTotals(**self._artifact.settings["totals"])

    @property
    def buckets(self) -> int:
        """The number of buckets."""
        return int(self._artifact.settings["buckets"])

    @cached_property
    def _log_tables(self) -> dict[str, pa.Table]:
        """The tables of the whole log that a part needs; text and words are in the corpus."""
        types = {**COMMON_TABLES, **self.table_rows}
        return {
            name: table
            for name, table in self._artifact.tables.items()
            if types.get(name) == WHOLE_LOG and not name.startswith(("text_", "prior_"))
        }

    def _restore(self, rows: QueryRows) -> ClickModel:
        """Build the model of some queries."""
        model = self._whole_class(**self.get_params())
        model._corpus = self._corpus
        with explain_load_errors(self._folder):
            values = self._artifact.settings["values"]
            model._load_tables(values, rows.to_tables() | self._log_tables)
        model.provenance_ = self.provenance_
        return model

    def _open_head(self) -> ClickModel:
        """Build the model of one query of the smallest bucket, for the values of the whole log.

        It needs a query, because models without queries need not work.
        """
        smallest = min(self._bucket_entries.values(), key=lambda each: each.bytes)
        return self._restore(self._cache.get(smallest.bucket).rows.take(np.zeros(1, np.int64)))

    def _gather_queries(self, queries: pa.Array) -> ClickModel:
        """Return a model in memory with these queries, except those that are unknown."""
        query_bucket = query_buckets(queries, self.buckets)
        numbers = [
            int(each) for each in np.unique(query_bucket) if int(each) in self._bucket_entries
        ]
        if len(numbers) == 1:
            bucket = self._cache.get(numbers[0])
            if bucket.is_worth_building(len(queries)):
                return bucket.model
        parts = []
        for number in numbers:
            bucket = self._cache.get(number)
            rows = bucket.find(queries.filter(pa.array(query_bucket == number)))
            if len(rows):
                parts.append(bucket.rows.take(rows))
        return self._restore(concatenate_rows(parts)) if parts else self._head

    @check_arguments
    def group_buckets(self, least: int = 1) -> Int64:
        """Assign a group to each bucket, so that the buckets of a group fit in memory together.

        There are about `least` groups or more, if there are enough buckets.
        """
        sizes = np.zeros(self.buckets)
        for each in self._bucket_entries.values():
            sizes[each.bucket] = ROWS_FACTOR * each.bytes
        limit = min(float(self.cache_bytes), sizes.sum() / check_whole("least", least, 1))
        limit = max(limit, sizes.sum() / MOST_GROUPS, 1.0)
        group = ((np.cumsum(sizes) - sizes / 2) // limit).astype(np.int64)
        return np.unique(group, return_inverse=True)[1].astype(np.int64)

    def _iterate_buckets(self) -> Iterator[Bucket]:
        return (self._cache.get(number) for number in sorted(self._bucket_entries))

    def check_folder(self) -> None:
        """Read every bucket; raise a `StoreError` if anything is damaged."""
        for bucket in self._iterate_buckets():
            check_answers(bucket.model)

    # answers

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        return self._gather_sessions(batch)._page_distribution(batch, text)

    def _gather_sessions(self, sessions: SessionBatch) -> ClickModel:
        return self._gather_queries(sessions.queries.take(pa.array(np.unique(sessions.query))))

    @check_arguments
    def relevance(
        self,
        pairs: object = None,
        *,
        query: str | None = None,
        text: object = None,
        level: float = 0.9,
    ) -> pa.Table:
        """As in every model. All pairs are one table; `iterate_relevance` takes less memory."""
        options: dict[str, Any] = {"text": text, "level": level}
        if query is not None:
            part = self._gather_queries(pa.array([str(query)]))
            return part.relevance(pairs, query=query, **options)
        if pairs is None:
            tables = [bucket.model.relevance(**options) for bucket in self._iterate_buckets()]
            return pa.concat_tables(tables).sort_by([("query", "ascending"), ("ad", "ascending")])
        queries, ads = as_pairs(pairs)
        tables = []
        for start in range(0, max(len(queries), 1), PAIRS_AT_ONCE):
            query_slice = queries.slice(start, PAIRS_AT_ONCE)
            table = pa.table({"query": query_slice, "ad": ads.slice(start, PAIRS_AT_ONCE)})
            tables.append(self._gather_queries(pc.unique(query_slice)).relevance(table, **options))
        return pa.concat_tables(tables)

    @property
    def training_counts(self) -> Counts:
        """The counts of the training log, all in memory."""
        rows = concatenate_rows([bucket.rows for bucket in self._iterate_buckets()])
        return counts_from_tables(rows.to_tables() | self._log_tables)[0]

    @property
    def sequence_counts(self) -> Counts:
        """The click sequences of the training log over all queries, without its pairs."""
        tables = self._artifact.tables
        starts, clicks = read_lists(tables, "sequences", SEQUENCE, low=1, high=1 << 24)
        sessions = read_numbers(tables, "sequences", "totals.sessions", low=0)
        return Counts.of_sequences(starts, clicks, sessions, self._head.training_counts.lengths)

    @property
    def training_ads(self) -> pa.Array:
        """Every ad of the training log."""
        return self._artifact.tables["ads"][AD].combine_chunks()

    def _iterate_pairs(self, size: int) -> Iterator[pa.Table]:
        """All pairs, bucket by bucket."""
        for bucket in self._iterate_buckets():
            yield from bucket.model.iterate_pairs(size)

    def query_volumes(self) -> pa.Table:
        """Every query and its sessions, bucket by bucket; the buckets in memory stay there."""
        return pa.concat_tables(
            [self._read_volumes(number) for number in sorted(self._bucket_entries)]
        )

    def queries_of_ad(self, ad: str) -> pa.Array:
        """The queries that an ad was shown for, bucket by bucket."""
        return pa.concat_arrays(
            [bucket.model.queries_of_ad(ad) for bucket in self._iterate_buckets()]
        )

    def first_page(self, ads: int) -> tuple[str, list[str]]:
        """A query of the first bucket."""
        return next(self._iterate_buckets()).model.first_page(ads)

    # methods that raise, and methods that work differently

    def fit(self, *_: object, **__: object) -> NoReturn:
        """Raise `CannotAnswerError`: a fit needs a model in memory."""
        raise CannotAnswerError(
            f"This {self._whole_class.__name__} was opened from buckets and cannot be fitted. Fit "
            "model.clone() and save it with ",
            Argument("buckets", self.buckets),
            ".",
        )

    def fit_to(self, *_: object, **__: object) -> NoReturn:
        """Raise `CannotAnswerError`, as `fit` does."""
        self.fit()

    def update(self, *_: object, **__: object) -> NoReturn:
        """Raise `CannotAnswerError`: any update changes the values common to all queries."""
        raise CannotAnswerError(
            f"This {self._whole_class.__name__} was opened from buckets and cannot be updated: "
            "what it says of one query depends on all others. Where it fits in memory, update "
            "model.to_memory() and save that with ",
            Argument("buckets", self.buckets),
            "; else fit again.",
        )

    def clone(self) -> ClickModel:  # type: ignore[override]
        """A new model with the same settings, in memory and not fitted."""
        return self._whole_class(**self.get_params())

    def set_params(self, **settings: Any) -> Self:
        """Raise `CannotAnswerError` if a setting would change; change those of `clone()`."""
        if self._whole_class(**{**self.get_params(), **settings}).get_params() == self.get_params():
            return self
        raise CannotAnswerError(
            f"This {self._whole_class.__name__} was opened from buckets: its settings cannot be "
            "changed. Change those of model.clone(), and fit that."
        )

    def to_memory(self) -> ClickModel:
        """Load the whole model into memory, as if it had been saved without buckets."""
        tables = self._artifact.tables
        rows = concatenate_rows([bucket.rows for bucket in self._iterate_buckets()])
        whole = rows.to_tables() | {
            name: table
            for name, table in tables.items()
            if name in self._log_tables or name.startswith(("text_", "prior_"))
        }
        if self._corpus is not None and self._corpus.ad_prior is not None:
            names = ("mean", "strength")
            prior = {name: tables["ads"][f"prior_ads.{name}"] for name in names}
            whole["prior_ads"] = pa.table(prior)
        model = self.clone()
        model._load_tables(self._artifact.settings["values"], whole)
        model.provenance_ = self.provenance_
        return model

    @check_arguments
    def save(
        self, folder: Location, *, overwrite: bool = False, buckets: int | None = None
    ) -> None:
        """Copy the buckets to another folder."""
        if buckets not in (None, self.buckets):
            raise CannotAnswerError(
                f"The model has {self.buckets:,} buckets. For another number of them, save "
                "model.to_memory()."
            )
        if resolve(folder) == resolve(self._folder):
            self._check_unchanged()
            return
        writer = BucketWriter.start(folder, self.buckets)
        writer.copy(self._artifact, self._folder)

    def __getattr__(self, name: str) -> Any:
        if name in (*self.pair_parameters, *self.query_parameters, "counts_"):
            raise AttributeError(
                f"{name} has a value for each pair or query, and this model was opened from "
                "buckets. Use relevance(), or model.to_memory()."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return open_folder, (self._folder, self.cache_bytes)

    def _describe_fit(self) -> str:
        lines = super()._describe_fit().split("\n")
        in_buckets = f"  in {self.buckets:,} buckets, read when needed"
        return "\n".join([lines[0], f"  fitted on {self.training_totals}", *lines[2:], in_buckets])


def open_folder(folder: Location, cache_bytes: int) -> ClickModel:
    """Open the folder of a pickled model again."""
    return load(folder, cache_bytes=cache_bytes)


def _saved_again(folder: object, since: str) -> StoreError:
    return StoreError(
        f"{folder} was saved again since it was {since}, and what was there before is gone. Load "
        "it again."
    )


# ---- a model that was just written


class UnopenedModel(BucketedModel):
    """A model that was just written: it is opened when an attribute is used for the first time.

    Opening reads every ad and a bucket, which a job that only fits does not need.
    """

    def __getattribute__(self, name: str) -> Any:
        if name != "__class__":
            _open_written(self)
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _open_written(self)
        setattr(self, name, value)


_opening = threading.RLock()


def open_later(folder: Location, fingerprint: str, base: type[ClickModel]) -> BucketedModel:
    """Return the model that was written to a folder, to be opened at its first use."""
    model = object.__new__(_make_unopened_class(base))
    object.__setattr__(model, "__dict__", {"_written": (folder, fingerprint)})
    return model


def _open_written(model: UnopenedModel) -> None:
    """Open a model, which becomes an ordinary model in buckets."""
    with _opening:
        if not issubclass(type(model), UnopenedModel):
            return  # another thread has opened it
        folder, fingerprint = object.__getattribute__(model, "__dict__")["_written"]
        opened = load(folder)
        members = vars(opened)
        if members["_artifact"].fingerprint != fingerprint:
            raise _saved_again(folder, "fitted")
        object.__setattr__(model, "__dict__", members)
        object.__setattr__(model, "__class__", type(opened))


@cache
def _make_unopened_class(base: type[ClickModel]) -> type[UnopenedModel]:
    opened_class = make_class(base)
    return type(base.__name__, (UnopenedModel, opened_class), {"settings": base.settings})


@cache
def make_class(base: type[ClickModel]) -> type[BucketedModel]:
    """Make the subclass of a model class whose models are opened from buckets."""
    members = {"_whole_class": base, "settings": base.settings, "__doc__": BucketedModel.__doc__}
    return type(base.__name__, (BucketedModel, base), members)
