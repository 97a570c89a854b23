"""What is said of neighbours unasked: what is taken in, and what comes of it."""

import contextlib
import errno
import itertools
import socket
import struct
import subprocess
import sys
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairnotice.endpoint import netlink, sieve
from fairnotice.endpoint.moves import SETTLES_SECONDS, Moves
from fairnotice.endpoint.netlink import AF_BRIDGE, Entry
from fairnotice.testing.manual_clock import ManualClock
from tests.endpoint.bridging import needs_a_bridge
from tests.endpoint.test_netlink import attribute, message
from tests.house import ROOT

MACS = st.binary(min_size=6, max_size=6).map(lambda one: one.hex(":"))
ADDRESSES = st.ip_addresses().map(str)
MAC, ADDRESS = "52:54:00:00:00:11", "10.79.0.11"
REACHABLE, FAILED = 0x02, 0x20


def bridges(mac):
    """What is said of hardware behind a port."""
    body = struct.pack("=BxxxiHBB", AF_BRIDGE, 3, 2, 0, 0)
    body += attribute(netlink.NDA_LLADDR, bytes.fromhex(mac.replace(":", "")))
    return message(netlink.RTM_NEWNEIGH, 0, body + attribute(9, struct.pack("=I", 7)))


def neighbours(address):
    """What is said of an address."""
    packed = ip_address(address).packed
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    body = struct.pack("=BxxxiHBB", family, 3, 2, 0, 0)
    body += attribute(netlink.NDA_LLADDR, b"\x02" * 6) + attribute(netlink.NDA_DST, packed)
    return message(netlink.RTM_NEWNEIGH, 0, body)


def taken_in(program, *messages):
    """Those that a socket with this filter takes in, in a kernel."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with here, there:
        sieve.attach(there, program)
        found = []
        for one in messages:
            here.send(one)
            with contextlib.suppress(BlockingIOError):
                found.append(there.recv(4096, socket.MSG_DONTWAIT))
    return found


@given(st.sets(MACS, max_size=20), st.sets(ADDRESSES, max_size=20), MACS, ADDRESSES)
def test_all_of_the_known_is_taken_in_and_nothing_else(macs, addresses, mac, address):
    """Made-up ones are not; nor is a known one of the other kind."""
    program = sieve.program(macs, addresses)
    known = [*map(bridges, macs), *map(neighbours, addresses)]
    assert taken_in(program, *known) == known
    strangers = [bridges(mac)] * (mac not in macs) + [neighbours(address)] * (
        address not in addresses
    )
    assert taken_in(program, *strangers) == []


def test_what_is_not_understood_is_taken_in():
    """Whoever reads it decides."""
    odd = message(netlink.RTM_NEWNEIGH, 0, struct.pack("=BxxxiHBB", AF_BRIDGE, 3, 2, 0, 0))
    assert taken_in(sieve.program((), ()), odd) == [odd]


def many(count):
    """The hardware of so many VMs."""
    return [f"52:54:ff:00:{number // 256:02x}:{number % 256:02x}" for number in range(count)]


STRANGER = bridges("02:00:00:00:00:01")


def test_of_many_each_is_known_and_of_too_many_everybody_is():
    """Further apart than a jump goes, and more than a filter can name."""
    known = many(600)
    heard = [bridges(one) for one in (known[0], known[255], known[256], known[-1])]
    assert taken_in(sieve.program(known, ()), *heard, STRANGER) == heard
    assert taken_in(sieve.program(many(5000), ()), STRANGER) == [STRANGER]


# What a kernel gives a socket, and of how many VMs a filter fits then, and of how many none does.
ROOM_BYTES, FITS, TOO_MANY = 20_480, 600, 4_000
_IN_A_SMALL_ROOM = """
import sys
from pathlib import Path
Path("/proc/sys/net/core/optmem_max").write_text(sys.argv[1])
from fairnotice.endpoint import sieve
from tests.endpoint.test_moves import STRANGER, bridges, many, socket
here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
there.setblocking(False)
for count in map(int, sys.argv[2:]):
    sieve.attach(there, sieve.program(many(count), ()))
    here.send(STRANGER)
    try:
        there.recv(4096)
    except BlockingIOError:
        print(count, "known")
    else:
        print(count, "everybody")
