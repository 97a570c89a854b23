"""A whole service in one process: it begins where it may, and ends with all that it began."""

import asyncio
import errno
import logging
import os
import socket
import ssl
import threading
from contextlib import closing
from http.client import HTTPSConnection

import pytest

from fairnotice.clock import SystemClock
from fairnotice.control.certificates import Certificates, Pair
from fairnotice.control.holders import cannot_listen
from fairnotice.control.metrics import exposition
from fairnotice.control.running import Entrance, Place, Plan, listening, running
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.engine import DEV, Fleet
from fairnotice.errors import CannotListen, UsageError
from fairnotice.stores.memory import MemoryStore
from tests.cli.serves import certificate
from tests.control.calling import ANYWHERE, serving


class Kept(MemoryStore):
    """One whose rows can be looked at when it is closed."""

    rows = ()

    def close(self):
        """Remember what was in it."""
        self.rows = tuple(self.load().rows)
        super().close()


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


def test_others_reach_one_that_asks_who_they_are(tmp_path):
    """By any name and over TLS; without both of them it does not even begin."""
    pair = Pair(*certificate(tmp_path))
    entrance = Entrance(Certificates(pair, SystemClock()))
    everywhere = Place("0.0.0.0", 0)  # noqa: S104 - that is what is tested
    for less in ({"entrance": entrance}, {"auth": True}):
        with pytest.raises(UsageError, match="can be reached from outside"):
            run(plan(control=everywhere, **less))
    with serving(control=everywhere, auth=True, entrance=entrance) as served:
        trust = ssl.create_default_context(cafile=pair.certificate)
        connection = HTTPSConnection(
            "127.0.0.1", served.run.control.port, timeout=10, context=trust
        )
        with closing(connection):
            connection.request("GET", "/v1/vms", headers={"Host": "any.name"})
            assert connection.getresponse().status == 401


def test_behind_a_proxy_only_names_that_were_said_are_believed():
    """The proxy does TLS, and asks who somebody is; a page of another site is kept out here."""
    entrance = Entrance(behind_proxy=True, names=frozenset({"cp.example.net"}))
    with serving(control=Place("0.0.0.0", 0), entrance=entrance) as served:  # noqa: S104
        assert served.get("/v1/vms", Host="cp.example.net").status == 200
        assert served.get("/v1/vms", Host="evil.example.net").status == 403


def test_without_metadata_no_vm_is_answered_here():
    """Nothing of an endpoint: no board, no numbers of it, and faults are refused."""
    before = set(threading.enumerate())

    async def story():
        async with running(plan(metadata=None)) as there:
            assert there.worker is None
            assert there.health().metadata == ""
            return exposition(there.tally, there.worker)

    assert "fairnotice_metadata_" not in asyncio.run(story())
    assert set(threading.enumerate()) <= before


def test_what_vms_saw_last_is_recorded_at_the_end():
    """Within the second before the end nobody else would have reported it."""
    store = Kept()
    with serving(store=store) as served:
        served.post("/v1/vms/db/restart")
        served.look("db")
        (event,) = served.run.service.fleet.events_in_scope["vm:db"]
    fleet = Fleet.load(store.rows, DEV, 0, None)
    assert [seen.vm for seen in fleet.events[event].seen] == ["db"]


def test_a_port_that_is_taken_is_said():
    """Which one, and of what; and nothing is left running."""
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = Place(*taken.getsockname())
        for what in ("control", "metadata"):
            with pytest.raises(CannotListen, match=f"{place} cannot be listened on") as refused:
                run(plan(**{what: place}))
            assert (refused.value.what, refused.value.taken) == (what, True)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize(
    ("number", "lasts", "why"),
    [
        (errno.EACCES, True, "CAP_NET_BIND_SERVICE"),
        (errno.EADDRNOTAVAIL, False, "ip address add 169.254.169.254/32 dev lo"),
        (errno.ENOBUFS, False, os.strerror(errno.ENOBUFS)),
    ],
)
def test_why_an_address_is_not_to_be_had(number, lasts, why):
    """What helps, and whether another try may."""
    error = OSError(number, os.strerror(number))
    refused = cannot_listen("metadata", ("169.254.169.254", 80), error)
    assert why in str(refused)
    assert (refused.lasts, refused.taken) == (lasts, False)


def test_connections_do_not_wait_for_nagle():
    """Only on a socket that says it is TCP does asyncio see to that: else 40 ms an answer."""
    with listening(ANYWHERE, "control") as sock:
        assert sock.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.5", "127.0.0.5"), ("::1", "[::1]")])
def test_another_address_of_this_machine_will_do(host, shown):
    """The guard knows it by that name."""
    try:
        listening(Place(host, 0), "control").close()
    except (CannotListen, OSError) as error:
        if "CI" in os.environ:
            raise
        pytest.skip(f"not an address here: {error}")
    with serving(control=Place(host, 0)) as served:
        assert str(served.run.control) == f"{shown}:{served.run.control.port}"
        assert served.get("/v1/vms").status == 200
        assert served.get("/v1/vms", Host="evil.com").status == 403


def test_it_ends_with_all_that_it_began(caplog):
    """No thread, no task, no complaint; also with a connection that is kept."""
    before = set(threading.enumerate())
    with caplog.at_level(logging.WARNING), serving() as served:
        connection = served.connection()
        connection.request("GET", "/v1/vms")
        connection.getresponse().read()
    connection.close()
    assert set(threading.enumerate()) <= before
    assert caplog.records == []


def test_what_is_asked_while_it_ends_is_answered_or_refused():
    """A command under way is not cut off."""
    with serving() as served:
        answer = served.post("/v1/vms/db/restart")
    assert answer.status == 202
    assert served.run.health().ready is True
