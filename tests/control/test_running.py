"""A whole service in one process: it begins where it may, and ends with all that it began."""

import asyncio
import logging
import socket
import threading

import pytest

from fairnotice.clock import SystemClock
from fairnotice.control.running import Place, Plan, listening, running
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.errors import UsageError
from fairnotice.stores.memory import MemoryStore
from tests.control.calling import ANYWHERE, serving


def plan(**more):
    """A service somewhere on this machine."""
    clock = SystemClock()
    made = Plan(MemoryStore(), SimulatedDriver(clock), clock, metadata=ANYWHERE, control=ANYWHERE)
    return made._replace(**more)


def run(made):
    """Run a service, and end it."""

    async def story():
        async with running(made) as there:
            return there.control, there.metadata

    return asyncio.run(story())


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.com", ""])  # noqa: S104
def test_a_control_plane_is_not_reached_from_outside(host):
    """Nobody is asked who he is there, so it says how to choose another address."""
    with pytest.raises(UsageError, match=r"--control 127\.0\.0\.1:PORT"):
        run(plan(control=Place(host, 0)))


def test_a_port_that_is_taken_is_said():
    """Which one, and how to choose another; and nothing is left running."""
    before = threading.active_count()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = Place(*taken.getsockname())
        with pytest.raises(UsageError, match=f"{place}.*--control"):
            run(plan(control=place))
        with pytest.raises(UsageError, match=f"{place}.*--metadata"):
            run(plan(metadata=place))
    assert threading.active_count() == before


def test_connections_do_not_wait_for_nagle():
    """Only on a socket that says it is TCP does asyncio see to that: else 40 ms an answer."""
    with listening(ANYWHERE, "control") as sock:
        assert sock.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.5", "127.0.0.5"), ("::1", "[::1]")])
def test_another_address_of_this_machine_will_do(host, shown):
    """The guard knows it by that name."""
    if ":" in host and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        listening(Place(host, 0), "control").close()
    except UsageError as error:
        pytest.skip(str(error))
    with serving(control=Place(host, 0)) as served:
        assert str(served.run.control) == f"{shown}:{served.run.control.port}"
        assert served.get("/v1/vms").status == 200
        assert served.get("/v1/vms", Host="evil.com").status == 403


def test_it_ends_with_all_that_it_began(caplog):
    """No thread, no task, no complaint; also with a connection that is kept."""
    before = threading.active_count()
    with caplog.at_level(logging.WARNING), serving() as served:
        connection = served.connection()
        connection.request("GET", "/v1/vms")
        connection.getresponse().read()
    connection.close()
    assert threading.active_count() == before
    assert caplog.records == []


def test_what_is_asked_while_it_ends_is_answered_or_refused():
    """A command under way is not cut off."""
    with serving() as served:
        answer = served.post("/v1/vms/db/restart")
    assert answer.status == 202
    assert served.run.health().ready is True
