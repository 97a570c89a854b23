"""The portal over HTTP: its pages, what stays of them live, and their styles and scripts."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Match, Route
from starlette.types import Scope

from fairnotice.control.auth import ANYBODY, CALLER, Caller
from fairnotice.control.running import Running
from fairnotice.errors import UnknownName
from fairnotice.portal.assets import ASSETS, BUILD
from fairnotice.portal.fleet_page import FleetPage
from fairnotice.portal.history_pages import EventPage, HistoryPage, Search
from fairnotice.portal.live import Standing, messages
from fairnotice.portal.machine_pages import NodePage, VmPage
from fairnotice.portal.now_page import NowPage
from fairnotice.portal.parts import NotFoundPage, Page
from fairnotice.portal.rollout_pages import RolloutPage, RolloutsPage
from fairnotice.portal.site import NEWEST, Site, Viewer
from fairnotice.words import TokenRole

# Where a request carries the word that a page of this session shows.
CSRF = "fairnotice.csrf"
# No script and no style but ours, from here; text of others cannot bring any.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "Content-Security-Policy": POLICY,
    # Names and states are nobody else's: no proxy keeps them, and Back asks anew.
    "Cache-Control": "no-store",
    # Nobody else is told where one was; our own forms say whence they come, as they must.
    "Referrer-Policy": "same-origin",
}
FOR_GOOD = {"Cache-Control": "public, max-age=31536000, immutable"}
STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
ZIPPED_FROM_BYTES = 1_000
ZIP_LEVEL = 4
# More than a journal will ever have, and less than a database can hold.
DIGITS_MAX = 18

Endpoint = Callable[[Request], Awaitable[Response]]
# A page from the names in its path and what stands after the question mark.
Maker = Callable[[Site, Viewer, Mapping[str, Any], QueryParams], Awaitable[Page] | Page]


def _number(query: QueryParams, name: str) -> int | None:
    """A number after the question mark; None where there is none, or what nobody of ours wrote."""
    text = query.get(name, "")
    return int(text) if text.isdecimal() and len(text) <= DIGITS_MAX else None


def _now(site: Site, viewer: Viewer, _: Mapping[str, Any], query: QueryParams) -> Page:
    return NowPage(site, viewer, _number(query, "span"))


def _vm(site: Site, viewer: Viewer, names: Mapping[str, Any], query: QueryParams) -> Page:
    return VmPage(site, viewer, names["name"], query.get("api-version", NEWEST))


async def _history(site: Site, viewer: Viewer, _: Mapping[str, Any], query: QueryParams) -> Page:
    asked = {name: query.get(name, "").strip() for name in Search._fields}
    before = _number(query, "before")
    return await HistoryPage(site, viewer, Search(**asked), before).look_back()


async def _event(site: Site, viewer: Viewer, names: Mapping[str, Any], _: QueryParams) -> Page:
    return EventPage(site, viewer, await site.service.history(names["name"]))


PAGES: Mapping[str, Maker] = {
    "/": _now,
    "/fleet": lambda site, viewer, _, query: FleetPage(site, viewer, query.get("find", "")[:200]),
    "/vms/{name}": _vm,
    "/nodes/{name}": lambda site, viewer, names, _: NodePage(site, viewer, names["name"]),
    "/rollouts": lambda site, viewer, _, __: RolloutsPage(site, viewer),
    "/rollouts/{name}": lambda site, viewer, names, _: RolloutPage(site, viewer, names["name"]),
    "/history": _history,
    "/events/{name}": _event,
}


def caller_of(request: Request) -> Caller:
    """Who asks, as the gate has found out."""
    caller: Caller = request.scope.get(CALLER, ANYBODY)
    return caller


def viewer_of(request: Request) -> Viewer:
    """What pages offer to who asks."""
    caller = caller_of(request)
    return Viewer(
        name="" if caller.token is None else caller.token.name,
        may_operate=caller.may(TokenRole.OPERATOR),
        csrf=request.scope.get(CSRF, ""),
    )


def addresses(run: Running) -> list[Route]:
    """Every address of the portal."""
    return Front(Site(run), run.ending).routes()


class Front:
    """The addresses of one portal."""

    def __init__(self, site: Site, ending: asyncio.Event) -> None:
        self._site = site
        self._ending = ending
        # Of this process: what another has drawn is drawn anew.
        self._process = uuid4().hex
        self._pages = [(Route(path, self._page(make)), make) for path, make in PAGES.items()]

    def routes(self) -> list[Route]:
        """All of them."""
        return [
            *(route for route, _ in self._pages),
            Route("/live", self._live),
            Route("/static/{build}/{name}", _asset),
            Route("/favicon.ico", _icon),
            Mistyped("/{path:path}", self._mistyped),
        ]

    # ---- Pages ----

    def _page(self, make: Maker) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            try:
                names, query = request.path_params, request.query_params
                page = await self._made(make, viewer_of(request), names, query)
            except UnknownName as unknown:
                return await self._not_found(request, unknown)
            return await zipped(request, await page.html(self._process))

        return endpoint

    async def _made(
        self, make: Maker, viewer: Viewer, names: Mapping[str, Any], query: QueryParams
    ) -> Page:
        made = make(self._site, viewer, names, query)
        return made if isinstance(made, Page) else await made

    async def _not_found(self, request: Request, why: object) -> Response:
        page = NotFoundPage(self._site, viewer_of(request), str(why))
        return await zipped(request, await page.html(self._process), 404)

    async def _mistyped(self, request: Request) -> Response:
        return await self._not_found(request, f"There is nothing at {request.url.path}.")

    # ---- What stays live ----

    async def _live(self, request: Request) -> Response:
        path, _, query = request.query_params.get("page", "/").partition("?")
        # As the browser writes it: what a name has beside letters is quoted.
        found = self._found({**request.scope, "path": unquote(path), "method": "GET"})
        if found is None:
            return Response(status_code=404)
        try:
            page = await self._made(found[0], viewer_of(request), found[1], QueryParams(query))
        except UnknownName:
            # What the page was about is gone: nothing changes on it any more.
            return Response(status_code=410)
        ended = caller_of(request).ended
        endings = [self._ending] if ended is None else [self._ending, ended]
        stream = messages(page, self._standing(request), *endings)
        return StreamingResponse(stream, media_type="text/event-stream", headers=STREAM_HEADERS)

    def _found(self, scope: Scope) -> tuple[Maker, Mapping[str, Any]] | None:
        for route, make in self._pages:
            match, child = route.matches(scope)
            if match is Match.FULL:
                return make, child["path_params"]
        return None

    def _standing(self, request: Request) -> Standing:
        given = request.query_params
        revision = _number(given, "revision")
        if given.get("process") != self._process or revision is None:
            return Standing(-1, "")
        return Standing(revision, given.get("state", ""))


class Mistyped(Route):
    """Whatever a person typed that is nobody's address; to programs the API says so."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether a browser asks for a page there, and not for something of the API."""
        accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
        if scope["path"].startswith("/v1/") or b"text/html" not in accepted:
            return Match.NONE, {}
        match, child = super().matches(scope)
        return (match, child) if match is Match.FULL else (Match.NONE, {})


