"""Checks that every click model passes: Reclick's own tests run them, and so may yours.

    from reclick.testing import check_model

    def test_my_model_conforms():
        check_model(MyModel, oracle=my_brute_force)

An oracle is a second, slow implementation of the model: a function of (fitted model, query, ads)
that returns the probability of every click sequence, best by enumerating the latent variables with
the fitted parameters. Without one only consistency is checked, not the formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reclick.errors import SettingError
from reclick.models.base import ClickModel
from reclick.testing import answer_checks, fit_checks
from reclick.testing.cases import CheckSkipped, ModelCase, Oracle

__all__ = [
    "CHECKS",
    "CheckSkipped",
    "ConformanceError",
    "ConformanceReport",
    "ModelCase",
    "Oracle",
    "check_model",
]
CHECKS: dict[str, Callable[[ModelCase], None]] = {  # by name, without "check_"
    name.removeprefix("check_"): function
    for module in (answer_checks, fit_checks)
    for name, function in vars(module).items()
    if name.startswith("check_")
}


class ConformanceError(AssertionError):
    """A model fails some checks; the message lists them with what was got and expected."""


@dataclass
class ConformanceReport:
    """The checks of a model that passed, and those that do not apply, with the reasons."""

    model: str
    passed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.model}: {len(self.passed)} checks passed"]
        for what, listed in (("failed", self.failed), ("skipped", self.skipped)):
            lines += [f"  {what} {name}: {reason}" for name, reason in listed.items()]
        return "\n".join(lines)


def check_model(
    model: type[ClickModel],
    *,
    oracle: Oracle | None = None,
    settings: Mapping[str, Any] | None = None,
    rounding: float = 1e-9,
    only: Iterable[str] | None = None,
) -> ConformanceReport:
    """Run every check (or `only` some, by name) and raise a `ConformanceError` that lists failures.

    `settings` are given to the constructor: use them where the defaults search for long. `rounding`
    is how far answers may differ when sums are taken in another order.
    """
    chosen = list(CHECKS) if only is None else _choose_checks(only)
    case = ModelCase(model, oracle, dict(settings or {}), rounding)
    report = ConformanceReport(model.__name__)
    for name in chosen:
        try:
            CHECKS[name](case)
        except CheckSkipped as reason:
            report.skipped[name] = str(reason)
        except Exception as error:  # a model under test may raise anything
            message = str(error).strip() or "it raised without a message"
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            about = (CHECKS[name].__doc__ or "").strip()
            report.failed[name] = f"{about}\n    {kind}{message}"
        else:
            report.passed.append(name)
    if report.failed:
        raise ConformanceError(str(report))
    return report


def _choose_checks(only: Iterable[str]) -> list[str]:
    """The names of the checks to run, each a known one."""
    chosen = [only] if isinstance(only, str) else list(only)
    unknown = [name for name in chosen if name not in CHECKS]
    if unknown or not chosen:
        expected = f"one or more of {', '.join(CHECKS)}"
        raise SettingError("only", unknown or chosen, expected, or_none=True)
    return chosen
