"""Who asks, and whether he may: a token, its role, and what it is limited to.

    Gate            every request: whose token is it? 401 where it is nobody's; and the audit
    Caller.may      one address: is the role large enough? else 403
    Caller.reaches  one thing: is it within the limits? else the same 403

All 401 are alike, and all 403: neither tells whether something is there.
"""

import asyncio
import re
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from typing import NamedTuple, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairnotice.control import problems, shapes
from fairnotice.control.admission import Auth
from fairnotice.control.limits import Limits, Reach
from fairnotice.control.tokens import Bearer, Lapsed, Tokens
from fairnotice.engine import Fleet
from fairnotice.errors import Unavailable
from fairnotice.model import Requester
from fairnotice.stores.access import Audited, Token
from fairnotice.words import Role, TokenRole

# Where a request carries who asks.
CALLER = "fairnotice.caller"
# Where it carries what to call when the leader, which writes it down too, has answered it.
LEFT_TO_LEADER = "fairnotice.left-to-leader"
# Where it carries how to have the leader answer it, at a control plane that follows: called with
# the request and how large its body may be, by whoever has found that it may be asked at all.
TO_LEADER = "fairnotice.to-leader"
# Where it carries what to call at an address where everything asked is written down.
NOTE = "fairnotice.note"
# Where it carries what to call when it is only asked what would happen.
ONLY_ASKED = "fairnotice.only-asked"
# Where it carries what to call with the operations that came of it, where no answer names them.
CAME_OF_IT = "fairnotice.came-of-it"
# The header by which one of several control planes says for whom it passes something on.
PASSED_ON = "fairnotice-passed-on"
# And this one, at which URL, where that is the port of Azure's tools. Where a request is handed to
# what answers at that port here, its scope says so under the same name.
ASKED_AT = "fairnotice-asked-at"
# What anybody may ask: whether somebody is there, and whether he is ready.
OPEN_PATHS = ("/healthz", "/readyz")
# And a receiver that was asked whether he agrees shows the code that he was sent, and no token.
_VALIDATION_PATH = re.compile("/v1/webhooks/[^/]+/validate")
LOOKING = ("GET", "HEAD", "OPTIONS")
# A body may be so large, except where more is said.
BODY_BYTES_MAX = 1024 * 1024
# Of a path and of an answer, so much is looked at for the audit.
PATH_CHARACTERS_MAX = 200
ANSWER_BYTES_MAX = 1024 * 1024

_RANKS = {TokenRole.READER: 1, TokenRole.OPERATOR: 2, TokenRole.ADMIN: 3}
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="fairnotice"'}


class Caller(NamedTuple):
    """Who asks."""

    requester: Requester
    # None where nobody is asked who he is: he may do everything.
    token: Token | None = None
    limits: Limits | None = None
    # Set when the token counts no longer: what goes on in its name ends.
    ended: asyncio.Event | None = None

    def may(self, needs: TokenRole, name: str = "") -> bool:
        """Whether he may ask at an address that needs this role, where {name} stands for this."""
        if self.token is None:
            return True
        if TokenRole.ENDPOINT in (needs, self.token.role):
            # What is an endpoint's is nobody else's, and of its own node only.
            return needs is self.token.role and name == self.token.node
        return _RANKS[self.token.role] >= _RANKS[needs]

    def reaches(self, fleet: Fleet, reach: Reach, name: str) -> bool:
        """Whether the thing of this name is within what he may touch."""
        return self.limits is None or self.limits.hold(fleet, reach, name)


# Without authentication: whoever the guard lets through.
ANYBODY = Caller(Requester("operator", Role.OPERATOR))


def caller_of(bearer: Bearer) -> Caller:
    """Who asks with this token. Rule 15 knows him by its name, which nobody else ever has."""
    token = bearer.token
    limited = bool(token.scopes or token.resource_groups)
    role = Role.USER if limited else Role.OPERATOR
    if token.role is TokenRole.ENDPOINT:
        # It speaks for VMs, by their names; by its own it may ask the law for nothing.
        role = Role.VM
    requester = Requester(token.name, role)
    groups = frozenset(group.lower() for group in token.resource_groups)
    limits = Limits(frozenset(token.scopes), groups, requester)
    return Caller(requester, token, limits if limited else None, bearer.ended)


def unauthenticated() -> shapes.Problem:
    """Nobody knows who asks: missing, malformed, unknown, expired and revoked are all the same."""
    detail = "This needs a token that counts: Authorization: Bearer TOKEN."
    return problems.problem("unauthenticated", 401, detail)


def forbidden() -> shapes.Problem:
    """Not with this token. It says not what there is, nor what would be needed."""
    detail = "This token may not do that, or there is nothing of the kind that it may see."
    return problems.problem("forbidden", 403, detail)


class _Operations(msgspec.Struct):
    """What the audit keeps of an answer."""

    operations: tuple[str, ...] = ()


class Whose(Protocol):
    """Whose a text is that is shown for a token."""

    async def caller(self, text: str) -> Caller | None:
        """Who asks with it; None where it is nobody's, or not any more."""
        ...

    def lapsed(self, text: str) -> Lapsed | None:
        """Whose it was, where it counts no longer: for the audit, and nobody's answer."""
        ...


