"""One node: what is asked of its libvirtd.

What a control plane must not be wrong about is kept on the node itself, in the metadata of domains:
of the VM's own, and of one that is never started, the ledger, which holds the highest epoch and the
keys of VMs that are gone. Another one like it holds how VMs of other nodes are defined.
"""

import logging
import shlex
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import libvirt

from fairnotice.clock import Clock
from fairnotice.drivers.libvirt import disks, labels, records
from fairnotice.drivers.libvirt.happenings import Happenings
from fairnotice.drivers.libvirt.labels import Label
from fairnotice.drivers.libvirt.line import Connection, Line, Trouble
from fairnotice.drivers.libvirt.records import Moved, Record
from fairnotice.drivers.libvirt.settings import NodeAddress
from fairnotice.errors import LeadLost, Unavailable, UsageError
from fairnotice.words import Power

log = logging.getLogger(__name__)

LEDGER = "fairnotice-ledger"
# Beside it, as it is read at every step of an impact and they are long.
DEFINITIONS = "fairnotice-definitions"
_BOOK_XML = """<domain type="{kind}"><name>{name}</name>
<description>Never started: fairnotice remembers here. See docs/reference/libvirt.md.</description>
<memory unit="MiB">1</memory><os><type>hvm</type></os></domain>"""

Answer = TypeVar("Answer")
Domain = Any
Known = dict[str, tuple[str, str]]
# Why the label of a domain cannot be read, by the domain's name.
Unread = dict[str, str]


class Unreadable(Unavailable):
    """A VM was not found, and may be a domain whose label cannot be read."""


# Off for these reasons; a libvirtd that was started since has forgotten them.
_ENDED = (
    libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN,
    libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED,
    libvirt.VIR_DOMAIN_SHUTOFF_CRASHED,
)


class Sight(NamedTuple):
    """A domain as it is at this moment."""

    vm: str
    domain: str
    label: Label
    # Wherever it goes, the same; of a copy another.
    uuid: str
    active: bool
    persistent: bool
    state: int
    # Why it is so.
    reason: int
    given_up: bool
    xml: str
    # How it is going to start, where it runs by now: told by a look at all alone.
    next_xml: str = ""

    @property
    def power(self) -> Power:
        """As the law has it."""
        if self.active:
            return Power.RUNNING
        return Power.DEALLOCATED if self.given_up else Power.STOPPED

    @property
    def running(self) -> bool:
        """Whether something runs in it."""
        return bool(self.state == libvirt.VIR_DOMAIN_RUNNING)

    @property
    def paused(self) -> bool:
        """Whether nothing runs in it."""
        return bool(self.state == libvirt.VIR_DOMAIN_PAUSED)

    @property
    def ended(self) -> bool:
        """Whether its guest is known to have ended here, and has not gone on somewhere else."""
        return not self.active and self.reason in _ENDED

    def is_marked(self, key: str) -> bool:
        """Whether it has run ever since it got this mark."""
        return f'"{records.mark_uri(key)}"' in self.xml

    @property
    def moved(self) -> Moved:
        """Since when it is how the VM is."""
        return records.moved_in(self.xml)

    @property
    def records(self) -> list[Record]:
        """What impacts have left on it."""
        return records.records_in(self.xml)


