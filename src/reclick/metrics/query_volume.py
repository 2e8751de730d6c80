"""How often each query was seen in training, and its bucket."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from reclick.data.batch import Float64, Int64, SessionBatch
from reclick.data.counts import Counts
from reclick.data.string_index import Interner
from reclick.profile import VOLUME_NAMES, volume_bucket


class QueryVolumes:
    """The training volume of any query; 0 for one never seen.

    >>> from reclick.data.counts import count
    >>> volumes = QueryVolumes(count({"query": ["pizza"] * 11, "ads": [["a"]] * 11, "clicks": [[1]] * 11}))
    >>> volumes.of(pa.array(["pizza", "sushi"])), volumes.buckets(pa.array(["pizza", "sushi"]))
    (array([11.,  0.]), array([1, 0]))
    """

    names = VOLUME_NAMES

    def __init__(self, counts: Counts) -> None:
        self._index = Interner()
        self._index.codes(counts.queries)
        self._volumes = np.append(counts.volumes, 0.0)  # the last for code −1: never seen

    def of(self, queries: pa.Array) -> Float64:
        """The sessions of each query in training [query]."""
        return np.asarray(self._volumes[self._index.find(queries)])

    def buckets(self, queries: pa.Array) -> Int64:
        """The bucket of each query's volume [query], an index into `names`."""
        return volume_bucket(self.of(queries))

    def buckets_of_sessions(self, batch: SessionBatch) -> Int64:
        """The bucket of each session's query [session]; only queries that the batch uses are looked up."""
        used, back = np.unique(batch.query, return_inverse=True)
        return np.asarray(self.buckets(batch.queries.take(pa.array(used)))[back])
