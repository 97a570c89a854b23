"""The certificate at the port of Azure's tools: another one is served while it serves."""

import socket
import ssl
import threading
from datetime import timedelta

from fairnotice.arm.serving import Port, opened, opened_for_this_machine
from fairnotice.clock import SystemClock
from fairnotice.control.certificates import LOOK_EVERY_SECONDS, Certificates, Pair
from fairnotice.control.own_authority import RENEW_DAYS, SERVER_DAYS
from fairnotice.control.running import Entrance
from fairnotice.testing.manual_clock import ManualClock
from tests.cli.serves import certificate
from tests.control.calling import ANYWHERE, PATIENCE_SECONDS, serving

# Then what was made at the start is due, and both are good by the clock of whoever connects.
DUE = timedelta(days=SERVER_DAYS - RENEW_DAYS, hours=1)


def shown(place, trusted):
    """The certificate that a client is shown which believes only this file, and reads the name."""
    context = ssl.create_default_context(cafile=trusted)
    with (
        socket.create_connection(place, PATIENCE_SECONDS) as sock,
        context.wrap_socket(sock, server_hostname="localhost") as connection,
    ):
        return ssl.DER_cert_to_PEM_cert(connection.getpeercert(binary_form=True))


def looked_at(clock, condition):
    """Give whoever looks at the files the time for it, until this is so."""
    for _ in range(200):
        clock.advance(seconds=LOOK_EVERY_SECONDS)
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError


def test_what_the_authority_of_this_machine_renews_is_served_without_a_restart(tmp_path):
    """And whoever trusts the authority goes on to: it is the same."""
    clock = ManualClock(SystemClock().wall() - DUE)
    port = opened_for_this_machine(ANYWHERE, tmp_path, clock)
    with serving(clock=clock, beside=port) as served:
        place, ca = served.run.arm, tmp_path / "ca.pem"
        first = shown(place, ca)
        assert first in (tmp_path / "server.pem").read_text()
        clock.advance(seconds=DUE.total_seconds())
        looked_at(clock, lambda: shown(place, ca) != first)
        assert shown(place, ca) in (tmp_path / "server.pem").read_text()


def test_files_that_are_replaced_are_served_without_a_restart(tmp_path, caplog):
    """At both ports; and while they are no pair, the one before."""
    first, second = (Pair(*certificate(tmp_path, name)) for name in ("first", "second"))
    there, both = Pair(tmp_path / "c.pem", tmp_path / "k.pem"), tmp_path / "both.pem"
    for file, source in zip(there, first, strict=True):
        file.write_bytes(source.read_bytes())
    old, new = (one.certificate.read_text() for one in (first, second))
    both.write_text(old + new)
    clock = ManualClock(SystemClock().wall())
    entrance = Entrance(certificates=Certificates(there, clock))
    with serving(clock=clock, entrance=entrance, beside=opened(Port(ANYWHERE, entrance))) as served:
        places = (served.run.arm, served.run.control)
        assert [shown(place, first.certificate) for place in places] == [old, old]
        there.certificate.write_text(new)
        looked_at(clock, lambda: "the certificate is kept as it was" in caplog.text)
        assert [shown(place, both) for place in places] == [old, old]
        there.key.write_bytes(second.key.read_bytes())
        looked_at(clock, lambda: shown(places[0], both) == new)
        assert shown(places[1], second.certificate) == new
