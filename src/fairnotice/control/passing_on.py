"""Of several control planes, one that follows passes on to the leader whatever changes something.

What is asked is passed on as it is, and so is what is answered. Reads and the feed are answered
here, from what was committed, but for what only the leader knows; so whoever has changed something
through this control plane is answered when it is to be seen here. A role that is too small and a
body that is too large are refused here: nobody has the leader, or this one, take what it would not.

What Azure's tools ask at their own port is passed on to the leader's control plane too, since the
lease tells of no other address, with a header that says so (HandingOver).
"""

import asyncio
import logging
import re
import ssl
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairnotice.conductor.conductor import Conductor
from fairnotice.conductor.feed import Feed
from fairnotice.conductor.leading import Leader, why_nobody_leads
from fairnotice.control.auth import ASKED_AT, LEFT_TO_LEADER, PASSED_ON, TO_LEADER
from fairnotice.control.peers import Peer, PeerAnswer
from fairnotice.control.problems import CONTENT_TYPE, problem, said, too_large
from fairnotice.control.shapes import Problem
from fairnotice.errors import Unavailable, UsageError
from fairnotice.stores.lease import Lease

log = logging.getLogger(__name__)

# What changes nothing is answered wherever it is asked.
READS = frozenset({"GET", "HEAD", "OPTIONS"})
BAD_REQUEST = 400
UNAVAILABLE = 503
# How the endpoints of nodes are: each reports to the leader, whichever it follows.
LEADERS = re.compile("/v1/endpoints(/[^/]+)?")
# Whoever asked has waited this long: the leader may be in the middle of a commit.
ANSWER_SECONDS_MAX = 15.0
# So often it is looked whether somebody else leads before that.
LOOK_EVERY_SECONDS = 0.25
# How long somebody waits until what he has changed is to be seen here.
SEEN_SECONDS_MAX = 1.0
# Where the journal stood when it was answered.
REVISION = "fairnotice-revision"
# By what a repeat is known: of our own clients, and of Azure's.
_KEYS = ("Idempotency-Key", "x-ms-client-request-id")
# What of a request and of an answer means something at the other end.
_ASKED = (
    "authorization",
    "content-type",
    "accept",
    "user-agent",
    "x-request-id",
    "if-match",
    "if-none-match",
    *map(str.lower, _KEYS),
)
_ANSWERED = (
    "content-type",
    "retry-after",
    "www-authenticate",
    "allow",
    "etag",
    "location",
    "azure-asyncoperation",
    REVISION,
)


class Cluster(NamedTuple):
    """What makes a control plane one of several: its lease, and whom it trusts to be another."""

    lease: Lease
    trust: ssl.SSLContext | None = None


