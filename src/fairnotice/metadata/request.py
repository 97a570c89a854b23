"""What a request asks for, decided once: the same bytes are the same request.

Everything that follows from the request alone is decided here, in the order of checks of the
wire: readable HTTP, path, method, X-Forwarded-For, Origin; then, after it is known who asks and
whether he asks too often, the Metadata header, the api-version and the format.
"""

import re
from enum import IntEnum
from typing import NamedTuple
from urllib.parse import unquote, unquote_plus

from fairnotice.metadata.replies import Reply, reply
from fairnotice.wire import error_bodies, identity_bodies, versions

WAIT_SECONDS_MAX = 60

_ROOT = "metadata"
# Azure has identities since this api-version.
_IDENTITY_SINCE = "2018-02-01"
_DATE = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
# By what one of several identities is asked for.
_IDENTITY_NAMES = ("client_id", "object_id", "msi_res_id", "mi_res_id")
_AUTHORITY = re.compile(r"[^/?#]*")


class Target(IntEnum):
    """What is asked for."""

    NOTHING = 0
    EVENTS = 1
    INSTANCE = 2
    VERSIONS = 3
    IDENTITY = 4


class Raw(NamedTuple):
    """A request as it was read: names of headers in lower case."""

    method: str
    target: str
    headers: tuple[tuple[bytes, bytes], ...]
    # HTTP/1.1 keeps a connection unless told otherwise, HTTP/1.0 the other way round.
    keeps_alive: bool = True
    http: str = "1.1"


class Request(NamedTuple):
    """A request that is understood."""

    target: Target
    post: bool = False
    # What is wrong with it: answered before, and after, it is known who asks.
    early: Reply | None = None
    late: Reply | None = None
    # The position of its api-version among those of scheduled events.
    version: int = 0
    api_version: str = ""
    # The ETags it knows already, and how long it would wait for another; none where it did not
    # ask for the document that way.
    etags: frozenset[bytes] = frozenset()
    wait_seconds: int = 0
    # It wants no body.
    head: bool = False
    close: bool = False
    kept: bool = False
    # The NAME of /vm/NAME, and the rest of an instance path.
    name: str | None = None
    path: tuple[str, ...] = ()
    text: bool = False
    # For what the token of an identity is to be good, and of which identity.
    resource: str = ""
    identity: str = ""
    # A poll like nearly all: GET of the document, nothing wrong with it, nothing to wait for.
    plain: bool = False


# Answers that are the same for everybody.
FORWARDED = reply(400, error_bodies.FORWARDED)
ORIGIN = reply(403, error_bodies.ORIGIN)
NOT_FOUND = reply(404, error_bodies.NOT_FOUND)
METADATA_HEADER = reply(400, error_bodies.METADATA_HEADER)
API_VERSION = reply(400, error_bodies.API_VERSION)
INSTANCE_API_VERSION = reply(400, error_bodies.INSTANCE_API_VERSION)
DUPLICATE_PARAMETER = reply(400, error_bodies.DUPLICATE_PARAMETER)
FORMAT = reply(400, error_bodies.FORMAT)
IDENTITY_METADATA_HEADER = reply(400, identity_bodies.METADATA_HEADER)
IDENTITY_API_VERSION = reply(400, identity_bodies.API_VERSION)
IDENTITY_RESOURCE = reply(400, identity_bodies.RESOURCE_MISSING)
IDENTITY_TWICE = reply(400, identity_bodies.TWICE)
GET_ONLY = reply(405, error_bodies.method_not_allowed("GET"), headers=b"Allow: GET\r\n")
GET_AND_POST = reply(
    405, error_bodies.method_not_allowed("GET, POST"), headers=b"Allow: GET, POST\r\n"
)


def understand(raw: Raw) -> Request:
    """Decide all of a request that follows from the request alone."""
    path, _, query = _origin_form(raw.target).partition("?")
    segments = _segments(path)
    name = None
    if len(segments) > 1 and segments[0].lower() == "vm":
        name, segments = segments[1], segments[2:]
    target, rest = _target(segments)
    headers: dict[bytes, bytes] = {}
    for header, value in raw.headers:
        # Given twice, a header is a list (RFC 9110).
        headers[header] = headers[header] + b"," + value if header in headers else value
    request = Request(
        target,
        post=raw.method == "POST",
        head=raw.method == "HEAD",
        close=not raw.keeps_alive,
        kept=raw.http == "1.0" and raw.keeps_alive,
        name=name,
        path=rest,
    )
    early = _early(target, raw.method, headers)
    if early is not None:
        return request._replace(early=early)
    return _with_parameters(request, query, headers)


def _origin_form(target: str) -> str:
    """The path and query, also of an absolute-form target [clients behind http_proxy]."""
    scheme, separator, rest = target.partition("://")
    if separator and scheme.lower() in ("http", "https"):
        # RFC 3986: whichever comes first ends the authority.
        authority = _AUTHORITY.match(rest)
        return rest[authority.end() :] if authority else rest
    return target


def _segments(path: str) -> list[str]:
    """The parts of a path; a slash at the end adds none, any other empty one is a part."""
    first, *parts = path.split("/")
    if first or not parts:
        return []
    if not parts[-1]:
        parts.pop()
    return [unquote(part) for part in parts]


