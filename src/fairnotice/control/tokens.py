"""Tokens: how one is made, and which of them count.

A token is `fairnotice_ID_SECRET`: an id of 64 bits, which is no secret and finds the row, and 256
random bits. Only its hash is kept (docs/decisions/0012-access.md says why a fast one will do).

Every control plane has all of them in memory, asks the store every two seconds whether any has
changed, and within a moment where it is shown one that it does not know.
"""

import asyncio
import hmac
import logging
import re
import secrets
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from hashlib import sha256
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar

from fairnotice.clock import Clock
from fairnotice.errors import Unavailable, UsageError
from fairnotice.stores.access import KnownTokens, Token
from fairnotice.stores.store import Store
from fairnotice.words import TokenRole

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
# Whoever tries one unknown token after another has the store asked no more often than so.
LOOK_AGAIN_SECONDS = 0.2
NAME_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$"
NAME_IN_WORDS = "up to 64 letters, digits and . _ @ -, of which the first is a letter or a digit"
# A hundred years; what is meant for longer has no end.
EXPIRES_DAYS_MAX = 36_500
# Names under which somebody asks who has no token.
RESERVED_NAMES = ("operator", "platform")

_FORM = re.compile(r"fairnotice_([0-9a-f]{16})_[A-Za-z0-9_-]{43}")

Result = TypeVar("Result")


class AskStore(Protocol):
    """How the store is asked: conductor.Conductor.ask_store."""

    def __call__(self, question: Callable[[Store], Result]) -> "asyncio.Future[Result]":
        """What it answers; Unavailable where it cannot now."""
        ...


class Wanted(NamedTuple):
    """What a new token is to be good for."""

    name: str
    role: TokenRole
    scopes: tuple[str, ...] = ()
    resource_groups: tuple[str, ...] = ()
    node: str | None = None
    expires_days: float | None = None
    vm: str | None = None
    # The revision that declared the VM (model.Vm.declared_revision).
    vm_revision: int = 0


class Made(NamedTuple):
    """A new token, and its text, which nobody can tell again; empty where nobody is to know it."""

    token: Token
    text: str


def make(wanted: Wanted, created_by: str, now: datetime) -> Made:
    """A new token; UsageError where it could not mean anything."""
    _must_mean_something(wanted)
    id_ = secrets.token_hex(8)
    text = f"fairnotice_{id_}_{secrets.token_urlsafe(32)}"
    days = wanted.expires_days
    token = Token(
        id=id_,
        name=wanted.name,
        role=wanted.role,
        secret_hash=hash_of(text),
        created_at=now,
        created_by=created_by,
        scopes=wanted.scopes,
        resource_groups=wanted.resource_groups,
        node=wanted.node,
        vm=wanted.vm,
        vm_revision=wanted.vm_revision,
        expires_at=None if days is None else now + timedelta(days=days),
    )
    return Made(token, text if wanted.vm is None else "")


def _must_mean_something(wanted: Wanted) -> None:
    if not re.fullmatch(NAME_PATTERN.strip("^$"), wanted.name):
        raise UsageError(f"{wanted.name!r} is no name of a token: {NAME_IN_WORDS}.")
    if wanted.name.lower() in RESERVED_NAMES:
        raise UsageError(f"{wanted.name} is who asks without a token. Choose another name.")
    if wanted.expires_days is not None and not 0 < wanted.expires_days <= EXPIRES_DAYS_MAX:
        raise UsageError(f"A token counts for up to {EXPIRES_DAYS_MAX:,} days, or has no end.")
    limited = bool(wanted.scopes or wanted.resource_groups)
    if wanted.node is None and wanted.role is TokenRole.ENDPOINT:
        raise UsageError("A token of role endpoint is good for one node: say which (--node NAME).")
    if wanted.node is not None and wanted.role is not TokenRole.ENDPOINT:
        raise UsageError(
            f"Only a token of role endpoint has a node, and this one is of role {wanted.role}: "
            "leave out the node (--node), or make it --role endpoint."
        )
    if wanted.vm is not None and wanted.role in (TokenRole.ADMIN, TokenRole.ENDPOINT):
        raise UsageError(
            f"A VM signs in as reader or operator, and not with role {wanted.role}: whoever is in "
            "the VM could make himself other tokens."
        )
    if limited and wanted.role in (TokenRole.ADMIN, TokenRole.ENDPOINT):
        raise UsageError(
            f"A token of role {wanted.role} cannot be limited to scopes or resource groups: "
            "an admin could make himself another, and an endpoint has its node."
        )