class Host:
    """A node's libvirtd."""

    def __init__(
        self,
        name: str,
        address: NodeAddress,
        clock: Clock,
        happenings: Happenings,
        open_connection: Callable[[str], Connection] = libvirt.open,
    ) -> None:
        self.name = name
        self.address = address
        # The domains whose labels could not be read at the last look at all.
        self.unreadable: Unread = {}
        # Those of them that the log has, and why.
        self._said: Unread = {}
        # What each domain was called, and which VM it was, when it was read last; by its UUID.
        self._known: Known = {}
        self._line = Line(name, address.uri, clock, happenings, open_connection)

    async def ask(self, call: Callable[[Connection], Answer]) -> Answer:
        """What libvirt answers; Trouble where it refuses, Unavailable where nobody is there."""
        return await self._line.ask(call)

    async def close(self) -> None:
        """Let go of it."""
        await self._line.close()

    # ---- The ledger ----

    async def meet(self, epoch: int) -> None:
        """LeadLost if a later epoch was here; else this one has been, from now on."""
        highest = await self.ask(lambda connection: _raise_epoch(connection, epoch))
        if highest > epoch:
            raise LeadLost(f"Epoch {epoch} is over: {self.name} has seen {highest}.")

    async def note(self, record: Record) -> None:
        """Write an impact into the ledger: its domain is going to be gone."""
        await self.ask(lambda connection: _write(_ledger(connection), record))

    async def noted(self, key: str) -> Record | None:
        """What the ledger has of this key."""
        return await self.ask(lambda connection: _read(_ledger(connection), key))

    async def forget(self, before: datetime, but: str) -> None:
        """Take out of the ledger what began before that, but not this key."""
        await self.ask(lambda connection: _forget(_ledger(connection), before, but))

    # ---- Definitions of other nodes' VMs ----

    async def kept_definitions(self) -> str:
        """The domain that has them, as XML."""
        return await self.ask(_kept_definitions)

    async def keep_definition(self, element: str | None, uri: str) -> None:
        """Write one, or take it out."""
        await self.ask(lambda connection: _set(_book(connection, DEFINITIONS), element, uri))

    # ---- Domains ----

    async def look(self, vm: str) -> Sight | None:
        """The domain of this VM; None where it has none here, Trouble where two say they are it.

        A domain that is some other VM, by its label as it was read last, is not read again: among
        hundreds, that would be hundreds of calls at every step of every impact. Whoever labels
        a domain anew is heard at the next look at all. One that was this VM is Unreadable if its
        label cannot be read any more: it is not gone for that.
        """
        found, unread = await self.ask(lambda connection: _find(connection, vm, self._known))
        return self._only(vm, found, unread)

    async def look_anew(self, vm: str) -> Sight | None:
        """The same, with every label read anew; Unreadable where any cannot be: it may be the VM's.

        For whoever takes it from this that the VM is not here.
        """
        found = [sight for sight in await self.look_at_all() if sight.vm == vm]
        return self._only(vm, found, self.unreadable)

    def _only(self, vm: str, found: list[Sight], unread: Unread) -> Sight | None:
        if len(found) > 1:
            raise claimed_twice(vm, (f"{one.domain} on {self.name}" for one in found))
        if not found and unread:
            said = "; ".join(self._unreadable(*one) for one in unread.items())
            raise Unreadable(f"{said} It may be {vm}: label it anew.")
        return found[0] if found else None

    async def look_at_all(self) -> list[Sight]:
        """Every domain that is labeled."""
        before = self._known
        seen, self.unreadable, self._known = await self.ask(
            lambda connection: _look_at_all(connection, before)
        )
        return seen

    def say_what_is_unreadable(self) -> None:
        """Have the log name them, once: they are looked at every few seconds."""
        for name, why in self.unreadable.items():
            if self._said.get(name) != why:
                log.warning("%s", self._unreadable(name, why))
        self._said = self.unreadable

    def mends(self) -> list[str]:
        """What each of them is, and the command that shows how it is mended."""
        words = ("--connect", self.address.uri)
        return [
            f"{self._unreadable(name, why)} What mends it is said by: "
            + shlex.join(("fairnotice", "libvirt", "label", name, *words))
            for name, why in self.unreadable.items()
        ]

    def _unreadable(self, domain: str, why: str) -> str:
        return f"the label of {domain} on {self.name} cannot be read: {why}"

    def forget_label(self, domain: str) -> None:
        """It was defined anew: it may be another VM by now."""
        # Of a copy, as a thread may be adding to it.
        known = dict(self._known)
        self._known = {uuid: one for uuid, one in known.items() if one[0] != domain}

    async def write(self, sight: Sight, record: Record, kept: datetime | None = None) -> None:
        """Leave this on the domain, running or not; what else began before `kept` goes."""

        def leave(connection: Connection) -> None:
            domain = connection.lookupByName(sight.domain)
            _write(domain, record)
            if kept is not None:
                _forget(domain, kept, record.key)

        await self.ask(leave)

    async def defined(self, domain: str) -> tuple[str, bool, dict[str, int]]:
        """How it is defined; whether with secrets; how large its ephemeral disks are."""

        def take(connection: Connection) -> tuple[str, bool, dict[str, int]]:
            found = connection.lookupByName(domain)
            flags = libvirt.VIR_DOMAIN_XML_INACTIVE
            xml = found.XMLDesc(flags | libvirt.VIR_DOMAIN_XML_SECURE)
            sizes = disks.capacities(connection, found, xml)
            return xml, xml != found.XMLDesc(flags), sizes

        return await self.ask(take)

    async def on(self, domain: str, call: Callable[[Domain], Answer]) -> Answer:
        """What becomes of a call on a domain."""
        return await self.ask(lambda connection: call(connection.lookupByName(domain)))


