"""Errors in the words of the command line: the library names its arguments, and here they were options."""

from __future__ import annotations

import re
from typing import Any

BOTH = re.compile(
    r"\w+=(?:\{[^}]*\}|\([^)]*\)|[^\s(]*) \(on the command line ([^)]*)\)"
)  # a message that says it both ways
SAYS = r"(?=: got |: there is no |: train starts | must be | is for the format )"  # what follows an argument at the start of a message
FREE = r"(?<![\w'\"./?&=-])"  # not within a path, an address or a text of the log's


def options_of(command: Any) -> dict[str, str]:
    """A command's options by the arguments that they are in the library; one that may be repeated is a plural there."""
    options = {
        each.name.rstrip("_"): each for each in command.params if each.opts[0].startswith("--")
    }
    plurals = {f"{name}s": each.opts[0] for name, each in options.items() if each.multiple}
    return {**plurals, **{name: each.opts[0] for name, each in options.items()}}


def in_options(message: str, options: dict[str, str]) -> str:
    """A message of the library with options in place of arguments.

    >>> options = {"max_ads": "--max-ads", "first": "--first", "by": "--by"}
    >>> in_options("first: got 0, expected a whole number of 1 or more, or None.", options)
    '--first: got 0, expected a whole number of 1 or more.'
    >>> in_options("Leave out max_ads, or name the column with by=….", options)
    'Leave out --max-ads, or name the column with --by.'
    """
    told = BOTH.sub(r"\1", message).replace(", or None", "")
    if not options:
        return told
    any_name = "|".join(sorted(options, key=len, reverse=True))
    long_names = "|".join(sorted((name for name in options if "_" in name), key=len, reverse=True))
    told = re.sub(rf"^({any_name}){SAYS}", lambda found: options[found[1]], told)
    told = re.sub(rf"{FREE}({any_name})=…?(?=[\s.,;:]|$)", lambda found: options[found[1]], told)
    told = re.sub(rf"{FREE}({any_name})=(?=\S)", lambda found: f"{options[found[1]]} ", told)
    # A name of several words is no word of a sentence, so it is an argument wherever it stands.
    return (
        re.sub(rf"{FREE}({long_names})(?![\w/'\"=-]|\.\w)", lambda found: options[found[1]], told)
        if long_names
        else told
    )
