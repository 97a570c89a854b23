"""Signing in: a browser shows its token once, and has a cookie from then on.

    SignIn    in front of the gate: turns the cookie into the header that the gate knows

The cookie holds the token itself, where no script can read it and no other site can have it sent;
only what else is served by this very host name, on another port, is sent it too.
So every control plane knows it, also after a restart; it ends when the token does; and there is no
second secret to keep (docs/decisions/0014-portal.md). What changes something by cookie must also
show what only a page of ours knows: a word made from the token.
"""

import hmac
import re
from collections.abc import Iterable
from hashlib import sha256
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple
from urllib.parse import parse_qs, quote

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairnotice.control import problems
from fairnotice.control.admission import Auth
from fairnotice.control.auth import LOOKING, caller_of
from fairnotice.control.tokens import Bearer, Lapsed
from fairnotice.errors import Unavailable
from fairnotice.portal.drawing import draw
from fairnotice.portal.front import CSRF, PAGE_HEADERS, asset
from fairnotice.stores.access import Audited
from fairnotice.words import TokenRole

SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
STATIC = "/static/"
CSRF_HEADER = b"x-csrf-token"
# Of a name that begins so a browser believes only what came by TLS from this very host.
SECURE_NAME, PLAIN_NAME = "__Host-fairnotice", "fairnotice"
# A working day: then it is asked for again.
LASTS_SECONDS = 12 * 3_600
FORM_BYTES_MAX = 8_192
# Nothing else becomes a header, of this request or of one that is passed on.
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,200}", re.ASCII)
NOT_COUNTING = "This token does not count: it is unknown, expired or revoked."
ONLY_A_PART = (
    "The pages show the whole cloud, and this token is limited to a part of it, or is an "
    "endpoint's. What it may see, the API and the command line show."
)


class Session(NamedTuple):
    """What a browser has shown."""

    token: str

    @property
    def csrf(self) -> str:
        """What only a page of this session knows."""
        return hmac.new(self.token.encode(), b"csrf", sha256).hexdigest()

    def knows(self, word: str) -> bool:
        """Whether this is it."""
        return hmac.compare_digest(self.csrf.encode(), word.encode())


class SignIn:
    """Lets a browser that has signed in pass the gate, and asks the others to sign in."""

    def __init__(self, app: ASGIApp, auth: Auth) -> None:
        self._app = app
        self._auth = auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application in front of another."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        path = scope["path"]
        if path.startswith(STATIC):
            await _static(request)(scope, receive, send)
        elif path == SIGN_IN:
            await (await self._sign_in(request))(scope, receive, send)
        elif path == SIGN_OUT:
            await (await _sign_out(request))(scope, receive, send)
        else:
            await self._pass(request, send)

    # ---- Passing the gate ----

    async def _pass(self, request: Request, send: Send) -> None:
        scope, receive = request.scope, request.receive
        session = _session(request)
        anonymous = _header(scope, b"authorization") is None
        if anonymous and session is None and _wants_page(request):
            # Nobody has been refused anything: he was not asked yet.
            await _to_sign_in(request)(scope, receive, send)
            return
        if anonymous and session is not None:
            word = _header(scope, CSRF_HEADER) or ""
            if scope["method"] not in LOOKING and not session.knows(word):
                detail = "This did not come from a page of ours. Load the page again."
                await problems.said(problems.problem("foreign", 403, detail))(scope, receive, send)
                return
            scope, send = _as_bearer(scope, session), _unkept(send)
        if _wants_page(request):
            send = _Pages(request, send)
        await self._app(scope, receive, send)

    # ---- Signing in ----

    async def _sign_in(self, request: Request) -> Response:
        onward = _local(request.query_params.get("next", "/"))
        if request.method in LOOKING:
            return _asking(onward)
        if request.method != "POST" or not _is_ours(request):
            return _asking(onward, "This did not come from a page of ours.", 403)
        form = await _form(request)
        token = form.get("token", "").strip()
        try:
            bearer = await self._auth.tokens.find(token)
        except Unavailable:
            why = "Whether this token counts, nobody can tell now. Try again in a moment."
            return _asking(onward, why, 503)
        answer = self._answer(request, bearer, token, onward)
        self._note(request, bearer, self._auth.tokens.lapsed(token), answer.status_code)
        return answer

    def _answer(self, request: Request, bearer: Bearer | None, token: str, onward: str) -> Response:
        if bearer is None:
            return _asking(onward, NOT_COUNTING, 401)
        caller = caller_of(bearer)
        if caller.limits is not None or not caller.may(TokenRole.READER):
            return _asking(onward, ONLY_A_PART, 403)
        answer = RedirectResponse(onward, 303)
        _set(answer, request, token, LASTS_SECONDS)
        return answer

    def _note(
        self, request: Request, bearer: Bearer | None, lapsed: Lapsed | None, status: int
    ) -> None:
        """Who signs in is written down, and who tries to."""
        known = bearer or lapsed
        audited = Audited(
            at=self._auth.clock.wall(),
            token=None if known is None else known.token.id,
            name="" if known is None else known.token.name,
            source=request.client.host if request.client else "",
            method=request.method,
            path=SIGN_IN,
            status=status,
            lapsed="" if lapsed is None else lapsed.why,
        )
        self._auth.audits.note(audited, refused=status in (401, 403), changes=False)


