"""A port that a test was given is given to nobody else, whatever becomes of who listens there."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.house import ROOT

# A network with eight ports for whoever wants any; three of them are the test's own.
PORTS, LEFT = "40000 40007", 5

# Everybody asks the kernel for any port until none is left, while the test's own server comes,
# goes, and comes again: how many there were, and which of them were the test's own.
IN_A_SMALL_ROOM = """
import socket
from contextlib import ExitStack
from tests.ports import LOOPBACK, own_port

own = {own_port() for _ in range(3)}
place = (LOOPBACK, min(own))

def ask_until_none_is_left(ask):
    found = set()
    with ExitStack() as stack:
        try:
            while True:
                found.add(stack.enter_context(ask()).getsockname()[1])
        except OSError:
            print(len(found), found & own)

def any_port():
    one = socket.socket()
    one.bind((LOOPBACK, 0))
    return one

ask_until_none_is_left(any_port)
ask_until_none_is_left(lambda: socket.create_server((LOOPBACK, 0)))
ask_until_none_is_left(lambda: socket.create_server((LOOPBACK, 0), reuse_port=True))
for life in range(2):
    with socket.create_server(place):
        ask_until_none_is_left(lambda: socket.create_connection(place))
"""


@pytest.mark.skipif(
    not os.environ.get("CI") and not all(map(shutil.which, ("unshare", "ip"))),
    reason="unshare and ip are not installed",
)
def test_nobody_else_is_given_it():
    """Neither who listens at any port nor who connects from one; and its owner can come back."""
    line = f'ip link set lo up; echo "{PORTS}" >/proc/sys/net/ipv4/ip_local_port_range; exec "$@"'
    done = subprocess.run(  # noqa: S603 - our own lines
        [
            *("unshare", "--net", "--map-root-user", "sh", "-ec", line, "sh"),
            *(sys.executable, "-c", IN_A_SMALL_ROOM),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [f"{LEFT} set()"] * 5, done.stderr
