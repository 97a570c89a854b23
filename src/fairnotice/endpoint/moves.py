"""Whether an address or its hardware was elsewhere a moment ago: what the kernel says unasked.

The tables say where a VM is; what it asks for came earlier. Who takes a VM's hardware, asks for
something, and has the VM itself speak at once, is gone from the tables when they are looked at. But
to be taken for the VM he must have been in them, and that something moved the kernel says before it
takes in what came with it, and once more when it moves back. So nothing is done for a VM that moved
over connections from before that, or from the second after.
"""

import logging
import socket
from collections.abc import Iterable
from typing import Protocol

from fairnotice.clock import Clock
from fairnotice.endpoint import netlink, sieve
from fairnotice.endpoint.netlink import AF_BRIDGE, Entry

log = logging.getLogger(__name__)

# So old may be what a connection brings when it is accepted.
SETTLES_SECONDS = 1.0
RECEIVE_BYTES = 16 * 1024
# As much as the system lets any user have; of VMs that are known, little is said.
KEPT_BYTES = 1024 * 1024
# So much is heard at a time: whoever makes more than that is not to hold up the others.
HEARD_MAX = 1_000
NEVER = float("-inf")
# No port and no hardware address; and what is in the place of one that is not known.
NO_PORT, NO_MAC, UNKNOWN = 0, "", None
Where = int | str | None


class Kernel(Protocol):
    """Whoever asks the tables."""

    def mac_of(self, address: str) -> Entry | None:
        """The entry of an address; OSError where the kernel cannot be asked."""

    def port_of(self, mac: str) -> Entry | None:
        """The entry of a hardware address; OSError as above."""

    def is_of_the_vms(self, entry: Entry) -> bool:
        """Whether the entry is of the network of the VMs."""


class Moves:
    """What moved, of the VMs that are known."""

    def __init__(self, kernel: Kernel, clock: Clock, macs: Iterable[str] = ()) -> None:
        self._kernel = kernel
        self._clock = clock
        # Of each hardware address its port, of each address its hardware address.
        self._macs: dict[str, Where] = {}
        self._addresses: dict[str, Where] = {}
        # Connections of it are believed that began after that.
        self._settled_at: dict[str, float] = {}
        self._all_settled_at = NEVER
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KEPT_BYTES)
        sieve.attach(self._socket, sieve.program((), ()))
        self._socket.bind((0, netlink.RTMGRP_NEIGH))
        # Nobody is connected yet.
        self._begin(self._macs, frozenset(macs))

    def watch_macs(self, macs: Iterable[str]) -> None:
        """Hear of these from now on, and of no others; what a new one did just now is not known."""
        new = self._begin(self._macs, frozenset(macs))
        settled_at = self._clock.monotonic() + SETTLES_SECONDS
        self._settled_at.update(dict.fromkeys(new, settled_at))

    def watch_addresses(self, addresses: Iterable[str]) -> None:
        """The same; until now nobody was believed to be there."""
        new = self._begin(self._addresses, frozenset(addresses))
        self._settled_at.update(dict.fromkeys(new, self._clock.monotonic()))

    def _begin(self, known: dict[str, Where], wanted: frozenset[str]) -> frozenset[str]:
        new = wanted - known.keys()
        gone = known.keys() - wanted
        if not new and not gone:
            return new
        self.hear()
        for key in gone:
            del known[key]
            self._settled_at.pop(key, None)
        known.update(dict.fromkeys(new, UNKNOWN))
        # First: what moves while it is looked for is heard.
        sieve.attach(self._socket, sieve.program(self._macs, self._addresses))
        self._look_for_unknown()
        return new

    def _look_for_unknown(self) -> None:
        """Ask where they are, so that a move can be told from what is merely said again."""
        try:
            for mac in [one for one, where in self._macs.items() if where is UNKNOWN]:
                port = self._kernel.port_of(mac)
                self._macs[mac] = NO_PORT if port is None else port.interface
            for address in [one for one, where in self._addresses.items() if where is UNKNOWN]:
                entry = self._kernel.mac_of(address)
                self._addresses[address] = NO_MAC if entry is None else entry.mac
        except OSError as error:
            # The next that is said of them is a move.
            log.debug("where VMs are: %s", error)

    def have_settled(self, address: str, mac: str, since: float) -> bool:
        """Whether both have been where they are since shortly before a connection began."""
        self.hear()
        if address not in self._addresses or mac not in self._macs:
            return False
        settled_at = max(self._settled_at.get(key, NEVER) for key in (address, mac))
        return since > max(settled_at, self._all_settled_at)

    def hear(self) -> None:
        """Take in what has been said."""
        missed = False
        for _ in range(HEARD_MAX):
            try:
                data = self._socket.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError as error:
                # ENOBUFS above all: more was said than is kept.
                log.debug("what the kernel says of neighbours: %s", error)
                missed = True
                continue
            for entry in netlink.answers(data):
                if isinstance(entry, Entry) and self._kernel.is_of_the_vms(entry):
                    self._take(entry)
        else:
            missed = True
        if missed:
            # Last: what was kept is older than what was missed.
            self._miss()

    def _miss(self) -> None:
        """Whatever may have moved, moved."""
        self._all_settled_at = self._clock.monotonic() + SETTLES_SECONDS
        for known in (self._macs, self._addresses):
            known.update(dict.fromkeys(known, UNKNOWN))

    def _take(self, entry: Entry) -> None:
        if entry.family == AF_BRIDGE and entry.mac in self._macs:
            before, port = self._macs[entry.mac], NO_PORT if entry.gone else entry.interface
            self._macs[entry.mac] = port
            # Also where it was behind no port: then what is for it is sent to everybody.
            if port not in {NO_PORT, before}:
                self._move(entry.mac)
        elif entry.address in self._addresses and entry.leads_somewhere and not entry.gone:
            before = self._addresses[entry.address]
            self._addresses[entry.address] = entry.mac
            if before not in {NO_MAC, entry.mac}:
                self._move(entry.address)

    def _move(self, key: str) -> None:
        self._settled_at[key] = self._clock.monotonic() + SETTLES_SECONDS

    def renew(self) -> None:
        """What is to be done every now and then."""
        self.hear()
        if self._clock.monotonic() > self._all_settled_at:
            self._look_for_unknown()

    def close(self) -> None:
        """Hear no more."""
        self._socket.close()
