"""Azure Resource Manager over HTTP: the routes of routes.py, as an ASGI application."""

import asyncio
import inspect
import logging
from hashlib import sha256
from typing import Any
from uuid import uuid4

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fairnotice.arm.doing import followed
from fairnotice.arm.elsewhere import no_address
from fairnotice.arm.failures import (
    Failure,
    WrongMethod,
    forbidden,
    malformed,
    of_error,
    said,
)
from fairnotice.arm.filtering import must_be_unfiltered
from fairnotice.arm.finding import must_be_ours
from fairnotice.arm.kinds import INTEGERS_64, Kind, properly_named
from fairnotice.arm.long_running import POLL_AGAIN_SECONDS
from fairnotice.arm.paging import next_link
from fairnotice.arm.paths import (
    LOCATION,
    OPERATIONS,
    SUBSCRIPTION_ID,
    Pattern,
    checked_version,
    pattern,
)
from fairnotice.arm.route import ArmRoute, Call, Done
from fairnotice.arm.routes import ROUTES
from fairnotice.conductor.feed import FROM_NOW, REACH_SECONDS_MAX
from fairnotice.control.auth import ANYBODY, BODY_BYTES_MAX, CALLER, CAME_OF_IT, TO_LEADER, Caller
from fairnotice.control.passing_on import asked_at
from fairnotice.control.service import Service, Who

log = logging.getLogger(__name__)

CLIENT_REQUEST_ID = "x-ms-client-request-id"
# In the address of a long-running operation: where the journal stood when it was told. Whichever of
# several control planes is asked there next may be behind by moments.
REVISION = "revision"
_TABLE: tuple[tuple[Pattern, ArmRoute], ...] = tuple((pattern(one.path), one) for one in ROUTES)


