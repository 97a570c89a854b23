"""Whether whoever asks from a VM's address is that VM: by where the kernel would send him things.

Four questions, each about what a VM cannot choose once the one before is answered:

    its address     do answers go to the network of these VMs?      the routes
    its address     which hardware address does it have?            the neighbour table
    that address    behind which port of the bridge is it?          the bridge's forwarding table
    that port       is it where this VM is plugged in?              places.py

A VM that takes another's address answers the second with its own hardware address; one that takes
that too answers the third with its own port; and a port is the node's. One on another bridge does
not get the answers, or fails the first. Whatever the tables do not say is a no. They are asked
anew for every connection and for everything that a VM asks for but a plain poll, and for those
every second (front.py). An answer goes where the tables lead; but before something is done for a
VM, it is also seen that nobody was in its place since the connection began (moves.py).
"""

import errno
import itertools
import logging
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple, TypeVar

from fairnotice.clock import Clock
from fairnotice.endpoint import netlink, places
from fairnotice.endpoint.moves import Moves
from fairnotice.endpoint.netlink import (
    AF_BRIDGE,
    Answer,
    End,
    Entry,
    Refusal,
    Untagged,
    Way,
)
from fairnotice.endpoint.places import Places, PlacesFile

log = logging.getLogger(__name__)

# For so long after somebody else was seen in a VM's place, nobody is believed to be it: two that
# send in turn make the tables say now the one and now the other.
DISPUTED_SECONDS = 1.0
LOG_SECONDS = 10.0
# Of those at whose address is no VM; apart, since one of them may ask every second for ever.
STRANGER_LOG_SECONDS = 60.0
RECEIVE_BYTES = 16 * 1024
SEQUENCES = 2**32
METRIC = "fairnotice_endpoint_identity_checks_total"
NOT_THERE = frozenset({errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.ENETUNREACH})


class Network(NamedTuple):
    """Where the VMs of this node are: a bridge, and the interface that has its addresses.

    interface   the bridge itself where empty; another one on top of it, such as br0.10, where VLANs
                are told apart
    vlan        which one is asked for in the forwarding table; None: that of the interface, or the
                one in which the bridge itself is
    """

    bridge: str
    interface: str = ""
    vlan: int | None = None
    places: Path = places.FILE


class Verdict(StrEnum):
    """What came of a check."""

    VOUCHED = "vouched"
    # The fleet has no VM at this address here.
    NO_VM = "no_vm"
    # The file of places does not have this VM.
    NO_PLACE = "no_place"
    # Answers to the address would go elsewhere than to the network of the VMs.
    OTHER_WAY = "other_way"
    NO_NEIGHBOUR = "no_neighbour"
    OTHER_MAC = "other_mac"
    NO_PORT = "no_port"
    OTHER_PORT = "other_port"
    DISPUTED = "disputed"
    # The kernel could not be asked.
    FAILED = "failed"


# Somebody is where the VM should be, and it is not the VM.
_CONTRADICTED = (Verdict.OTHER_MAC, Verdict.OTHER_PORT)


_Told = TypeVar("_Told", Entry, Way)