"""


@needs_a_bridge
def test_a_filter_takes_the_room_of_the_one_before_it():
    """As the number of VMs grows and shrinks; where there is none, everybody is heard."""
    counts = [FITS, FITS, TOO_MANY, FITS]
    words = [str(number) for number in (ROOM_BYTES, *counts)]
    done = subprocess.run(  # noqa: S603 - our own lines
        ["unshare", "-n", sys.executable, "-c", _IN_A_SMALL_ROOM, *words],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    said = [f"{FITS} known", f"{FITS} known", f"{TOO_MANY} everybody", f"{FITS} known"]
    assert done.stdout.splitlines() == said, done.stderr


class Kernel:
    """Tables that say what they are told."""

    def __init__(self):
        self.at = {MAC: 11, ADDRESS: MAC}

    def mac_of(self, address):
        mac = self.at.get(address)
        return mac and Entry(0, socket.AF_INET, 1, REACHABLE, mac=mac, address=address)

    def port_of(self, mac):
        port = self.at.get(mac)
        return port and Entry(0, AF_BRIDGE, port, REACHABLE, mac=mac)

    def is_of_the_vms(self, entry):
        return entry.master != 99


class Heard(Moves):
    """Moves, that hear what a test says."""

    def __init__(self, clock):
        self.said = []
        super().__init__(Kernel(), clock, [MAC])
        self.watch_addresses([ADDRESS])

    def hear(self):
        said, self.said = self.said, []
        for one in said:
            self._miss() if one is None else self._take(one)


@pytest.fixture
def clock():
    """Time that a test lets pass."""
    return ManualClock()


@pytest.fixture
def moves(clock):
    """A VM at port 11, which has been there for long."""
    moves = Heard(clock)
    clock.advance(seconds=10)
    yield moves
    moves.close()


def port(number, **more):
    """Said of the VM's hardware: it is behind this port."""
    return Entry(0, AF_BRIDGE, number, REACHABLE, mac=MAC, **more)


def at(mac, state=REACHABLE, **more):
    """Said of the VM's address: it is at this hardware."""
    return Entry(0, socket.AF_INET, 1, state, mac=mac, address=ADDRESS, **more)


def believed(moves, clock):
    """Whether a connection is that begins at this moment."""
    return moves.have_settled(ADDRESS, MAC, clock.monotonic())


@pytest.mark.parametrize(
    "said",
    [
        [port(11)],
        [port(11, gone=True)],
        [at(MAC)],
        [at(MAC, FAILED), at("", FAILED), at(MAC, gone=True), at(MAC)],
        [port(12, master=99)],
    ],
)
def test_what_is_where_it_was_has_not_moved(moves, clock, said):
    """However often that is said."""
    moves.said = [one for one in said if one.master != 99]
    assert believed(moves, clock)


@pytest.mark.parametrize(
    "said",
    [
        [port(12)],
        [port(12), port(11)],
        [port(11, gone=True), port(11)],
        [at("52:54:00:00:00:12"), at(MAC)],
        [None],
    ],
)
def test_who_moved_is_not_believed_over_connections_from_before(moves, clock, said):
    """Nor over those that begin within the next second; then he is."""
    before = clock.monotonic()
    moves.said = list(said)
    assert not believed(moves, clock)
    clock.advance(seconds=SETTLES_SECONDS)
    assert not believed(moves, clock)
    clock.advance(seconds=0.1)
    assert believed(moves, clock)
    assert not moves.have_settled(ADDRESS, MAC, before)


def test_after_something_was_missed_the_next_that_is_said_is_a_move(moves, clock):
    """Until it was looked again where everything is."""
    moves.said = [None]
    moves.hear()
    clock.advance(seconds=2)
    moves.said = [port(11)]
    assert not believed(moves, clock)
    clock.advance(seconds=2)
    moves.renew()
    moves.said = [port(11), at(MAC)]
    assert believed(moves, clock)


def test_who_is_new_is_believed_a_moment_later(moves, clock):
    """Whoever is not known is not believed at all."""
    other, elsewhere = "52:54:00:00:00:12", "10.79.0.12"
    assert not moves.have_settled(ADDRESS, other, clock.monotonic())
    assert not moves.have_settled(elsewhere, MAC, clock.monotonic())
    moves.watch_macs([MAC, other])
    assert not moves.have_settled(ADDRESS, other, clock.monotonic())
    clock.advance(seconds=1.1)
    assert moves.have_settled(ADDRESS, other, clock.monotonic())
    moves.watch_macs([other])
    assert not believed(moves, clock)


class Spoken:
    """A socket that says this, one after the other."""

    def __init__(self, said):
        self.said = iter(said)

    def recv(self, *_):
        one = next(self.said, BlockingIOError())
        if isinstance(one, OSError):
            raise one
        return one

    def close(self):
        pass


MISSED = OSError(errno.ENOBUFS, "No buffer space available")


@pytest.mark.parametrize("said", [[MISSED], itertools.repeat(bridges(MAC))])
def test_what_is_said_too_fast_is_missed(clock, said):
    """Nobody is believed for a moment, and nothing waits until it ends."""
    moves = Moves(Kernel(), clock, [MAC])
    moves.watch_addresses([ADDRESS])
    clock.advance(seconds=10)
    assert believed(moves, clock)
    moves.close()
    moves._socket = Spoken(said)
    assert not believed(moves, clock)


def test_what_was_kept_is_older_than_what_was_missed(clock):
    """The VM is not there any more, for all that is known: to be there again is a move."""
    moves = Moves(Kernel(), clock, [MAC])
    moves.watch_addresses([ADDRESS])
    moves.close()
    there = bridges(MAC)
    moves._socket = Spoken([MISSED, there, BlockingIOError(), there])
    moves.hear()
    clock.advance(seconds=5)
    assert not believed(moves, clock)
