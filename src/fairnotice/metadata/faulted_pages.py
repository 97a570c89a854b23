"""What each VM is shown while faults change its document: a page of its own, and its count."""

from collections.abc import Callable, Iterable
from hashlib import sha256

from fairnotice.clock import Clock
from fairnotice.metadata.board import Answer, Caller, answers_of
from fairnotice.metadata.faulted import Faulted, faulted, with_raw_bytes
from fairnotice.metadata.faults import Fault, FaultKind, Faults
from fairnotice.model import Document
from fairnotice.wire.document import render, render_all
from fairnotice.wire.versions import SCHEDULED_EVENTS

# Takes a scope's name. The board holds no rows: whoever feeds it is asked for them.
Documents = Callable[[str], Document | None]

_NEWEST = SCHEDULED_EVENTS[-1]


class _FaultedPage:
    """What one VM was last shown."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        # Its events in the newest api-version, which shows all of them and all of each.
        self.content: bytes | None = None
        self.incarnation = 0
        self.answers: tuple[Answer, ...] = ()
        self.canceled: frozenset[str] = frozenset()
        # Every twin it was shown: it may still be approved when it is gone.
        self.twins: frozenset[str] = frozenset()
        self.kinds: tuple[FaultKind, ...] = ()


class FaultedPages:
    """The pages of all VMs for which such a fault is on and which have asked since."""

    def __init__(self, faults: Faults, documents: Documents, clock: Clock) -> None:
        self._faults = faults
        self._documents = documents
        self._clock = clock
        self._pages: dict[str, _FaultedPage] = {}

    def answers(self, caller: Caller) -> tuple[Answer, ...] | None:
        """What this VM is shown now, in every api-version; None where no fault changes it."""
        on = self._faults.of_document(caller.name)
        document = self._documents(caller.page.name) if on else None
        if document is None:
            return None
        page = self._pages.get(caller.name)
        if page is None or page.scope != caller.page.name:
            page = self._pages[caller.name] = _FaultedPage(caller.page.name)
        found = faulted(document.events, caller.name, on, self._clock.wall(), page.canceled)
        page.canceled = found.canceled
        page.twins |= found.twins
        reset = FaultKind.INCARNATION_RESET in on
        page.kinds = (*found.kinds, *([FaultKind.INCARNATION_RESET] if reset else []))
        self._show(page, caller, document, found, reset=reset)
        return page.answers

    def _show(
        self,
        page: _FaultedPage,
        caller: Caller,
        document: Document,
        found: Faulted,
        *,
        reset: bool,
    ) -> None:
        """Render it anew where it is another one than the VM was shown last."""
        kind = caller.page.kind
        content = render(Document(0, found.events), _NEWEST, kind)
        if content == page.content:
            return
        if page.content is not None:
            page.incarnation += 1
        elif reset:
            page.incarnation = 1
        else:
            # What the law counts with this number is another document, where this one differs.
            page.incarnation = document.incarnation + bool(found.kinds)
        page.content = content
        shown = Document(page.incarnation, found.events)
        bodies = {
            version: with_raw_bytes(body) for version, body in render_all(shown, kind).items()
        }
        # No number of an ordinary document, so that neither is taken for the other.
        etag = b'"%s"' % sha256(bodies[_NEWEST]).hexdigest()[:16].encode()
        seen = tuple(event for event in found.events if event.id not in found.twins)
        page.answers = answers_of(bodies, seen, etag)

    def kinds(self, vm: str) -> Iterable[FaultKind]:
        """The faults that changed what this VM was shown last."""
        page = self._pages.get(vm)
        return () if page is None else page.kinds

    def twins(self, vm: str) -> frozenset[str]:
        """Events that this VM was shown and that nobody else knows."""
        page = self._pages.get(vm)
        return frozenset() if page is None else page.twins

    def forget(self, fault: Fault) -> None:
        """A fault was set or cleared: drop the pages that it ends, or that count anew."""
        for vm in list(self._pages) if fault.vm is None else [fault.vm]:
            if fault.kind is FaultKind.INCARNATION_RESET or not self._faults.of_document(vm):
                self._pages.pop(vm, None)
