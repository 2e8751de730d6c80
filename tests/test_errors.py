"""Every error shows its message, hides secrets, and can be sent to another process."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

import reclick as rc
from reclick.errors import (
    Argument,
    CannotAnswerError,
    LogError,
    ReclickError,
    SettingError,
    StoreError,
    UsageError,
    mask_secrets,
)


def error_types(base: type[ReclickError] = ReclickError) -> Iterator[type[ReclickError]]:
    yield base
    for each in base.__subclasses__():
        if each.__module__.startswith("reclick."):
            yield from error_types(each)


def make(kind: type[ReclickError]) -> ReclickError:
    if issubclass(kind, SettingError) and not issubclass(kind, UsageError):
        return kind("first", 0, "1 or more", ("See ", Argument("top", 3), "."), or_none=True)
    return kind("Too long. Raise ", Argument("max_ads"), ".")


@pytest.mark.parametrize("kind", sorted(set(error_types()), key=str))
def test_every_error_shows_its_message_before_and_after_pickling(kind: type[ReclickError]) -> None:
    error = make(kind)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(again) is kind
    assert str(again) == str(error) != ""
    assert repr(again) == repr(error) == f"{kind.__name__}({str(error)!r})"


def test_advice_to_callers_in_python_survives_pickling() -> None:
    error = CannotAnswerError("The page is too long.", in_python=" Ask sample().")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert str(again) == "The page is too long. Ask sample()."
    assert again.render(str) == "The page is too long."


def test_a_setting_error_that_is_raised_has_a_readable_repr() -> None:
    with pytest.raises(SettingError) as caught:
        rc.UBM(max_iterations=0)
    assert repr(caught.value).startswith("SettingError('max_iterations: got 0, expected")


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("s3://KEY:SECRET@bucket/x", "s3://***@bucket/x"),
        ("sftp://me@host:22/x", "sftp://***@host:22/x"),
        ("s3://KEY:SEC/RET@bucket/x", "s3://***@bucket/x"),  # "/" should have been %2F
        ("(a://u:p@h/x), b://u:p@h/y.", "(a://***@h/x), b://***@h/y."),
        ("https://h/x?X-Amz-Signature=ab%2F&part=1.", "https://h/x?X-Amz-Signature=***&part=1."),
        ("https://h/x.csv?token=abc cannot", "https://h/x.csv?token=*** cannot"),
        ("https://h:8080/@me", "https://h:8080/@me"),
        ("https://h/a?keyword=b&monkey_id=c", "https://h/a?keyword=b&monkey_id=c"),
        ("write to me@host", "write to me@host"),
        ("abfss://box@account.dfs.net/x", "abfss://box@account.dfs.net/x"),  # a container
        ("abfss://box:SECRET@account.dfs.net/x", "abfss://***@account.dfs.net/x"),
    ],
)
def test_secrets_of_uris_are_masked(text: str, masked: str) -> None:
    assert mask_secrets(text) == masked
    for error in (StoreError(text), LogError(text), UsageError(text)):
        assert str(error) == masked
        assert "SEC" not in repr(error)
    assert "SEC" not in str(SettingError("to", text, "a folder"))


def test_an_argument_whose_name_cannot_be_shown_is_named_by_its_type() -> None:
    class Closed:
        def __repr__(self) -> str:
            raise RuntimeError("closed")

    assert str(rc.Argument(Closed())) == "a Closed"  # type: ignore[arg-type]