async def _sign_out(request: Request) -> Response:
    session = _session(request)
    if request.method == "POST" and session is not None:
        form = await _form(request)
        if not session.knows(form.get("csrf", "")):
            return _asking("/", "This did not come from a page of ours.", 403)
    answer = RedirectResponse(SIGN_IN, 303)
    if request.method == "POST":
        _forget(answer)
    return answer


class _Pages:
    """Turns a gate's no into a page that says what to do."""

    def __init__(self, request: Request, send: Send) -> None:
        self._request = request
        self._send = send
        self._replaced = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] in (401, 403):
            self._replaced = True
            answer = self._instead(message["status"])
            await answer(self._request.scope, self._request.receive, self._send)
        elif not self._replaced:
            await self._send(message)

    def _instead(self, status: int) -> Response:
        if status == HTTPStatus.UNAUTHORIZED:
            return _to_sign_in(self._request)
        return _asking("/", ONLY_A_PART, 403)


# ---- Requests ----


def _static(request: Request) -> Response:
    return asset(request, *request.scope["path"].removeprefix(STATIC).partition("/")[::2])


def _session(request: Request) -> Session | None:
    try:
        found = SimpleCookie(request.headers.get("cookie", ""))
    except CookieError:
        return None
    # Under TLS the plain one may have been put there by anybody who speaks for this host without.
    for name in (SECURE_NAME,) if _is_secure(request) else (SECURE_NAME, PLAIN_NAME):
        if name in found and _TOKEN.fullmatch(found[name].value):
            return Session(found[name].value)
    return None


def _is_secure(request: Request) -> bool:
    """Whether the browser speaks TLS, to us or to a proxy: whoever says so is believed less."""
    # What the browser speaks it says itself, where it sends a form.
    origin = request.headers.get("origin", "")
    forwarded = request.headers.get("x-forwarded-proto", "")
    return "https" in (request.url.scheme, forwarded) or origin.startswith("https://")


def _header(scope: Scope, name: bytes) -> str | None:
    found = [value for header, value in scope["headers"] if header == name]
    return found[0].decode("latin-1") if len(found) == 1 else None


def _as_bearer(scope: Scope, session: Session) -> Scope:
    """The same request, as a program would ask; the cookie goes no further."""
    kept: Iterable[tuple[bytes, bytes]] = (
        header for header in scope["headers"] if header[0] != b"cookie"
    )
    bearer = (b"authorization", f"Bearer {session.token}".encode())
    return {**scope, "headers": [*kept, bearer], CSRF: session.csrf}


def _unkept(send: Send) -> Send:
    """No cache keeps what was asked for by cookie: only a header would have told it not to."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).setdefault("Cache-Control", "no-store")
        await send(message)

    return sending


def _wants_page(request: Request) -> bool:
    """Whether a person looks at the answer; a HEAD is that of a page which lost its connection."""
    path = request.url.path
    if path.startswith("/v1/") or path in ("/metrics", "/live", "/healthz", "/readyz"):
        return False
    return request.method in ("GET", "HEAD")


def _is_ours(request: Request) -> bool:
    """A form of another site must not sign somebody in as somebody else."""
    origin = request.headers.get("origin")
    host = request.headers.get("host", "")
    return origin is None or origin.lower() in (f"http://{host}".lower(), f"https://{host}".lower())


async def _form(request: Request) -> dict[str, str]:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > FORM_BYTES_MAX:
            return {}
    return {name: values[0] for name, values in parse_qs(body.decode("latin-1")).items()}


def _local(path: str) -> str:
    """A path of ours, or the first page: nobody is sent elsewhere."""
    safe = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if safe else "/"


# ---- Answers ----


def _to_sign_in(request: Request) -> Response:
    query = request.url.query
    onward = request.url.path + (f"?{query}" if query else "")
    return RedirectResponse(f"{SIGN_IN}?next={quote(onward, safe='')}", 303)


def _asking(onward: str, why: str = "", status: int = 200) -> Response:
    html = draw("sign_in.html", {"onward": onward, "why": why})
    return HTMLResponse(html, status, PAGE_HEADERS)


def _set(answer: Response, request: Request, token: str, seconds: int) -> None:
    secure = _is_secure(request)
    answer.set_cookie(
        SECURE_NAME if secure else PLAIN_NAME,
        token,
        max_age=seconds,
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )


def _forget(answer: Response) -> None:
    for name, secure in ((SECURE_NAME, True), (PLAIN_NAME, False)):
        answer.delete_cookie(name, path="/", secure=secure, httponly=True, samesite="strict")
