"""Remote file systems: how to connect to them, and what their errors mean.

Credentials are found where the tools of each store look for them: in the environment, in profiles,
or in the role of the machine. A request that fails temporarily is repeated. An error that remains
names the object, the problem (one of `PROBLEMS`) and what to do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from reclick.errors import MissingExtraError, StoreError, UsageError, mask_secrets

S3 = frozenset({"s3", "s3a"})
HTTP = frozenset({"http", "https"})
# Where an upload replaces an object in one step; elsewhere, a new file is uploaded and renamed.
OBJECT_STORES = S3 | {"gs", "gcs", "abfs", "abfss", "az", "memory"}
ARROW_SCHEMES = {"gcs": "gs"}  # that Arrow uses for a store
S3_ATTEMPTS = 5  # of a request; AWS_MAX_ATTEMPTS
MOST_ATTEMPTS = 1_000
S3_CONNECT_SECONDS = 10.0
S3_REQUEST_SECONDS = 60.0  # without an answer
S3_SWITCHES = frozenset({"allow_bucket_creation", "anonymous", "force_virtual_addressing"})
S3_OPTIONS = S3_SWITCHES | {"region", "endpoint_override", "scheme"}
BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
AZURE_OPTIONS = frozenset({"blob_storage_authority", "dfs_storage_authority", "enable_tls"})
ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or the role of the machine",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS or `gcloud auth application-default login`",
    "abfs": "AZURE_STORAGE_KEY, AZURE_CLIENT_ID and its secret, or `az login`",
}


class StoreProblem(NamedTuple):
    """A problem, the words in the text of an error that show it, and what to do."""

    words: tuple[str, ...]  # regular expressions
    problem: str
    advice: str


# From the most specific to the least.
PROBLEMS = (
    StoreProblem(
        ("NO_SUCH_BUCKET", "NoSuchBucket", "ContainerNotFound", "bucket does not exist"),
        "there is no such bucket",
        "Check its name{endpoint}.",
    ),
    StoreProblem(
        (
            *("INVALID_ACCESS_KEY_ID", "InvalidAccessKeyId", "INVALID_CLIENT_TOKEN_ID"),
            *("SIGNATURE_DOES_NOT_MATCH", "SignatureDoesNotMatch", "INVALID_SIGNATURE"),
            *("UNRECOGNIZED_CLIENT", "EXPIRED_TOKEN", "ExpiredToken", "InvalidToken"),
            *("MISSING_AUTHENTICATION", "AuthenticationFailed", "CredentialUnavailable"),
            *("AuthorizationFailure", "InvalidAuthenticationInfo"),
            *("HTTP status 401", r"\b401, message", "Unauthorized", "UNAUTHENTICATED"),
        ),
        "the credentials are wrong, missing or expired",
        "They are taken from {credentials}.",
    ),
    StoreProblem(
        (
            *("ACCESS_DENIED", "AccessDenied", "PERMISSION_DENIED", "Forbidden"),
            *("AuthorizationPermissionMismatch", "HTTP status 403", r"\b403, message"),
        ),
        "access is denied",
        "Are the credentials right, and may they {verb} it? They are taken from {credentials}.",
    ),
    StoreProblem(
        ("PERMANENT_REDIRECT", "PermanentRedirect", "AuthorizationHeaderMalformed", "status 301"),
        "the bucket is in another region",
        "Set AWS_REGION, or put ?region=… at the end of the address.",
    ),
    StoreProblem(
        (
            *("SLOW_DOWN", "SlowDown", "THROTTLING", "SERVICE_UNAVAILABLE"),
            *(r"HTTP status (?:429|503)", r"\b(?:429|503), message"),
        ),
        "the store is busy, also after several attempts",
        "Try again later.",
    ),
    StoreProblem(
        (
            *("NETWORK_CONNECTION", "curlCode", "REQUEST_TIMEOUT", "UNAVAILABLE"),
            *("[Cc]ould not resolve", "[Cc]onnect", "[Tt]imed out", "[Tt]imeout"),
        ),
        "the store cannot be reached, also after several attempts",
        "Check the network{endpoint}.",
    ),
    StoreProblem(
        ("AWS Error", "HTTP status", r"\b[45]\d\d, message"), "the request failed", "Try again."
    ),
)
ADVICE = {  # where a file system cannot be opened
    **dict.fromkeys(HTTP, "pip install 'reclick[remote]' installs what reads it"),
    "hdfs": "Hadoop's client is needed here: install it and Java, and set JAVA_HOME, HADOOP_HOME "
    "and CLASSPATH (to what `hadoop classpath --glob` prints)",
}
OTHER_ADVICE = "for a file system that Arrow does not know, install fsspec and its package for it"
OTHER_PROBLEM = ("the request failed", "Try again.")
CLIENTS = frozenset({"aiohttp", "fsspec"})  # whose errors are not all OSErrors


class RemoteObject(Protocol):
    """The part of a remote path that is needed to explain errors of its object."""

    @property
    def scheme(self) -> str:
        """The kind of store."""

    def state(self) -> object | None:
        """Return size and time of the object as the store reports them; None if it is missing."""


# ---- connecting


def connect(scheme: str, authority: str, query: str) -> tuple[Any, str]:
    """Return the file system of a URI, and the path in it that its authority stands for.

    Arrow's file systems are used where they exist, else those of fsspec.
    """
    if scheme in S3:
        endpoint, region = _s3_environment()
        # Arrow reads these from the environment, so they belong to the key of the cache.
        identity = tuple(map(os.environ.get, ("AWS_ACCESS_KEY_ID", "AWS_PROFILE")))
        return _connect_s3(authority, query, endpoint, region, identity)
    if scheme in {"abfs", "abfss"}:
        return _connect_azure(scheme, authority, query, os.environ.get("AZURE_STORAGE_KEY"))
    return _connect_any(scheme, authority, query)


@cache
def _connect_s3(
    authority: str,
    query: str,
    endpoint: str | None,
    region: str | None,
    identity: tuple[str | None, ...],
) -> tuple[Any, str]:
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    options, bucket = _make_s3_options(authority, query, endpoint, region)
    retry = AwsStandardS3RetryStrategy(max_attempts=_read_attempts())
    limits = {"connect_timeout": S3_CONNECT_SECONDS, "request_timeout": S3_REQUEST_SECONDS}
    return S3FileSystem(**options, **limits, retry_strategy=retry), bucket


def s3_options(authority: str, query: str) -> tuple[dict[str, Any], str]:
    """How Arrow is to reach a bucket, by the address and the environment; and the bucket."""
    return _make_s3_options(authority, query, *_s3_environment())


def _s3_environment() -> tuple[str | None, str | None]:
    return _first_set(ENDPOINT_VARIABLES), _first_set(REGION_VARIABLES)


def _make_s3_options(
    authority: str, query: str, endpoint: str | None, region: str | None
) -> tuple[dict[str, Any], str]:
    from pyarrow.fs import resolve_s3_region

    user, _, bucket = authority.rpartition("@")
    parameters = dict(parse_qsl(query))
    unknown = sorted(set(parameters) - S3_OPTIONS)
    if unknown:
        raise StoreError(
            f"s3://{bucket}?{query}: {', '.join(unknown)} is not an option of S3. "
            f"There are {', '.join(sorted(S3_OPTIONS))}."
        )
    options: dict[str, Any] = {
        name: value.lower() == "true" if name in S3_SWITCHES else value
        for name, value in parameters.items()
    }
    if endpoint and "endpoint_override" not in options:
        parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        options |= {"endpoint_override": parts.netloc + parts.path, "scheme": parts.scheme}
    if "region" not in options:
        options["region"] = region or ("us-east-1" if "endpoint_override" in options else None)
    if options["region"] is None:
        try:
            options["region"] = resolve_s3_region(bucket)
        except OSError:  # no such bucket, or no network: the first request reports it
            del options["region"]
    if user:
        key, _, secret = user.partition(":")
        options |= {"access_key": unquote(key), "secret_key": unquote(secret)}
    return options, bucket


def _read_attempts() -> int:
    """How often a request to S3 is made before it fails."""
    text = os.environ.get("AWS_MAX_ATTEMPTS") or str(S3_ATTEMPTS)
    if not text.isdecimal() or not 0 < int(text) <= MOST_ATTEMPTS:
        raise UsageError(
            f"The environment variable AWS_MAX_ATTEMPTS is {text!r}. Set it to a whole number "
            f"from 1 to {MOST_ATTEMPTS}, or unset it."
        )
    return int(text)


@cache
def _connect_azure(scheme: str, authority: str, query: str, key: str | None) -> tuple[Any, str]:
    container, _, host = authority.rpartition("@")
    if not key or ":" in container or not container:
        return _connect_any(scheme, authority, query)
    from pyarrow.fs import AzureFileSystem

    options = dict(parse_qsl(query))
    unknown = sorted(set(options) - AZURE_OPTIONS)
    if unknown:
        raise StoreError(
            f"{scheme}://{container}@{host}?{query}: {', '.join(unknown)} is not an option of "
            f"Azure with AZURE_STORAGE_KEY. There are {', '.join(sorted(AZURE_OPTIONS))}."
        )
    if not BASE64.fullmatch(key):
        raise StoreError(
            f"{scheme}://{container}@{host}: AZURE_STORAGE_KEY is not an account key, which is "
            "text in base 64."
        )
    if options.pop("enable_tls", "true").lower() == "false":
        options |= {"blob_storage_scheme": "http", "dfs_storage_scheme": "http"}
    return AzureFileSystem(host.partition(".")[0], account_key=key, **options), container


@cache
def _connect_any(scheme: str, authority: str, query: str) -> tuple[Any, str]:
    from pyarrow import ArrowException
    from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

    address = f"{ARROW_SCHEMES.get(scheme, scheme)}://{authority}"
    try:
        if scheme not in HTTP:
            return FileSystem.from_uri(address + (f"?{query}" if query else ""))  # type: ignore[no-any-return]
        arrow_error: Exception | None = None
    except (ArrowException, ValueError, OSError) as error:
        arrow_error = error
    try:
        from fsspec.core import url_to_fs

        filesystem, root = url_to_fs(f"{scheme}://{authority}", **dict(parse_qsl(query)))
    except (ArrowException, ImportError, OSError, ValueError, TypeError) as error:
        if scheme in HTTP and isinstance(error, ImportError):
            raise MissingExtraError(
                f"Reading {scheme} needs fsspec and aiohttp: install them with "
                "pip install 'reclick[remote]'."
            ) from None
        messages = (str(problem) for problem in (arrow_error, f"fsspec: {error}") if problem)
        # After the first line come the places that were tried
        problems = [_shorten(message.partition("\n")[0]) for message in messages]
        advice = ADVICE.get(scheme, OTHER_ADVICE)
        raise StoreError(
            f"{scheme}://{authority} cannot be opened ({'; '.join(problems)}). "
            f"Check the address; {advice}."
        ) from None  # their messages may have the password
    return PyFileSystem(FSSpecHandler(filesystem)), root


def _first_set(names: tuple[str, ...]) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


# ---- errors


@contextmanager
def explain_remote_errors(path: RemoteObject, verb: str = "read") -> Iterator[None]:
    """Turn the error of a request into a `StoreError` that names the object and what to do.

    A FileNotFoundError is not changed.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:
        if not _is_of_client(error):
            raise
        raise explain_error(path, error, verb) from None  # its message may have the password