async def zipped(request: Request, html: str, status: int = 200) -> Response:
    """A page, in fewer bytes where the browser takes them."""
    body = html.encode()
    headers = {**PAGE_HEADERS, "Vary": "Accept-Encoding"}
    if len(body) >= ZIPPED_FROM_BYTES and _takes_gzip(request):
        headers["Content-Encoding"] = "gzip"
        # In a thread, since it lets go of the interpreter: nobody who polls waits for it.
        body = await asyncio.to_thread(gzip.compress, body, ZIP_LEVEL, mtime=0)
    return HTMLResponse(body, status, headers)


def _takes_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


async def _asset(request: Request) -> Response:
    return asset(request, request.path_params["build"], request.path_params["name"])


def asset(request: Request, build: str, name: str) -> Response:
    """A style or a script, kept for good where it is the one of this build."""
    found = ASSETS.get(name)
    if found is None:
        return Response(status_code=404)
    headers = {"Vary": "Accept-Encoding"}
    if build == BUILD:
        headers |= FOR_GOOD
    body = found.body
    if _takes_gzip(request):
        headers["Content-Encoding"] = "gzip"
        body = found.zipped
    return Response(body, headers=headers, media_type=found.media_type)


async def _icon(_: Request) -> Response:
    return Response(ASSETS["icon.svg"].body, media_type=ASSETS["icon.svg"].media_type)
