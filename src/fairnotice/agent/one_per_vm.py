"""One agent for one VM, whatever folders they keep their journals in."""

import socket
import sys
import threading

from fairnotice.errors import AgentRuns

# A child between fork and exec holds what its parent held, for a moment.
TRIES = 10
PAUSE_SECONDS = 0.05
# Of a name in the kernel at most so much is used; two URLs of one machine differ at their ends.
LETTERS_MAX = 80


class Place:
    """The right to act on what is announced at a URL, until it is closed or the process dies.

    It is a name that the kernel keeps for the network of this VM (Linux): no file is left behind,
    and it does not matter whose processes they are. Elsewhere the journal's lock has to do.
    """

    def __init__(self, url: str) -> None:
        self._socket: socket.socket | None = None
        if sys.platform == "linux":
            self._socket = _bound("\0fairnotice-agent " + url[-LETTERS_MAX:], url)

    def close(self) -> None:
        """Let another agent have it."""
        if self._socket is not None:
            self._socket.close()


def _bound(name: str, url: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    for _ in range(TRIES):
        try:
            sock.bind(name)
        except OSError:
            threading.Event().wait(PAUSE_SECONDS)
        else:
            return sock
    sock.close()
    raise AgentRuns(
        f"Another agent of this VM acts on {url} already, with another state folder. End it, or "
        "this one: two would do everything twice."
    )