def hash_of(text: str) -> str:
    """What is kept of a token."""
    return sha256(text.encode()).hexdigest()


def taken(name: str) -> UsageError:
    """The error for a name that cannot be given again."""
    return UsageError(
        f"A token called {name} is there, or was: a name says who asked, and is given once. "
        "Choose another."
    )


class Bearer:
    """A token that counts at the moment; `ended` is set when it does no longer."""

    def __init__(self, token: Token) -> None:
        self.token = token
        self.ended = asyncio.Event()


class Lapsed(NamedTuple):
    """A token that counted once, shown with its right secret."""

    token: Token
    # `revoked`, `expired`, or `VM gone` of the identity of one.
    why: str


class Tokens:
    """All tokens there are, as far as is known here."""

    def __init__(self, ask_store: AskStore, clock: Clock) -> None:
        self._ask_store = ask_store
        self._clock = clock
        self._changed = -1
        self._known: dict[str, Token] = {}
        # Those that somebody has shown, and that count.
        self._bearers: dict[str, Bearer] = {}
        # Whether the VM of this name that this revision declared is there: set by who has a fleet.
        self.vm_is_there: Callable[[str, int], bool] = lambda _vm, _revision: False
        self._looked_at = -inf
        self._looking: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Learn what has changed. Unavailable: what was known goes on to hold."""
        known = await self._ask_store(self._read)
        self._looked_at = self._clock.monotonic()
        if known is not None:
            self._changed = known.changed
            self._known = {token.id: token for token in known.tokens}
        self._end()

    def _read(self, store: Store) -> KnownTokens | None:
        """In the store's thread: all of them, or None where nothing has changed."""
        return None if store.tokens_changed() == self._changed else store.tokens()

    def _end(self) -> None:
        """End what goes on in the name of a token that counts no longer."""
        for bearer in [one for one in self._bearers.values() if not self._counts(one.token.id)]:
            bearer.ended.set()
            del self._bearers[bearer.token.id]

    def _counts(self, id_: str) -> bool:
        token = self._known.get(id_)
        if token is None or not counts(token, self._clock.wall()):
            return False
        return not self.has_outlived_its_vm(token)

    def has_outlived_its_vm(self, token: Token) -> bool:
        """Whether it is the identity of a VM that is gone, though another may have its name now."""
        return token.vm is not None and not self.vm_is_there(token.vm, token.vm_revision)

    async def follow(self) -> None:
        """Look again and again, for as long as the task lives."""
        silent = False
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except Unavailable as error:
                if not silent:
                    log.warning("tokens are as they were last known: %s", error)
                silent = True
                # Time goes on without the store.
                self._end()
            else:
                silent = False

    async def find(self, text: str) -> Bearer | None:
        """Whose token this is; None where it does not count, whatever the reason."""
        form = _FORM.fullmatch(text)
        if form is None:
            return None
        token = self._shown_by(form[1], text)
        if token is None:
            # An id that is known waits too, though its secret does not change: how long it takes
            # tells nobody which ids there are.
            await self._look_soon()
            token = self._shown_by(form[1], text)
        if token is None or not self._counts(token.id):
            return None
        return self._bearers.setdefault(token.id, Bearer(token))

    async def of_id(self, id_: str) -> Bearer | None:
        """The token of this id, shown by whoever has proved by other means whose he is."""
        if id_ not in self._known:
            await self._look_soon()
        if not self._counts(id_):
            return None
        return self._bearers.setdefault(id_, Bearer(self._known[id_]))

    async def of_vm(self, vm: str) -> list[Token]:
        """The tokens that are this VM's identities, and count; the oldest first."""
        if self._clock.monotonic() - self._looked_at >= LOOK_SECONDS:
            await self._look_soon()
        return [one for one in self._known.values() if one.vm == vm and self._counts(one.id)]

    def _shown_by(self, id_: str, text: str) -> Token | None:
        """The token of this id, where it has this secret; compared also where there is none."""
        token = self._known.get(id_)
        kept = "" if token is None else token.secret_hash
        return token if hmac.compare_digest(hash_of(text), kept) else None

    def lapsed(self, text: str) -> Lapsed | None:
        """Whose token this was, where it counts no longer: for the audit, and nobody's answer."""
        form = _FORM.fullmatch(text)
        token = None if form is None else self._shown_by(form[1], text)
        return None if token is None else self.lapsed_of_id(token.id)

    def lapsed_of_id(self, id_: str) -> Lapsed | None:
        """The same, shown by whoever has proved by other means whose he was."""
        token = self._known.get(id_)
        if token is None or self._counts(id_):
            return None
        if token.revoked_at is not None:
            return Lapsed(token, "revoked")
        return Lapsed(token, "VM gone" if self.has_outlived_its_vm(token) else "expired")

    async def _look_soon(self) -> None:
        """Look once for all who wait, and not too soon after the last time."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look_in_a_moment())
        # Whoever goes away does not end it for the others.
        await asyncio.shield(self._looking)

    async def _look_in_a_moment(self) -> None:
        since = self._clock.monotonic() - self._looked_at
        if since < LOOK_AGAIN_SECONDS:
            await self._clock.sleep(LOOK_AGAIN_SECONDS - since)
        await self.look()

    # ---- For whoever may ----

    async def add(self, wanted: Wanted, created_by: str) -> Made:
        """Make a token and keep it; UsageError where that cannot be."""
        made = make(wanted, created_by, self._clock.wall())
        if not await self._ask_store(lambda store: store.add_token(made.token)):
            raise taken(wanted.name)
        if wanted.vm is not None:
            # Nobody shows it before it is known: a VM asks which there are.
            await self.look()
        return made

    async def all(self) -> list[Token]:
        """Every token there ever was, the oldest first."""
        return (await self._ask_store(lambda store: store.tokens())).tokens

    async def revoke(self, id_: str) -> Token | None:
        """Let a token count no longer: here at once, elsewhere when they look next."""
        now = self._clock.wall()
        token = await self._ask_store(lambda store: store.revoke_token(id_, now))
        await self.look()
        return token


def token_named(tokens: list[Token], name: str) -> Token | None:
    """The token of this id or name."""
    return next((one for one in tokens if name in (one.id, one.name)), None)


def counts(token: Token, now: datetime) -> bool:
    """Whether it is neither revoked nor over; of a VM's identity its VM has to be there, too."""
    return token.revoked_at is None and (token.expires_at is None or now < token.expires_at)


def of_several(made: Token, own: Iterable[Token]) -> list[str]:
    """What is to be said where a VM has other identities than the one that was made for it."""
    if all(token.id == made.id for token in own):
        return []
    how = f"az login --identity --client-id {made.name}"
    return [f"{made.vm} has several identities now, and must say which it means: {how}"]


def shown(token: Token) -> dict[str, Any]:
    """A token as it may be shown: neither what its secret leaves, nor what is only compared."""
    hidden = ("secret_hash", "vm_revision")
    return {name: getattr(token, name) for name in token.__struct_fields__ if name not in hidden}
