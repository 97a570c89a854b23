"""Ready bytes: what every VM would be answered, rendered when it changes and never when asked.

The board knows nothing of the law. Whoever feeds it says which VMs there are and publishes a
scope's document; readers hold on to pages, not to documents.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from fairnotice.metadata.replies import Reply, reply
from fairnotice.model import Document, Event, Scope
from fairnotice.wire.document import knows, render_all
from fairnotice.wire.versions import SCHEDULED_EVENTS
from fairnotice.words import ScopeKind

# Documents that are shared: by (cloud service or not, enablings, incarnation). Bounded by use.
_SHARED_MAX = 1_024


class Answer(NamedTuple):
    """A document in one api-version: the 200, the 304, and which events it shows."""

    full: Reply
    unchanged: Reply
    etag: bytes
    events: frozenset[str]


class Waiter(Protocol):
    """A reader whose answer is held until the page changes."""

    def page_changed(self) -> None:
        """The page it waits for has a new document."""

    def waits_as(self, caller: "Caller") -> bool:
        """Whether it is this VM that waits."""


class Page:
    """What the VMs of one scope read now."""

    __slots__ = ("answers", "asked_at", "enabled", "heard_at", "kind", "name", "waiters")

    def __init__(self, name: str, kind: ScopeKind, answers: tuple[Answer, ...]) -> None:
        self.name = name
        self.kind = kind
        self.answers = answers
        self.enabled = False
        # Monotonic seconds: the last request that counts, and the last that was reported.
        self.asked_at = 0.0
        self.heard_at = 0.0
        self.waiters: set[Waiter] | None = None


# One for all: an empty frozenset takes 216 bytes.
NOTHING_SEEN: frozenset[str] = frozenset()


class Caller:
    """A VM as the endpoint knows it."""

    __slots__ = (
        "addresses",
        "asked_at",
        "busy_until",
        "name",
        "page",
        "seen",
        "served",
    )

    def __init__(self, name: str, page: Page) -> None:
        self.name = name
        self.page = page
        # The (listener, address) pairs it is known by.
        self.addresses: tuple[tuple[str, str], ...] = ()
        # When it last asked for its document, in monotonic seconds.
        self.asked_at = -math.inf
        # Rate: the instant at which its requests so far would have been due, evenly spaced.
        self.busy_until = 0.0
        # The last answer it was served, and the events it has seen of those still shown.
        self.served: Answer | None = None
        self.seen = NOTHING_SEEN


class FirstSeen(NamedTuple):
    """A VM was shown an event for the first time."""

    event: str
    vm: str
    at: datetime


class Board:
    """All pages and all callers of one endpoint."""

    def __init__(self) -> None:
        self.pages: dict[str, Page] = {}
        self.callers: dict[str, Caller] = {}
        # Which VM asks: by the listener's name, then by address.
        self.addresses: dict[str, dict[str, Caller]] = {}
        # Grows when an address is no longer the VM's it was: who is connected is asked anew.
        self.identities = 0
        self.published_count = 0
        self._shared: dict[tuple[bool, int, int], tuple[Answer, ...]] = {}
        self._first_seen: list[FirstSeen] = []
        # Told of what a VM is shown for the first time, before it has the answer; what it is told
        # is gathered for nobody else.
        self.on_first_seen: Callable[[list[FirstSeen]], None] | None = None
        # Scopes that were served although they are not enabled: their enabling is still to be
        # recorded.
        self.unreported: set[str] = set()

    # ---- Feeding ----

    def publish(self, scope: Scope, document: Document) -> None:
        """Render a scope's document, and wake those who wait for it."""
        page = self.pages.get(scope.name)
        answers = self._render(scope, document)
        if page is None:
            page = self.pages[scope.name] = Page(scope.name, scope.kind, answers)
        if scope.enabled and not page.enabled:
            page.heard_at = page.asked_at
        changed = page.answers[0].etag != answers[0].etag
        page.answers = answers
        page.enabled = scope.enabled
        self.published_count += 1
        if changed:
            _wake(page)

    def wake(self, vm: str | None) -> None:
        """What this VM, or every VM, is shown has changed although no document has."""
        for page in [self.callers[vm].page] if vm in self.callers else list(self.pages.values()):
            _wake(page)

    def remove_page(self, name: str) -> None:
        """Forget a scope."""
        self.pages.pop(name, None)

    def put_caller(
        self, name: str, scope: str, addresses: tuple[str, ...], *, listener: str = ""
    ) -> Caller:
        """A VM of a published scope, known by these addresses on this listener from now on."""
        page = self.pages[scope]
        caller = self.callers.get(name)
        if caller is None:
            caller = self.callers[name] = Caller(name, page)
        elsewhere = tuple(pair for pair in caller.addresses if pair[0] != listener)
        known_by = (*elsewhere, *((listener, address) for address in addresses))
        if known_by != caller.addresses:
            self._forget_addresses(caller)
            caller.addresses = known_by
            for place, address in known_by:
                self.addresses.setdefault(place, {})[address] = caller
        # Last: whoever is woken by the move is asked anew who he is.
        _move(caller, page)
        return caller

    def remove_caller(self, name: str) -> None:
        """Forget a VM."""
        caller = self.callers.pop(name, None)
        if caller is not None:
            self._forget_addresses(caller)
            self.identities += 1

    def _forget_addresses(self, caller: Caller) -> None:
        if caller.addresses:
            self.identities += 1
        for listener, address in caller.addresses:
            if self.addresses[listener].get(address) is caller:
                del self.addresses[listener][address]

    # ---- Rendering ----

    def _render(self, scope: Scope, document: Document) -> tuple[Answer, ...]:
        """The answers in all api-versions; empty documents are shared."""
        # A scope that nobody has enabled yet is shown as it will be if nothing is pending.
        enablings = scope.enablings + (not scope.enabled)
        if document.events:
            return _answers(scope, document, enablings)
        key = (scope.kind is ScopeKind.CLOUD_SERVICE, enablings, document.incarnation)
        answers = self._shared.get(key)
        if answers is None:
            if len(self._shared) >= _SHARED_MAX:
                self._shared.clear()
            answers = self._shared[key] = _answers(scope, document, enablings)
        return answers

    # ---- First seen ----

    def note(self, caller: Caller, answer: Answer, at: datetime) -> None:
        """The VM is served another answer than last time: gather what is new to it."""
        caller.served = answer
        new = [FirstSeen(event, caller.name, at) for event in answer.events - caller.seen]
        if new and self.on_first_seen is not None:
            self.on_first_seen(new)
        else:
            self._first_seen += new
        # What a newer api-version showed stays seen as long as it is shown in any.
        shown = caller.page.answers[-1].events
        caller.seen = (caller.seen | answer.events) & shown if shown else NOTHING_SEEN

    def heard(self, page: Page, at: float) -> None:
        """A request that counts: it enables the scope, or keeps it enabled (monotonic seconds)."""
        page.asked_at = at
        if not page.enabled:
            self.unreported.add(page.name)

    def take_first_seen(self) -> list[FirstSeen]:
        """What was gathered since the last time; it is handed on in batches."""
        gathered, self._first_seen = self._first_seen, []
        return gathered

    def give_back(self, gathered: list[FirstSeen], heard: list[tuple[str, float]]) -> None:
        """The batch could not be handed on: keep it for the next."""
        self._first_seen[:0] = gathered
        self.unreported.update(scope for scope, _ in heard)

    def take_heard(self, every_seconds: float) -> list[tuple[str, float]]:
        """Scopes that asked so long after they were last reported, and when, monotonic."""
        unreported, self.unreported = self.unreported, set()
        heard = [(name, self.pages[name].asked_at) for name in unreported if name in self.pages]
        for page in self.pages.values():
            if page.enabled and page.asked_at - page.heard_at >= every_seconds:
                page.heard_at = page.asked_at
                heard.append((page.name, page.asked_at))
        return heard


