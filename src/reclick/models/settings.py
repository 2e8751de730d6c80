"""Declared settings: one line each, from which a model's constructor, checks and docs follow."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar, cast

from reclick.errors import SettingError
from reclick.runtime.arguments import check_arguments

if TYPE_CHECKING:
    from reclick.models.base import ClickModel

Value = TypeVar("Value")
MAX_STRENGTH = 1e12  # pseudo-choices; with stronger priors the sessions are lost in rounding errors

# Help of settings that several models share. A model may give a setting a help of its own.
COMMON_HELP = {
    "attractiveness_prior": 'prior mean of the attractiveness θ: "auto" (estimated from the ad\'s '
    "other queries, its words and the mean of all pairs, as far as the evidence supports them), "
    '"overall" (one mean for all pairs), "words" (estimated from the words '
    "of the ad), or a number",
    "attractiveness_strength": 'strength of that prior, in examinations: "auto" (chosen for '
    "each pair by maximum evidence; {overall_strength} if all pairs have the same prior mean), or "
    "a number; 0 gives maximum likelihood",
    "satisfaction_prior": 'prior mean of the satisfaction ρ: "overall" (the share of clicks that '
    "are the last of their session), or a number",
    "satisfaction_strength": "strength of that prior, in clicks",
    "examination_prior": 'prior mean of the examination γ: "overall" (the click rate of a position '
    "relative to that of the first), or a number",
    "examination_strength": "strength of that prior, in impressions",
    "min_query_sessions": "minimum number of sessions for a query to have its own word click "
    "rates; other queries use those of the whole log",
    "word_strength": "strength of the prior of each word's click rate, in impressions; the prior "
    "mean is the click rate of the whole log; 0 gives the paper's formula",
    "floor": "minimum distance of a probability from 0 and 1",
    "number_strength": "strength of the prior of P(number of clicks | page length), in sessions; "
    "with 0, a number of clicks that is not in the log has probability 0",
    "rate_prior": 'prior mean of the click rate: "overall" (the click rate of the history, or of '
    "the log if there is none), or a number",
    "rate_strength": "strength of that prior, in impressions",
    "initiation": 'probability μ that the user examines the list at all: None (fixed at 1), "one" '
    '(one estimate for all queries), or "query" (an estimate for each query)',
    "query_strength": "strength of the prior of a query's μ, in sessions; the prior mean is the μ "
    "of all queries",
    "max_iterations": "maximum number of iterations; `converged_` and `message_` report whether "
    "the fit converged",
    "tolerance": "the fit stops when an iteration improves the objective by less than this per "
    "session; with 0 or less it runs all iterations",
    "outcome_weight": "weight of the outcomes of clicks (`dwell_seconds` and `conversions`) as "
    "evidence of satisfaction: the exponent of their likelihood; 0 ignores them",
    "noise": 'adds a component of random clicks: "session" (each session may be noise), "user" '
    "(all sessions of a user may be; needs the column `user`), or None (no noise)",
    "redundancy": "κ, how much less attractive an ad is if it repeats the words of clicked ads: a "
    'number, where 0 means no effect, or "auto" (estimated; 0 unless it significantly improves '
    "the likelihood of held-out sessions)",
    "seed": "seed for assigning sessions to folds",
}


@dataclass(frozen=True)
class Setting:
    """A declared setting: its default, what values it may have, and what it is for."""

    default: Any
    low: float | None = None
    high: float | None = None
    greater_than: float | None = None
    choices: tuple[str, ...] = ()
    allow_probability: bool = False
    integer: bool = False
    allow_none: bool = False
    spellings: Mapping[str, str] | None = None
    help: str = ""

    @check_arguments
    def check(self, name: str, value: object) -> Any:
        """Return the value as it is stored; raises `SettingError` if it is not allowed.

        >>> Setting(1.0, low=0).check("strength", -1)
        Traceback (most recent call last):
        reclick.errors.SettingError: strength: got -1, expected a number of 0 or more.
        """
        if value is None and self.allow_none:
            return None
        if isinstance(value, str):
            value = (self.spellings or {}).get(value, value)
            if value in self.choices:
                return value
        elif (
            self._takes_numbers and _is_number(value, integer=self.integer) and not _is_huge(value)
        ):
            number = int(value) if isinstance(value, Integral) else float(cast(float, value))
            if self._in_range(number):
                return number
        advice = "It is too large to be a number of the machine." if _is_huge(value) else ""
        raise SettingError(name, value, self.expected, advice, or_none=self.allow_none)

    @property
    def expected(self) -> str:
        """The possible values in words, without None.

        >>> Setting("overall", choices=("overall", "words"), allow_probability=True).expected
        "one of 'overall', 'words', or a number between 0 and 1"
        >>> Setting(3, low=2, integer=True).expected, Setting(1e-5).expected
        ('a whole number of 2 or more', 'a finite number')
        """
        choices = ", ".join(map(repr, self.choices))
        words = f"one of {choices}" if len(self.choices) > 1 else choices
        return ", or ".join(filter(None, (words, self._numbers() if self._takes_numbers else "")))

    @property
    def values(self) -> str:
        """The possible values, for a table.

        >>> Setting("auto", choices=("auto",), low=0, allow_none=True).values
        "'auto', or a number of 0 or more, or None"
        """
        return f"{self.expected.removeprefix('one of ')}{', or None' if self.allow_none else ''}"

    @property
    def _takes_numbers(self) -> bool:
        limits = (self.low, self.high, self.greater_than)
        has_limit = any(each is not None for each in limits)
        return self.allow_probability or has_limit or not self.choices

    def _in_range(self, number: float) -> bool:
        if self.allow_probability:
            return 0 < number < 1
        low, high = (
            (-math.inf if self.low is None else self.low),
            (math.inf if self.high is None else self.high),
        )
        return (
            math.isfinite(number)
            and low <= number <= high
            and (self.greater_than is None or number > self.greater_than)
        )

    def _numbers(self) -> str:
        number = "a whole number" if self.integer else "a number"
        if self.allow_probability:
            return f"{number} between 0 and 1"
        if self.greater_than is not None:
            most = "" if self.high is None else f" and at most {self.high:g}"
            return f"{number} above {self.greater_than:g}{most}"
        if self.low is None:
            return "a finite number" if self.high is None else f"{number} of at most {self.high:g}"
        if self.high is None:
            return f"{number} of {self.low:g} or more"
        return f"{number} from {self.low:g} to {self.high:g}"


def setting(
    *,
    default: Value,
    low: float | None = None,
    high: float | None = None,
    greater_than: float | None = None,
    choices: Sequence[str] = (),
    allow_probability: bool = False,
    integer: bool = False,
    allow_none: bool = False,
    spellings: Mapping[str, str] | None = None,
    help: str = "",
) -> Value:
    """Declare a setting of a model, in its class body.

    A value is one of the `choices`, or a number: from `low` to `high`, above `greater_than`, with
    `allow_probability` between 0 and 1, with `integer` a whole number. `allow_none` allows None.
    `spellings` maps other spellings of a choice to it. `help` may be omitted if `COMMON_HELP`
    has it.
    """
    result = Setting(
        default,
        low,
        high,
        greater_than,
        check_choices(choices),
        allow_probability,
        integer,
        allow_none,
        spellings,
        help,
    )
    return cast(Value, result)


def auto_setting(help: str, **limits: Any) -> Any:
    """Declare a setting with the default "auto"; by default a strength in pseudo-choices."""
    limits = {"low": 0, "high": MAX_STRENGTH, **limits}
    return setting(default="auto", choices=("auto",), help=help, **limits)


def check_choices(choices: Sequence[str]) -> tuple[str, ...]:
    """Return the choices of a setting; raises `SettingError` unless a list of texts."""
    if not isinstance(choices, list | tuple) or not all(isinstance(c, str) for c in choices):
        raise SettingError("choices", choices, "a list of texts")
    return tuple(choices)


def declare_settings(model: type[Any]) -> dict[str, Setting]:
    """Collect the settings of a class, first those it inherits; its attributes become the defaults.

    Its constructor becomes keyword-only, with a signature that `help()` and editors show.
    """
    new: dict[str, Setting] = {}
    for name, value in list(vars(model).items()):
        if isinstance(value, Setting):
            text = value.help or COMMON_HELP.get(name, "")
            text = text.replace("{overall_strength}", f"{model.overall_strength:g}")
            new[name] = Setting(**{**vars(value), "help": text})
            setattr(model, name, value.default)
    settings = {**getattr(model, "settings", {}), **new}
    settings |= {name: settings.pop(name) for name in ("noise",) if name in settings}  # the last
    for name in settings.keys() - new.keys():
        if name in vars(model):  # a subclass gives a setting another default
            settings[name] = Setting(**{**vars(settings[name]), "default": vars(model)[name]})
    for name, each in settings.items():
        each.check(name, each.default)
    if "__init__" not in vars(model):
        model.__init__ = _constructor(model, settings)
    return settings


def _constructor(model: type[ClickModel], settings: Mapping[str, Setting]) -> Any:
    types = {
        name: annotation
        for base in reversed(model.__mro__)
        for name, annotation in inspect.get_annotations(base).items()
    }

    def construct(self: ClickModel, **values: Any) -> None:
        self._set(values)

    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=each.default,
            annotation=types.get(name, Any),
        )
        for name, each in settings.items()
    ]
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    constructor: Any = construct
    constructor.__signature__ = inspect.Signature([this, *parameters], return_annotation=None)
    constructor.__name__ = "__init__"
    constructor.__qualname__ = f"{model.__qualname__}.__init__"
    constructor.__module__ = model.__module__
    constructor.__doc__ = "\n".join(f"{name}: {each.help}" for name, each in settings.items())
    return constructor


def _is_number(value: object, *, integer: bool) -> bool:
    return isinstance(value, Integral if integer else Real) and not isinstance(value, bool)


def _is_huge(value: object) -> bool:
    """Whether a whole number is larger than every float."""
    return isinstance(value, Integral) and abs(int(value)) > sys.float_info.max
