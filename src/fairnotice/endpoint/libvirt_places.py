"""Where libvirt has plugged in the VMs of this node, from the files that it keeps itself.

libvirt is not asked: a hook, from which this runs, must not. What it writes down about each domain
that runs names the hardware address and the port of every interface; and of the networks whose DHCP
server it runs, which address each hardware address has. What a label means is the driver's to say:
one that it would refuse is none.
"""

import contextlib
import json
import logging
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from xml.etree import ElementTree as ET

from fairnotice.drivers.libvirt import labels
from fairnotice.drivers.libvirt.labels import Label
from fairnotice.endpoint.places import NOBODY, Place, Places, fits
from fairnotice.errors import UsageError

log = logging.getLogger(__name__)

DOMAINS = Path("/run/libvirt/qemu")
LEASES = Path("/var/lib/libvirt/dnsmasq")
HOOKS = Path("/etc/libvirt/hooks")


def places(
    bridge: str, domains: Path = DOMAINS, leases: Path = LEASES, without: str = ""
) -> Places:
    """Every VM that runs with a port at this bridge; `without` is a domain that is just ending.

    A domain is a VM by its label, and one of which two say that they are it is neither: their
    ports, and those of domains without a label that can be read, are nobody's.
    """
    leased = _leased(leases / f"{bridge}.status")
    found: dict[str, list[tuple[Place, ...]]] = {}
    for path in sorted(domains.glob("*.xml")):
        domain = _domain(path)
        if domain is None or domain.findtext("name") == without:
            continue
        label = _label(domain)
        at = tuple(_places(domain, label, bridge, leased))
        if at:
            found.setdefault(_name(domain, label), []).append(at)
    nobodys = found.pop(NOBODY, [])
    for name, all_of_it in found.items():
        if len(all_of_it) > 1:
            log.warning("%d domains say that they are %s, so none is", len(all_of_it), name)
            nobodys += all_of_it
    named = {name: one[0] for name, one in found.items() if len(one) == 1}
    if nobodys:
        named[NOBODY] = tuple(place for at in nobodys for place in at)
    return named


def _domain(path: Path) -> ET.Element | None:
    """The domain in a file of libvirt's; None where there is none, or it has just gone."""
    try:
        root = ET.fromstring(path.read_text("utf-8"))  # noqa: S314 - root's own file, of libvirt
    except (OSError, ET.ParseError, UnicodeDecodeError):
        return None
    return root if root.tag == "domain" else root.find("domain")


def _label(domain: ET.Element) -> Label | None:
    """What an operator has said about it; None where that is nothing, or cannot be read."""
    try:
        return labels.label_at(domain)
    except UsageError as error:
        name = domain.findtext("name")
        log.warning("%s is nobody: its label is passed over: %s", name, error)
        return None


def _name(domain: ET.Element, label: Label | None) -> str:
    """As the fleet calls it; nobody, where there is no label."""
    if label is None:
        return NOBODY
    return label.name or domain.findtext("name") or NOBODY


def _places(
    domain: ET.Element, label: Label | None, bridge: str, leased: dict[str, list[str]]
) -> Iterator[Place]:
    labeled = () if label is None else label.addresses
    for interface in domain.iterfind("devices/interface"):
        target, mac = interface.find("target"), interface.find("mac")
        if _bridge_of(interface) != bridge or target is None or mac is None:
            continue
        port, hardware = target.get("dev", ""), mac.get("address", "").lower()
        fixed = [ip.get("address", "") for ip in interface.iterfind("ip")]
        told = filter(_is_address, (*labeled, *fixed, *leased.get(hardware, ())))
        place = Place(port, hardware, tuple(dict.fromkeys(str(ip_address(one)) for one in told)))
        if fits(place):
            yield place
        elif port:
            # One domain's fault is not to put out all others.
            log.warning("%s is left out: its port %r cannot be told", _name(domain, label), port)


def _bridge_of(interface: ET.Element) -> str:
    """Where it is plugged in; of a network, what that came to is beside what was asked for."""
    actual, source = interface.find("actual/source"), interface.find("source")
    found = source if actual is None else actual
    return "" if found is None else found.get("bridge", "")


def _leased(path: Path) -> dict[str, list[str]]:
    """The addresses of each hardware address; none where libvirt runs no DHCP server there."""
    leased: dict[str, list[str]] = {}
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        for one in json.loads(path.read_text("utf-8")):
            leased.setdefault(one["mac-address"].lower(), []).append(one["ip-address"])
    return leased


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
