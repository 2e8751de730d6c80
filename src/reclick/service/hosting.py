"""The models of a service: loaded from folders, and replaced when a folder changes.

One `HostedModel` makes an answer from beginning to end. When a folder changes, its new model is
loaded while the old one still answers, tried on a page, and then replaces it. If the folder cannot
be loaded, the old model stays in place, and `HostedFolder.error` has the reason.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.errors import ReclickError, StoreError, UsageError
from reclick.models import ClickModel, load
from reclick.models.bucketed_model import BucketedModel
from reclick.predictor import Predictor
from reclick.runtime import artifact
from reclick.runtime.filesystem import AnyPath, Location, as_path
from reclick.runtime.time_limit import check_time

VERSION_LENGTH = 12  # characters of the fingerprint that name a version
LOOK_SECONDS = 0.1  # between two checks of the time, while another request sorts the queries
SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
events = logging.getLogger("reclick.service")


@dataclass(frozen=True)
class HostedModel:
    """A loaded model with its name and version. It never changes."""

    name: str
    version: str
    model: ClickModel
    loaded_at: float = field(default_factory=time.time)
    _sorting: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def queries(self) -> QueryIndex:
        """The queries of the model by prefix. The first request sorts them, other requests wait."""
        while not self._sorting.acquire(timeout=LOOK_SECONDS):
            check_time()
        try:
            return self._query_index
        finally:
            self._sorting.release()

    @cached_property
    def _query_index(self) -> QueryIndex:
        volumes = self.model.query_volumes().combine_chunks()
        return QueryIndex(volumes["query"].combine_chunks(), volumes["sessions"].to_numpy())

    @cached_property
    def fitted_at(self) -> float | None:
        """When the model last learned from a log; None where its folder does not say."""
        dates = [datetime.fromisoformat(each.date) for each in self.model.provenance_]
        return max(dates).replace(tzinfo=UTC).timestamp() if dates else None

    def predictor(self, *, top: int, next_click: bool, satisfaction: bool) -> Predictor:
        """Return a predictor of this model, which is made once per combination of options."""
        key = (top, next_click, satisfaction)
        predictor = self._predictors.get(key)
        if predictor is None:
            predictor = Predictor(
                self.model, top=top, next_click=next_click, satisfaction=satisfaction, max_ads=1000
            )
            self._predictors[key] = predictor
        return predictor

    @cached_property
    def _predictors(self) -> dict[tuple[int, bool, bool], Predictor]:
        return {}

    def describe(self) -> dict[str, Any]:
        """Describe the model for `GET /v1/models`."""
        totals = self.model.training_totals
        return {
            "name": self.name,
            "version": self.version,
            "type": self.model.name,
            "assumes": self.model.assumes,
            "ordered": self.model.ordered,
            "satisfaction": self.model.satisfaction,
            "settings": self.model.get_params(),
            "queries": totals.queries,
            "ads": totals.ads,
            "pairs": totals.pairs,
            "sessions": totals.sessions,
            "max_ads": totals.max_ads,
            "advice": self.model.advice,
            "fitted_at": self.fitted_at,
            "loaded_at": self.loaded_at,
        }


class QueryIndex:
    """The queries of a log in alphabetical order, so that those with a prefix are neighbours."""

    def __init__(self, queries: pa.Array, sessions: Any) -> None:
        lower = pc.utf8_lower(queries)
        order = pc.array_sort_indices(lower)
        self._keys = lower.take(order)
        self._queries = queries.take(order)
        self._sessions = np.asarray(sessions)[order.to_numpy()]

    def find(self, prefix: str, limit: int) -> list[dict[str, Any]]:
        """Find the queries with a prefix, ignoring case, those with most sessions first.

        >>> index = QueryIndex(pa.array(["shoes", "Shirts", "tea"]), [5, 9, 2])
        >>> [each["query"] for each in index.find("sh", 10)]
        ['Shirts', 'shoes']
        """
        key = pc.utf8_lower(pa.scalar(prefix)).as_py()  # as the keys: Python's rules differ
        start = self._search(lambda text: text >= key)
        end = self._search(lambda text: text > key and not text.startswith(key))
        sessions = self._sessions[start:end]
        best = _find_largest(sessions, limit)
        return [
            {"query": self._queries[start + int(i)].as_py(), "sessions": float(sessions[i])}
            for i in best
        ]

    def _search(self, is_after: Callable[[str], bool]) -> int:
        """Return the first row for which `is_after` is true; it must be true for all later rows."""
        low, high = 0, len(self._keys)
        while low < high:
            middle = (low + high) // 2
            if is_after(self._keys[middle].as_py()):
                high = middle
            else:
                low = middle + 1
        return low


def _find_largest(values: Any, count: int) -> Any:
    """Return the indices of the largest values, largest first; equal values in their order.

    >>> _find_largest(np.array([1.0, 3.0, 2.0, 3.0]), 3).tolist()
    [1, 3, 2]
    """
    places = np.arange(len(values))
    if len(values) > 4 * count:  # sort only the values that may be among the largest
        least = np.partition(values, len(values) - count)[len(values) - count]
        places = np.flatnonzero(values >= least)
    return places[np.argsort(-values[places], kind="stable")][:count]


@dataclass
class HostedFolder:
    """A folder and the model that was last loaded from it."""

    name: str
    path: AnyPath
    current: HostedModel | None = None
    error: str = ""  # why the newest content of the folder is not served
    failed_content: str = ""  # that could not be loaded, so that it is not tried again
    reloads: int = 0
    failures: int = 0

    def refresh(self) -> bool:
        """Load the folder if its content has changed; return whether the model was replaced."""
        content = ""
        try:
            version = artifact.fingerprint(self.path)[:VERSION_LENGTH]
            if self.current is not None and version == self.current.version:
                self.error, self.failed_content = "", ""
                return False
            content = _describe_content(self.path, version)
            if content == self.failed_content:
                return False
            hosted = self._load()
        except OSError as error:  # perhaps temporary: the same content is tried again
            self._fail(str(error))
            return False
        except ReclickError as error:
            self._fail(str(error), content)
            return False
        except Exception as error:  # the thread that watches the folders must go on
            message = f"{self.path} cannot be loaded: {type(error).__name__}: {error}"
            self._fail(message, content)
            return False
        self.reloads += self.current is not None
        self.current, self.error, self.failed_content = hosted, "", ""
        return True

    def _load(self) -> HostedModel:
        """Load the model, with the version that was read, even if the folder has changed since."""
        model = load(self.path)
        hosted = HostedModel(self.name, model._origin[1][:VERSION_LENGTH], model)
        _try_page(hosted)
        return hosted

    def index_queries(self) -> None:
        """Sort the queries of the current model now, so that no request has to wait for it.

        For a model in buckets, all of which would have to be read, the first request for queries
        sorts them.
        """
        if self.current is None or isinstance(self.current.model, BucketedModel):
            return
        try:
            _ = self.current.queries
        except Exception as error:  # logged only: a request for queries raises it again
            content = {"event": "queries_not_sorted", "model": self.name}
            message = f"{type(error).__name__}: {error}"
            events.warning(json.dumps({**content, "message": message}))

    def _fail(self, message: str, content: str = "") -> None:
        """Record a failure; the same `content` is not tried again."""
        self.failures += message != self.error
        self.error, self.failed_content = message, content


def _describe_content(folder: AnyPath, version: str) -> str:
    """Describe version and state of each file, as a folder changes while it is copied."""
    files = []
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            files.append(f"{path.name} {status.st_size} {status.st_mtime}")
    return "\n".join([version, *sorted(files)])


def _try_page(hosted: HostedModel) -> None:
    """Predict one page, so that a model that cannot answer is never put in place."""
    hosted.describe()
    query, ads = hosted.model.first_page(4)
    page = pa.record_batch({"query": [query], "ads": [ads]})
    answer = hosted.predictor(top=3, next_click=True, satisfaction=hosted.model.satisfaction)(page)
    if not np.isfinite(np.asarray(answer["expected_clicks"])).all():
        raise StoreError(f"The model {hosted.name} does not answer with numbers. Fit it again.")


class ModelHost:
    """Models by name, the first one being the default, and a thread that watches their folders."""

    def __init__(self, folders: Mapping[str, Location]) -> None:
        if not folders:
            raise UsageError("Give at least one folder of a model.")
        for name in folders:
            if not SAFE_NAME.fullmatch(name):
                raise UsageError(
                    f"The model name {name!r} cannot stand in an address. Use letters, digits, "
                    "dots, - and _, e.g. NAME=FOLDER."
                )
        self.folders = {name: HostedFolder(name, as_path(path)) for name, path in folders.items()}
        self.default = next(iter(self.folders))
        self.on_change: Callable[[HostedFolder, bool], None] = lambda folder, replaced: None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def get(self, name: str | None) -> HostedModel | None:
        """Return the current model of a name, by default the first; None if there is none."""
        folder = self.folders.get(self.default if name is None else name)
        return None if folder is None else folder.current

    @property
    def ready(self) -> bool:
        """Whether every folder has a model in place."""
        return all(folder.current is not None for folder in self.folders.values())

    def watch(self, seconds: float) -> None:
        """Check for changed folders every `seconds`, in a thread, until `stop`."""
        thread = threading.Thread(
            target=self._watch, args=(seconds,), name="reclick-models", daemon=True
        )
        thread.start()
        self._thread = thread

    def _watch(self, seconds: float) -> None:
        while not self._stop.wait(seconds):
            for folder in self.folders.values():
                before = folder.error
                is_replaced = folder.refresh()
                if is_replaced or (folder.error and folder.error != before):
                    self.on_change(folder, is_replaced)
                if is_replaced:
                    folder.index_queries()

    def stop(self) -> None:
        """End the watching thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
