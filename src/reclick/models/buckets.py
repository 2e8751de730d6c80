"""A model folder in buckets: the rows of each query in the bucket of its hash, the rest in common.

    model/manifest.json            settings, values of the whole log, and the buckets with hashes
    model/ads-….parquet            every ad, and what else all buckets have in common
    model/parts-…/00012/           the bucket 12: an artifact with the rows of its queries

Buckets may be written in any order, by any number of processes, and more than once. They are not
part of the model until `BucketWriter.commit` replaces the manifest: a writer that is killed before
leaves the old model.
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

from reclick.data.counts import read_lengths
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
OF_LOG = "log."  # before the name of a table of the whole log, in the folder of a bucket


@dataclass(frozen=True)
class WrittenBucket:
    """A bucket that was written, as the manifest names it."""

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
        """A writer of a new version; nothing of the folder changes yet."""
        check_range("buckets", check_whole("buckets", buckets, 1), 1, MOST_BUCKETS)
        artifact.check_target(folder, "model")
        return cls(folder, buckets, f"parts-{uuid4().hex[:16]}")

    @check_arguments
    def write(self, model: ClickModel) -> list[WrittenBucket]:
        """Write every bucket of a model that is in memory as a whole."""
        rows, _ = model._to_rows()
        chosen = enumerate(rows.buckets(self.buckets))
        return [
            self._write_rows(i, rows.take(queries), {}) for i, queries in chosen if len(queries)
        ]

    @check_arguments
    def write_part(self, model: ClickModel, bucket: int) -> WrittenBucket | None:
        """Write the queries of one bucket of a model; None where it has none of them.

        The model may hold other queries too. What it says of the whole log (its values, the lengths
        of pages, the text and the prior of ads) must be the same in every process; `commit`
        compares it.
        """
        check_range("bucket", check_whole("bucket", bucket, 0), 0, self.buckets - 1)
        rows, of_log = model._to_rows()
        queries = rows.buckets(self.buckets)[bucket]
        if not len(queries):
            return None
        if len(queries) < rows.query.num_rows:
            rows = rows.take(queries)
        return self._write_rows(bucket, rows, of_log, describe_model(model))

    @check_arguments
    def write_rows(
        self, model: ClickModel, bucket: int
    ) -> tuple[WrittenBucket, dict[str, pa.Table]]:
        """Write all queries of a model as one bucket, without what holds for the whole log.

        Return that too: `commit` gets it from somebody who knows all buckets.
        """
        rows, of_log = model._to_rows()
        return self._write_rows(bucket, rows, {}), of_log

    def _write_rows(
        self,
        bucket: int,
        rows: QueryRows,
        of_log: dict[str, pa.Table],
        described: dict[str, Any] | None = None,
    ) -> WrittenBucket:
        tables = rows.with_totals().as_dict()
        tables |= {f"{OF_LOG}{name}": table for name, table in of_log.items()}
        fingerprint = artifact.write(
            self.bucket_folder(bucket),
            kind="bucket",
            settings={"bucket": bucket, "buckets": self.buckets, **(described or {})},
            tables=tables,
        )
        sizes = rows.query.num_rows, rows.pair.num_rows
        return WrittenBucket(bucket, fingerprint, *sizes, rows.nbytes)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other writers away from the folder meanwhile, where it can be locked."""
        place = as_path(self.folder)
        with explain_write_errors(str(place)):
            place.mkdir(parents=True, exist_ok=True)
        with artifact.lock_folder(place):
            yield

    @check_arguments
    def bucket_folder(self, bucket: int) -> AnyPath:
        """Where a bucket of this version is."""
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
        """Make what was written the model of the folder, in one step; return its fingerprint.

        What holds for the whole log is taken from the whole `model`, or is `common`. Without
        either it is added up from what `write_part` wrote beside each bucket.
        """
        buckets = sorted((each for each in written if each is not None), key=lambda w: w.bucket)
        self._check_written(buckets)
        if common is None:
            common = CommonTables.of(model) if model is not None else self._merge_common(buckets)
        seen = model.provenance_ if provenance is None and model is not None else provenance or ()
        settings = {
            **common.described,
            "provenance": [each.to_dict() for each in seen],
            "totals": common.totals._asdict(),
            "buckets": self.buckets,
            "parts": self.parts,
            "written": [asdict(each) for each in buckets],
        }
        return artifact.write(
            self.folder,
            kind="model",
            settings=settings,
            tables={**common.tables, "provenance": provenance_to_table(seen)},
            replaces=replaces,
            folders=[self.parts],
        )

    def copy(self, stored: artifact.Artifact, source: AnyPath) -> str:
        """Copy a model in buckets, whose manifest and common tables were read."""
        written = []
        for each in stored.settings["written"]:
            number = int(each["bucket"])
            part = artifact.read(bucket_folder(source, stored.settings["parts"], number))
            target, settings = self.bucket_folder(number), part.settings
            copied = artifact.write(target, kind="bucket", settings=settings, tables=part.tables)
            written.append({**each, "fingerprint": copied})
        settings = {**stored.settings, "parts": self.parts, "written": written}
        tables, folders = stored.tables, [self.parts]
        return artifact.write(
            self.folder, kind="model", settings=settings, tables=tables, folders=folders
        )

    def _check_written(self, written: Sequence[WrittenBucket]) -> None:
        """Refuse buckets that are missing, are there twice, or are not what was written."""
        numbers = [each.bucket for each in written]
        if len(set(numbers)) < len(numbers):
            twice = next(each for each in numbers if numbers.count(each) > 1)
            raise UsageError(f"Bucket {twice} was given twice: give the last that was written.")
        if not written:
            raise UsageError("No bucket was written: there is no model to commit.")
        for each in written:
            found = artifact.fingerprint(self.bucket_folder(each.bucket))
            if found != each.fingerprint:
                raise StoreError(
                    f"{self.bucket_folder(each.bucket)} is not what was written: write it again."
                )

    def _merge_common(self, written: Sequence[WrittenBucket]) -> CommonTables:
        """What holds for the whole log, added up over the buckets."""
        large = {"query", "pair", "visit"}
        parts = (
            artifact.read(self.bucket_folder(each.bucket), leave_out=large) for each in written
        )
        pairs = sum(each.pairs for each in written)
        return CommonTables.merge(parts, sum(each.queries for each in written), pairs)