class PassingOn:
    """In front of the API of one of several control planes; or of what Azure's tools ask of it.

    There no is said otherwise: `says`.
    """

    def __init__(
        self,
        app: ASGIApp,
        conductor: Conductor,
        cluster: Cluster,
        says: Callable[[Problem], Response] | None = None,
    ) -> None:
        self._for_tools = says is not None
        self._says = says or said
        self._app = app
        self._conductor = conductor
        self._ours = cluster.lease.address
        self._trust = cluster.trust
        # The one that leads, or led when it was last asked.
        self._peer: Peer | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application in front of another."""
        if scope["type"] != "http" or scope["method"] in READS:
            answer = None if not self._is_leaders(scope) else await self._told(scope, receive)
            await (answer or self._app)(scope, receive, send)
        elif self._conductor.leading:
            await self._app(scope, receive, self._with_revision(send))
        else:
            await self._app({**scope, TO_LEADER: self._passed_on}, receive, send)

    def _is_leaders(self, scope: Scope) -> bool:
        """Whether only the leader knows it: who reports to whom is in no journal."""
        asks = scope["type"] == "http" and scope["method"] == "GET"
        return bool(asks and LEADERS.fullmatch(scope["path"]) and not self._conductor.leading)

    async def _told(self, scope: Scope, receive: Receive) -> Response | None:
        """What the leader tells; None where it does not, and less is known here."""
        request = Request(scope, receive)
        if PASSED_ON in request.headers or why_nobody_leads(self._conductor.leader):
            return None
        answer = await self._passed_on(request, 0)
        return None if answer.status_code == UNAVAILABLE else answer

    async def close(self) -> None:
        """Hang up."""
        if self._peer is not None:
            await self._peer.close()

    def _with_revision(self, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                # As it is now: whatever was changed for this answer is in it.
                MutableHeaders(scope=message)[REVISION] = str(self._conductor.feed.revision)
            await send(message)

        return sending

    async def _passed_on(self, request: Request, body_bytes_max: int) -> Response:
        leader = self._conductor.leader
        if PASSED_ON in request.headers:
            return self._cannot("it was passed on to one that does not lead. Nothing was done")
        if leader is None or leader.address == self._ours:
            # Or we are about to: what others have recorded last is being read.
            why = why_nobody_leads(leader) or why_nobody_leads(None)
            return self._cannot(f"{why}. Nothing was done")
        if not leader.address:
            return self._cannot(f"{why_nobody_leads(leader)}. Nothing was done")
        try:
            body = await _whole_body(request, body_bytes_max)
            if body is None:
                return self._says(too_large(body_bytes_max))
            answer = await self._answer_of(leader, request, body)
        except ClientDisconnect:
            # Whoever asked is gone: nobody reads this.
            return Response(status_code=400)
        except (Unavailable, UsageError) as error:
            log.warning("%s %s was not passed on: %s", request.method, request.url.path, error)
            return self._cannot(_unanswered(leader.address, request.headers, error))
        if self._for_tools and answer.headers.get("content-type") == CONTENT_TYPE:
            # Its control plane has said so, and not what answers Azure's tools there.
            why = msgspec.json.decode(answer.body, type=_Detail).detail.rstrip(".")
            return self._cannot(f"{leader.address} leads, and says: {why}. Nothing was done")
        if LEFT_TO_LEADER in request.scope:
            request.scope[LEFT_TO_LEADER]()
        await _seen(self._conductor.feed, answer.headers)
        return _passed_back(answer)

    async def _answer_of(self, leader: Leader, request: Request, body: bytes) -> PeerAnswer:
        """What the leader answers; Unavailable also where another leads before it has answered."""
        asking = asyncio.ensure_future(self._ask(leader.address, request, body))
        try:
            while not asking.done():
                await asyncio.wait({asking}, timeout=LOOK_EVERY_SECONDS)
                now = self._conductor.leader
                if now is not None and now.epoch > leader.epoch and not asking.done():
                    raise Unavailable(f"{now.address} leads before {leader.address} has answered")
            answer = await asking
        finally:
            asking.cancel()
        if answer.status >= BAD_REQUEST and not answer.body:
            # Whatever we refuse, we say why; so it was ended while it was asked.
            raise Unavailable(f"{leader.address} ended before it had answered")
        return answer

    async def _ask(self, address: str, request: Request, body: bytes) -> PeerAnswer:
        if self._peer is None or self._peer.url != address.rstrip("/"):
            if self._peer is not None:
                await self._peer.close()
            self._peer = Peer(address, trust=self._trust)
        path = request.scope.get("raw_path", request.url.path.encode()).decode("latin-1")
        query = request.scope["query_string"].decode("latin-1")
        headers = [(name, request.headers[name]) for name in _ASKED if name in request.headers]
        if self._for_tools:
            headers.append((ASKED_AT, asked_at(request)))
        return await self._peer.ask(
            request.method,
            f"{path}?{query}" if query else path,
            headers=[*headers, (PASSED_ON, request.client.host if request.client else "?")],
            body=body,
            seconds=ANSWER_SECONDS_MAX,
        )

    def _cannot(self, why: str) -> Response:
        found = problem("unavailable", 503, f"It cannot be done now: {why}. Try again later.")
        return self._says(found)


class HandingOver:
    """In front of a control plane: what others pass on that Azure's tools have asked them.

    It is handed to what answers at the port of Azure's tools here, and who asks is looked at there
    as at that port: whoever says the headers himself has only asked at another port.
    """

    def __init__(self, app: ASGIApp, for_tools: Callable[[], ASGIApp | None]) -> None:
        self._app = app
        self._for_tools = for_tools

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application in front of two others."""
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        if not (PASSED_ON in headers and ASKED_AT in headers):
            await self._app(scope, receive, send)
            return
        why = (
            "Azure's tools are not served here: there is no table [arm], or the service is still "
            "starting."
        )
        app = self._for_tools() or said(problem("unavailable", UNAVAILABLE, why))
        await app({**scope, ASKED_AT: headers[ASKED_AT]}, receive, send)


class _Detail(msgspec.Struct):
    """What is read of a problem."""

    detail: str


def asked_at(request: Request) -> str:
    """The URL of the port at which whoever asks has asked, as he writes it."""
    own = f"{request.url.scheme}://{request.headers.get('host', '')}"
    asked: str = request.scope.get(ASKED_AT, own)
    return asked


async def _whole_body(request: Request, bytes_max: int) -> bytes | None:
    """The body; None where it is too large."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > bytes_max:
            return None
    return bytes(body)


def _unanswered(address: str, headers: Headers, error: Exception) -> str:
    """Whether it may have been done, and how to find out."""
    sentence = f"the control plane at {address} leads and cannot be reached"
    # A request that may not be sent was not.
    if isinstance(error, UsageError) or isinstance(error.__cause__, ConnectionRefusedError):
        return f"{sentence}. Nothing was done"
    for key in _KEYS:
        if key in headers:
            return f"{sentence}. Repeated with the same {key}, it is not done twice"
    return f"{sentence}. It may have been done: look before you repeat it"


async def _seen(feed: Feed, headers: Mapping[str, str]) -> None:
    """Wait until what was changed is to be seen here, but not for long."""
    told = headers.get(REVISION, "")
    if not told.isdecimal():
        return
    try:
        await feed.reach(int(told), SEEN_SECONDS_MAX)
    except Unavailable as error:
        log.info("what was changed is not to be seen here yet: %s", error)


def _passed_back(answer: PeerAnswer) -> Response:
    headers = {name: answer.headers[name] for name in _ANSWERED if name in answer.headers}
    return Response(answer.body, answer.status, headers=headers)
