"""`run_as.command_line`: a program of any kind as a VM, against any endpoint on this machine."""

import os
import socket
import struct
import subprocess
import sys
from contextlib import contextmanager
from threading import Thread

import pytest

from fairnotice.testing import Cloud
from fairnotice.testing.as_vm.run_as import Guest, command_line
from tests.cli.test_as import allowed
from tests.ports import own_port

GUEST = Guest("web-0", "127.69.0.10", ("127.0.0.1", 0))
LIMIT_SECONDS = 20
BROKEN = struct.pack("ii", 1, 0)

pytestmark = pytest.mark.skipif(
    not os.environ.get("CI") and not allowed(),
    reason="needs curl, and root or user namespaces",
)


@contextmanager
def endpoint(talk):
    """A place on this machine where this is done with the first connection, and with whose."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, peer = server.accept()
            with connection:
                talk(connection, peer[0])

        thread = Thread(target=serve)
        thread.start()
        try:
            yield GUEST._replace(metadata=server.getsockname())
        finally:
            thread.join(LIMIT_SECONDS)
            assert not thread.is_alive()


def client(guest, script):
    """What a program prints that connects to 169.254.169.254 with `c = connect()`."""
    program = f"""
import socket

def connect():
    return socket.create_connection(("169.254.169.254", 80), 15)

{script}
"""
    done = subprocess.run(  # noqa: S603 - our own line
        command_line(guest, [sys.executable, "-c", program]),
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.stderr == ""
    return done.stdout


def test_bytes_pass_as_they_are_and_half_closed_connections_stay_so():
    """Megabytes there; when they have ended, an answer back; and it is the VM that asks."""
    heard = []

    def talk(connection, peer):
        received = b"".join(iter(lambda: connection.recv(65_536), b""))
        heard.append((peer, len(received), set(received)))
        connection.sendall(b"\0\r\n\xff" * 500_000)

    script = """
c = connect()
c.sendall(b"\\0\\xff" * 1_000_000)
c.shutdown(socket.SHUT_WR)
print(len(b"".join(iter(lambda: c.recv(65536), b""))))
"""
    with endpoint(talk) as guest:
        assert client(guest, script) == "2000000\n"
    assert heard == [("127.69.0.10", 2_000_000, {0, 255})]


def test_a_connection_that_breaks_is_seen_to_break():
    """Not to end well: a client that takes half an answer for a whole one is found out."""

    def talk(connection, _):
        connection.recv(1)
        connection.sendall(b"half")
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, BROKEN)

    script = """
c = connect()
c.sendall(b"1")
print(c.recv(4))
c.sendall(b"2")
try:
    print(c.recv(4))
except ConnectionResetError:
    print("reset")
"""
    with endpoint(talk) as guest:
        assert client(guest, script) == "b'half'\nreset\n"


def test_an_endpoint_that_is_down_refuses():
    """A service that is restarted looks so from inside, too."""
    place = ("127.0.0.1", own_port())
    # It may be so fast that not even connecting seems to work.
    script = """
try:
    print(connect().recv(1))
except ConnectionResetError:
    print("reset")
"""
    assert client(GUEST._replace(metadata=place), script) == "reset\n"


def test_a_client_that_gives_up_is_gone_outside():
    """A held answer is not held for one who has left."""
    ends = []

    def talk(connection, _):
        ends.append(connection.recv(1))
        ends.append(connection.recv(1))

    with endpoint(talk) as guest:
        assert client(guest, "c = connect(); c.sendall(b'1'); c.close(); print('gone')") == "gone\n"
    assert ends == [b"1", b""]


def test_what_cannot_be_run_ends_as_a_shell_says():
    """In a sentence, with its exit code."""
    line = command_line(GUEST, ["no-such-command"])
    done = subprocess.run(line, check=False, capture_output=True, text=True)  # noqa: S603
    assert (done.returncode, done.stderr) == (127, "There is no command no-such-command.\n")


def test_a_cloud_is_the_whole_world_of_a_client_with_the_address_built_in():
    """Its endpoint, its host name and its control plane, for a test of one's own."""
    ask = "curl -s -H Metadata:true http://169.254.169.254/metadata/scheduledevents"
    script = f"hostname; {ask}?api-version=2020-07-01; curl -s $FAIRNOTICE_URL/readyz"
    with Cloud() as cloud:
        event = cloud.vm("batch_1").redeploy()
        done = subprocess.run(  # noqa: S603 - our own line
            cloud.command_as("batch_1", ["sh", "-c", script]),
            check=True,
            capture_output=True,
            env=cloud.environment("batch_1"),
            text=True,
            timeout=LIMIT_SECONDS,
        )
        assert done.stdout.startswith("batch000001\n")
        assert event.id in done.stdout
        assert '"ready":true' in done.stdout
        assert cloud.seen_by("batch_1") == [event]