class Tables:
    """The kernel's tables, asked for one entry at a time.

    Measured: 18 us each, with 20,000 entries in them as with one.
    """

    def __init__(
        self,
        network: Network,
        sys: Path = Path("/sys/class/net"),
        vlans: Path = Path("/proc/self/net/vlan"),
    ) -> None:
        self._network = network
        self._sys = sys
        self._vlans = vlans
        # Any user may ask, and the answer is there when the question was sent.
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.bind((0, 0))
        self._sequences = itertools.cycle(range(1, SEQUENCES))
        # None: it is not known, and nobody is behind any port.
        self.vlan: int | None = None
        self.renew()

    def renew(self) -> None:
        """See whether the bridge tells VLANs apart: then what comes untagged is in one, too."""
        try:
            self.vlan = (self._network.vlan or self._own_vlan()) if self._filters() else 0
        except (OSError, ValueError, IndexError) as error:
            log.debug("the VLAN of %s: %s", self._network.bridge, error)
            self.vlan = None

    def _filters(self) -> bool:
        file = self._sys / self._network.bridge / "bridge" / "vlan_filtering"
        try:
            return file.read_text("ascii").strip() == "1"
        except FileNotFoundError:
            # A kernel without VLANs; or there is no such bridge, and nothing else will be found.
            return False

    def _own_vlan(self) -> int:
        """In which VLAN the node hears its VMs; an error where nothing says so."""
        if self._network.interface not in {"", self._network.bridge}:
            # The first line of it is such as this: br0.10  VID: 10  REORDER_HDR: 1
            told = (self._vlans / self._network.interface).read_text("ascii")
            return int(told.partition("VID:")[2].split()[0])
        number = next(self._sequences)
        bridge = socket.if_nametoindex(self._network.bridge)
        self._socket.send(netlink.untagged_question(number, bridge))
        found = 0
        while True:
            for answer in self._heard(number):
                if isinstance(answer, Untagged):
                    found = found or answer.vlan
                elif isinstance(answer, End) and found:
                    return found
                elif isinstance(answer, End):
                    raise ValueError("what is not tagged is in no VLAN")
                elif isinstance(answer, Refusal):
                    raise OSError(answer.error, "the kernel does not tell a bridge's VLANs")

    def leads_to_the_vms(self, address: str) -> bool:
        """Whether the node's answers to an address go to its VMs; OSError as below."""
        number = next(self._sequences)
        way = self._ask(number, netlink.way_question(number, ip_address(address)), Way)
        return way is not None and way.interface == self._interface()

    def mac_of(self, address: str) -> Entry | None:
        """The entry of an address; OSError where the kernel cannot be asked."""
        number = next(self._sequences)
        question = netlink.neighbour_question(number, self._interface(), ip_address(address))
        return self._ask(number, question, Entry)

    def port_of(self, mac: str) -> Entry | None:
        """The entry of a hardware address; OSError as above."""
        if self.vlan is None:
            raise OSError(errno.ENODATA, "in which VLAN the VMs are is not known")
        number = next(self._sequences)
        bridge = socket.if_nametoindex(self._network.bridge)
        return self._ask(number, netlink.port_question(number, bridge, mac, self.vlan), Entry)

    def is_of_the_vms(self, entry: Entry) -> bool:
        """Whether an entry is one of those that are asked for here."""
        try:
            if entry.family != AF_BRIDGE:
                return entry.interface == self._interface()
            return entry.master == socket.if_nametoindex(self._network.bridge) and (
                self.vlan is None or entry.vlan == self.vlan
            )
        except OSError:
            return False

    def _interface(self) -> int:
        return socket.if_nametoindex(self._network.interface or self._network.bridge)

    def _ask(self, number: int, question: bytes, kind: type[_Told]) -> _Told | None:
        self._socket.send(question)
        while True:
            for answer in self._heard(number):
                if isinstance(answer, kind):
                    return answer
                if isinstance(answer, Refusal) and answer.error in NOT_THERE:
                    return None
                if isinstance(answer, Refusal):
                    raise OSError(answer.error, "the kernel does not say who is at an address")

    def _heard(self, number: int) -> Iterator[Answer]:
        """What the kernel answers to this question and no earlier one."""
        data = self._socket.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT)
        return (answer for answer in netlink.answers(data) if answer.sequence == number)

    def close(self) -> None:
        """Ask no more."""
        self._socket.close()


def _port(behind: Entry) -> str:
    """The port's name; of what is the bridge's own, none."""
    return "" if behind.is_the_bridges_own else socket.if_indextoname(behind.interface)


