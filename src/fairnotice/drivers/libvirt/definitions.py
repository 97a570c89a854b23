"""How every domain is defined, known also when its node is gone.

A control plane has what it saw last in memory. So that it is known after a restart as well, two
other nodes keep it, each in a domain that is never started. Any user of a node can read the
metadata of its domains: a definition with a password in it is kept in memory alone.
"""

import asyncio
import base64
import logging
import zlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple, TypeVar
from urllib.parse import quote
from xml.etree import ElementTree as ET

from fairnotice.clock import Clock
from fairnotice.drivers.libvirt import records
from fairnotice.drivers.libvirt.host import Host, Sight
from fairnotice.drivers.libvirt.line import Trouble
from fairnotice.drivers.libvirt.looking import in_time
from fairnotice.drivers.libvirt.records import Moved, Record
from fairnotice.errors import Unavailable

log = logging.getLogger(__name__)

# On how many other nodes a definition is.
KEEPERS = 2

Answer = TypeVar("Answer")


class Definition(NamedTuple):
    """A domain as it is defined."""

    xml: str
    # Of its ephemeral disks, in bytes.
    capacities: Mapping[str, int]
    has_secrets: bool = False


class Kept(NamedTuple):
    """A definition as it was at that instant."""

    definition: Definition
    at: datetime
    # Where the VM was; of what an earlier version has written nobody knows.
    node: str = ""


async def taken(host: Host, domain: str) -> Definition:
    """As it is defined now."""
    xml, has_secrets, capacities = await host.defined(domain)
    return Definition(xml, capacities, has_secrets)


class Definitions:
    """Those of all VMs."""

    def __init__(self, hosts: Mapping[str, Host], clock: Clock) -> None:
        self._hosts = hosts
        self._clock = clock
        self._epoch = 0
        self._seen: dict[str, Kept] = {}
        # The texts that each was read for: while a look has the same, so is the definition. Also
        # how it runs, since somebody may have made a disk of it larger before it was started.
        self._texts: dict[str, tuple[str, str]] = {}
        # What each node keeps, as far as it was read.
        self._there: dict[str, dict[str, Kept]] = {}
        # Whose were missed when all nodes were asked the last time.
        self._missed: set[str] = set()
        # Who has not answered since this was last cleared.
        self._silent: set[str] = set()

    def lead(self, epoch: int) -> None:
        """In a later epoch nothing of what was known counts: another may have led meanwhile.

        What is under way knows no later than this when it has looked, so it does no harm.
        """
        if epoch > self._epoch:
            self._epoch = epoch
            self._seen, self._texts, self._there, self._missed = {}, {}, {}, set()

    async def keep(self, places: Mapping[str, tuple[str, Sight]], reached: list[str]) -> None:
        """See that those of these VMs are kept; where that fails, it is tried at the next look."""
        for name in set(self._there) - set(reached):
            del self._there[name]
        # All of them: any may have one that it was once given to keep.
        await self._kept_by(reached)
        for vm, (node, sight) in places.items():
            try:
                await self._keep(vm, node, sight, reached)
            except (Trouble, Unavailable) as error:
                log.info("the definition of %s is not kept yet: %s", vm, error)
        self._silent.clear()

    async def _keep(self, vm: str, node: str, sight: Sight, reached: list[str]) -> None:
        now = self._clock.wall()
        texts = sight.next_xml or sight.xml, sight.xml if sight.active else ""
        if self._texts.get(vm) != texts:
            definition = await self._ask(node, lambda host: taken(host, sight.domain))
            # Whoever has defined it anew since that look is seen by the next one.
            self._texts[vm] = texts
            self._seen[vm] = Kept(definition._replace(xml=without_impacts(definition.xml)), now)
        definition = self._seen[vm].definition
        kept = self._seen[vm] = Kept(definition, now, node)
        keepers = [] if definition.has_secrets else _keepers(node, list(self._hosts), reached)
        for keeper in keepers:
            there = await self._kept_on(keeper)
            if vm not in there or there[vm]._replace(at=now) != kept:
                await self._write(keeper, vm, kept)
        # Others would go on to have it as it is now, whatever becomes of it.
        await self._take_out(vm, but=keepers)

    async def without_remains(
        self, places: Mapping[str, tuple[str, Sight]], reached: list[str]
    ) -> dict[str, tuple[str, Sight]]:
        """Those of these VMs that are off, and of which none that was put somewhere later is known.

        Nor one with another UUID, of which this is a copy. And all that run.
        """
        left = {}
        for vm, (node, sight) in places.items():
            known = None if sight.active else await self.find(vm, reached)
            if known is None or (
                uuid_in(known.xml) == sight.uuid
                and records.moved_in(known.xml).at <= sight.moved.at
            ):
                left[vm] = (node, sight)
        return left

    async def forget_all_but(self, vms: set[str], lost: Collection[str]) -> None:
        """Every node was asked but those that have failed, and there are these alone.

        What was where nobody can be asked any more is not missed. Nor is one that moves meanwhile
        gone: where it goes it was not yet, where it was not any more. So only what is missed twice
        in a row is.
        """
        missed = set(self._seen).union(*self._there.values()) - vms
        if lost:
            known = [item for one in (self._seen, *self._there.values()) for item in one.items()]
            missed -= {vm for vm, kept in known if kept.node in (*lost, "")}
        gone, self._missed = missed & self._missed, missed
        for vm in gone:
            await self._take_out(vm)
        for vm in gone & self._seen.keys():
            del self._seen[vm]
            self._texts.pop(vm, None)

    async def find(self, vm: str, nodes: Iterable[str] | None = None) -> Definition | None:
        """The latest that any of these who can be asked has, or we have; None where nobody has."""
        if nodes is None:
            self._silent.clear()
        kept = await self._kept_by(self._hosts if nodes is None else nodes)
        known = [there[vm] for there in (self._seen, *kept) if vm in there]
        return max(known, key=lambda one: one.at).definition if known else None

    async def _kept_by(self, names: Iterable[str]) -> list[dict[str, Kept]]:
        """What those of these nodes keep that can be asked."""
        looks = await asyncio.gather(*map(self._kept_on, names), return_exceptions=True)
        for there in looks:
            if isinstance(there, BaseException) and not isinstance(there, (Trouble, Unavailable)):
                raise there
        return [there for there in looks if isinstance(there, dict)]

    async def _kept_on(self, name: str) -> dict[str, Kept]:
        known = self._there
        if name not in known:
            known[name] = kept_in(await self._ask(name, lambda host: host.kept_definitions()))
        return known[name]

    async def _take_out(self, vm: str, but: Collection[str] = ()) -> None:
        """Of all nodes but these; where that fails, it is tried at the next look."""
        for name, there in list(self._there.items()):
            if vm in there and name not in but:
                with suppress(Trouble, Unavailable):
                    await self._write(name, vm, None)

    async def _write(self, name: str, vm: str, kept: Kept | None) -> None:
        element = None if kept is None else written(vm, kept)
        there = await self._kept_on(name)
        await self._ask(name, lambda host: host.keep_definition(element, _uri(vm)))
        if kept is None:
            there.pop(vm, None)
        else:
            there[vm] = kept

    async def _ask(self, name: str, ask: Callable[[Host], Awaitable[Answer]]) -> Answer:
        """What a node answers; one that did not is not waited for again, for each VM."""
        if name in self._silent:
            raise Unavailable(f"{name} does not answer.")
        host = self._hosts[name]
        try:
            return await in_time(host, ask(host))
        except Unavailable:
            self._silent.add(name)
            raise


