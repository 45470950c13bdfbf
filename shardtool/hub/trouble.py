"""What the Hub or the network says no to, each in its own sentence with what to type; and a client that keeps quiet."""

from __future__ import annotations

import errno
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub import constants, get_token
from huggingface_hub.errors import (
    DisabledRepoError,
    FileMetadataError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from shardtool.errors import HubError, InputError, RefusedError, ShardtoolError
from shardtool.source import HubSource

# The client's own HTTP library: httpx until huggingface_hub 2.0, httpx2 since.
_TRANSPORT = next(base for base in HfHubHTTPError.__mro__ if base.__name__ == "HTTPError")
_BROKEN_OFF = {"RemoteProtocolError", "ReadError", "ReadTimeout"}
_LOG_IN = "run `hf auth login`, or set HF_TOKEN"


@contextmanager
def explained(source: HubSource) -> Iterator[None]:
    """Turn what the client raises in the block into our errors, and keep its log and warnings from the user."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except ShardtoolError:
        raise
    except Exception as error:
        found = explain(error, source)
        if found is None:
            raise
        raise found from error
    finally:
        logger.setLevel(level)


def explain(error: Exception, source: HubSource) -> ShardtoolError | None:
    """Our error for one of the client's, or ``None`` for what is none of its failures."""
    if isinstance(error, LocalEntryNotFoundError):  # "not in the cache either", after the failure that is its cause
        cause = error.__cause__
        return explain(cause, source) if isinstance(cause, Exception) else _no_network(source)
    if isinstance(error, HfHubHTTPError):
        return _answered(error, source)
    if isinstance(error, _TRANSPORT):
        if type(error).__name__ in _BROKEN_OFF:
            message = f"{source.repo}: the connection broke off, also after several attempts"
            return HubError(message, code="connection_lost", hint="run it again: what is complete is kept")
        return _no_network(source)
    if isinstance(error, HFValidationError):
        return InputError(f"{source.text}: is no name of a repo: {error}", code="repo_invalid", path=source.text)
    # A redirect to no address, or a commit that leads out of the cache.
    if isinstance(error, FileMetadataError | ValueError) or type(error).__name__ == "InvalidURL":
        return no_hub(source)
    return _on_disk(error, source) if isinstance(error, OSError) else None


def _answered(error: HfHubHTTPError, source: HubSource) -> HubError:
    """For an answer of the Hub that is no."""
    url, logged_in = f"{constants.ENDPOINT}/{source.repo}", get_token() is not None
    status = error.response.status_code
    match error:
        case GatedRepoError():
            if logged_in:
                what, hint = "is gated, and this account has no access", f"ask for access at {url}"
            else:
                what, hint = "is gated, and no token was sent", f"accept its terms at {url}, then {_LOG_IN}"
            return HubError(f"{source.repo}: {what}", code="gated", path=source.text, hint=hint)
        case RepositoryNotFoundError():
            what = "or this account may not see it" if logged_in else "or it is private and no token was sent"
            hint = f"check the name at {url}" + ("" if logged_in else f"; for a private repo {_LOG_IN}")
            message = f"{source.repo}: no such repo on the Hub, {what}"
            return HubError(message, code="repo_not_found", path=source.text, hint=hint)
        case RevisionNotFoundError():
            message = f"{source.repo}: has no revision {source.revision!r}"
            hint = f"see its branches and tags at {url}/tree/main, or leave the revision out"
            return HubError(message, code="revision_not_found", path=source.text, hint=hint)
        case RemoteEntryNotFoundError():
            message = f"{error.response.url}: no such file"
            return HubError(message, code="entry_not_found", path=source.text, hint=f"see {url}/tree/main")
        case DisabledRepoError():
            message = f"{source.repo}: has been disabled on the Hub"
            return HubError(message, code="repo_disabled", path=source.text, hint=f"see {url}")
    if status == 401:
        message = f"{source.repo}: the Hub refused the token: it is wrong or has expired"
        hint = "run `hf auth login` again, or correct HF_TOKEN (unset it for public repos)"
        return HubError(message, code="token_refused", path=source.text, hint=hint)
    if status == 429:
        message = f"{source.repo}: the Hub asks to slow down (too many requests)"
        hint = "wait some minutes" + ("" if logged_in else f"; with a token more is allowed: {_LOG_IN}")
        return HubError(message, code="rate_limited", path=source.text, hint=hint)
    what, hint = ("has trouble of its own", "try again later") if status >= 500 else ("refused", f"see {url}")
    return HubError(f"{source.repo}: the Hub {what} (HTTP {status})", code="hub_refused", path=source.text, hint=hint)


def _no_network(source: HubSource) -> HubError:
    hint = "check the connection; what was downloaded before can be used with --offline"
    message = f"{source.repo}: cannot reach {constants.ENDPOINT}"
    return HubError(message, code="no_network", path=source.text, hint=hint)


def no_hub(source: HubSource) -> HubError:
    """The error for a server that answers, but not as the Hub does."""
    message = f"{source.repo}: {constants.ENDPOINT} does not answer as the Hub does"
    hint = "check HF_ENDPOINT, and proxies or log-in pages of the network"
    return HubError(message, code="not_a_hub", path=source.text, hint=hint)


def _on_disk(error: OSError, source: HubSource) -> ShardtoolError | None:
    cache = constants.HF_HUB_CACHE
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RefusedError(f"{cache}: the disk is full", code="disk", path=cache, hint=ELSEWHERE)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        message = f"{cache}: cannot be written: {error.strerror}"
        return RefusedError(message, code="cache_unwritable", path=cache, hint=ELSEWHERE)
    if "Consistency check failed" in str(error):
        message = f"{source.repo}: a file arrived with another size than the Hub's record says"
        return HubError(message, code="download_incomplete", path=source.text, hint="run it again")
    return None


ELSEWHERE = "free some space, or put the Hub's cache elsewhere with HF_HOME=/path"
