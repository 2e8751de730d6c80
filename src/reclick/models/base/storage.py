"""Saving a fitted model to a folder, and restoring its values, which are checked.

`reclick.models.loading` opens the folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from reclick.data.stored_tables import read_numbers, table_error
from reclick.errors import StoreError, check_range
from reclick.fitting.attractiveness_prior import AdPrior
from reclick.models.base.description import DescribedModel
from reclick.models.provenance import provenance_to_table
from reclick.models.query_rows import QueryRows
from reclick.models.text_pair_index import counts_from_tables, counts_to_tables
from reclick.runtime import artifact
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import Location, resolve

FIT_REPORT = ("iterations_", "converged_", "objective_", "message_")  # of an iterative fit
MOST_STORED_REDUNDANCY = 1e6
PROBABILITY_ROUNDING = 1e-9  # a stored probability may be outside its limits by this
MIXING_WEIGHTS = ("mixing_", "mixing_prior_")
NEVER_NEGATIVE = ("exposure_", "information_", "clicks_", "pooled_")
FACTORS = ("typical_outside_",)  # which multiply or divide weights
LARGEST_FACTOR = 1e30


class StoredModel(DescribedModel):
    """A model that can be saved, and restored from what was saved."""

    pair_parameters: ClassVar[tuple[str, ...]] = ()  # fitted attributes with one value per pair
    query_parameters: ClassVar[tuple[str, ...]] = ()  # … one probability per query, or None
    global_parameters: ClassVar[tuple[str, ...]] = ()  # … common to all pairs: numbers, arrays
    probabilities: ClassVar[tuple[str, ...]] = ()  # the pair and global ones in [0, 1]
    table_rows: ClassVar[Mapping[str, str]] = {}  # row types of its own tables; see query_rows

    @check_arguments
    def save(
        self, folder: Location, *, overwrite: bool = False, buckets: int | None = None
    ) -> None:
        """Write the model to a folder, atomically: a reader sees the old model or the new one.

        If the model was loaded from the folder and another process has saved to it since, an error
        is raised unless `overwrite`. `rc.updating` locks the folder in the meantime. With
        `buckets`, the model is written in so many parts, by a hash of the query. `rc.load` then
        reads only the parts that an answer needs, so the model may be larger than memory.
        """
        self.check_fitted()
        origin, place = getattr(self, "_origin", None), resolve(folder)
        replaces = origin[1] if origin and origin[0] == place and not overwrite else None
        if buckets is not None:
            from reclick.models.buckets import BucketWriter

            writer = BucketWriter.start(folder, buckets)
            with writer.lock():
                fingerprint = writer.commit(
                    writer.write(self._whole), self._whole, replaces=replaces
                )
            self._origin = place, fingerprint
            return
        values, tables = self._save_tables()
        fingerprint = artifact.write(
            folder,
            kind="model",
            settings={
                "model": self.name,
                "settings": self.get_params(),
                "values": values,
                "provenance": [log.to_dict() for log in self.provenance_],
            },
            tables={**tables, "provenance": provenance_to_table(self.provenance_)},
            replaces=replaces,
        )
        self._origin = place, fingerprint

    def _to_tables(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """Return what `save` writes in addition to settings: values of the manifest, and tables."""
        tables = counts_to_tables(self._pairs.counts, self._pairs.text)
        fitted = {name: getattr(self, name) for name in self.pair_parameters if hasattr(self, name)}
        if fitted:
            tables["pairs"] = pa.table(fitted)
        per_query = {name: getattr(self, name) for name in self.query_parameters}
        if any(value is not None for value in per_query.values()):
            columns = {name: value for name, value in per_query.items() if value is not None}
            tables["queries"] = pa.table(columns)
        reports = (name for name in (*FIT_REPORT, "prior_report_") if hasattr(self, name))
        names = dict.fromkeys((*self.global_parameters, *reports))
        values = {name: np.asarray(getattr(self, name)).tolist() for name in names}
        if self.hyperparameters_:
            values["hyperparameters_"] = self.hyperparameters_
        if self._pairs.ad_prior is not None:
            values["ad_prior"], prior = self._pairs.ad_prior.to_tables()
            tables |= {f"prior_{name}": table for name, table in prior.items()}
        return values, tables

    def _save_tables(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """Return `_to_tables`, with the component of random clicks and the redundancy, if any."""
        values, tables = self._to_tables()
        noise = {} if self.noise_ is None else {"noise_": self.noise_.to_value()}
        redundancy = {"redundancy_": self.redundancy_} if self.redundancy_ else {}
        return {**values, **noise, **redundancy}, tables

    def _load_tables(self, values: dict[str, Any], tables: dict[str, pa.Table]) -> None:
        """Restore a fit from what `_save_tables` returned."""
        rest = dict(values)
        noise, redundancy = rest.pop("noise_", None), rest.pop("redundancy_", None)
        self._from_tables(rest, tables)
        if redundancy is not None:
            check_range("redundancy_", redundancy, 0, MOST_STORED_REDUNDANCY)
            self.redundancy_ = float(redundancy)
        if noise is not None:
            from reclick.models.noise import Noise

            self.noise_ = Noise.from_value(noise)

    def _to_rows(self) -> tuple[QueryRows, dict[str, pa.Table]]:
        """Split the tables of `save` into rows of queries, and tables of the whole log."""
        _, tables = self._to_tables()
        return QueryRows.from_tables(type(self).__name__, tables, self.table_rows)

    def _from_tables(self, values: dict[str, Any], tables: dict[str, pa.Table]) -> Self:
        """Restore a fit from what `_to_tables` returned."""
        values = dict(values)
        prior = values.pop("ad_prior", None)
        if "hyperparameters_" in values:
            self.hyperparameters_ = values.pop("hyperparameters_")
        counts, text = counts_from_tables(tables)
        for name in tables["pairs"].column_names if "pairs" in tables else ():
            if name not in (*self.pair_parameters, "word_exposure_", "word_clicks_"):
                raise table_error("pairs", f"{type(self).__name__} has no parameter {name}")
            low, high = self._limits(name)
            size = len(counts.impressions)
            column = read_numbers(tables, "pairs", name, length=size, low=low, high=high)
            setattr(self, name, column.copy())
        for name in tables["queries"].column_names if "queries" in tables else ():
            if name not in self.query_parameters:
                raise table_error("queries", f"{type(self).__name__} has no parameter {name}")
            size = len(counts.queries)
            rates = read_numbers(tables, "queries", name, length=size, low=0.0, high=1.0)
            setattr(self, name, rates.copy())
        for name, value in values.items():
            setattr(self, name, self._check_value(name, value))
        for name in self.global_parameters:
            if not hasattr(self, name):
                raise StoreError(
                    f"The saved {type(self).__name__} has no {name}: it is of another version of "
                    "Reclick, or was altered. Fit it again, and save to a new folder."
                )
        self._pairs = self._index(counts, text)
        if prior is not None:
            self._pairs.ad_prior = self._read_ad_prior(prior, tables)
        return self

    def _read_ad_prior(self, values: dict[str, Any], tables: dict[str, pa.Table]) -> AdPrior:
        """Read the prior of each pair; the prior of ads is that of the corpus, if there is one."""
        prior_tables = {
            name.removeprefix("prior_"): table
            for name, table in tables.items()
            if name.startswith("prior_")
        }
        n_pairs, corpus = len(self._pairs), self._corpus
        if corpus is not None and corpus.ad_prior is not None:
            return corpus.ad_prior.with_pairs(prior_tables, n_pairs)
        ad_prior = AdPrior.from_tables(values, prior_tables)
        if not ad_prior.is_for(n_pairs, len(self._pairs.counts.ads)):
            raise table_error("prior_pairs", "its rows are not those of the pairs and ads")
        return ad_prior

    def _check_value(self, name: str, value: Any) -> Any:
        """Check a fitted value of a manifest; raise an error if no fit has this name or type."""
        if name == "objective_" and isinstance(value, list):
            return tuple(float(number) for number in value)
        if name in ("message_", "prior_report_") and isinstance(value, str):
            return value
        if name not in (*self.global_parameters, *FIT_REPORT):
            raise StoreError(
                f"The folder has a value {name!r}, which {type(self).__name__} does not have: it "
                "was altered. Fit again, and save to a new folder."
            )
        if value is None and name in ("outcome_rates_", "cv_"):  # no outcomes, no cross-validation
            return None
        numbers = np.array(value)
        if numbers.dtype.kind not in "fiub" or not np.isfinite(numbers).all():
            raise StoreError(
                f"The folder has {name} = {value!r:.100}, expected numbers: it was altered. "
                "Fit again, and save to a new folder."
            )
        low, high = self._limits(name)
        is_strict = name == "prior_mean_" and not 0 < float(numbers) < 1
        if is_strict or (numbers.size and (numbers.min() < low or numbers.max() > high)):
            expected = "no negative number" if high > 2 and not is_strict else "a probability"
            if name in FACTORS:
                expected = "a positive number"
            raise StoreError(
                f"The folder has {name} = {value!r:.100}, expected {expected}: it was altered. "
                "Fit again, and save to a new folder."
            )
        if name in MIXING_WEIGHTS and (numbers.ndim != 1 or not np.isclose(numbers.sum(), 1)):
            raise StoreError(
                f"The folder has {name} = {value!r:.100}, expected mixing weights that add up to "
                "1: it was altered. Fit again, and save to a new folder."
            )
        return numbers if isinstance(value, list) else value

    def _limits(self, name: str) -> tuple[float, float]:
        """Return the least and the greatest value of a fitted attribute."""
        if name in self.probabilities or name in MIXING_WEIGHTS:
            return -PROBABILITY_ROUNDING, 1 + PROBABILITY_ROUNDING
        if name in FACTORS:
            return 1 / LARGEST_FACTOR, LARGEST_FACTOR
        return (0.0 if name.endswith(NEVER_NEGATIVE) else -np.inf), np.inf