def _target(segments: list[str]) -> tuple[Target, tuple[str, ...]]:
    """Paths are compared without case, with or without a trailing slash."""
    lower = [segment.lower() for segment in segments]
    if lower[:1] != [_ROOT]:
        return Target.NOTHING, ()
    if lower[1:] == ["scheduledevents"]:
        return Target.EVENTS, ()
    if lower[1:] == ["versions"]:
        return Target.VERSIONS, ()
    if lower[1:] == ["identity", "oauth2", "token"]:
        return Target.IDENTITY, ()
    if lower[1:2] == ["instance"]:
        return Target.INSTANCE, tuple(segments[2:])
    return Target.NOTHING, ()


def _early(target: Target, method: str, headers: dict[bytes, bytes]) -> Reply | None:
    if target is Target.NOTHING:
        return NOT_FOUND
    if method != "GET" and not (method == "POST" and target is Target.EVENTS):
        return GET_AND_POST if target is Target.EVENTS else GET_ONLY
    if b"x-forwarded-for" in headers:
        return FORWARDED
    if b"origin" in headers:
        return ORIGIN
    return None


def _with_parameters(request: Request, query: str, headers: dict[bytes, bytes]) -> Request:
    parameters = _parameters(query)
    version = None if parameters is None else parameters.get("api-version")
    if request.target is Target.IDENTITY:
        return _of_identity(request, version, parameters, headers)
    late = _late(request.target, version, parameters, headers)
    if late is not None:
        return request._replace(late=late)
    served = version in versions.SCHEDULED_EVENTS
    reads = request.target is Target.EVENTS and not request.post
    etags = _etags(headers.get(b"if-none-match", b"")) if reads else frozenset()
    waits = _wait_seconds(headers.get(b"prefer", b"")) if etags else 0
    return request._replace(
        version=versions.SCHEDULED_EVENTS.index(version) if version and served else 0,
        api_version=version or "",
        etags=etags,
        wait_seconds=waits,
        text=(parameters or {}).get("format", "").lower() == "text",
        plain=reads and not waits and request.name is None and not request.kept,
    )


def _of_identity(
    request: Request,
    version: str | None,
    parameters: dict[str, str] | None,
    headers: dict[bytes, bytes],
) -> Request:
    """The request for the token of a managed identity."""
    if headers.get(b"metadata", b"").strip().lower() != b"true":
        return request._replace(late=IDENTITY_METADATA_HEADER)
    if parameters is None:
        return request._replace(late=IDENTITY_TWICE)
    if version is None or not _DATE.fullmatch(version) or version < _IDENTITY_SINCE:
        return request._replace(late=IDENTITY_API_VERSION)
    if not parameters.get("resource"):
        return request._replace(late=IDENTITY_RESOURCE)
    asked = (parameters[name] for name in _IDENTITY_NAMES if parameters.get(name))
    return request._replace(
        # Only a few are told apart in the metrics, or a client could make as many as it likes.
        api_version=_IDENTITY_SINCE,
        resource=parameters["resource"],
        identity=next(asked, ""),
    )


def _parameters(query: str) -> dict[str, str] | None:
    """The query's parameters by name in lower case; None where one is given twice."""
    parameters: dict[str, str] = {}
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        name = unquote_plus(name).lower()
        if name in parameters:
            return None
        if name:
            parameters[name] = unquote_plus(value)
    return parameters


def _late(
    target: Target,
    version: str | None,
    parameters: dict[str, str] | None,
    headers: dict[bytes, bytes],
) -> Reply | None:
    asked_as_vm = headers.get(b"metadata", b"").strip().lower() == b"true"
    # Only the oldest version is answered without the header, as it was on Azure.
    if not asked_as_vm and not (
        target is Target.EVENTS and version == versions.SCHEDULED_EVENTS[0]
    ):
        return METADATA_HEADER
    if parameters is None:
        return DUPLICATE_PARAMETER
    if target is Target.VERSIONS:
        return None
    if target is Target.EVENTS:
        verdict = versions.verdict(version)
        if verdict is versions.Verdict.NOT_THERE:
            return reply(404, error_bodies.version_not_there(version or ""))
        return None if verdict is versions.Verdict.SERVED else API_VERSION
    if versions.instance_verdict(version) is not versions.Verdict.SERVED:
        return INSTANCE_API_VERSION
    return None if parameters.get("format", "json").lower() in ("json", "text") else FORMAT


def _etags(value: bytes) -> frozenset[bytes]:
    """ETags are accepted back quoted, unquoted or weak [Azure's Node sample]."""
    listed = (etag.strip().removeprefix(b"W/").removeprefix(b"w/") for etag in value.split(b","))
    bare = (etag.strip(b'"') for etag in listed)
    return frozenset(etag for etag in bare if etag)


def _wait_seconds(prefer: bytes) -> int:
    """N of `Prefer: wait=N` (RFC 7240), at most 60; 0 where it is not asked for."""
    for preference in prefer.split(b","):
        name, _, value = preference.partition(b";")[0].partition(b"=")
        number = value.strip().strip(b'"')
        if name.strip().lower() == b"wait" and number.isdigit():
            return min(int(number[:9]), WAIT_SECONDS_MAX)
    return 0