def _keepers(node: str, nodes: list[str], reached: list[str]) -> list[str]:
    """The next ones of those that can be reached, in a ring."""
    at = nodes.index(node)
    return [one for one in nodes[at + 1 :] + nodes[:at] if one in reached][:KEEPERS]


# ---- As they are written ----


def _uri(vm: str) -> str:
    return records.DEFINITION + quote(vm, safe="")


def written(vm: str, kept: Kept) -> str:
    """The element."""
    sizes = kept.definition.capacities.items()
    fields = {
        "vm": vm,
        "at": kept.at.isoformat(),
        "node": kept.node,
        "capacities": " ".join(f"{device}={size}" for device, size in sizes),
    }
    element = ET.Element("definition", fields)
    element.text = base64.b64encode(zlib.compress(kept.definition.xml.encode())).decode()
    return ET.tostring(element, encoding="unicode")


def kept_in(xml: str) -> dict[str, Kept]:
    """Every definition that this domain's XML has, by VM; one that is damaged is passed over."""
    found = {}
    for element in records.elements(xml, records.DEFINITION):
        try:
            found[element.attrib["vm"]] = _read(element)
        except (KeyError, ValueError, zlib.error) as error:
            log.warning("a definition that is kept is passed over: %s", error)
    return found


def _read(element: ET.Element) -> Kept:
    text = zlib.decompress(base64.b64decode(element.text or "")).decode()
    pairs = (one.split("=") for one in element.attrib["capacities"].split())
    sizes = {device: int(size) for device, size in pairs}
    at = records.instant(element.attrib["at"])
    return Kept(Definition(text, sizes), at, element.attrib.get("node", ""))


# ---- Domains as XML ----


def without_impacts(xml: str) -> str:
    """The same domain, whatever has befallen it."""
    root = ET.fromstring(xml)  # noqa: S314 - libvirtd wrote it
    metadata = root.find("metadata")
    if metadata is not None:
        left = [one for one in metadata if not one.tag.startswith("{" + records.IMPACT)]
        metadata[:] = left
        # What stood between those that are gone is no difference.
        for one in (metadata, *left):
            one.tail = None
        metadata.text = None
    return ET.tostring(root, encoding="unicode")


def with_record(xml: str, record: Record, moved: Moved) -> str:
    """The domain as another node defines it: with the impact's key, and since when it is there."""
    root = ET.fromstring(xml)  # noqa: S314 - libvirtd wrote it
    metadata = root.find("metadata")
    if metadata is None:
        metadata = ET.SubElement(root, "metadata")
    for old in list(metadata):
        if old.attrib.get("key") == record.key or old.tag.startswith("{" + records.MOVED):
            metadata.remove(old)
    for uri, text in (
        (records.impact_uri(record.key), records.written(record)),
        (records.MOVED, records.written_moved(moved)),
    ):
        element = ET.fromstring(text)  # noqa: S314 - it is our own
        element.tag = f"{{{uri}}}{element.tag}"
        metadata.append(element)
    return ET.tostring(root, encoding="unicode")


def name_in(xml: str) -> str:
    """What the domain is called."""
    return ET.fromstring(xml).findtext("name", "")  # noqa: S314 - libvirtd wrote it


def uuid_in(xml: str) -> str:
    """Which domain it is, wherever it goes."""
    return ET.fromstring(xml).findtext("uuid", "")  # noqa: S314 - libvirtd wrote it


def memory_kib(xml: str) -> int:
    """Libvirt always writes it in KiB."""
    return int(ET.fromstring(xml).findtext("memory", "0"))  # noqa: S314 - libvirtd wrote it