def is_known(etags: frozenset[bytes], answer: Answer) -> bool:
    """Whether a VM has this document already, by the ETags that it says it has."""
    return answer.etag in etags or b"*" in etags


def _wake(page: Page) -> None:
    """Let those who wait for this page look at it."""
    waiters, page.waiters = page.waiters or (), None
    for waiter in waiters:
        waiter.page_changed()


def _move(caller: Caller, page: Page) -> None:
    """Show a VM another scope's page, and let it wait for that one if it waits."""
    before = caller.page
    if before is page:
        return
    caller.page = page
    caller.served, caller.seen = None, NOTHING_SEEN
    waiting = {waiter for waiter in before.waiters or () if waiter.waits_as(caller)}
    if not waiting:
        return
    before.waiters = (before.waiters or set()) - waiting
    page.waiters = (page.waiters or set()) | waiting
    if page.answers[0].etag != before.answers[0].etag or not page.enabled:
        for waiter in waiting:
            waiter.page_changed()


def _answers(scope: Scope, document: Document, enablings: int) -> tuple[Answer, ...]:
    # It never repeats over a disable and enable: the number of enablings only grows. Where there
    # is an event it is no other scope's either; of empty documents the same number is the same.
    etag = b'"%d-%d"' % (enablings, document.incarnation)
    if document.events:
        etag = b'"%d-%d-%d"' % (enablings, document.incarnation, scope.declared_revision)
    return answers_of(render_all(document, scope.kind), document.events, etag)


def answers_of(
    bodies: Mapping[str, bytes], events: Sequence[Event], etag: bytes
) -> tuple[Answer, ...]:
    """A document in all api-versions, by its bodies, the events it shows and its quoted ETag."""
    header = b"ETag: %s\r\n" % etag
    unchanged = reply(304, headers=header)
    return tuple(
        Answer(
            reply(200, bodies[version], headers=header),
            unchanged,
            etag.strip(b'"'),
            frozenset(event.id for event in events if knows(version, event.type)),
        )
        for version in SCHEDULED_EVENTS
    )
