"""Runs something that leaves the machine as it was, however it ends.

It runs in a process of its own, out of reach of the terminal's Ctrl-C, and is told to end when the
first process is, or has gone. Where it is killed itself, the first process clears up after it.
"""

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.vms.nodes import PRIVATE
from tests.vms.reaper import DEATH_SIGNAL

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NAMESPACE = "namespace"


def tidily(act: Callable[[Path], int]) -> int:
    """The exit code of what was done in a folder, of which nothing is left."""
    # Known to both, and made by the other: nothing is there before somebody sees to it.
    folder = Path(tempfile.gettempdir(), f"fairnotice-vms-{secrets.token_hex(4)}")
    made = list(_missing_folders())
    sys.stdout.flush()
    parent = os.getpid()
    # Until each of the two knows what to do then.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    child = os.fork()
    if child == 0:
        os._exit(_alone(parent, act, folder, made))
    heard: list[int] = []

    def end(number: int, _: object) -> None:
        heard.append(number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)

    for number in ENDING:
        signal.signal(number, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    # Whether it came to that or not: it may have been told to end, or been killed, at any moment.
    _clear(folder, made)
    if heard or code < 0:
        sys.stderr.write("Ended before its time. The machine is as it was.\n")
    return 128 + heard[0] if heard else abs(code)


def _missing_folders() -> Iterator[Path]:
    """What libvirt's nodes will make of their own, deepest first."""
    for place in map(Path, PRIVATE):
        yield from (one for one in (place, *place.parents) if not one.exists())


def _alone(parent: int, act: Callable[[Path], int], folder: Path, made: list[Path]) -> int:
    """Do it, in the process that is for it; the exit code."""

    def end(*_: object) -> None:
        # Once: what ends is not to be ended.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(128 + signal.SIGTERM)

    os.setsid()
    signal.signal(signal.SIGTERM, end)
    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        if os.getppid() != parent:
            return 1
        folder.mkdir(mode=0o700)
        return act(folder)
    except SystemExit as ended:
        return int(ended.code or 0)
    except BaseException:  # noqa: BLE001 - the process ends with it
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        _clear(folder, made)


def _clear(folder: Path, made: list[Path]) -> None:
    """End what is left in the network namespace, and remove that and all files."""
    with contextlib.suppress(FileNotFoundError):
        name = (folder / NAMESPACE).read_text("utf-8")
        command = ["ip", "netns", "pids", name]
        left = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        for process in left.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
        delete = ["ip", "netns", "delete", name]
        subprocess.run(delete, capture_output=True, check=False)  # noqa: S603
    shutil.rmtree(folder, ignore_errors=True)
    for one in made:
        # Not where something of others' is in it by now.
        with contextlib.suppress(OSError):
            one.rmdir()