def explain_error(path: RemoteObject, error: Exception, verb: str = "read") -> StoreError:
    """Explain the error of a request as one of `PROBLEMS`."""
    text = mask_secrets(str(error) or type(error).__name__)
    problem, advice = _find_problem(text) or OTHER_PROBLEM
    advice = advice.format(
        verb=verb, credentials=_describe_credentials(path.scheme), endpoint=_describe_endpoint(path)
    )
    participle = {"write": "written", "remove": "removed"}.get(verb, verb)
    return StoreError(
        f"{path} cannot be {participle}: {problem}. {advice} The store's answer: {_shorten(text)}"
    )


def _find_problem(text: str) -> tuple[str, str] | None:
    for words, problem, advice in PROBLEMS:
        if re.search("|".join(words), text):
            return problem, advice
    return None


def _is_of_client(error: Exception) -> bool:
    """Whether an error comes from a request, not from the code that made it."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in CLIENTS


@contextmanager
def guard_reading(path: object) -> Iterator[None]:
    """Explain errors of reading a remote file, and raise if it changes while it is read.

    Local files are not checked.
    """
    if not hasattr(path, "state"):
        yield
        return
    target: Any = path
    with explain_remote_errors(target):
        before = target.state()
    try:
        yield
    except Exception as error:  # a reader may take a change for damage
        _refuse_changed(target, before)
        if _is_of_client(error) and _find_problem(str(error)):
            raise explain_error(target, error) from None
        raise
    _refuse_changed(target, before)


def _refuse_changed(path: Any, before: object | None) -> None:
    with explain_remote_errors(path):
        now = path.state()
    if now == before:
        return
    what = "deleted" if now is None else "changed"
    raise StoreError(
        f"{path} was {what} while it was read, so what was read of it is not one log. "
        "Wait until its writer is done, and start again."
    )


def _describe_credentials(scheme: str) -> str:
    kind = "s3" if scheme in S3 else "gs" if scheme in {"gs", "gcs"} else "abfs"
    return CREDENTIALS[kind] if scheme in OBJECT_STORES else "the address and the environment"


def _describe_endpoint(path: RemoteObject) -> str:
    endpoint = _first_set(ENDPOINT_VARIABLES) if path.scheme in S3 else None
    return f" and the endpoint {endpoint} (AWS_ENDPOINT_URL)" if endpoint else ""


def _shorten(text: str, limit: int = 300) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"
