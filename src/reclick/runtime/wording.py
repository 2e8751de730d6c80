"""Words of messages: a number with its noun, and the names near to an unknown one."""

from __future__ import annotations

from collections.abc import Iterable


def count_noun(number: float, noun: str) -> str:
    """A number and a noun, in the singular for 1.

    >>> count_noun(1, "query"), count_noun(2_000, "query"), count_noun(0, "ad")
    ('1 query', '2,000 queries', '0 ads')
    """
    text = f"{number:,.0f}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{text} {noun if text == '1' else plural}"


def suggest_names(name: object, names: Iterable[str], most: int = 3) -> str:
    """Return a question with the names that are near to an unknown one; empty if none is.

    >>> suggest_names("Luceclick", ["LuceClick", "MultiClick"])
    "Did you mean 'LuceClick'?"
    >>> suggest_names("xyz", ["LuceClick", "MultiClick"])
    ''
    """
    import difflib  # only for errors

    by_key: dict[str, list[str]] = {}
    for each in names:
        by_key.setdefault(each.lower(), []).append(each)
    key = str(name).lower()
    keys = [key] if key in by_key else difflib.get_close_matches(key, by_key, most)
    near = [repr(each) for near_key in keys for each in by_key[near_key]][:most]
    if not near:
        return ""
    others = f"{', '.join(near[:-1])} or " if len(near) > 1 else ""
    return f"Did you mean {others}{near[-1]}?"
