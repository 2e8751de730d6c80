"""Checks of settings: what is given must be one of the choices, or a number in a range."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from reclick.errors import SettingError

MOST = sys.float_info.max  # a setting without an upper end may be as large


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a setting that is none of the choices."""
    if value not in choices:
        raise SettingError(
            f"{name}: got {value!r}, expected one of {', '.join(map(repr, choices))}."
        )


def check_prior(name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a prior that is neither one of the choices nor a probability."""
    if isinstance(value, bool) or (
        value not in choices and not (isinstance(value, int | float) and 0 < value < 1)
    ):
        raise SettingError(
            f"{name}: got {value!r}, expected one of {', '.join(map(repr, choices))}, or a number between 0 and 1."
        )


def check_range(name: str, value: object, low: float, high: float) -> None:
    """Refuse a setting that is no number in a range."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        wanted = (
            "a finite number"
            if low == -MOST
            else f"a number of {low:g} or more"
            if high >= MOST
            else f"a number from {low:g} to {high:g}"
        )
        raise SettingError(f"{name}: got {value!r}, expected {wanted}.")


def check_whole(name: str, value: object, low: int) -> None:
    """Refuse a setting that is no whole number from `low` on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise SettingError(f"{name}: got {value!r}, expected a whole number of {low} or more.")


def check_names(given: Iterable[str], settings: Iterable[str]) -> None:
    """Refuse a name that is none of the settings."""
    for name in given:
        if name not in settings:
            raise SettingError(f"{name!r} is not a setting. Settings: {', '.join(settings)}.")