def _ledger(connection: Connection) -> Domain:
    return _book(connection, LEDGER)


def _book(connection: Connection, name: str) -> Domain:
    """The domain of this name that is never started; made where it is not there yet."""
    there = _called(connection, name)
    if there is not None:
        return there
    kind = connection.getType().lower()
    try:
        return connection.defineXML(_BOOK_XML.format(kind=kind, name=name))
    except libvirt.libvirtError:
        # Another control plane was faster.
        return connection.lookupByName(name)


def _called(connection: Connection, name: str) -> Domain | None:
    """The domain of this name, if there is one."""
    try:
        return connection.lookupByName(name)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
            raise
        return None


def _kept_definitions(connection: Connection) -> str:
    """To read them makes no domain where none are kept."""
    there = _called(connection, DEFINITIONS)
    return "<domain/>" if there is None else str(there.XMLDesc(0))


def _raise_epoch(connection: Connection, epoch: int) -> int:
    """The highest epoch; each has an element of its own, so that none is ever lowered."""
    ledger = _ledger(connection)
    seen = records.epochs_in(ledger.XMLDesc(0))
    if epoch <= max(seen, default=-1):
        return max(seen)
    _set(ledger, f'<epoch number="{epoch}"/>', f"{records.EPOCH}{epoch}")
    seen = records.epochs_in(ledger.XMLDesc(0))
    for old in seen:
        if old < max(seen):
            with suppress(libvirt.libvirtError):
                _set(ledger, None, f"{records.EPOCH}{old}")
    return max(seen)


def _write(domain: Domain, record: Record) -> None:
    _set(domain, records.written(record), records.impact_uri(record.key))


def _read(domain: Domain, key: str) -> Record | None:
    return next((one for one in records.records_in(domain.XMLDesc(0)) if one.key == key), None)


def _forget(domain: Domain, before: datetime, but: str) -> None:
    for record in records.records_in(domain.XMLDesc(0)):
        if record.begun_at < before and record.key != but:
            with suppress(libvirt.libvirtError):
                _set(domain, None, records.impact_uri(record.key))


def _set(domain: Domain, element: str | None, uri: str) -> None:
    """One element of a domain's metadata, as it is now and as it will be when it starts again."""
    flags = libvirt.VIR_DOMAIN_AFFECT_LIVE if domain.isActive() else 0
    if domain.isPersistent():
        flags |= libvirt.VIR_DOMAIN_AFFECT_CONFIG
    domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, element, records.PREFIX, uri, flags)


def set_label(domain: Domain, label: Label | None) -> None:
    """Say of a domain which VM it is; None takes it back."""
    _set(domain, None if label is None else labels.written(label), labels.LABEL)


