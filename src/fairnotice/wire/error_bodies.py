"""The bodies of every answer that is not 200: `{"error":"…"}`, saying what is wrong.

Where it is not plain from that, they say what to do instead.

The first two are Azure's to the byte; Azure's other texts are not known, so they are ours.
What a client sent is repeated only escaped and cut short.
"""

import json
from collections.abc import Sequence

from fairnotice.wire import versions

# How much of what a client sent is said back.
_SHOWN_CHARACTERS = 64
_SHOWN_IDS = 10


def _body(text: str, **more: Sequence[str]) -> bytes:
    written = json.dumps({"error": text, **more}, ensure_ascii=False, separators=(",", ":"))
    # Half of a surrogate pair is no UTF-8; written as \udXXX it is still JSON.
    return written.encode("utf-8", "backslashreplace")


def invalid_version(newest: Sequence[str]) -> bytes:
    """The 400 for an api-version that is not served; `newest` are those that are."""
    text = (
        "Bad request. api-version is invalid or was not specified in the request. "
        "For more information refer to aka.ms/azureimds"
    )
    return _body(text, **{"newest-versions": newest})


# ---- 400 ----

# Captured (MicrosoftDocs/azure-docs#91624), odd spacing included.
METADATA_HEADER = b'{ "error": "Bad request: . Required metadata header not specified" }'
API_VERSION = invalid_version(versions.NEWEST)
INSTANCE_API_VERSION = invalid_version(versions.NEWEST_INSTANCE)
FORWARDED = _body(
    "Bad request. X-Forwarded-For is not allowed: ask from the VM itself, without a proxy"
)
DUPLICATE_PARAMETER = _body("Bad request. The same query parameter is given twice; give it once")
LEAF_WITHOUT_TEXT = _body("Bad request. This element is a single value; ask with format=text")
FORMAT = _body("Bad request. format is neither json nor text; give one of the two")
MALFORMED = _body("Bad request. This is not HTTP/1.1 as RFC 9112 describes it")


def bad_body(why: str) -> bytes:
    """The 400 for a POST; `why` is the sentence of the BadBody."""
    return _body(f"Bad request. {why}")


def event_not_found(ids: Sequence[str]) -> bytes:
    """The 400 for a POST that names ids this scope never saw."""
    shown = ", ".join(_cut(event_id) for event_id in ids[:_SHOWN_IDS])
    more = f" and {len(ids) - _SHOWN_IDS} more" if len(ids) > _SHOWN_IDS else ""
    return _body(f"Bad request. EventId not found: {shown}{more}")


# ---- 403 ----

ORIGIN = _body("Forbidden. A web page is asking (Origin header); only the VM itself may")


def unknown_owner(name: str) -> bytes:
    """The 403 on the unix socket of a VM that is not there."""
    return _body(
        f"Forbidden. This socket is for the VM {_cut(name)}, and no VM of that name is known"
    )


def unknown_caller(address: str, *, hint: bool) -> bytes:
    """The 403 for an address that is no VM's; the hint shows how to ask under a VM's name."""
    text = f"Forbidden. No VM is known at {_cut(address)}; ask from an address of a VM"
    if hint:
        text += ", or put a VM's name in front: /vm/NAME/metadata/scheduledevents"
    return _body(text)


# ---- 404 ----

NOT_FOUND = _body(
    "Not found. There are /metadata/scheduledevents, /metadata/instance, /metadata/versions "
    "and /metadata/identity/oauth2/token"
)
NOT_THERE = _body("Not found. The service is not there now; try again later")
NO_SUCH_ELEMENT = _body(
    "Not found. The instance document has no such element; "
    "ask its parent with format=text for the names"
)


def version_not_there(version: str) -> bytes:
    """The 404 for a version that scheduled events do not have."""
    return _body(
        f"Not found. Scheduled events are not in api-version {_cut(version)}; "
        f"use {versions.NEWEST[0]}"
    )


def unknown_name(name: str, nearest: Sequence[str]) -> bytes:
    """The 404 for /vm/NAME of a VM that is not there, with the names nearest to it."""
    instead = f"the nearest are {', '.join(nearest)}" if nearest else "give a name of the fleet"
    return _body(f"Not found. There is no VM named {_cut(name)}; {instead}")


# ---- 405 and other 4xx ----

TIMED_OUT = _body("Request timeout. The request was not finished in time; send it again")
UPDATING = _body("Gone. The service is being updated; try again for up to 70 seconds")
TOO_LARGE = _body("Content too large. A body has at most 64 KiB; send several requests")
TOO_MANY = _body("Too many requests. Wait as long as Retry-After says; once a second is enough")
HEADERS_TOO_LARGE = _body("Request header fields too large. Headers have at most 16 KiB in all")


def method_not_allowed(allow: str) -> bytes:
    """The 405; `allow` is what the Allow header says, such as `GET, POST`."""
    return _body(f"Method not allowed. This path takes {allow}")


# ---- 5xx ----

FAILED = _body(
    "Internal server error. The request may be right; the service has logged what failed"
)
SERVICE_ERROR = _body("Internal server error. The request may be right; try again later")
NO_APPROVALS_NOW = _body(
    "Service unavailable. The approval could not be recorded; "
    "send it again after as many seconds as Retry-After says"
)
NOT_READY = _body(
    "Service unavailable. Nothing is known of this VM yet; "
    "ask again after as many seconds as Retry-After says"
)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