class Seldom:
    """A line of the log at most every so often, whoever would have it written."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._says_again_at = 0.0
        self._unsaid = 0

    def more(self) -> str | None:
        """What the line says of those before it that were not written; None: nor is this one."""
        now = self._clock.monotonic()
        if now < self._says_again_at:
            self._unsaid += 1
            return None
        unsaid, self._unsaid = self._unsaid, 0
        self._says_again_at = now + self._seconds
        return f"; {unsaid} more were refused since the last such line" if unsaid else ""


class Vouching:
    """Vouches for VMs, counts, and says in the log whom it does not believe: not too often."""

    def __init__(self, network: Network, clock: Clock) -> None:
        self.network = network
        self.counts: Counter[Verdict] = Counter()
        self._clock = clock
        self._tables = Tables(network)
        self._places = PlacesFile(network.places)
        # Hardware of VMs for which the file has none.
        self._learned: dict[str, str] = {}
        self._places.of(places.NOBODY)
        self._watched: Places = self._places.known
        self._moves = Moves(self._tables, clock, self._macs())
        self._disputed_until: dict[str, float] = {}
        self._refusals = Seldom(clock, LOG_SECONDS)
        self._strangers = Seldom(clock, STRANGER_LOG_SECONDS)

    def vouch(self, address: str, vm: str) -> bool:
        """Whether it is this VM that asks from this address."""
        verdict = self._settled(vm, self._verdict(address, vm))
        self.counts[verdict] += 1
        if verdict is Verdict.VOUCHED:
            return True
        self._say(verdict, address, vm)
        return False

    def stranger(self, address: str) -> None:
        """Somebody asks at whose address is no VM: counted, and said whose his port is."""
        self.counts[Verdict.NO_VM] += 1
        more = self._strangers.more()
        if more is None:
            return
        port = self._port_of(address)
        where = f"{address} at {port}" if port else address
        whose = self._whose(address, port) if port else "at which port it is, is not known"
        log.warning("%s is no VM's address, and is refused; %s%s", where, whose, more)

    def _whose(self, address: str, port: str) -> str:
        """Whose port this is by the file of places, and at which addresses he should be."""
        file = self.network.places
        self._places.of(places.NOBODY)
        if self._places.trouble:
            return self._places.trouble
        for vm, found in self._places.known.items():
            told = [place.addresses for place in found if place.port == port]
            if told and vm == places.NOBODY:
                return f"that port is nobody's ({file})"
            if told and address in told[0]:
                # The endpoint is told of its node alone: of one that is being moved here, later.
                return (
                    f"that port is {vm}'s, whose address it is in {file}, but the control plane "
                    "has no VM with it on this node (yet)"
                )
            if told:
                addresses = ", ".join(told[0]) or "not told"
                return f"that port is {vm}'s, whose addresses are {addresses} ({file})"
        return f"that port is not in {file}"

    def _port_of(self, address: str) -> str:
        """Behind which port an address is, by the tables; empty where they do not say."""
        try:
            known = self._tables.leads_to_the_vms(address) and self._tables.mac_of(address)
            behind = self._tables.port_of(known.mac) if known and known.mac else None
            return _port(behind) if behind else ""
        except (OSError, ValueError) as error:
            log.debug("the kernel's tables: %s", error)
            return ""

    def stayed(self, address: str, vm: str, since: float) -> bool:
        """Whether nobody else was in its place since its connection began, and just before."""
        try:
            found = self._tables.mac_of(address)
        except OSError as error:
            log.debug("the kernel's tables: %s", error)
            found = None
        mac = "" if found is None else found.mac
        if any(not place.mac for place in self._places.of(vm)):
            self._learned[vm] = mac
            self._watch_places()
        if self._moves.have_settled(address, mac, since):
            return True
        self.counts[Verdict.DISPUTED] += 1
        self._say(Verdict.DISPUTED, address, vm)
        return False

    def expect(self, addresses: Iterable[str]) -> None:
        """These are the addresses of VMs now."""
        self._moves.watch_addresses(addresses)

    def _watch_places(self) -> None:
        """Listen for the hardware of all VMs that have a place."""
        now = self._watched = self._places.known
        self._learned = {vm: mac for vm, mac in self._learned.items() if vm in now}
        self._moves.watch_macs(self._macs())

    def _macs(self) -> set[str]:
        known = {place.mac for found in self._watched.values() for place in found}
        return (known | set(self._learned.values())) - {""}

    def renew(self) -> None:
        """What is to be done every now and then."""
        self._tables.renew()
        self._places.of(places.NOBODY)
        if self._places.known is not self._watched:
            self._watch_places()
        self._moves.renew()
        now = self._clock.monotonic()
        self._disputed_until = {
            vm: until for vm, until in self._disputed_until.items() if until > now
        }

    def close(self) -> None:
        """Vouch for nobody any more."""
        self._moves.close()
        self._tables.close()

    def _verdict(self, address: str, vm: str) -> Verdict:
        known = self._places.of(vm)
        if self._places.known is not self._watched:
            self._watch_places()
        if not known:
            return Verdict.NO_PLACE
        try:
            if not self._tables.leads_to_the_vms(address):
                return Verdict.OTHER_WAY
            neighbour = self._tables.mac_of(address)
            if neighbour is None or not neighbour.leads_somewhere or not neighbour.mac:
                return Verdict.NO_NEIGHBOUR
            here = [place for place in known if place.mac in {"", neighbour.mac}]
            if not here:
                return Verdict.OTHER_MAC
            behind = self._tables.port_of(neighbour.mac)
            if behind is None:
                return Verdict.NO_PORT
            port = _port(behind)
        except OSError as error:
            log.debug("the kernel's tables: %s", error)
            return Verdict.FAILED
        is_its_own = any(place.port == port for place in here)
        return Verdict.VOUCHED if is_its_own else Verdict.OTHER_PORT

    def _settled(self, vm: str, verdict: Verdict) -> Verdict:
        """The verdict; but who was contradicted a moment ago is not believed yet."""
        now = self._clock.monotonic()
        if verdict in _CONTRADICTED:
            self._disputed_until[vm] = now + DISPUTED_SECONDS
        elif verdict is Verdict.VOUCHED and self._disputed_until.get(vm, 0.0) > now:
            return Verdict.DISPUTED
        return verdict

    def _say(self, verdict: Verdict, address: str, vm: str) -> None:
        more = self._refusals.more()
        if more is None:
            return
        trouble = self._places.trouble if verdict is Verdict.NO_PLACE else ""
        why = f" ({trouble})" if trouble else ""
        log.warning("%s, who asks as %s, is refused: %s%s%s", address, vm, verdict, why, more)

    def exposition(self) -> str:
        """What Prometheus is told."""
        lines = [
            f"# HELP {METRIC} Checks whether a VM is who it says, by what came of them.",
            f"# TYPE {METRIC} counter",
            *(f'{METRIC}{{verdict="{one}"}} {self.counts[one]}' for one in Verdict),
        ]
        return "\n".join(lines) + "\n"
