"""How often each query occurs in the training log, and its volume bucket."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.ragged import Float64, Int64
from reclick.data.string_index import Interner
from reclick.profile import VOLUME_NAMES, volume_bucket


class QueryVolumes:
    """The training volume of any query; 0 for one that does not occur there.

    >>> from reclick import count
    >>> log = {"query": ["pizza"] * 11, "ads": [["a"]] * 11, "clicks": [[1]] * 11}
    >>> volumes, queries = QueryVolumes(count(log)), pa.array(["pizza", "sushi"])
    >>> volumes.lookup(queries), volumes.buckets(queries)
    (array([11.,  0.]), array([1, 0]))
    """

    names = VOLUME_NAMES

    def __init__(self, counts: Counts) -> None:
        self._index = Interner()
        self._index.codes(counts.queries)
        self._volumes = np.append(counts.volumes, 0.0)  # the last is for code −1, an unknown query

    def lookup(self, queries: pa.Array) -> Float64:
        """The training sessions of each query [query]."""
        return np.asarray(self._volumes[self._index.find(queries)])

    def buckets(self, queries: pa.Array) -> Int64:
        """The volume bucket of each query [query], an index into `names`."""
        return volume_bucket(self.lookup(queries))

    def session_buckets(self, batch: SessionBatch) -> Int64:
        """The volume bucket of each session's query [session]; each query is looked up once."""
        used, index = np.unique(batch.query, return_inverse=True)
        return np.asarray(self.buckets(batch.queries.take(pa.array(used)))[index])