class WhoseToken:
    """The same, of tokens as they are."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self.lapsed = tokens.lapsed

    async def caller(self, text: str) -> Caller | None:
        """Who asks with it."""
        bearer = await self._tokens.find(text)
        return None if bearer is None else caller_of(bearer)


class Gate:
    """Lets through who has a token, with who that is; and writes down what he changes.

    A front that knows more ways to say who one is, or says no otherwise, brings them along.
    """

    def __init__(
        self,
        app: ASGIApp,
        auth: Auth,
        whose: Whose | None = None,
        says: Callable[..., Response] = problems.said,
    ) -> None:
        self._app = app
        self._auth = auth
        self._whose = whose or WhoseToken(auth.tokens)
        self._says = says

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application in front of another."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        shown = shown_token(scope)
        try:
            caller = await self._whose.caller(shown)
        except Unavailable as error:
            # Whether it counts, nobody can tell now: "no" might be a lie.
            await self._says(problems.unavailable(error))(scope, receive, send)
            return
        witness = _Witness(send, keeps_body=scope["method"] not in LOOKING)
        try:
            if caller is None and not _is_open(scope["path"]):
                await self._says(unauthenticated(), CHALLENGE)(scope, receive, witness)
            else:
                more = {
                    CALLER: caller,
                    LEFT_TO_LEADER: witness.leave_to_leader,
                    NOTE: witness.note,
                    ONLY_ASKED: witness.only_ask,
                    CAME_OF_IT: witness.came_of_it,
                }
                await self._app({**scope, **more}, receive, witness)
        finally:
            # Also what failed on our side, or whom nobody could answer any more: it may be done.
            self._note(scope, caller, witness, shown)

    def _note(self, scope: Scope, caller: Caller | None, witness: "_Witness", shown: str) -> None:
        if witness.left_to_leader:
            return
        refused = witness.status in (401, 403)
        token = None if caller is None else caller.token
        # What an endpoint reports is in the journal, many times a second.
        routine = token is not None and token.role is TokenRole.ENDPOINT
        passed_over = scope["method"] in LOOKING or routine or witness.only_asked
        if passed_over and not (refused or witness.noted):
            return
        # A token that was stolen goes on to be tried after it is revoked.
        lapsed = self._whose.lapsed(shown) if caller is None else None
        token = token if lapsed is None else lapsed.token
        audited = Audited(
            at=self._auth.clock.wall(),
            token=None if token is None else token.id,
            name="" if token is None else token.name,
            source=_source(scope),
            method=scope["method"],
            path=_path(scope),
            status=witness.status,
            operations=witness.operations(),
            lapsed="" if lapsed is None else lapsed.why,
        )
        # What fails on our side, or was cut short, may be done.
        changes = not 400 <= witness.status < 500  # noqa: PLR2004
        self._auth.audits.note(audited, refused=refused, changes=changes)


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or _VALIDATION_PATH.fullmatch(path) is not None


def shown_token(scope: Scope) -> str:
    """The token that is shown; nothing where there is none, or more than one."""
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(given) != 1:
        return ""
    scheme, _, text = given[0].decode("latin-1").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""


def _path(scope: Scope) -> str:
    """The path as it was sent, so that nothing in it can pretend to be another line of a log."""
    raw: bytes = scope.get("raw_path") or b""
    return raw.decode("ascii", "backslashreplace")[:PATH_CHARACTERS_MAX]


def _source(scope: Scope) -> str:
    """Where it came from: whoever is connected; and for whom, if he says so.

    Anybody can say so. So it stands beside his own address, which he cannot choose, and what he
    says is believed by a reader only where that is a control plane's.
    """
    connected: str = (scope.get("client") or ("",))[0]
    said = [value for name, value in scope["headers"] if name == PASSED_ON.encode()]
    try:
        return f"{ip_address(said[0].decode('ascii'))} through {connected}" if said else connected
    except ValueError:
        return connected


class _Witness:
    """Passes an answer on, and remembers what it was."""

    def __init__(self, send: Send, *, keeps_body: bool) -> None:
        self.status = 0
        self.left_to_leader = False
        self.noted = False
        self.only_asked = False
        self._send = send
        self._keeps_body = keeps_body
        self._body = b""
        self._operations: tuple[str, ...] = ()

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif self._keeps_body and len(self._body) < ANSWER_BYTES_MAX:
            self._body += message.get("body", b"")
        await self._send(message)

    def leave_to_leader(self) -> None:
        """Another control plane has answered it, and has written it down."""
        self.left_to_leader = True

    def note(self) -> None:
        """It is written down, though it changes nothing, or whoever asks does so all the time."""
        self.noted = True

    def only_ask(self) -> None:
        """It is asked what would happen: nothing does, and the audit must not look as if."""
        self.only_asked = True

    def came_of_it(self, operations: Iterable[str]) -> None:
        """These operations did."""
        self._operations = tuple(operations)

    def operations(self) -> tuple[str, ...]:
        """Which operations came of it."""
        if self._operations:
            return self._operations
        try:
            return msgspec.json.decode(self._body, type=_Operations).operations
        except msgspec.DecodeError:
            return ()


class OnlyFor:
    """An address that is no row of the table: only for who may, and reaches all of the cloud."""

    def __init__(self, app: ASGIApp, needs: TokenRole, reach: Reach = Reach.CLOUD) -> None:
        self._app = app
        self._needs = needs
        self._reach = reach

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application in front of another."""
        caller: Caller = scope.get(CALLER, ANYBODY)
        limited = caller.limits is not None and self._reach is Reach.CLOUD
        name = scope.get("path_params", {}).get("name", "")
        if limited or not caller.may(self._needs, name):
            await problems.said(forbidden())(scope, receive, send)
        elif TO_LEADER in scope:
            answer = await scope[TO_LEADER](Request(scope, receive), BODY_BYTES_MAX)
            await answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)
