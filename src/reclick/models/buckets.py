"""A model folder in buckets: the rows of each query are in the bucket of its hash.

    model/manifest.json            settings, values of the whole log, and the buckets with hashes
    model/ads-….parquet            every ad; one of the tables that all buckets share
    model/parts-…/00012/           the bucket 12: an artifact with the rows of its queries

Buckets may be written in any order, by any number of processes, and more than once. They are not
part of the model until `BucketWriter.commit` replaces the manifest. If a writer is killed before
that, the folder still has the old model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

import numpy as np
import pyarrow as pa

from reclick.data.counts_tables import read_lengths
from reclick.data.ragged import Float64, Int32
from reclick.data.stored_tables import read_numbers, read_strings
from reclick.errors import StoreError, UsageError, check_range, check_whole, explain_write_errors
from reclick.fitting.attractiveness_prior import AdPrior
from reclick.models.provenance import SeenLogs, provenance_to_table
from reclick.models.query_rows import (
    AD,
    SEQUENCE,
    QueryRows,
    TrainingTotals,
    sequence_keys,
    unite,
)
from reclick.models.text_pair_index import Corpus, text_from_tables
from reclick.runtime import artifact
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import AnyPath, Location, as_path
from reclick.text.word_rates import CorpusWords, ShownAds, TextIndex

if TYPE_CHECKING:
    from reclick.models.base import ClickModel

MOST_BUCKETS = 100_000
OF_LOG = "log."  # prefix of the names of whole-log tables in the folder of a bucket


@dataclass(frozen=True)
class WrittenBucket:
    """A bucket that was written, as listed in the manifest."""

    bucket: int
    fingerprint: str
    queries: int
    pairs: int
    bytes: int  # in memory


@dataclass(frozen=True)
class BucketWriter:
    """Writes one version of a model in buckets. It can be sent to other processes.

    >>> import tempfile
    >>> from reclick.models import DCTR, load
    >>> log = {"query": ["pizza", "tea"], "ads": [["a", "b"], ["c", "a"]], "clicks": [[1], []]}
    >>> model, folder = DCTR().fit(log), tempfile.mkdtemp()
    >>> writer = BucketWriter.start(folder, 4)
    >>> written = [writer.write_part(model, bucket) for bucket in range(4)]  # in any process
    >>> fingerprint = writer.commit(written, model)
    >>> load(folder).click_prob(log).shape
    (2, 2)
    """

    folder: Location
    buckets: int
    parts: str  # the folder of this version inside

    @classmethod
    @check_arguments
    def start(cls, folder: Location, buckets: int) -> Self:
        """Return a writer of a new version; the folder does not change yet."""
        check_range("buckets", check_whole("buckets", buckets, 1), 1, MOST_BUCKETS)
        artifact.check_target(folder, "model")
        return cls(folder, buckets, f"parts-{uuid4().hex[:16]}")

    @check_arguments
    def write(self, model: ClickModel) -> list[WrittenBucket]:
        """Write every bucket of a model that is in memory."""
        rows, _ = model._to_rows()
        return [
            self._write_rows(bucket, rows.take(queries), {})
            for bucket, queries in enumerate(rows.buckets(self.buckets))
            if len(queries)
        ]

    @check_arguments
    def write_part(self, model: ClickModel, bucket: int) -> WrittenBucket | None:
        """Write the queries of one bucket of a model; return None if the model has none of them.

        The model may hold other queries too. What describes the whole log (values, page lengths,
        the text and the prior of ads) must be the same in every process; `commit` compares it.
        """
        check_range("bucket", check_whole("bucket", bucket, 0), 0, self.buckets - 1)
        rows, log_tables = model._to_rows()
        queries = rows.buckets(self.buckets)[bucket]
        if not len(queries):
            return None
        if len(queries) < rows.query.num_rows:
            rows = rows.take(queries)
        return self._write_rows(bucket, rows, log_tables, describe_model(model))

    @check_arguments
    def write_rows(
        self, model: ClickModel, bucket: int
    ) -> tuple[WrittenBucket, dict[str, pa.Table]]:
        """Write all queries of a model as one bucket, without the tables of the whole log.

        These tables are returned with the bucket. A caller that has the tables of the whole log
        passes them to `commit`.
        """
        rows, log_tables = model._to_rows()
        return self._write_rows(bucket, rows, {}), log_tables

    def _write_rows(
        self,
        bucket: int,
        rows: QueryRows,
        log_tables: dict[str, pa.Table],
        description: dict[str, Any] | None = None,
    ) -> WrittenBucket:
        tables = rows.with_totals().as_dict()
        tables |= {f"{OF_LOG}{name}": table for name, table in log_tables.items()}
        fingerprint = artifact.write(
            self.bucket_folder(bucket),
            kind="bucket",
            settings={"bucket": bucket, "buckets": self.buckets, **(description or {})},
            tables=tables,
        )
        sizes = rows.query.num_rows, rows.pair.num_rows
        return WrittenBucket(bucket, fingerprint, *sizes, rows.nbytes)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder against other writers, on file systems that have locks."""
        place = as_path(self.folder)
        with explain_write_errors(str(place)):
            place.mkdir(parents=True, exist_ok=True)
        with artifact.lock_folder(place):
            yield

    @check_arguments
    def bucket_folder(self, bucket: int) -> AnyPath:
        """Return the folder of a bucket of this version."""
        return bucket_folder(self.folder, self.parts, bucket)

    def commit(
        self,
        written: Iterable[WrittenBucket | None],
        model: ClickModel | None = None,
        *,
        common: CommonTables | None = None,
        provenance: SeenLogs | None = None,
        replaces: str | None = None,
    ) -> str:
        """Make the buckets the model of the folder, in one atomic step; return its fingerprint.

        The tables of the whole log come from `model`, which has all queries, or from `common`.
        Without either, they are merged from what `write_part` wrote with each bucket.
        """
        buckets = sorted((part for part in written if part is not None), key=lambda w: w.bucket)
        self._check_buckets(buckets)
        if common is None:
            common = CommonTables.of(model) if model is not None else self._merge_common(buckets)
        logs = model.provenance_ if provenance is None and model is not None else provenance or ()
        settings = {
            **common.description,
            "provenance": [log.to_dict() for log in logs],
            "totals": common.totals._asdict(),
            "buckets": self.buckets,
            "parts": self.parts,
            "written": [asdict(bucket) for bucket in buckets],
        }
        return artifact.write(
            self.folder,
            kind="model",
            settings=settings,
            tables={**common.tables, "provenance": provenance_to_table(logs)},
            replaces=replaces,
            folders=[self.parts],
        )

    def copy(self, stored: artifact.Artifact, source: AnyPath) -> str:
        """Copy the buckets of a stored model from its folder `source`, and commit the copy."""
        buckets = []
        for entry in stored.settings["written"]:
            number = int(entry["bucket"])
            part = artifact.read(bucket_folder(source, stored.settings["parts"], number))
            target, settings = self.bucket_folder(number), part.settings
            fingerprint = artifact.write(
                target, kind="bucket", settings=settings, tables=part.tables
            )
            buckets.append({**entry, "fingerprint": fingerprint})
        settings = {**stored.settings, "parts": self.parts, "written": buckets}
        tables, folders = stored.tables, [self.parts]
        return artifact.write(
            self.folder, kind="model", settings=settings, tables=tables, folders=folders
        )

    def _check_buckets(self, buckets: Sequence[WrittenBucket]) -> None:
        """Raise an error if there are no buckets, duplicates, or folders that have changed."""
        numbers = [part.bucket for part in buckets]
        if len(set(numbers)) < len(numbers):
            duplicate = next(number for number in numbers if numbers.count(number) > 1)
            raise UsageError(f"Bucket {duplicate} was given twice: give the last that was written.")
        if not buckets:
            raise UsageError("No bucket was written: there is no model to commit.")
        for part in buckets:
            folder = self.bucket_folder(part.bucket)
            if artifact.fingerprint(folder) != part.fingerprint:
                raise StoreError(f"{folder} is not what was written: write it again.")

    def _merge_common(self, buckets: Sequence[WrittenBucket]) -> CommonTables:
        """Merge the tables of the whole log from all buckets."""
        large = {"query", "pair", "visit"}
        parts = (
            artifact.read(self.bucket_folder(part.bucket), leave_out=large) for part in buckets
        )
        pairs = sum(part.pairs for part in buckets)
        return CommonTables.merge(parts, sum(part.queries for part in buckets), pairs)


