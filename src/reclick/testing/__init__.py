"""Checks that every click model must pass, for the tests of Reclick and for your own tests.

    from reclick.testing import check_model

    def test_my_model_conforms():
        check_model(MyModel, oracle=my_brute_force)

An oracle is a second, slow implementation of the model: a function of (fitted model, query, ads)
that returns the probability of every click sequence, preferably by enumerating the latent variables
with the fitted parameters. Without an oracle, only consistency is checked, not the formula.
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
CHECKS: dict[str, Callable[[ModelCase], None]] = {  # name, without "check_" → check
    name.removeprefix("check_"): function
    for module in (answer_checks, fit_checks)
    for name, function in vars(module).items()
    if name.startswith("check_")
}


class ConformanceError(AssertionError):
    """A model fails some checks; the message lists them with actual and expected values."""


@dataclass
class ConformanceReport:
    """The checks that a model passed, and those that do not apply, with the reasons."""

    model: str
    passed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.model}: {len(self.passed)} checks passed"]
        for what, reasons in (("failed", self.failed), ("skipped", self.skipped)):
            lines += [f"  {what} {name}: {reason}" for name, reason in reasons.items()]
        return "\n".join(lines)


def check_model(
    model: type[ClickModel],
    *,
    oracle: Oracle | None = None,
    settings: Mapping[str, Any] | None = None,
    rounding: float = 1e-9,
    only: Iterable[str] | None = None,
) -> ConformanceReport:
    """Run all checks (or `only` some, by name); raises a `ConformanceError` that lists failures.

    `settings` are arguments of the constructor: use them if a fit with the defaults takes long.
    `rounding` is how much answers may differ when sums are in another order.
    """
    names = list(CHECKS) if only is None else _choose_checks(only)
    case = ModelCase(model, oracle, dict(settings or {}), rounding)
    report = ConformanceReport(model.__name__)
    for name in names:
        try:
            CHECKS[name](case)
        except CheckSkipped as reason:
            report.skipped[name] = str(reason)
        except Exception as error:  # a model under test may raise any exception
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
    """The names of the checks to run; raises if one is unknown."""
    names = [only] if isinstance(only, str) else list(only)
    unknown = [name for name in names if name not in CHECKS]
    if unknown or not names:
        expected = f"one or more of {', '.join(CHECKS)}"
        raise SettingError("only", unknown or names, expected, or_none=True)
    return names
