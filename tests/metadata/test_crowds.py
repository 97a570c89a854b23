"""One VM that opens connections without end costs nobody but itself."""

import shlex
import subprocess
import sys

import pytest

from fairnotice.metadata.identity import Door
from tests.house import ROOT
from tests.metadata.wireless import DB_0, WEB_0, WEB_1, Limits, get

LAPTOP = Door(prefix_allowed=True)
SOCKET = Door(vm="web-0")


def crowded(wireless, most=3):
    """An endpoint that lets so many connections come from one address."""
    return wireless(limits=Limits(connections_per_address_max=most))


def test_it_is_256_unless_set():
    """More than any client of ours needs, and few enough."""
    assert Limits().connections_per_address_max == 256


@pytest.mark.parametrize("door", [Door(), Door("red"), SOCKET])
def test_over_the_limit_the_connection_whose_time_is_over_first_goes(wireless, door):
    """Half a request before idle ones, the longest idle before the others; the newest is served."""
    world = crowded(wireless)
    world.worker.board.put_caller("web-0", "availability-set:web", (WEB_0,), listener="red")
    idle, half, late = (world.connect(WEB_0, door) for _ in range(3))
    idle.ask(get())
    world.advance(seconds=5)
    late.ask(get())
    half.send(get()[:9])
    assert world.connect(WEB_0, door).ask(get()).status == 200
    assert [vm.is_closing() for vm in (idle, half, late)] == [False, True, False]
    assert world.connect(WEB_0, door).ask(get()).status == 200
    assert [vm.is_closing() for vm in (idle, half, late)] == [True, True, False]

    assert len(world.worker.connections) == 3


def test_what_is_being_answered_is_left_alone(wireless):
    """All that may be there wait for the next document: then the newest goes, and they are told."""
    world = crowded(wireless)
    held = [world.connect() for _ in range(3)]
    for vm in held:
        vm.send(get('If-None-Match: "1-1"', "Prefer: wait=30"))
    newest = world.connect()
    world.run()
    assert newest.is_closing()
    world.run(lambda: world.stage.restart_vm("web-0"))

    assert [answer.status for vm in held for answer in vm.read()] == [200] * 3


def test_each_address_has_its_own_limit(wireless):
    """What one VM does costs no other a connection."""
    world = crowded(wireless)
    others = [world.connect(WEB_1), world.connect(DB_0)]
    for _ in range(20):
        world.connect(WEB_0).send(b"G")

    assert not any(vm.is_closing() for vm in others)
    assert len(world.worker.connections) == 5


def test_where_names_are_believed_everybody_comes_from_one_address(wireless):
    """A laptop is not limited."""
    world = crowded(wireless)
    vms = [world.connect("127.0.0.1", LAPTOP) for _ in range(20)]
    world.run()

    assert not any(vm.is_closing() for vm in vms)


def test_whoever_leaves_makes_room(wireless):
    """The count is of those who are there, and nothing is kept of those who were."""
    world = crowded(wireless)
    for _ in range(10):
        vm = world.connect()
        vm.ask(get())
        vm.hang_up()
    stays = world.connect()
    world.connect()
    world.connect()

    assert not stays.is_closing()
    for vm in (stays, *(line.transport for line in list(world.worker.connections))):
        vm.cut_off()
    assert world.worker.crowd._of_peer == {}


def test_when_no_descriptor_is_left_whoever_has_most_gives_way(wireless):
    """Half of what it has goes; the others keep theirs."""
    world = wireless()
    greedy = [world.connect(WEB_0) for _ in range(10)]
    modest = [world.connect(WEB_1), world.connect(DB_0), world.connect(DB_0)]
    world.run(world.worker.crowd.make_room)

    assert sum(vm.is_closing() for vm in greedy) == 5
    assert not any(vm.is_closing() for vm in modest)


@pytest.mark.parametrize(
    ("soft", "hard", "count", "left"),
    [(64, 700, 600, 257), (100, 100, 150, 100)],
    ids=["the soft limit is raised, and 256 are let in", "the hard limit is reached first"],
)
def test_one_vm_cannot_shut_the_others_out(soft, hard, count, left):
    """Real sockets and few descriptors: another VM's poll is answered all the same."""
    line = f"{sys.executable} -m tests.metadata.greedy {soft} {hard} {count}"
    done = subprocess.run(  # noqa: S603 - our own line
        shlex.split(line), cwd=ROOT, check=True, capture_output=True, timeout=60, text=True
    )
    status, connected, allowed = (int(number) for number in done.stdout.split())

    assert (status, allowed) == (200, hard)
    assert connected <= left
