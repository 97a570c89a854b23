"""What a domain says of itself: which VM it is, and its place in a fleet.

    <fairnotice:vm xmlns:fairnotice="urn:fairnotice:libvirt:vm:1" name="db-0"
                   availability_set="db" update_domain="0" priority="Regular"/>

A domain without this element is nobody's business here. docs/reference/libvirt.md has the fields.
The endpoint's side reads labels by this too (endpoint/libvirt_places.py), on nodes that have no
libvirt-python: nothing of that is imported here.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import NamedTuple
from xml.etree import ElementTree as ET

from fairnotice.engine.fleet_checks import NAME_LENGTH_MAX
from fairnotice.engine.specs import VmSpec
from fairnotice.errors import UsageError
from fairnotice.words import EvictionPolicy, Network, Priority

LABEL = "urn:fairnotice:libvirt:vm:1"
_NUMBERS = ("placement_group", "update_domain")
_LISTS = ("addresses", "ephemeral_disks")
# A VM is in one of these at most.
_SETS = ("availability_set", "scale_set", "cloud_service")
_NAMES = ("name", *_SETS, "resource_group")
_WORDS: Mapping[str, type[Priority] | type[EvictionPolicy] | type[Network]] = {
    "priority": Priority,
    "eviction_policy": EvictionPolicy,
    "network": Network,
}


class Label(NamedTuple):
    """The element's attributes; lists are written with spaces between."""

    # Empty: as the domain is called.
    name: str = ""
    availability_set: str = ""
    scale_set: str = ""
    cloud_service: str = ""
    placement_group: int = 0
    update_domain: int | None = None
    priority: Priority | None = None
    eviction_policy: EvictionPolicy = EvictionPolicy.DEALLOCATE
    resource_group: str = "default"
    zone: str = ""
    addresses: tuple[str, ...] = ()
    network: Network = Network.VNET
    # Targets (`vdb`) of disks whose contents are lost with the VM's place.
    ephemeral_disks: tuple[str, ...] = ()

    @property
    def is_in_a_set(self) -> bool:
        """Whether it names the set that it belongs to."""
        return any(getattr(self, name) for name in _SETS)

    def spec(self, domain: str, node: str) -> VmSpec:
        """The VM as a fleet declares it."""
        return VmSpec(
            name=self.name or domain,
            node=node,
            availability_set=self.availability_set or None,
            scale_set=self.scale_set or None,
            cloud_service=self.cloud_service or None,
            placement_group=self.placement_group,
            update_domain=self.update_domain,
            addresses=self.addresses,
            network=self.network,
            zone=self.zone or None,
            priority=self.priority,
            eviction_policy=self.eviction_policy,
            resource_group=self.resource_group,
        )


FIELDS = tuple(Label._fields)


def label_of(fields: Mapping[str, str]) -> Label:
    """These attributes, understood; UsageError names the one that cannot be."""
    label, wrong = understood(fields)
    for sentence in wrong.values():
        raise UsageError(sentence)
    return label


def understood(fields: Mapping[str, str]) -> tuple[Label, dict[str, str]]:
    """What can be understood of these attributes; by field, why the others cannot be."""
    wrong = {
        name: f"A label has no {name}: it has {', '.join(FIELDS)}."
        for name in fields
        if name not in FIELDS
    }
    values: dict[str, object] = {}
    for name, text in fields.items():
        try:
            if name not in wrong:
                values[name] = _value(name, text)
        except ValueError as error:
            wrong[name] = f"{name} cannot be {text!r}: {error}."
    for name in [name for name in _SETS if values.get(name)][1:]:
        del values[name]
        wrong[name] = f"A VM is in one of {_SETS[0]}, {_SETS[1]} and {_SETS[2]}."
    return Label(**values), wrong  # type: ignore[arg-type]


def _value(name: str, text: str) -> object:
    if name in _NUMBERS:
        if not text.isdecimal():
            raise ValueError("give a whole number from 0 on")
        return int(text)
    if name in _LISTS:
        return _list(name, text)
    if name in _WORDS:
        known = [str(word) for word in _WORDS[name]]
        if text not in known:
            raise ValueError(f"give {' or '.join(known)}")
        return _WORDS[name](text)
    if name in _NAMES and (len(text) > NAME_LENGTH_MAX or "/" in text or not text.isprintable()):
        raise ValueError(f"use up to {NAME_LENGTH_MAX} printable characters, but no slash")
    return text


def _list(name: str, text: str) -> tuple[str, ...]:
    parts = tuple(text.split())
    for part in parts if name == "addresses" else ():
        try:
            ip_address(part)
        except ValueError as error:
            raise ValueError("give IP addresses, with spaces between") from error
    return parts


def fields_of(label: Label) -> dict[str, str]:
    """Its fields as they are written: those that are not as they would be anyway."""
    return {
        name: " ".join(value) if isinstance(value, tuple) else str(value)
        for name, value in label._asdict().items()
        if value != Label._field_defaults[name]
    }


def written(label: Label) -> str:
    """The element."""
    return ET.tostring(ET.Element("vm", fields_of(label)), encoding="unicode")


def label_in(xml: str) -> Label | None:
    """The label in a domain's XML; None where it has none."""
    return label_at(ET.fromstring(xml))  # noqa: S314


def label_at(domain: ET.Element) -> Label | None:
    """The label of a domain; None where it has none, UsageError where it is none."""
    fields = _fields_at(domain)
    return None if fields is None else label_of(fields)


def fields_in(xml: str) -> dict[str, str] | None:
    """The label in a domain's XML as it is written, also if it cannot be read."""
    return _fields_at(ET.fromstring(xml))  # noqa: S314


def _fields_at(domain: ET.Element) -> dict[str, str] | None:
    element = domain.find(f"metadata/{{{LABEL}}}vm")
    return None if element is None else dict(element.attrib)
