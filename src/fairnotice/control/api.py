"""The native API over HTTP: the routes of routes.py, behind a guard, described by OpenAPI."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from hashlib import sha256
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Match
from starlette.routing import Route as Address

from fairnotice.conductor.feed import REACH_SECONDS_MAX
from fairnotice.control import misfits, problems, shapes
from fairnotice.control.auth import (
    ANYBODY,
    BODY_BYTES_MAX,
    CALLER,
    NOTE,
    ONLY_ASKED,
    TO_LEADER,
    Caller,
    OnlyFor,
    forbidden,
)
from fairnotice.control.feeding import feed_lines
from fairnotice.control.fleet_body import FleetBody
from fairnotice.control.foreseeing import Foreseeing
from fairnotice.control.keys import KEY_CHARACTERS_MAX, Keys
from fairnotice.control.limits import Reach
from fairnotice.control.openapi import openapi
from fairnotice.control.route import After, Call, Foresee, Memory, Route
from fairnotice.control.routes import ROUTES
from fairnotice.control.service import Service, Who, named
from fairnotice.engine import Refusal
from fairnotice.engine.tables import known_key
from fairnotice.errors import Unavailable, UnknownName
from fairnotice.words import TokenRole

# A fleet of a hundred thousand VMs.
FLEET_BYTES_MAX = 64 * 1024 * 1024

Ready = Callable[[], shapes.Health]
Endpoint = Callable[[Request], Awaitable[Response]]


def application(
    service: Service,
    ready: Ready,
    extra: list[Address] | None = None,
    ending: asyncio.Event | None = None,
) -> Starlette:
    """The API as an ASGI application; `extra` are addresses of other fronts beside it.

    Streams are ended when `ending` is set, since they would not end by themselves.
    """
    conductor = service.conductor
    keys = Keys(lambda: conductor.now().wall, conductor.timing.remembered_seconds)
    document = openapi(ROUTES)
    ending = ending or asyncio.Event()
    addresses = [
        *(
            Address(route.path, _endpoint(service, route, keys), methods=[route.method])
            for route in ROUTES
        ),
        _only_for(TokenRole.READER, Address("/v1/feed", _feed(service, ending), methods=["GET"])),
        _only_for(
            TokenRole.ENDPOINT,
            Address("/v1/endpoints/{name}/feed", _node_feed(service, ending), methods=["GET"]),
            Reach.NOTHING,
        ),
        _only_for(
            TokenRole.READER,
            Address("/v1/openapi.json", _constant(document), methods=["GET"]),
            Reach.NOTHING,
        ),
        Address("/healthz", _constant(msgspec.json.encode({"alive": True})), methods=["GET"]),
        Address("/readyz", _readyz(ready), methods=["GET"]),
        Address("/v1/webhooks/{name}/validate", _validated(service), methods=["GET"]),
        *(_only_for(_least(address), address) for address in extra or ()),
    ]
    handlers = {404: _no_address, 405: _no_method, 500: _our_fault}
    app = Starlette(routes=addresses, exception_handlers=handlers)
    # An address with a slash too many is none of ours, and Location would repeat the Host.
    app.router.redirect_slashes = False
    return app


def _least(address: Address) -> TokenRole:
    """Who may ask at an address of another front: where it takes more than GET, it may change."""
    looks = bool(address.methods) and set(address.methods or ()) <= {"GET", "HEAD"}
    return TokenRole.READER if looks else TokenRole.OPERATOR


def _only_for(needs: TokenRole, address: Address, reach: Reach = Reach.CLOUD) -> Address:
    """An address that is not in the table, for who may ask there."""
    address.app = OnlyFor(address.app, needs, reach)
    return address


# ---- One request ----


class _Refused(Exception):
    """Carries a problem from where it was found to the answer."""

    def __init__(self, found: shapes.Problem) -> None:
        super().__init__(found.detail)
        self.found = found


def _endpoint(service: Service, route: Route, keys: Keys) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        try:
            caller = _entitled(route, request)
            if TO_LEADER in request.scope:
                # What there is may have changed where it is passed on to: looked at there.
                return await _passed_on(route, request)
            _must_reach(service, route, request, caller)
            call = await _understood(service, route, request, caller)
            return await _answered(route, call, request, keys)
        except ClientDisconnect:
            # Whoever asked is gone before he had said all of it: nobody reads this.
            return Response(status_code=400)
        except asyncio.CancelledError:
            # We are about to be gone, and what was asked may be done all the same.
            return Response(status_code=503)
        except _Refused as refused:
            return problems.said(refused.found)
        except Exception as error:
            found = problems.of_error(error, route.takes)
            if found is None:
                raise
            return problems.said(found)

    return endpoint


def _entitled(route: Route, request: Request) -> Caller:
    """Who asks; refused where this is for a larger role."""
    caller: Caller = request.scope.get(CALLER, ANYBODY)
    if route.always_noted and NOTE in request.scope:
        request.scope[NOTE]()
    if not caller.may(route.needs, _name(request)):
        raise _Refused(forbidden())
    return caller


def _must_reach(service: Service, route: Route, request: Request, caller: Caller) -> None:
    """Refused before anything is looked at that he may not know of."""
    name = _name(request)
    # A list, or what the body names, is looked through later.
    later = not name and route.reach is not Reach.CLOUD
    if not (later or caller.reaches(service.fleet, route.reach, name)):
        raise _Refused(forbidden())


async def _passed_on(route: Route, request: Request) -> Response:
    """What the leader answers."""
    answer: Response = await request.scope[TO_LEADER](request, _body_bytes_max(route))
    return answer


def _name(request: Request) -> str:
    """What stands for {name} in the path."""
    return str(request.path_params.get("name", ""))


async def _answered(route: Route, call: Call, request: Request, keys: Keys) -> Response:
    foresee = isinstance(call.query, Foresee) and call.query.foresee
    if foresee:
        call = call._replace(service=Foreseeing(call.service, request.scope.get(CALLER, ANYBODY)))
    key = None if foresee or route.memory is Memory.NOBODY else _known_key(call.who)
    kept = None if key is None else keys.get(key)
    asked = b"" if key is None else _digest(request.url.path, call.body)
    if kept is not None and kept.request == asked:
        return _json(kept.answer, route.status)
    ours = key is not None and route.memory is Memory.PROCESS
    if kept is not None or (ours and call.service.has_request(call.who)):
        detail = f"The idempotency key {call.who.key} stands for another command."
        remedy = "Use a new key for what is not a repeat."
        raise _Refused(problems.problem("conflict", 409, f"{detail} {remedy}", rule=19))
    result = route.handle(call)
    if inspect.isawaitable(result):
        result = await result
    if isinstance(result, Refusal):
        raise _Refused(problems.of_refusal(result))
    if isinstance(result, Response):
        return result
    answer = result if isinstance(result, bytes) else msgspec.json.encode(result)
    if key is not None and ours:
        keys.keep(key, asked, answer)
    foreseen = route.foresees is not None and isinstance(result, route.foresees)
    return _json(answer, 200 if foreseen else route.status)


def _known_key(who: Who) -> str | None:
    """Under what a key is known: the keys of others are none of one's business."""
    return None if who.key is None else known_key(who.requester, who.key)


