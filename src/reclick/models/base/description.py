"""The description of a model: its settings, its properties, and the log it was fitted to."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast, dataclass_transform

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.counts import Counts
from reclick.errors import Argument, NotFittedError, UsageError, check_whole
from reclick.models.provenance import SeenLogs
from reclick.models.query_rows import TrainingTotals
from reclick.models.settings import Setting, declare_settings, setting
from reclick.models.text_pair_index import Corpus, TextPairIndex
from reclick.runtime.arguments import check_arguments
from reclick.runtime.notebook import render_card
from reclick.runtime.wording import count_noun, suggest_names
from reclick.text.tokens import AdTokens

if TYPE_CHECKING:
    from reclick.models.base.click_model import ClickModel
    from reclick.models.noise import Noise


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(setting,))
class DeclaredSettings(ABC):  # noqa: B024, its subclass ClickModel has abstract methods
    """Base class that makes declared settings arguments of the constructor of a subclass."""

    settings: ClassVar[Mapping[str, Setting]] = {}  # by name, in the order of the constructor

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.settings = declare_settings(cls)


class DescribedModel(DeclaredSettings):
    """A model with settings, which may be fitted."""

    name: ClassVar[str]  # in MODELS, on the command line, in saved folders
    assumes: ClassVar[str]  # its assumptions on the behaviour of users, in a sentence
    reference: ClassVar[str]
    ordered: ClassVar[bool] = False  # backward clicks have a probability above 0
    all_sets_possible: ClassVar[bool] = True  # no set of clicked positions has probability 0
    attractiveness: ClassVar[bool] = True  # estimates the attractiveness of each (query, ad)
    satisfaction: ClassVar[bool] = False  # estimates how well each (query, ad) satisfies
    fits_from_counts: ClassVar[bool] = False  # a fit only needs `Counts`
    longest_page: ClassVar[int] = 2_000  # ads; a table of positions by last clicks grows with n²
    fits_in_buckets: ClassVar[bool] = False  # `fit_to` can fit it
    updates: ClassVar[bool] = False  # `update` can continue a fit
    uses_history: ClassVar[bool] = True  # prior means may come from an earlier log
    max_page_ads: ClassVar[int | None] = None  # longer pages raise an error
    overall_strength: ClassVar[float] = 1.0  # of one prior mean of attractiveness for all pairs
    hyperparameters_: Mapping[str, Any] = {}  # settings that the fit has used, chosen or not
    provenance_: SeenLogs = ()  # the logs that the model has learned from
    noise_: Noise | None = None  # the component of random clicks, if the model has one
    redundancy_: float = 0.0  # κ of ads that repeat clicked ones, if the model has it
    _corpus: Corpus | None = None  # for a model that has only some of the queries

    noise: str | None = setting(default=None, choices=("session", "user"), allow_none=True)

    def _set(self, values: Mapping[str, Any]) -> None:
        """Set all settings: to these values, or else to their defaults."""
        self._pairs: TextPairIndex  # of the training log, set by a fit
        self.prior_mean_: float  # of attractiveness
        for name in values:
            if name not in self.settings:
                near = suggest_names(name, self.settings, most=1)
                raise UsageError(
                    f"{name!r} is not a setting of {type(self).__name__}. "
                    f"{near}{' ' * bool(near)}Settings: {', '.join(self.settings)}."
                )
        for name, definition in self.settings.items():
            setattr(self, name, definition.check(name, values.get(name, definition.default)))
        self._check_settings()

    @property
    def _whole(self) -> ClickModel:
        """This object as a `ClickModel`, of which this class is only one part."""
        return cast("ClickModel", self)

    def _check_settings(self) -> None:
        """Raise an error for settings that cannot be combined; each setting is already checked."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name; `deep` is only for compatibility with scikit-learn."""
        return {name: getattr(self, name) for name in self.settings}

    def set_params(self, **settings: Any) -> Self:
        """Change settings. If any of them changes, the model is no longer fitted."""
        params = self.get_params()
        model = type(self)(**{**params, **settings})
        return self if model.get_params() == params else self._adopt_state(model)

    def clone(self) -> Self:
        """Return a new model with the same settings, not fitted."""
        return type(self)(**self.get_params())

    def _adopt_state(self, other: Self) -> Self:
        """Take the settings and the fit of another model, in one step.

        An interrupted fit therefore changes nothing.
        """
        origin = {name: value for name, value in vars(self).items() if name == "_origin"}
        self.__dict__ = {**vars(other), **origin}
        return self

    @property
    def advice(self) -> str:
        """A caution about this model with these settings; empty if there is none."""
        return ""

    # fitted or not

    @property
    def fitted(self) -> bool:
        """Whether the model is fitted."""
        # Fitted attributes are set last.
        names = reversed(vars(self))
        return any(name[-1] == "_" and name[0] != "_" for name in names)

    def check_fitted(self) -> None:
        """Raise a `NotFittedError` unless the model is fitted."""
        if not self.fitted:
            raise NotFittedError(
                f"{type(self).__name__} is not fitted yet. "
                "Call fit(sessions) first, or rc.load(folder)."
            )

    def check_uses_history(self) -> None:
        """Raise a `UsageError` unless the model takes prior means from a history."""
        if not self.uses_history:
            raise UsageError(
                f"{type(self).__name__} takes no priors from a history: leave out ",
                Argument("history"),
                ". To learn from the earlier log too, fit to both logs together.",
            )

    def __repr__(self) -> str:
        settings = (
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value != self.settings[name].default
        )
        fit = self._describe_fit() if self.fitted else ""
        return f"{type(self).__name__}({', '.join(settings)}){fit}"

    def _repr_html_(self) -> str:
        facts: dict[str, object] = {"assumes": self.assumes}
        if self.fitted:
            totals = self.training_totals
            facts["fitted on"] = (
                f"{count_noun(totals.sessions, 'session')}, "
                f"{count_noun(totals.queries, 'query')}, "
                f"{count_noun(totals.pairs, '(query, ad) pair')}"
            )
            facts["fit"] = getattr(self, "message_", "")
        else:
            facts["fitted on"] = "nothing yet: call fit(sessions)"
        params = self.get_params().items()
        settings = ", ".join(f"{name}={value!r}" for name, value in params)
        return render_card(type(self).__name__, {**facts, "settings": settings}, self.advice)

    def _describe_fit(self) -> str:
        reports = [getattr(self, name, "") for name in ("message_", "prior_report_")]
        if self.noise_ is not None:
            reports.append(f"noise: {self.noise_.share:.1%} of the sessions")
        values = ", ".join(f"{name}={value}" for name, value in self.hyperparameters_.items())
        lines = [f"fitted on {self._pairs.counts!r}", *filter(None, [*reports, values])]
        return "".join(f"\n  {line}" for line in lines)

    # the training log

    @property
    def training_counts(self) -> Counts:
        """The counts of the training log. Their pairs are the pairs of the model."""
        self.check_fitted()
        return self._pairs.counts

    @property
    def training_totals(self) -> TrainingTotals:
        """The size of the training log."""
        return TrainingTotals.of(self.training_counts)

    @property
    def sequence_counts(self) -> Counts:
        """Counts with at least the click sequences of the training log."""
        return self.training_counts

    @check_arguments
    def iterate_pairs(self, size: int) -> Iterator[pa.Table]:
        """Return all pairs of the training log, in tables of about `size`; no query is split."""
        return self._iterate_pairs(check_whole("size", size, 1))

    def _iterate_pairs(self, size: int) -> Iterator[pa.Table]:
        counts, start = self.training_counts, 0
        ends = np.append(np.flatnonzero(np.diff(counts.pair_query)) + 1, len(counts.pair_query))
        while start < len(counts.pair_query):
            end = int(ends[min(int(np.searchsorted(ends, start + size)), len(ends) - 1)])
            queries = counts.queries.take(pa.array(counts.pair_query[start:end]))
            yield pa.table(
                {"query": queries, "ad": counts.ads.take(pa.array(counts.pair_ad[start:end]))}
            )
            start = end

    @property
    def training_ads(self) -> pa.Array:
        """Every ad of the training log."""
        return self.training_counts.ads

    def query_volumes(self) -> pa.Table:
        """Every query of the training log, and the number of its sessions."""
        counts = self.training_counts
        return pa.table({"query": counts.queries, "sessions": counts.volumes})

    @check_arguments
    def queries_of_ad(self, ad: str) -> pa.Array:
        """The queries that an ad was shown for in the training log."""
        counts = self.training_counts
        code = pc.index(counts.ads, pa.scalar(ad, counts.ads.type)).as_py()
        return counts.queries.take(pa.array(counts.pair_query[counts.pair_ad == code]))

    @check_arguments
    def first_page(self, ads: int) -> tuple[str, list[str]]:
        """A query of the training log and up to `ads` of its ads, for a trial answer."""
        counts = self.training_counts
        rows = np.flatnonzero(counts.pair_query == counts.pair_query[0])[:ads]
        query = str(counts.queries[int(counts.pair_query[0])].as_py())
        return query, [str(counts.ads[int(ad)].as_py()) for ad in counts.pair_ad[rows]]

    def check_folder(self) -> None:
        """Check the parts of the model's folder that are not yet loaded: by default, none."""

    def _index(self, counts: Counts, text: AdTokens | None) -> TextPairIndex:
        """Index the pairs of some counts, with the settings of this model."""
        return TextPairIndex(
            counts,
            text,
            prior_mean=getattr(self, "prior_mean_", 0.5),
            min_query_sessions=getattr(self, "min_query_sessions", 50),
            word_strength=getattr(self, "word_strength", 0.0),
            corpus=self._corpus,
        )
