"""Of several control planes, one that follows passes on to the leader whatever changes something.

What is asked is passed on as it is, and so is what is answered. Reads and the feed are answered
here, from what was committed, but for what only the leader knows; so whoever has changed something
through this control plane is answered when it is to be seen here.
"""

import asyncio
import logging
import re
import ssl
from collections.abc import Mapping
from typing import NamedTuple

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairnotice.conductor.conductor import Conductor
from fairnotice.conductor.feed import Feed
from fairnotice.conductor.leading import Leader, why_nobody_leads
from fairnotice.control.auth import LEFT_TO_LEADER, PASSED_ON
from fairnotice.control.peers import Peer, PeerAnswer
from fairnotice.control.problems import problem, said
from fairnotice.errors import Unavailable, UsageError
from fairnotice.stores.lease import Lease

log = logging.getLogger(__name__)

# What changes nothing is answered wherever it is asked.
READS = frozenset({"GET", "HEAD", "OPTIONS"})
# As large as the largest fleet that is taken.
BODY_BYTES_MAX = 64 * 1024 * 1024
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
# What of a request and of an answer means something at the other end.
_ASKED = (
    "authorization",
    "content-type",
    "accept",
    "idempotency-key",
    "user-agent",
    "x-request-id",
)
_ANSWERED = ("content-type", "retry-after", "www-authenticate", "allow", REVISION)


class Cluster(NamedTuple):
    """What makes a control plane one of several: its lease, and whom it trusts to be another."""

    lease: Lease
    trust: ssl.SSLContext | None = None


class PassingOn:
    """In front of the API of one of several control planes."""

    def __init__(self, app: ASGIApp, conductor: Conductor, cluster: Cluster) -> None:
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
            answer = await self._passed_on(Request(scope, receive))
            await answer(scope, receive, send)

    def _is_leaders(self, scope: Scope) -> bool:
        """Whether only the leader knows it: who reports to whom is in no journal."""
        asks = scope["type"] == "http" and scope["method"] == "GET"
        return bool(asks and LEADERS.fullmatch(scope["path"]) and not self._conductor.leading)

    async def _told(self, scope: Scope, receive: Receive) -> Response | None:
        """What the leader tells; None where it does not, and less is known here."""
        request = Request(scope, receive)
        if PASSED_ON in request.headers or why_nobody_leads(self._conductor.leader):
            return None
        answer = await self._passed_on(request)
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

    async def _passed_on(self, request: Request) -> Response:
        leader = self._conductor.leader
        if PASSED_ON in request.headers:
            return _cannot("it was passed on to one that does not lead. Nothing was done")
        if leader is None or leader.address == self._ours:
            # Or we are about to: what others have recorded last is being read.
            return _cannot(f"{why_nobody_leads(None)}. Nothing was done")
        if not leader.address:
            return _cannot(f"{why_nobody_leads(leader)}. Nothing was done")
        try:
            body = await _whole_body(request)
            if body is None:
                found = problem("too-large", 413, f"At most {BODY_BYTES_MAX:,} bytes are taken.")
                return said(found)
            answer = await self._answer_of(leader, request, body)
        except ClientDisconnect:
            # Whoever asked is gone: nobody reads this.
            return Response(status_code=400)
        except (Unavailable, UsageError) as error:
            log.warning("%s %s was not passed on: %s", request.method, request.url.path, error)
            return _cannot(_unanswered(leader.address, request.headers, error))
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
        return await self._peer.ask(
            request.method,
            f"{path}?{query}" if query else path,
            headers=[*headers, (PASSED_ON, request.client.host if request.client else "?")],
            body=body,
            seconds=ANSWER_SECONDS_MAX,
        )


async def _whole_body(request: Request) -> bytes | None:
    """The body; None where it is too large."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            return None
    return bytes(body)


def _cannot(why: str) -> Response:
    return said(problem("unavailable", 503, f"It cannot be done now: {why}. Try again later."))


def _unanswered(address: str, headers: Headers, error: Exception) -> str:
    """Whether it may have been done, and how to find out."""
    sentence = f"the control plane at {address} leads and cannot be reached"
    # A request that may not be sent was not.
    if isinstance(error, UsageError) or isinstance(error.__cause__, ConnectionRefusedError):
        return f"{sentence}. Nothing was done"
    if "idempotency-key" in headers:
        return f"{sentence}. Repeated with the same Idempotency-Key, it is not done twice"
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