def _digest(path: str, body: object) -> bytes:
    """What was asked, in few bytes: a fleet is many."""
    return sha256(path.encode() + b" " + msgspec.json.encode(body)).digest()


async def _understood(service: Service, route: Route, request: Request, caller: Caller) -> Call:
    query = _query(request, route.asks)
    if isinstance(query, Foresee) and query.foresee and ONLY_ASKED in request.scope:
        request.scope[ONLY_ASKED]()
    body: Any = None
    if route.takes is not None:
        # What needs nothing said may have nothing said.
        data = await _body(request, _body_bytes_max(route)) or b"{}"
        body = msgspec.json.decode(data, type=route.takes)
    key = request.headers.get("idempotency-key")
    if key is not None and not 0 < len(key) <= KEY_CHARACTERS_MAX:
        detail = f"Idempotency-Key is 1 to {KEY_CHARACTERS_MAX} characters."
        raise _Refused(problems.problem("invalid", 422, detail, "Idempotency-Key"))

    def shows(name: str) -> bool:
        return caller.reaches(service.fleet, route.reach, name)

    if not all(map(shows, getattr(body, "vms", ()))):
        raise _Refused(forbidden())
    return Call(service, Who(caller.requester, key), _name(request), body, query, shows)


def _query(request: Request, asks: type) -> Any:  # noqa: ANN401, what the route asks for
    """What stands after the question mark, in its shape."""
    given = dict(request.query_params)
    known = misfits.names_of(asks)
    for name in given:
        if name not in known:
            raise _Refused(problems.of_misfit(misfits.unknown_field(name, known)))
        if len(request.query_params.getlist(name)) > 1:
            # Which of them is meant, nobody knows.
            raise _Refused(problems.of_misfit(misfits.Misfit(f"`{name}` is given twice.", name)))
    try:
        return msgspec.convert(given, asks, strict=False)
    except msgspec.ValidationError as error:
        raise _Refused(problems.of_misfit(misfits.misfit(error, asks))) from error


def _body_bytes_max(route: Route) -> int:
    return FLEET_BYTES_MAX if route.takes is FleetBody else BODY_BYTES_MAX


