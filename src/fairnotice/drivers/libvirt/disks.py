"""Ephemeral disks: what is on them is lost with a VM's place, and its next place has empty ones.

They are made where the VM goes, by the storage pool whose directory they are in: so libvirt itself
does it, on a node of which nothing else is known.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

import libvirt

from fairnotice.drivers.libvirt import labels

Connection = Any
Domain = Any
Pool = Any

_VOLUME = """<volume><name>{name}</name><capacity unit="bytes">{capacity}</capacity>
<allocation>0</allocation><target><format type="{format}"/></target></volume>"""


class CannotBeMade(Exception):
    """An empty disk cannot be made there, and what to do about it."""


class Disk(NamedTuple):
    """A disk as a domain has it."""

    device: str
    format: str
    # The file that it is, or a volume of a pool.
    file: str
    pool: str
    volume: str

    @property
    def name(self) -> str:
        """As its pool calls it."""
        return self.volume or PurePosixPath(self.file).name


def ephemeral(xml: str) -> list[Disk]:
    """The disks of this domain that its label calls so."""
    label = labels.label_in(xml)
    named = () if label is None else label.ephemeral_disks
    return [disk for disk in disks_in(xml) if disk.device in named]


def disks_in(xml: str) -> list[Disk]:
    """All that this domain has."""
    found = []
    for element in ET.fromstring(xml).iterfind("devices/disk"):  # noqa: S314 - libvirtd wrote it
        parts = {name: element.find(name) for name in ("target", "driver", "source")}
        said = {name: {} if part is None else part.attrib for name, part in parts.items()}
        found.append(
            Disk(
                device=said["target"].get("dev", ""),
                format=said["driver"].get("type", "raw"),
                file=said["source"].get("file", ""),
                pool=said["source"].get("pool", ""),
                volume=said["source"].get("volume", ""),
            )
        )
    return found


def capacities(connection: Connection, domain: Domain, xml: str) -> dict[str, int]:
    """How large each ephemeral disk is, in bytes, by its target; without those nobody can tell."""
    sizes = {}
    for disk in ephemeral(xml):
        with suppress(libvirt.libvirtError):
            sizes[disk.device] = int(_capacity(connection, domain, disk))
    return sizes


def _capacity(connection: Connection, domain: Domain, disk: Disk) -> int:
    with suppress(libvirt.libvirtError):
        if disk.pool:
            pool = connection.storagePoolLookupByName(disk.pool)
            return int(pool.storageVolLookupByName(disk.volume).info()[1])
        return int(connection.storageVolLookupByPath(disk.file).info()[1])
    # In no pool there: QEMU's own word.
    return int(domain.blockInfo(disk.device)[0])


def must_be_possible(connection: Connection, xml: str, sizes: Mapping[str, int]) -> None:
    """CannotBeMade where this node could not make every ephemeral disk of the domain.

    And where it would be another domain's that is made anew: two nodes may have files of one name.
    """
    for disk in ephemeral(xml):
        if disk.device not in sizes:
            raise CannotBeMade(f"nobody can tell how large its ephemeral disk {disk.device} is")
        path = _path(_pool(connection, disk), disk.name)
        for domain in connection.listAllDomains(0):
            if domain.UUIDString() != _uuid(xml) and path in _files(connection, domain):
                raise CannotBeMade(
                    f"its ephemeral disk {disk.device} would be {path}, which {domain.name()} has"
                )


def _uuid(xml: str) -> str:
    return ET.fromstring(xml).findtext("uuid", "")  # noqa: S314 - libvirtd wrote it


def _path(pool: Pool, name: str) -> PurePosixPath:
    return _folder(pool) / name


def _folder(pool: Pool) -> PurePosixPath:
    return PurePosixPath(ET.fromstring(pool.XMLDesc(0)).findtext("target/path", ""))  # noqa: S314


def _files(connection: Connection, domain: Domain) -> set[PurePosixPath]:
    """All that a domain's disks are on, and what lies under them."""
    found = set()
    with suppress(libvirt.libvirtError):  # it went away while we looked
        for source in ET.fromstring(domain.XMLDesc(0)).iterfind("devices/disk//source"):  # noqa: S314
            if "file" in source.attrib:
                found.add(PurePosixPath(source.attrib["file"]))
            elif "pool" in source.attrib and "volume" in source.attrib:
                with suppress(libvirt.libvirtError):
                    pool = connection.storagePoolLookupByName(source.attrib["pool"])
                    found.add(_path(pool, source.attrib["volume"]))
    return found


def make_empty(connection: Connection, xml: str, sizes: Mapping[str, int]) -> None:
    """Make every ephemeral disk of the domain anew; one that was left there is replaced."""
    must_be_possible(connection, xml, sizes)
    for disk in ephemeral(xml):
        pool = _pool(connection, disk)
        pool.refresh(0)
        with suppress(libvirt.libvirtError):
            pool.storageVolLookupByName(disk.name).delete(0)
        volume = ET.fromstring(  # noqa: S314 - it is our own
            _VOLUME.format(name="", capacity=sizes[disk.device], format=disk.format)
        )
        volume[0].text = disk.name
        pool.createXML(ET.tostring(volume, encoding="unicode"))


def _pool(connection: Connection, disk: Disk) -> Pool:
    for pool in connection.listAllStoragePools(libvirt.VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE):
        if disk.pool == pool.name() or (
            disk.file and _folder(pool) == PurePosixPath(disk.file).parent
        ):
            return pool
    wanted = disk.pool or f"with the directory of {disk.file or disk.device}"
    raise CannotBeMade(
        f"it has no active storage pool {wanted} to make the ephemeral disk {disk.device} in"
    )
