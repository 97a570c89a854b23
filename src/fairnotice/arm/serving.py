"""The port of Azure Resource Manager: who is let in there, and as whom."""

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

from starlette.routing import Match, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from fairnotice.arm.api import Arm
from fairnotice.arm.authority import authority_routes
from fairnotice.arm.bearers import Bearers
from fairnotice.arm.failures import of_problem
from fairnotice.arm.issuing import Issuer
from fairnotice.arm.managed_identity import ManagedIdentities
from fairnotice.arm.signing import KeyFile, make_key_file
from fairnotice.clock import Clock
from fairnotice.control.auth import (
    ANYBODY,
    CALLER,
    CHALLENGE,
    Gate,
    Whose,
    WhoseToken,
    shown_token,
    unauthenticated,
)
from fairnotice.control.certificates import Certificates
from fairnotice.control.guard import LOCAL_NAMES, Guard
from fairnotice.control.own_authority import OwnAuthority
from fairnotice.control.passing_on import PassingOn
from fairnotice.control.problems import unavailable
from fairnotice.control.running import Beside, Entrance, Place, Running, answering, listening
from fairnotice.errors import Unavailable


class SigningIn(NamedTuple):
    """How somebody says who he is: addresses for whom has no token yet, and whose a token is."""

    addresses: list[Route]
    whose: Whose


class Port(NamedTuple):
    """Where it listens, with which certificate, and by which names it may be asked."""

    place: Place
    entrance: Entrance
    # Once it is known where that is. Left out, only tokens of fairnotice as they are count.
    signing_in: Callable[[Running], SigningIn] | None = None


def signing_with(file: KeyFile, clock: Clock, url: str = "") -> Callable[[Running], SigningIn]:
    """Signing in with access tokens that these keys sign, at a port of this URL; VMs too."""

    def signing_in(run: Running) -> SigningIn:
        port = 0 if run.arm is None else run.arm.port
        issuer = Issuer(file, run.auth, clock, url or f"https://localhost:{port}")
        _identify_vms(run, issuer)
        return SigningIn(authority_routes(issuer), Bearers(issuer))

    return signing_in


def _identify_vms(run: Running, issuer: Issuer) -> None:
    """From now on a VM that was given an identity gets its access tokens, wherever it is."""
    identities = ManagedIdentities(issuer, run.service)
    if run.worker is not None:
        run.worker.identify = identities.answer
    run.service.endpoints.identify_vm = identities.answer


class _Shown:
    """Where nobody has to say who he is: a token that is shown must be one all the same."""

    def __init__(self, app: ASGIApp, whose: Whose) -> None:
        self._app = app
        self._whose = whose

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application in front of another."""
        caller = ANYBODY
        if any(name == b"authorization" for name, _ in scope["headers"]):
            try:
                found = await self._whose.caller(shown_token(scope))
            except Unavailable as error:
                await of_problem(unavailable(error))(scope, receive, send)
                return
            if found is None:
                answer = of_problem(unauthenticated(), CHALLENGE)
                await answer(scope, receive, send)
                return
            caller = found
        await self._app({**scope, CALLER: caller}, receive, send)


class _Fork:
    """What anybody may ask is answered here, and all else behind the gate."""

    def __init__(self, addresses: list[Route], gated: ASGIApp) -> None:
        self._addresses = addresses
        self._open = Router(addresses, redirect_slashes=False)
        self._gated = gated

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application in front of two others."""
        is_open = any(one.matches(scope)[0] is Match.FULL for one in self._addresses)
        await (self._open if is_open else self._gated)(scope, receive, send)


def _entered(run: Running, app: ASGIApp, port: Port, own: str) -> ASGIApp:
    """The application behind whatever decides who may ask."""
    signing_in = SigningIn([], WhoseToken(run.auth.tokens))
    if port.signing_in is not None:
        signing_in = port.signing_in(run)
    if run.auth.required:
        return _Fork(signing_in.addresses, Gate(app, run.auth, signing_in.whose, of_problem))
    shown = _Fork(signing_in.addresses, _Shown(app, signing_in.whose))
    return Guard(shown, LOCAL_NAMES | {own}, port.entrance.names, of_problem)


def opened(port: Port) -> Beside:
    """The port, for control.running.Plan."""

    @contextlib.asynccontextmanager
    async def serve(run: Running) -> AsyncIterator[None]:
        with contextlib.closing(listening(port.place, "arm")) as sock:
            run.arm = port.place._replace(port=sock.getsockname()[1])
            app: ASGIApp = Arm(run.service)
            passing_on = None
            if run.cluster is not None:
                app = passing_on = PassingOn(app, run.conductor, run.cluster, of_problem)
            entered = run.for_tools = _entered(run, app, port, sock.getsockname()[0])
            try:
                async with answering(entered, sock, port.entrance):
                    yield
            finally:
                if passing_on is not None:
                    await passing_on.close()

    return serve


def opened_for_this_machine(place: Place, directory: Path, clock: Clock) -> Beside:
    """The port with keys and a certificate of its own, made there; renewed while it serves."""
    own = OwnAuthority(directory, clock)
    certificates = Certificates(own.pair, clock)
    keys = directory / "signing.pem"
    make_key_file(keys)
    entrance = Entrance(certificates=certificates)
    port = opened(Port(place, entrance, signing_with(KeyFile(keys), clock)))

    @contextlib.asynccontextmanager
    async def serve(run: Running) -> AsyncIterator[None]:
        works = {"own authority": own.renewing, "its certificate": certificates.watching}
        async with run.auth.loops.beside(**works), port(run):
            yield

    return serve