async def _body(request: Request, limit: int) -> bytes:
    """The whole body, unless it is too large."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise _Refused(problems.too_large(limit))
        pieces.append(piece)
    return b"".join(pieces)


# ---- Answers ----


def _json(body: bytes, status: int = 200) -> Response:
    return Response(body, status, media_type="application/json")


def _constant(body: bytes) -> Endpoint:
    async def endpoint(_: Request) -> Response:
        return _json(body)

    return endpoint


def _readyz(ready: Ready) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        health = ready()
        said = _told(health, request.scope.get(CALLER, ANYBODY))
        return _json(msgspec.json.encode(said), 200 if health.ready else 503)

    return endpoint


def _told(health: shapes.Health, caller: Caller | None) -> shapes.Health | dict[str, object]:
    """Where things are and what is wrong with them is for who may see all of the cloud."""
    if caller is None or not caller.may(TokenRole.READER):
        return {"ready": health.ready}
    if caller.limits is not None:
        # Azure's tools are for those, too, and begin by asking here.
        return {"ready": health.ready, "arm": health.arm}
    return health


def _validated(service: Service) -> Endpoint:
    """Where the receiver of a webhook says that he agrees, by the code that he was sent."""

    async def endpoint(request: Request) -> Response:
        code = request.query_params.get("code", "")
        try:
            agrees = await service.webhooks.validate(_name(request), code)
        except Unavailable as error:
            return problems.said(problems.unavailable(error))
        if agrees:
            return _json(msgspec.json.encode({"validated": True}))
        detail = "No webhook waits to be validated by this code."
        return problems.said(problems.problem("not-found", 404, detail))

    return endpoint


async def _no_address(request: Request, _: Exception) -> Response:
    detail = f"There is nothing at {request.url.path}. What there is: /v1/openapi.json."
    return problems.said(problems.problem("no-address", 404, detail))


async def _no_method(request: Request, _: Exception) -> Response:
    found: set[str] = set()
    for route in request.app.routes:
        # One address is several routes, each of which knows only its own method.
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods
    taken = ", ".join(sorted(found))
    detail = f"{request.url.path} does not take {request.method}, but {taken}."
    return problems.said(problems.problem("no-method", 405, detail), {"Allow": taken})


async def _our_fault(_: Request, __: Exception) -> Response:
    detail = "That is a fault of fairnotice itself; its log says more."
    return problems.said(problems.problem("internal", 500, detail))


# ---- The feed ----


def _feed(service: Service, ending: asyncio.Event) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        try:
            asked = _query(request, After)
        except _Refused as refused:
            return problems.said(refused.found)
        lines = feed_lines(service.conductor.feed, asked.after, *_endings(request, ending))
        return await _stream(service, request, asked, _encoded(lines))

    return endpoint


def _node_feed(service: Service, ending: asyncio.Event) -> Endpoint:
    """What the endpoint of one node follows (docs/reference/node-feed.md)."""

    async def endpoint(request: Request) -> Response:
        try:
            asked = _query(request, After)
            node = named("node", service.fleet.nodes, request.path_params["name"]).name
        except _Refused as refused:
            return problems.said(refused.found)
        except UnknownName as error:
            found = problems.of_error(error)
            assert found is not None
            return problems.said(found)
        lines = service.endpoints.follow(node, *_endings(request, ending))
        return await _stream(service, request, asked, lines)

    return endpoint


def _endings(request: Request, ending: asyncio.Event) -> list[asyncio.Event]:
    """What ends a stream: the end of this process, and that of the token it was opened with."""
    caller: Caller = request.scope.get(CALLER, ANYBODY)
    return [one for one in (ending, caller.ended) if one is not None]


async def _stream(
    service: Service, request: Request, asked: After, lines: AsyncIterator[bytes]
) -> Response:
    """These lines, unless whoever asks has read more elsewhere than there is here."""
    media_type = "application/x-ndjson"
    if request.method == "HEAD":
        return Response(media_type=media_type)
    feed = service.conductor.feed
    why = "this control plane has lost the journal"
    if not feed.cut_off:
        try:
            await feed.reach(asked.after, REACH_SECONDS_MAX)
        except Unavailable as error:
            why = str(error)
        else:
            return StreamingResponse(lines, media_type=media_type)
    detail = f"There is no feed: {why}. Follow another, or try again later."
    return problems.said(problems.problem("unavailable", 503, detail))


async def _encoded(lines: AsyncIterator[shapes.Line]) -> AsyncIterator[bytes]:
    try:
        async for line in lines:
            yield msgspec.json.encode(line) + b"\n"
    except Unavailable:
        # What was sent holds; who follows asks again from there.
        return