def bucket_folder(folder: Location, parts: str, bucket: int) -> AnyPath:
    """Return the folder of a bucket of a model."""
    return as_path(folder) / parts / f"{bucket:05d}"


def describe_model(model: ClickModel) -> dict[str, Any]:
    """Return the settings and the values of a model, as in a manifest."""
    values, _ = model._save_tables()
    return {"model": model.name, "settings": model.get_params(), "values": values}


# ---- what all buckets have in common


@dataclass(frozen=True)
class CommonTables:
    """The parts of a model in buckets except the rows of its queries."""

    description: dict[str, Any]  # model, settings and values
    tables: dict[str, pa.Table]
    totals: TrainingTotals

    @classmethod
    def of(cls, model: ClickModel) -> CommonTables:
        """Return the common tables of a model with all queries."""
        rows, tables = model._to_rows()
        rows = rows.with_totals()
        tables |= {"ads": rows.ad, "sequences": rows.sequence}
        if model._pairs.text is not None:
            tables["words"] = model._pairs.words.corpus.to_table()
        return cls(describe_model(model), tables, model.training_totals)

    @classmethod
    def merge(
        cls, parts: Iterable[artifact.Artifact], n_queries: int, n_pairs: int
    ) -> CommonTables:
        """Merge the common tables of buckets, read without the rows of queries."""
        description: dict[str, Any] = {}
        tables: dict[str, pa.Table] = {}
        ads, sequences = _DictionaryTotals(AD), _DictionaryTotals(SEQUENCE)
        for part in parts:
            part_description = {
                name: part.settings.get(name) for name in ("model", "settings", "values")
            }
            if None in part_description.values():
                raise UsageError(
                    "These buckets were written from a whole model: give it to commit()."
                )
            if description and part_description != description:
                raise UsageError(
                    f"Bucket {part.settings['bucket']} has other settings or values of the whole "
                    "log than the bucket before: every part must be of one fit."
                )
            description = part_description
            ads.add(part.tables["ad"])
            sequences.add(part.tables["sequence"])
            for name, table in part.tables.items():
                if name.startswith(OF_LOG):
                    _add_common(tables, name.removeprefix(OF_LOG), table)
        tables |= {"ads": ads.to_table(), "sequences": sequences.to_table()}
        text = text_from_tables(tables)
        impressions, clicks = (ads.total(name) for name in ("impressions", "clicks"))
        if text is not None:
            rows = _all_rows(impressions)
            shown_ads = ShownAds(_keys(tables["ads"], AD), rows, impressions, clicks)
            tables["words"] = CorpusWords.count(shown_ads, TextIndex(text))[0].to_table()
        lengths = read_lengths({"lengths": tables["counts_lengths"]})
        totals = TrainingTotals(
            float(sequences.total("sessions").sum()),
            n_queries,
            len(impressions),
            n_pairs,
            float(impressions.sum()),
            float(clicks.sum()),
            len(lengths) - 1,
        )
        return cls(description, tables, totals)


