"""Where the metadata service is: told, at 169.254.169.254, or in a DHCP lease.

A VM of a virtual network finds it at 169.254.169.254. One outside of any is told by its DHCP
server, in option 245, and there it may listen on port 80 or 8080.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

VARIABLE = "FAIRNOTICE_METADATA_URL"
USUAL = "http://169.254.169.254"
# Azure's own discovery asks at 8080, its samples at 80.
PORTS = (80, 8080)

LEASE_FILES = (
    # dhclient, of several distributions
    "var/lib/dhcp/*.leases",
    "var/lib/dhcp/*.lease",
    "var/lib/dhclient/*.leases",
    "var/lib/dhclient/*.lease",
    # systemd-networkd
    "run/systemd/netif/leases/*",
    # NetworkManager: with dhclient, and its state with its own DHCP client
    "var/lib/NetworkManager/*.lease",
    "var/lib/NetworkManager/*.leases",
    "run/NetworkManager/devices/*",
)
# `option unknown-245 a8:3f:81:10;` (dhclient), `OPTION_245=a83f8110` (systemd-networkd) and
# `dhcp4.private_245=a8:3f:81:10` (NetworkManager's state); an address may have dots as well.
_OPTION = re.compile(
    r"^\s*(?:option\s+(?:unknown-|option-)245\s+|(?:dhcp4[._])?(?:option|private|unknown)_245\s*=\s*)"
    r"[\"']?([0-9a-f.:]+)[\"']?\s*;?\s*$",
    re.IGNORECASE | re.MULTILINE | re.ASCII,
)
_LEASE_BYTES_MAX = 1024 * 1024
_ADDRESS_BYTES = 4


class Surroundings(NamedTuple):
    """Where to look. A test puts its own in the place of the VM's."""

    environment: Mapping[str, str] = os.environ
    root: Path = Path("/")
    usual: str = USUAL
    ports: tuple[int, ...] = PORTS

    def told(self) -> str | None:
        """The address that the environment names."""
        return self.environment.get(VARIABLE) or None

    def candidates(self) -> list[str]:
        """Addresses to try, the likeliest first."""
        addresses = dict.fromkeys(self._leased())
        return [self.usual, *(f"http://{at}:{port}" for at in addresses for port in self.ports)]

    def _leased(self) -> Iterator[str]:
        for pattern in LEASE_FILES:
            for path in sorted(self.root.glob(pattern)):
                address = leased_address(_text(path))
                if address is not None:
                    yield address


def leased_address(text: str) -> str | None:
    """The address in option 245 of a lease file; of several leases the last, which is the newest.

    None where there is none, or none that is an address.
    """
    found = _OPTION.findall(text)
    return _address(found[-1]) if found else None


def _address(written: str) -> str | None:
    try:
        if "." in written:
            numbers = bytes(int(part) for part in written.split("."))
        elif ":" in written:
            numbers = bytes(int(part, 16) for part in written.split(":"))
        else:
            numbers = bytes.fromhex(written)
    except ValueError:
        return None
    return ".".join(map(str, numbers)) if len(numbers) == _ADDRESS_BYTES else None


def _text(path: Path) -> str:
    """What is in a file, as far as this user may read it."""
    try:
        with path.open("rb") as file:
            return file.read(_LEASE_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return ""


def proxy_for(url: str) -> str | None:
    """The proxy that the environment names for this address; None where it names none."""
    # Imported only where somebody wants a proxy: it brings ssl and email.
    from urllib.parse import urlsplit  # noqa: PLC0415
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415

    host = urlsplit(url).hostname or ""
    return None if proxy_bypass(host) else getproxies().get("http")
