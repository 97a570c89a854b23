"""Where each VM of this node is plugged in: a file that whoever starts the VMs keeps.

    {"vms": {"web-0": [{"port": "vnet3", "mac": "52:54:00:aa:bb:01", "addresses": ["10.0.0.4"]}]}}

A VM is behind the ports that are named here and nowhere else. Under the empty name are ports of
machines that are no VMs of the fleet: nobody is believed to be there, and they claim nothing.
`fairnotice node-setup --refresh` writes the file from libvirt's domains; any other program may
write it. What is in it is believed, so only root may write there.
"""

import json
import os
import re
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from fairnotice.errors import UsageError

FILE = Path("/run/fairnotice-node/vms.json")
NOBODY = ""

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
# IFNAMSIZ of linux/if.h, and what an interface may not be called; nor what would end its name where
# nft reads it (a quotation mark, a backslash), or stand for others (a star).
_PORT = re.compile(r"(?!\.\.?$)(?![^\"*\\]*[\"*\\])[!-.0-~]{1,15}", re.ASCII)
_KEYS = frozenset({"port", "mac", "addresses"})


class Place(NamedTuple):
    """A port of the bridge; the hardware address of what is behind it; its addresses, if told."""

    port: str
    mac: str = ""
    addresses: tuple[str, ...] = ()


Places = dict[str, tuple[Place, ...]]


def read(path: Path) -> Places:
    """What the file says; UsageError, in a sentence, where it does not fit."""
    try:
        return parsed(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error


def parsed(data: bytes, where: str) -> Places:
    """The same, of what was in it."""
    try:
        found = json.loads(data)
    except ValueError as error:
        raise UsageError(f"{where} is no JSON: {error}.") from error
    vms = found.get("vms") if isinstance(found, dict) else None
    if not isinstance(vms, dict):
        raise UsageError(f'{where} has no vms: write {{"vms": {{"NAME": [{{"port": "vnet0"}}]}}}}.')
    return {name: _of_one(name, value, where) for name, value in vms.items()}


def _of_one(vm: str, value: object, where: str) -> tuple[Place, ...]:
    if not isinstance(value, list):
        raise UsageError(f"{where}: {vm} is a list of places, each with its port.")
    return tuple(_place(f"{where}: {vm}", one) for one in value)


def _place(where: str, value: object) -> Place:
    if not isinstance(value, dict) or value.keys() - _KEYS:
        raise UsageError(f"{where}: a place has port, mac and addresses, and nothing else.")
    port, mac, addresses = value.get("port"), value.get("mac", ""), value.get("addresses", [])
    # A port is what a VM cannot make up; a hardware address alone is what it says of itself.
    if not isinstance(port, str) or not _PORT.fullmatch(port):
        raise UsageError(f"{where}: port is {port!r}: give the name of its port on the bridge.")
    if not isinstance(mac, str) or (mac and not _MAC.fullmatch(mac.lower())):
        raise UsageError(f"{where}: mac is {mac!r}: give one such as 52:54:00:aa:bb:01.")
    if not isinstance(addresses, list):
        raise UsageError(f"{where}: addresses is a list of IP addresses.")
    try:
        known = tuple(str(ip_address(one)) for one in addresses)
    except ValueError as error:
        raise UsageError(f"{where}: addresses: {error}.") from error
    return Place(port, mac.lower(), known)


def fits(place: Place) -> bool:
    """Whether it would be read again as it is written."""
    try:
        return _place("", _told(place)) == place
    except UsageError:
        return False


def written(places: Places) -> str:
    """The file that says so."""
    vms = {name: [_told(one) for one in found] for name, found in sorted(places.items())}
    return json.dumps({"vms": vms}, indent=1, ensure_ascii=False) + "\n"


def _told(place: Place) -> dict[str, object]:
    told: dict[str, object] = {"port": place.port}
    if place.mac:
        told["mac"] = place.mac
    if place.addresses:
        told["addresses"] = list(place.addresses)
    return told


class PlacesFile:
    """The file as it is at this moment: looked at each time, read when it is another."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trouble = ""
        self.known: Places = {}
        self._seen: tuple[int, ...] | None = None

    def of(self, vm: str) -> tuple[Place, ...]:
        """Where this VM may be; nowhere, where the file does not say or cannot be read."""
        try:
            found = os.stat(self.path)  # noqa: PTH116 - measured: 1 instead of 3 us
            seen: tuple[int, ...] = (found.st_mtime_ns, found.st_ino, found.st_size)
        except OSError:
            seen = ()
        if seen != self._seen:
            self._seen = seen
            self._renew()
        return self.known.get(vm, ())

    def _renew(self) -> None:
        """Read it; what does not fit is nobody's place, and said by whoever looks at `trouble`."""
        try:
            self.known, self.trouble = read(self.path), ""
        except UsageError as error:
            self.known, self.trouble = {}, str(error)
