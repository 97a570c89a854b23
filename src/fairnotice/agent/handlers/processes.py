"""Running a command for a handler, and ending it in time.

The command is the head of a process group of its own. When its time is over it gets TERM, as a
whole group, and KILL a grace later; both are inside of the deadline, so that the plan goes on in
time. On Windows there are no such groups: the process alone is ended.

A command that ends by itself may leave others running behind it: a service it started lives on.
"""

import contextlib
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence

from fairnotice.agent.handlers.handler import Call, one_line
from fairnotice.errors import HandlerFailed

GRACE_SECONDS = 2.0
# Of the time that there is, at most so much is grace, and so much is for KILL to take effect.
_GRACE_PART = 0.2
_KILL_PART = 0.05
_KILL_SECONDS = 0.25
_LOOK_SECONDS = 0.05
_OUTPUT_BYTES = 2048
_SAID_LETTERS = 300


class Ended(HandlerFailed):
    """The command did not end by itself: its time was over, or it was told to."""


def run(
    command: Sequence[str],
    call: Call,
    *,
    environment: Mapping[str, str] | None = None,
    directory: str | None = None,
    grace_seconds: float = GRACE_SECONDS,
) -> str:
    """What the command said last, when it has ended well; HandlerFailed says how else it ended."""
    code, said = _run(command, call, environment or {}, directory, grace_seconds)
    if code != 0:
        how = f"ended with {code}" if code > 0 else f"was killed by signal {-code}"
        raise HandlerFailed(f"{command[0]} {how}{_quoted(said)}.")
    return said


def succeeds(command: Sequence[str], call: Call) -> bool:
    """Whether the command ends with 0: the answer to a question. HandlerFailed as `run` says."""
    return _run(command, call, {}, None, GRACE_SECONDS)[0] == 0


def until_term(call: Call, grace_seconds: float = GRACE_SECONDS) -> float:
    """How many seconds a command that begins now has before it gets TERM."""
    left = call.remaining_seconds()
    return left - _kill_seconds(left) - min(grace_seconds, left * _GRACE_PART)


def _kill_seconds(left: float) -> float:
    return min(_KILL_SECONDS, left * _KILL_PART)


def _run(
    command: Sequence[str],
    call: Call,
    environment: Mapping[str, str],
    directory: str | None,
    grace_seconds: float,
) -> tuple[int, str]:
    """Its code, and what it said last; HandlerFailed where it could not end by itself."""
    if not call.going_on():
        raise HandlerFailed(f"{command[0]} was not run: {call.why_ended()}.")
    kill_at = call.deadline - _kill_seconds(call.remaining_seconds())
    patience = until_term(call, grace_seconds)
    term_at = call.clock.monotonic() + patience
    told = {"FAIRNOTICE_REMAINING_SECONDS": str(int(patience)), **environment}
    process = _started(command, {**os.environ, **call.environment(), **told}, directory)
    output = _Output(process)
    if not _ended_by(process, call, term_at, heed_stopping=True):
        why = "it was told to end" if call.stopping.is_set() else "its time was over"
        _end(process, call, min(kill_at, call.clock.monotonic() + grace_seconds))
        raise Ended(f"{command[0]} was ended: {why}{_quoted(output.said())}.")
    return process.returncode, output.said()


def _quoted(said: str) -> str:
    """`: …` with the end of it in one line, or nothing."""
    shown = one_line(said)[-_SAID_LETTERS:].strip(" .")
    return f": {shown}" if shown else ""


def _started(
    command: Sequence[str], environment: Mapping[str, str], directory: str | None
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - to run what the owner of this VM configured
            list(command),
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Windows takes no notice of it.
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HandlerFailed(f"{command[0]} cannot be run: {reason}.") from error


def _ended_by(
    process: subprocess.Popen[bytes], call: Call, instant: float, *, heed_stopping: bool
) -> bool:
    """Whether it has ended by this instant; no later than when it must, if that is to be heeded."""
    while True:
        left = instant - call.clock.monotonic()
        if left <= 0 or (heed_stopping and call.stopping.is_set()):
            return process.poll() is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(min(left, _LOOK_SECONDS))
            return True


def _end(process: subprocess.Popen[bytes], call: Call, kill_at: float) -> None:
    """TERM, and KILL for what is left of the group then."""
    _signal(process, force=False)
    _ended_by(process, call, kill_at, heed_stopping=False)
    _signal(process, force=True)
    # Whoever is stuck in the system's core cannot be waited for; its parent buries it later.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_KILL_SECONDS)


def _signal(process: subprocess.Popen[bytes], *, force: bool) -> None:
    if os.name == "nt":
        process.kill() if force else process.terminate()
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL if force else signal.SIGTERM)


class _Output:
    """The end of what a command says, read all the time, so that it never waits for a reader.

    By a thread that ends with the pipe: what the command left running may hold it for long.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._kept: deque[int] = deque(maxlen=_OUTPUT_BYTES)
        self._process = process
        self._reader = threading.Thread(target=self._read, daemon=True, name="output")
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            while piece := os.read(pipe.fileno(), _OUTPUT_BYTES):
                self._kept.extend(piece)

    def said(self) -> str:
        """The last of it."""
        self._reader.join(_LOOK_SECONDS)
        return bytes(self._kept.copy()).decode("utf-8", errors="replace")