def bucket_folder(folder: Location, parts: str, bucket: int) -> AnyPath:
    """Where a bucket of a model is."""
    return as_path(folder) / parts / f"{bucket:05d}"


def describe_model(model: ClickModel) -> dict[str, Any]:
    """The settings and the values of a model, as a manifest has them."""
    values, _ = model._save_tables()
    return {"model": model.name, "settings": model.get_params(), "values": values}


# ---- what all buckets have in common


@dataclass(frozen=True)
class CommonTables:
    """What a model in buckets holds besides the rows of its queries."""

    described: dict[str, Any]  # model, settings and values
    tables: dict[str, pa.Table]
    totals: TrainingTotals

    @classmethod
    def of(cls, model: ClickModel) -> CommonTables:
        """That of a whole model."""
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
        """That of buckets, of which everything but the rows of queries was read."""
        described: dict[str, Any] = {}
        tables: dict[str, pa.Table] = {}
        ads, sequences = _DictionaryTotals(AD), _DictionaryTotals(SEQUENCE)
        for part in parts:
            own = {name: part.settings.get(name) for name in ("model", "settings", "values")}
            if None in own.values():
                raise UsageError(
                    "These buckets were written from a whole model: give it to commit()."
                )
            if described and own != described:
                raise UsageError(
                    f"Bucket {part.settings['bucket']} has other settings or values of the whole "
                    "log than the bucket before: every part must be of one fit."
                )
            described = own
            ads.add(part.tables["ad"])
            sequences.add(part.tables["sequence"])
            for name, table in part.tables.items():
                if name.startswith(OF_LOG):
                    _add_common(tables, name.removeprefix(OF_LOG), table)
        tables |= {"ads": ads.to_table(), "sequences": sequences.to_table()}
        text = text_from_tables(tables)
        shown, clicked = (ads.total(name) for name in ("impressions", "clicks"))
        if text is not None:
            every = ShownAds(_keys(tables["ads"], AD), _every_row(shown), shown, clicked)
            tables["words"] = CorpusWords.count(every, TextIndex(text))[0].to_table()
        lengths = read_lengths({"lengths": tables["counts_lengths"]})
        totals = TrainingTotals(
            float(sequences.total("sessions").sum()),
            n_queries,
            len(shown),
            n_pairs,
            float(shown.sum()),
            float(clicked.sum()),
            len(lengths) - 1,
        )
        return cls(described, tables, totals)


class _DictionaryTotals:
    """A dictionary of ads or of click sequences, and their totals, over several tables."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._table: pa.Table | None = None

    def add(self, table: pa.Table) -> None:
        """Add the totals; of other columns the first value stays."""
        if self._table is None:
            self._table = table
            return
        before, columns = self._table, {}
        keys, codes = unite([_keys(each, self._key) for each in (before, table)])
        row = np.zeros(len(keys), np.int64)
        for start, code in ((before.num_rows, codes[1]), (0, codes[0])):  # the first one stays
            row[code] = start + np.arange(len(code))
        both = pa.concat_tables([before, table])
        for name in both.column_names:
            if name.startswith("totals."):
                values = both[name].to_numpy()
                columns[name] = pa.array(np.bincount(np.concatenate(codes), values, len(keys)))
            else:
                columns[name] = both[name].take(pa.array(row)).combine_chunks()
        self._table = pa.table(columns)

    def to_table(self) -> pa.Table:
        """All keys, sorted, with their totals."""
        return self._table

    def total(self, name: str) -> Float64:
        """One of the totals."""
        assert self._table is not None  # noqa: S101, there is a bucket
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
    """What the tables of a folder say of all ads and words."""
    strings = read_strings(tables, "ads", AD, ascending=True)
    text = text_from_tables(tables)
    prior = None
    if "ad_prior" in values:
        columns = {name: tables["ads"][f"prior_ads.{name}"] for name in ("mean", "strength")}
        nothing = {name: np.zeros(0) for name in columns}
        of_prior = {"ads": pa.table(columns), "pairs": pa.table(nothing)}
        if "prior_words" in tables:
            of_prior["words"] = tables["prior_words"]
        prior = AdPrior.from_tables(values["ad_prior"], of_prior)
    if text is not None:
        count_words = partial(CorpusWords.from_tables, tables, "words", overall)
        return Corpus(strings, TextIndex(text), count_words, prior)
    totals = [
        read_numbers(tables, "ads", f"totals.{name}", length=len(strings), low=0)
        for name in ("impressions", "clicks")
    ]
    shown = ShownAds(strings, _every_row(totals[0]), *totals)
    return Corpus(strings, None, partial(ads_as_words, shown, overall), prior)


def ads_as_words(shown: ShownAds, overall: float) -> CorpusWords:
    """The words of ads without text: their ids."""
    words, _ = CorpusWords.count(shown, None)
    return CorpusWords(words.words, words.totals, overall)


def _every_row(values: Float64) -> Int32:
    return np.arange(len(values), dtype=np.int32)