class Arm:
    """Azure Resource Manager's front of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._in_turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        request = Request(scope, receive)
        answer = await self._answered(request)
        asked = request.headers.get(CLIENT_REQUEST_ID)
        answer.headers["x-ms-request-id"] = str(uuid4())
        if asked is not None and asked.isascii() and asked.isprintable():
            answer.headers[CLIENT_REQUEST_ID] = asked
        await answer(scope, receive, send)

    async def _answered(self, request: Request) -> Response:
        try:
            route, names = _found(request.method, request.scope["path"])
            caller: Caller = request.scope.get(CALLER, ANYBODY)
            _must_be_entitled(route, caller)
            if TO_LEADER in request.scope:
                # What there is may have changed where it is passed on to: looked at there.
                answer: Response = await request.scope[TO_LEADER](request, BODY_BYTES_MAX)
                return answer
            call = await self._understood(route, request, names, caller)
            await self._reached(call.query.get(REVISION, ""))
            must_be_ours(call)
            _must_reach(route, call)
            must_be_unfiltered(route, call)
            done = route.handle(call)
            if inspect.isawaitable(done):
                done = await done
            return self._shown(request, done)
        except ClientDisconnect:
            # Whoever asked is gone before he had said all of it: nobody reads this.
            return Response(status_code=400)
        except asyncio.CancelledError:
            # We are about to be gone, and what was asked may be done all the same.
            return Response(status_code=503)
        except Exception as error:
            failure = of_error(error)
            if failure is None:
                log.exception("%s %s went wrong", request.method, request.scope["path"])
                message = "That is a fault of fairnotice itself; its log says more."
                failure = Failure(500, "InternalServerError", message)
            return said(failure)

    async def _understood(
        self, route: ArmRoute, request: Request, names: dict[str, str], caller: Caller
    ) -> Call:
        query = {name.lower(): value for name, value in request.query_params.items()}
        checked_version(_versions(request))
        data = (await _body(request)).removeprefix(BYTE_ORDER_MARK)
        body = None if route.body is None or not data else _object(data, route.body)
        if body is None and route.body is not None and request.method in ("PUT", "PATCH"):
            raise malformed("there is no body")
        return Call(
            service=self._service,
            caller=caller,
            who=Who(caller.requester, _key(request, data)),
            names=names,
            query=query,
            body=body,
            expected=_etags(request.headers.get("if-match", "")),
            in_turn=self._in_turn,
            new_only=request.headers.get("if-none-match") == "*",
        )

    async def _reached(self, revision: str) -> None:
        """Wait until what somebody was told elsewhere is known here: else it would not be there.

        Nobody is ahead of whoever leads: what is asked of it was told of a store that is gone.
        """
        conductor = self._service.conductor
        is_number = revision.isdecimal() and len(revision) <= len(str(FROM_NOW))
        if is_number and not conductor.leading:
            await conductor.feed.reach(int(revision), REACH_SECONDS_MAX)

    def _shown(self, request: Request, done: Done) -> Response:
        headers: dict[str, str] = {}
        if done.etag is not None:
            headers["ETag"] = done.etag
        if done.request is not None:
            headers |= _following(request, done.request, self._service.fleet.revision)
            self._note(request, done.request)
        if done.page_ends is not None and isinstance(done.body, dict):
            done.body["nextLink"] = next_link(request, done.page_ends)
        body = b"" if done.body is None else msgspec.json.encode(done.body)
        if isinstance(done.body, dict) and done.body.get("status") == "InProgress":
            headers["Retry-After"] = str(POLL_AGAIN_SECONDS)
        media_type = None if done.body is None else "application/json"
        return Response(body, done.status, headers=headers, media_type=media_type)

    def _note(self, request: Request, name: str) -> None:
        """For the audit: an answer without a body names no operations."""
        row = self._service.fleet.requests.get(name)
        if row is not None and CAME_OF_IT in request.scope:
            request.scope[CAME_OF_IT]((*row.repeats, *row.operations))


def _found(method: str, path: str) -> tuple[ArmRoute, dict[str, str]]:
    """The route of an address, and what stands for the names in it."""
    methods: list[str] = []
    for template, route in _TABLE:
        names = template.match(path)
        if names is not None:
            if route.method == method or (method == "HEAD" and route.method == "GET"):
                return route, names
            methods += ("GET", "HEAD") if route.method == "GET" else (route.method,)
    if methods:
        raise WrongMethod(method, methods)
    raise no_address(path)


def _must_be_entitled(route: ArmRoute, caller: Caller) -> None:
    if not caller.may(route.needs):
        raise forbidden()


def _must_reach(route: ArmRoute, call: Call) -> None:
    """Refused before anything is looked at that whoever asks may not know of."""
    if route.reach is None or route.name is None or call.caller.limits is None:
        return
    try:
        name = route.name(call)
    except Failure as failure:
        if followed(call) is not None:
            # It was there when he asked for this, and is gone by now: a repeat is told so.
            return
        raise forbidden() from failure
    if not call.shows(route.reach, name):
        raise forbidden()


# Of every resource; whatever else is sent means nothing, and so may be anything.
_OBJECTS = ("properties", "sku", "tags")
DEPTH_MAX = 40
# Some tools of Windows begin a text with it; RFC 8259 lets whoever reads JSON pass over it.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


async def _body(request: Request) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > BODY_BYTES_MAX:
            message = f"At most {BODY_BYTES_MAX:,} bytes are taken."
            raise Failure(413, "RequestContentTooLarge", message)
        pieces.append(piece)
    return b"".join(pieces)


def _object(data: bytes, kind: Kind) -> dict[str, Any]:
    body = msgspec.json.decode(data)
    if not isinstance(body, dict):
        raise malformed("it is no JSON object")
    _must_be_readable(body)
    found: dict[str, Any] = properly_named(body, kind)
    for name in _OBJECTS:
        if not isinstance(found.get(name), dict | None):
            raise malformed(f"{name} is no JSON object")
    if not all(isinstance(value, str | None) for value in (found.get("tags") or {}).values()):
        raise malformed("the value of a tag is no text")
    return found


def _must_be_readable(body: dict[str, Any]) -> None:
    """Neither deeper than anything that means something, nor with numbers that tools cannot read.

    It is walked part by part, and given back as it is.
    """
    level: list[Any] = [body]
    for _ in range(DEPTH_MAX):
        if any(type(one) is int and one not in INTEGERS_64 for one in level):
            raise malformed("a whole number has more than 64 bits")
        level = [
            part
            for one in level
            if isinstance(one, dict | list)
            for part in (one.values() if isinstance(one, dict) else one)
        ]
    if level:
        raise malformed(f"more than {DEPTH_MAX} levels stand in each other")


def _etags(match: str) -> tuple[str, ...]:
    """What If-Match names, any of which will do; nothing where it does not matter."""
    found = tuple(one.strip().removeprefix("W/").strip('"') for one in match.split(","))
    return found if match.strip() and "*" not in found else ()


def _key(request: Request, data: bytes) -> str:
    """Under what a repeat of this very request is known.

    A tool says one x-ms-client-request-id for all that one command of its asks, so the address and
    the body belong to it.
    """
    asked = request.headers.get(CLIENT_REQUEST_ID) or str(uuid4())
    parts = (request.method, request.scope["path"].lower(), asked)
    return sha256("\n".join(parts).encode("utf-8", "backslashreplace") + data).hexdigest()


def _following(request: Request, name: str, revision: int) -> dict[str, str]:
    """Where it is told how far it has come: at the address that was asked, as it was asked."""
    path = OPERATIONS.format(location=LOCATION, operation=name)
    query = f"{REVISION}={revision}&api-version={_versions(request)[0]}"
    url = f"{asked_at(request)}/subscriptions/{SUBSCRIPTION_ID}/{path}?{query}"
    headers = {"Azure-AsyncOperation": url, "Retry-After": str(POLL_AGAIN_SECONDS)}
    if request.method not in ("PUT", "PATCH"):
        # Where there is one, az reads what it has written from there at the end, and not anew.
        headers["Location"] = f"{url}&monitor=true"
    return headers


def _versions(request: Request) -> list[str]:
    given = request.query_params.multi_items()
    return [value for name, value in given if name.lower() == "api-version"]
