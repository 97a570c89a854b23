"""The lines of a node's feed: ready facts about the node's VMs, not rows.

docs/reference/node-feed.md has them in words. Every line is a JSON object whose `kind` says what
it is. Whoever reads passes over kinds and fields that he does not know, and shows words that he
does not know as they are, so that an endpoint may be older than the control plane that feeds it.
"""

from datetime import datetime
from enum import StrEnum
from typing import TypeVar, cast

import msgspec

from fairnotice.model import Document, Event, Node, Scope, Vm
from fairnotice.words import (
    EventSource,
    EventStatus,
    EventType,
    EvictionPolicy,
    Priority,
    ScopeKind,
)

PROTOCOL = 1


class Line(msgspec.Struct, omit_defaults=True, tag_field="kind"):
    """One line."""


class Hello(Line, tag="hello"):
    """The first line: which protocol, for which node, and what all its VMs are told alike."""

    protocol: int
    node: str
    subscription: str = ""
    location: str = ""


class SnapshotBegins(Line, tag="snapshot"):
    """From here to the next `at` comes all there is; what is not in it is not there any more."""


class EventFacts(msgspec.Struct, omit_defaults=True):
    """What a document shows of an event."""

    id: str
    type: str
    source: str
    status: str
    resources: tuple[str, ...]
    not_before: datetime
    description: str = ""
    duration_seconds: int = -1


class ScopeIs(Line, tag="scope"):
    """A scope of the node's VMs, and its document."""

    name: str
    scope_kind: str
    of: str
    enabled: bool
    enablings: int
    incarnation: int
    declared_revision: int
    document_incarnation: int
    events: tuple[EventFacts, ...] = ()


class VmIs(Line, tag="vm"):
    """A VM of the node: which scope it reads, where it asks from, what it reads about itself."""

    name: str
    scope: str
    addresses: tuple[str, ...] = ()
    resource_group: str = "default"
    update_domain: int | None = None
    fault_domain: int = 0
    priority: str = Priority.REGULAR
    eviction_policy: str = EvictionPolicy.DEALLOCATE
    zone: str | None = None
    tags: tuple[tuple[str, str], ...] = ()


class NoVm(Line, tag="no-vm"):
    """This VM is not on the node any more."""

    name: str


class NoScope(Line, tag="no-scope"):
    """No VM of the node is in this scope any more."""

    name: str


class At(Line, tag="at"):
    """All lines so far are the state at this revision; `confirm` asks for a word when it shows."""

    revision: int
    confirm: bool = False


class _Kind(msgspec.Struct):
    kind: str


Known = Hello | SnapshotBegins | ScopeIs | VmIs | NoVm | NoScope | At
KINDS = frozenset({"hello", "snapshot", "scope", "vm", "no-vm", "no-scope", "at"})
_kind = msgspec.json.Decoder(_Kind).decode
_known: msgspec.json.Decoder[Known] = msgspec.json.Decoder(Known)
_encode = msgspec.json.Encoder().encode


def encode(line: Line) -> bytes:
    """The line with its end."""
    return _encode(line) + b"\n"


def decode(data: bytes) -> Known | None:
    """The line; None where it is of a kind that this program does not know.

    Raises msgspec.DecodeError where it is no such line at all.
    """
    try:
        return _known.decode(data)
    except msgspec.ValidationError:
        if _kind(data).kind in KINDS:
            raise
        return None


# ---- From rows, and back to what a board is given ----


def scope_line(scope: Scope, document: Document) -> ScopeIs:
    """A scope and its document as a line."""
    return ScopeIs(
        name=scope.name,
        scope_kind=scope.kind,
        of=scope.of,
        enabled=scope.enabled,
        enablings=scope.enablings,
        incarnation=scope.incarnation,
        declared_revision=scope.declared_revision,
        document_incarnation=document.incarnation,
        events=tuple(map(_event_facts, document.events)),
    )


def _event_facts(event: Event) -> EventFacts:
    return EventFacts(
        id=event.id,
        type=event.type,
        source=event.source,
        status=event.status,
        resources=event.resources,
        not_before=event.not_before,
        description=event.description,
        duration_seconds=event.duration_seconds,
    )


def vm_line(vm: Vm, node: Node) -> VmIs:
    """A VM as a line."""
    return VmIs(
        name=vm.name,
        scope=vm.scope,
        addresses=vm.addresses,
        resource_group=vm.resource_group,
        update_domain=vm.update_domain,
        fault_domain=node.fault_domain,
        priority=vm.priority,
        eviction_policy=vm.eviction_policy,
        zone=vm.zone,
        tags=vm.tags,
    )


# Whether a scope is enabled is all that a board asks; since when is the law's.
_SOMETIME = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


Word = TypeVar("Word", bound=StrEnum)


def _word(words: type[Word], text: str) -> Word:
    """The word; one of a later version stays text, which is shown as it is and never asked for."""
    try:
        return words(text)
    except ValueError:
        return cast("Word", text)


def scope_of(line: ScopeIs) -> Scope:
    """The scope, as far as a board and an instance document need it."""
    return Scope(
        name=line.name,
        kind=_word(ScopeKind, line.scope_kind),
        of=line.of,
        enabled_at=_SOMETIME if line.enabled else None,
        incarnation=line.incarnation,
        enablings=line.enablings,
        declared_revision=line.declared_revision,
    )


def document_of(line: ScopeIs) -> Document:
    """The document, as far as it is shown."""
    return Document(line.document_incarnation, tuple(_event(line.name, e) for e in line.events))


def _event(scope: str, facts: EventFacts) -> Event:
    return Event(
        id=facts.id,
        operation="",
        scope=scope,
        type=_word(EventType, facts.type),
        source=_word(EventSource, facts.source),
        status=_word(EventStatus, facts.status),
        resources=facts.resources,
        revision=0,
        announced_at=facts.not_before,
        not_before=facts.not_before,
        notice_seconds=0.0,
        description=facts.description,
        duration_seconds=facts.duration_seconds,
    )


def vm_of(line: VmIs, node: str) -> Vm:
    """The VM, as far as its instance document needs it."""
    return Vm(
        name=line.name,
        scope=line.scope,
        node=node,
        update_domain=line.update_domain,
        priority=_word(Priority, line.priority),
        eviction_policy=_word(EvictionPolicy, line.eviction_policy),
        addresses=line.addresses,
        resource_group=line.resource_group,
        zone=line.zone,
        tags=line.tags,
    )
