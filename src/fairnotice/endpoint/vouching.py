"""Whether whoever asks from a VM's address is that VM: by where the kernel would send him things.

Three questions, each about what a VM cannot choose once the one before is answered:

    its address     which hardware address does it have?            the neighbour table
    that address    behind which port of the bridge is it?          the bridge's forwarding table
    that port       is it where this VM is plugged in?              places.py

A VM that takes another's address answers the first with its own hardware address; one that takes
that too answers the second with its own port; and a port is the node's. Whatever the tables do not
say is a no. They are asked anew for every connection and for everything that a VM asks for but a
plain poll, and for those every second (front.py).
"""

import errno
import itertools
import logging
import socket
from collections import Counter
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from fairnotice.clock import Clock
from fairnotice.endpoint import netlink, places
from fairnotice.endpoint.netlink import Entry
from fairnotice.endpoint.places import PlacesFile

log = logging.getLogger(__name__)

# For so long after somebody else was seen in a VM's place, nobody is believed to be it: two that
# send in turn make the tables say now the one and now the other.
DISPUTED_SECONDS = 1.0
LOG_SECONDS = 10.0
RECEIVE_BYTES = 16 * 1024
SEQUENCES = 2**32
METRIC = "fairnotice_endpoint_identity_checks_total"
NOT_THERE = frozenset({errno.ENOENT, errno.ENODEV, errno.ENXIO})


class Network(NamedTuple):
    """Where the VMs of this node are: a bridge, and the interface that has its addresses.

    interface   the bridge itself where empty; another one on top of it, such as br0.10, where VLANs
                are told apart
    vlan        which one is asked for in the forwarding table; None: what the bridge does by itself
    """

    bridge: str
    interface: str = ""
    vlan: int | None = None
    places: Path = places.FILE


class Verdict(StrEnum):
    """What came of a check."""

    VOUCHED = "vouched"
    # The file of places does not have this VM.
    NO_PLACE = "no_place"
    NO_NEIGHBOUR = "no_neighbour"
    OTHER_MAC = "other_mac"
    NO_PORT = "no_port"
    OTHER_PORT = "other_port"
    DISPUTED = "disputed"
    # The kernel could not be asked.
    FAILED = "failed"


# Somebody is where the VM should be, and it is not the VM.
_CONTRADICTED = (Verdict.OTHER_MAC, Verdict.OTHER_PORT)


class Tables:
    """The kernel's two tables, asked for one entry at a time.

    Measured: 18 us each, with 20,000 entries in them as with one.
    """

    def __init__(self, network: Network, sys: Path = Path("/sys/class/net")) -> None:
        self._network = network
        self._sys = sys
        # Any user may ask, and the answer is there when the question was sent.
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.bind((0, 0))
        self._sequences = itertools.cycle(range(1, SEQUENCES))
        self._vlan = 0
        self.renew()

    def renew(self) -> None:
        """See whether the bridge tells VLANs apart: then what comes untagged is in one, too."""
        vlan = self._network.vlan
        if vlan is None:
            told = self._sys / self._network.bridge / "bridge"
            try:
                filters = (told / "vlan_filtering").read_text("ascii").strip() == "1"
                vlan = int((told / "default_pvid").read_text("ascii")) if filters else 0
            except (OSError, ValueError):
                vlan = 0
        self._vlan = vlan

    def mac_of(self, address: str) -> Entry | None:
        """The entry of an address; OSError where the kernel cannot be asked."""
        interface = socket.if_nametoindex(self._network.interface or self._network.bridge)
        number = next(self._sequences)
        question = netlink.neighbour_question(number, interface, ip_address(address))
        return self._ask(number, question)

    def port_of(self, mac: str) -> Entry | None:
        """The entry of a hardware address; OSError as above."""
        number = next(self._sequences)
        bridge = socket.if_nametoindex(self._network.bridge)
        return self._ask(number, netlink.port_question(number, bridge, mac, self._vlan))

    def _ask(self, number: int, question: bytes) -> Entry | None:
        self._socket.send(question)
        while True:
            for answer in netlink.answers(self._socket.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT)):
                if answer.sequence != number:
                    continue
                if isinstance(answer, Entry):
                    return answer
                if answer.error in NOT_THERE:
                    return None
                raise OSError(answer.error, "the kernel does not answer who is behind an address")

    def close(self) -> None:
        """Ask no more."""
        self._socket.close()


class Vouching:
    """Vouches for VMs, counts, and says in the log whom it does not believe: not too often."""

    def __init__(self, network: Network, clock: Clock) -> None:
        self.network = network
        self.counts: Counter[Verdict] = Counter()
        self._clock = clock
        self._tables = Tables(network)
        self._places = PlacesFile(network.places)
        self._disputed_until: dict[str, float] = {}
        self._says_again_at = 0.0
        self._unsaid = 0

    def vouch(self, address: str, vm: str) -> bool:
        """Whether it is this VM that asks from this address."""
        verdict = self._settled(vm, self._verdict(address, vm))
        self.counts[verdict] += 1
        if verdict is Verdict.VOUCHED:
            return True
        self._say(verdict, address, vm)
        return False

    def renew(self) -> None:
        """What is to be done every now and then."""
        self._tables.renew()
        now = self._clock.monotonic()
        self._disputed_until = {
            vm: until for vm, until in self._disputed_until.items() if until > now
        }

    def close(self) -> None:
        """Vouch for nobody any more."""
        self._tables.close()

    def _verdict(self, address: str, vm: str) -> Verdict:
        known = self._places.of(vm)
        if not known:
            return Verdict.NO_PLACE
        try:
            neighbour = self._tables.mac_of(address)
            if neighbour is None or not neighbour.leads_somewhere or not neighbour.mac:
                return Verdict.NO_NEIGHBOUR
            here = [place for place in known if place.mac in {"", neighbour.mac}]
            if not here:
                return Verdict.OTHER_MAC
            behind = self._tables.port_of(neighbour.mac)
            if behind is None:
                return Verdict.NO_PORT
            port = "" if behind.is_the_bridges_own else socket.if_indextoname(behind.interface)
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
        now = self._clock.monotonic()
        if now < self._says_again_at:
            self._unsaid += 1
            return
        more = f"; {self._unsaid} more were refused since the last such line" * bool(self._unsaid)
        trouble = self._places.trouble if verdict is Verdict.NO_PLACE else ""
        why = f" ({trouble})" if trouble else ""
        log.warning("%s, who asks as %s, is refused: %s%s%s", address, vm, verdict, why, more)
        self._says_again_at, self._unsaid = now + LOG_SECONDS, 0

    def exposition(self) -> str:
        """What Prometheus is told."""
        lines = [
            f"# HELP {METRIC} Checks whether a VM is who it says, by what came of them.",
            f"# TYPE {METRIC} counter",
            *(f'{METRIC}{{verdict="{one}"}} {self.counts[one]}' for one in Verdict),
        ]
        return "\n".join(lines) + "\n"
