"""Load a saved model: open its folder, restore the model, and check what it answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from reclick.errors import StoreError
from reclick.models.registry import MODELS
from reclick.runtime.arguments import check_arguments

if TYPE_CHECKING:
    from reclick.data.batch import SessionBatch
    from reclick.models.base import ClickModel
    from reclick.models.provenance import SeenLogs
    from reclick.runtime.filesystem import Location


@check_arguments
def load(folder: Location, *, cache_bytes: int | None = None) -> ClickModel:
    """Load a saved model; its answers are the same as before, to the last bit.

    A model that was saved in buckets is opened without reading them: see `BucketedModel`. At
    most about `cache_bytes` of its buckets are kept in memory, by default 1 GiB.
    """
    from reclick.runtime import artifact
    from reclick.runtime.filesystem import resolve

    contents = artifact.read(folder, kind="model")
    name = str(contents.settings.get("model"))
    if name not in MODELS:
        raise StoreError(
            f"{folder} holds the model {name!r}, which this Reclick does not know. If it is one "
            f"of your own, call rc.register first. Known: {', '.join(MODELS)}."
        )
    with explain_load_errors(folder):
        provenance: SeenLogs = ()
        if "provenance" in contents.tables:
            from reclick.models.provenance import provenance_from_table

            provenance = provenance_from_table(
                contents.settings["provenance"], contents.tables["provenance"]
            )
        model: ClickModel
        if "buckets" in contents.settings:
            from reclick.models.bucketed_model import BucketedModel

            model = BucketedModel.open(folder, contents, cache_bytes)
            model.provenance_ = provenance
        else:
            model = MODELS[name](**contents.settings["settings"])
            model._load_tables(contents.settings["values"], contents.tables)
            model.provenance_ = provenance
            check_answers(model)
        model._origin = resolve(folder), contents.fingerprint
    return model


@contextmanager
def explain_load_errors(folder: object) -> Iterator[None]:
    """Turn the errors of a block that builds a model into StoreErrors that name its folder."""
    try:
        yield
    except StoreError as error:
        raise StoreError(f"{folder} cannot be loaded. {error}") from error
    except Exception as error:  # an altered folder may raise anything
        raise StoreError(
            f"{folder} cannot be loaded: {type(error).__name__}: {error}. It was altered, or "
            "written by another version: fit again, and save to a new folder."
        ) from error


@check_arguments
@contextmanager
def updating(folder: Location) -> Iterator[ClickModel]:
    """Load a model, and save it at the end; no other process can save to the folder meanwhile.

    After an error nothing is saved. A model in buckets is loaded whole, into memory.

    >>> import tempfile
    >>> from reclick.models import MultiClick
    >>> day = {"query": ["pizza"], "ads": [["a", "b"]], "clicks": [[1]]}
    >>> folder = tempfile.mkdtemp()
    >>> MultiClick().fit(day).save(folder)
    >>> with updating(folder) as model:
    ...     model.update(day, again=True).training_counts.total
    2.0
    >>> load(folder).training_counts.total
    2.0
    """
    from reclick.models.bucketed_model import BucketedModel
    from reclick.runtime import artifact

    with artifact.lock_folder(folder):
        model = load(folder)
        buckets = None
        if isinstance(model, BucketedModel):
            buckets, model = model.buckets, model.to_memory()
        yield model
        model.save(folder, buckets=buckets)


def check_answers(model: ClickModel) -> None:
    """Raise `StoreError` if a loaded model returns impossible values for a page of its log."""
    import numpy as np

    if not model.training_totals.pairs:
        return
    query, ads = model.first_page(min(model.max_page_ads or 4, 4) - 1)
    page = _make_page(query, [*ads, "\0an ad never shown"])
    probability = model._distribution(page, model._index_text(None))(0, 1).click_prob()
    if model.attractiveness:
        values = model.relevance({"query": [query] * len(ads), "ad": ads})["relevance"].to_numpy()
        probability = np.concatenate([probability, values])
    if not ((probability >= -1e-9) & (probability <= 1 + 1e-9)).all():
        raise StoreError(
            "Its click probabilities are not between 0 and 1: it was altered. Fit again, and save "
            "to a new folder."
        )


def _make_page(query: str, ads: list[str]) -> SessionBatch:
    """One page without clicks."""
    import numpy as np
    import pyarrow as pa

    from reclick.data.batch import SessionBatch

    return SessionBatch(
        queries=pa.array([query]),
        ads=pa.array(ads),
        query=np.zeros(1, np.int32),
        ad=np.arange(len(ads), dtype=np.int32),
        page=np.array([0, len(ads)]),
        click=np.zeros(0, np.int32),
        clicks=np.zeros(2, np.int64),
    )