class _DictionaryTotals:
    """The distinct ads, or click sequences, of several tables, and their totals."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._table: pa.Table | None = None

    def add(self, table: pa.Table) -> None:
        """Add the totals of a table; other columns keep their first value."""
        if self._table is None:
            self._table = table
            return
        first, columns = self._table, {}
        keys, codes = unite([_keys(part, self._key) for part in (first, table)])
        row = np.zeros(len(keys), np.int64)
        for start, code in ((first.num_rows, codes[1]), (0, codes[0])):  # rows of the first win
            row[code] = start + np.arange(len(code))
        rows = pa.concat_tables([first, table])
        for name in rows.column_names:
            if name.startswith("totals."):
                values = rows[name].to_numpy()
                columns[name] = pa.array(np.bincount(np.concatenate(codes), values, len(keys)))
            else:
                columns[name] = rows[name].take(pa.array(row)).combine_chunks()
        self._table = pa.table(columns)

    def to_table(self) -> pa.Table:
        """Return all keys, sorted, with their totals."""
        return self._table

    def total(self, name: str) -> Float64:
        """Return one of the totals."""
        assert self._table is not None  # noqa: S101, there is at least one bucket
        return np.asarray(self._table[f"totals.{name}"].to_numpy())


def _keys(table: pa.Table, key: str) -> pa.Array:
    return table[key].combine_chunks() if key == AD else sequence_keys(table)


def _add_common(tables: dict[str, pa.Table], name: str, table: pa.Table) -> None:
    """Add a table of the whole log, which must be the same in every bucket."""
    if not table.equals(tables.setdefault(name, table)):
        raise UsageError(
            f"The table {name} of the whole log differs between buckets: every part must be of "
            "one fit."
        )


def read_corpus(values: dict[str, Any], tables: dict[str, pa.Table], overall: float) -> Corpus:
    """Read the corpus, with all ads and words, from the tables of a folder."""
    strings = read_strings(tables, "ads", AD, ascending=True)
    text = text_from_tables(tables)
    prior = None
    if "ad_prior" in values:
        columns = {name: tables["ads"][f"prior_ads.{name}"] for name in ("mean", "strength")}
        no_pairs = {name: np.zeros(0) for name in columns}
        prior_tables = {"ads": pa.table(columns), "pairs": pa.table(no_pairs)}
        if "prior_words" in tables:
            prior_tables["words"] = tables["prior_words"]
        prior = AdPrior.from_tables(values["ad_prior"], prior_tables)
    if text is not None:
        count_words = partial(CorpusWords.from_tables, tables, "words", overall)
        return Corpus(strings, TextIndex(text), count_words, prior)
    totals = [
        read_numbers(tables, "ads", f"totals.{name}", length=len(strings), low=0)
        for name in ("impressions", "clicks")
    ]
    shown_ads = ShownAds(strings, _all_rows(totals[0]), *totals)
    return Corpus(strings, None, partial(ads_as_words, shown_ads, overall), prior)


def ads_as_words(shown_ads: ShownAds, overall: float) -> CorpusWords:
    """Count the words of ads without text: their ids."""
    words, _ = CorpusWords.count(shown_ads, None)
    return CorpusWords(words.words, words.totals, overall)


def _all_rows(values: Float64) -> Int32:
    return np.arange(len(values), dtype=np.int32)