def mark(domain: Domain, key: str) -> None:
    """Put a mark on a domain that runs; it is gone when that ends, and not kept."""
    domain.setMetadata(
        libvirt.VIR_DOMAIN_METADATA_ELEMENT,
        "<mark/>",
        records.PREFIX,
        records.mark_uri(key),
        libvirt.VIR_DOMAIN_AFFECT_LIVE,
    )


def mark_moved(domain: Domain, moved: Moved) -> None:
    """Say of a domain since when it is how its VM is."""
    _set(domain, records.written_moved(moved), records.MOVED)


def give_up_place(domain: Domain, *, given_up: bool) -> None:
    """Say of a domain whether its place on the node is free for others."""
    if not given_up and f'"{records.PLACE}"' not in domain.XMLDesc(0):
        return
    _set(domain, "<place given_up='yes'/>" if given_up else None, records.PLACE)


def claimed_twice(vm: str, domains: Iterable[str]) -> Trouble:
    """Why nothing is done to either: nobody can tell which of these domains is meant."""
    # In their order by name, so that it is the same sentence whoever was listed first.
    named = " and ".join(sorted(domains))
    return Trouble(f"{named} both say that they are {vm}: label one of them anew")


def _find(connection: Connection, vm: str, known: Known) -> tuple[list[Sight], Unread]:
    """Every domain that says that it is this VM, or did; only those are read that may be it."""
    found, unread = [], Unread()
    for domain in connection.listAllDomains(0):
        uuid = domain.UUIDString()
        if known.get(uuid, ("", vm))[1] == vm:
            sight, why = _read_label(domain, known)
            if sight is not None and sight.vm == vm:
                found.append(sight)
            elif why and known[uuid][1] == vm:
                unread[domain.name()] = why
    return found, unread


def _look_at_all(connection: Connection, before: Known) -> tuple[list[Sight], Unread, Known]:
    """Every labeled domain; those whose label cannot be read; and what is known of all of them."""
    seen, unread, known = [], Unread(), Known()
    for domain in connection.listAllDomains(0):
        uuid = domain.UUIDString()
        if uuid in before:
            known[uuid] = before[uuid]
        sight, why = _read_label(domain, known, whole=True)
        if sight is not None:
            seen.append(sight)
        elif why:
            unread[domain.name()] = why
    return seen, unread, known


def _read_label(domain: Domain, known: Known, *, whole: bool = False) -> tuple[Sight | None, str]:
    """The domain as it is, unless it has no label; and why that cannot be read, if it cannot."""
    uuid = domain.UUIDString()
    try:
        sight = _sight(domain, whole=whole)
    except UsageError as error:
        # Until it can be, it is held to be the VM that it was.
        _, vm = known.get(uuid, ("", ""))
        known[uuid] = (domain.name(), vm)
        return None, str(error)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
            raise
        # It went away while we looked, and may come back with a label.
        known.pop(uuid, None)
        return None, ""
    known[uuid] = (domain.name(), "" if sight is None else sight.vm)
    return sight, ""


def _sight(domain: Domain, *, whole: bool) -> Sight | None:
    """As it is; None where it has no label, UsageError where that cannot be read."""
    xml = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE)
    label = labels.label_in(xml)
    if label is None:
        return None
    name = domain.name()
    state, reason = domain.state(0)
    sight = Sight(
        vm=label.name or name,
        domain=name,
        label=label,
        uuid=domain.UUIDString(),
        active=bool(domain.isActive()),
        persistent=bool(domain.isPersistent()),
        state=state,
        reason=reason,
        given_up=f'"{records.PLACE}"' in xml,
        xml=xml,
    )
    if not (whole and sight.active and sight.persistent):
        return sight
    # QEMU tells of no change to this alone, as by `virsh attach-disk --config`.
    flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
    return sight._replace(next_xml=domain.XMLDesc(flags))
