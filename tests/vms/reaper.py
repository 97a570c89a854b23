"""Runs a command, buries whatever it leaves behind, and ends all of it when it is told to end.

libvirt takes a QEMU that has died and that nobody has buried for one that runs. Where the first
process of the system is slow to bury orphans, this is done here: `python reaper.py COMMAND…`.
"""

import ctypes
import os
import signal
import sys

SUBREAPER, DEATH_SIGNAL = 36, 1


def main(command: list[str]) -> int:
    """Run the command; bury children until none is left."""
    libc = ctypes.CDLL(None)
    libc.prctl(SUBREAPER, 1, 0, 0, 0)
    parent = os.getppid()
    libc.prctl(DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        return 1
    first = os.fork()
    if first == 0:
        libc.prctl(DEATH_SIGNAL, 0, 0, 0, 0)
        os.execvp(command[0], command)  # noqa: S606
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: (ending.append(1), _end_children()))
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return 0
        if ending:
            _end_children()


def _end_children() -> None:
    """End what is ours: the command, and what it has left to us."""
    me = os.getpid()
    for child in _children(me):
        os.kill(child, signal.SIGTERM)


def _children(process: int) -> list[int]:
    with open(f"/proc/{process}/task/{process}/children", encoding="ascii") as file:  # noqa: PTH123
        return [int(one) for one in file.read().split()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
