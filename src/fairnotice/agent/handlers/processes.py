"""Running a command for a handler, and ending it in time.

The command is the head of a process group of its own. When its time is over it gets TERM, as a
whole group, and KILL a grace later; both are inside of the deadline, so that the plan goes on in
time. On Windows there are no such groups: the process alone is ended.

A command that ends by itself may leave others running behind it: a service it started lives on.

One that is to be run once leaves marks (marks.py) and outlives an agent that is killed. Run again
by the next life of the agent it is not started a second time: its end is waited for, and told.
"""

import contextlib
import errno
import logging
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from fairnotice.agent.handlers.handler import Call, Handler
from fairnotice.agent.handlers.marks import Mark, Trace
from fairnotice.client.document import one_line
from fairnotice.errors import HandlerFailed

GRACE_SECONDS = 2.0
# Of the time that there is, at most so much is grace, and so much is for KILL to take effect.
_GRACE_PART = 0.2
_KILL_PART = 0.05
_KILL_SECONDS = 0.25
_LOOK_SECONDS = 0.05
_OUTPUT_BYTES = 2048
_SAID_LETTERS = 300
# A shell adds it to the signal that a command was killed by.
_SIGNAL_CODE = 128
_LOG = logging.getLogger("fairnotice.agent")


class Ended(HandlerFailed):
    """The command did not end by itself: its time was over, or it was told to."""


class Runs(Handler):
    """A handler that runs one command, once, in each phase."""

    def outcome(self, call: Call) -> Trace:
        """What the marks of the command say."""
        return Trace.UNKNOWN if call.mark is None else call.mark.trace()


def run(
    command: Sequence[str],
    call: Call,
    *,
    environment: Mapping[str, str] | None = None,
    directory: str | None = None,
    grace_seconds: float = GRACE_SECONDS,
    once: bool = False,
) -> str:
    """What the command said last, when it has ended well; HandlerFailed says how else it ended.

    `once` is for one command of a call: an earlier life of the agent may have run it.
    """
    told = environment or {}
    mark = call.mark if once else None
    code, said = _run(command, call, told, directory, grace_seconds, mark)
    if code != 0:
        how = f"ended with {code}" if code > 0 else f"was killed by signal {-code}"
        raise HandlerFailed(f"{command[0]} {how}{_quoted(said)}.")
    return said


def succeeds(command: Sequence[str], call: Call) -> bool:
    """Whether the command ends with 0: the answer to a question. HandlerFailed as `run` says."""
    return _run(command, call, {}, None, GRACE_SECONDS, None)[0] == 0


def was_begun(call: Call) -> bool:
    """Whether an earlier life of the agent began the command that is run once in this call."""
    return _is_left(call.mark) and call.mark is not None and call.mark.trace() is Trace.KNOWN


def until_term(call: Call, grace_seconds: float = GRACE_SECONDS) -> float:
    """How many seconds a command that begins now has before it gets TERM."""
    left = call.remaining_seconds()
    return left - _kill_seconds(left) - min(grace_seconds, left * _GRACE_PART)


def _kill_seconds(left: float) -> float:
    return min(_KILL_SECONDS, left * _KILL_PART)


def _run(  # noqa: PLR0917 - what `run` is told
    command: Sequence[str],
    call: Call,
    environment: Mapping[str, str],
    directory: str | None,
    grace_seconds: float,
    mark: Mark | None,
) -> tuple[int, str]:
    """Its code, and what it said last; HandlerFailed where it could not end by itself."""
    left, patience = call.remaining_seconds(), until_term(call, grace_seconds)
    kill_before, term_before = _kill_seconds(left), left - patience
    process = _left(command, mark)
    if process is None:
        if not call.going_on():
            raise HandlerFailed(f"{command[0]} was not run: {call.why_ended()}.")
        told = {"FAIRNOTICE_REMAINING_SECONDS": str(int(patience)), **environment}
        whole = {**os.environ, **call.environment(), **told}
        process = _started(command, whole, directory, mark)
    if not _ended_by(process, call, lambda: call.deadline - term_before, heed_stopping=True):
        why = "it was told to end" if call.stopping.is_set() else "its time was over"
        kill_at = min(call.deadline - kill_before, call.clock.monotonic() + grace_seconds)
        _end(process, call, kill_at)
        raise Ended(f"{command[0]} was ended: {why}{_quoted(process.said())}.")
    code = process.code()
    if code is not None:
        return code, process.said()
    if mark is None or _is_left(mark):
        raise HandlerFailed(f"{command[0]} was begun, and nobody saw how it ended.")
    _go_without(mark, command)
    return _run(command, call, environment, directory, grace_seconds, None)


def _quoted(said: str) -> str:
    """`: …` with the end of it in one line, or nothing."""
    shown = one_line(said)[-_SAID_LETTERS:].strip(" .")
    return f": {shown}" if shown else ""


# ---- Processes: of this life of the agent, and of an earlier one ----


class _Process(Protocol):
    """A command that was started."""

    def ended_within(self, seconds: float) -> bool:
        """Whether it has ended; waits so long for it."""
        ...

    def code(self) -> int | None:
        """What it ended with, negative for a signal; None where nobody knows."""
        ...

    def said(self) -> str:
        """The last of what it said."""
        ...

    def signal(self, *, force: bool) -> None:
        """TERM, or KILL by force, for its whole group."""
        ...


class _Child:
    """A command as our own process."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self._output = _Output(popen) if popen.stdout is not None else None

    def ended_within(self, seconds: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(seconds)
            return True
        return False

    def code(self) -> int | None:
        return self._popen.returncode

    def said(self) -> str:
        return self._output.said() if self._output is not None else ""

    def signal(self, *, force: bool) -> None:
        if os.name == "nt":
            self._popen.kill() if force else self._popen.terminate()
        else:
            _signal_group(self._popen.pid, force=force)


class _Marked(_Child):
    """The shell that runs a command and leaves its marks, as our own process."""

    def __init__(self, popen: subprocess.Popen[bytes], mark: Mark) -> None:
        super().__init__(popen)
        self._mark = mark

    def code(self) -> int | None:
        # The shell did not start it where it could not say so.
        began = self._mark.leader() is not None
        return _as_a_parent_sees(self._popen.returncode) if began else None

    def said(self) -> str:
        return _decoded(self._mark.said(_OUTPUT_BYTES))


class _Orphan:
    """A command that an earlier life of the agent has begun, by its marks."""

    def __init__(self, mark: Mark) -> None:
        self._mark = mark

    def ended_within(self, seconds: float) -> bool:
        if self._mark.under_way():
            threading.Event().wait(seconds)
        return not self._mark.under_way()

    def code(self) -> int | None:
        code = self._mark.code()
        return None if code is None else _as_a_parent_sees(code)

    def said(self) -> str:
        return _decoded(self._mark.said(_OUTPUT_BYTES))

    def signal(self, *, force: bool) -> None:
        leader = self._mark.leader()
        # While it is under way its number is nobody else's.
        if leader is not None and self._mark.under_way():
            _signal_group(leader, force=force)


def _as_a_parent_sees(code: int) -> int:
    """The exit code that a shell has told; negative where it was a signal."""
    by = code - _SIGNAL_CODE
    return -by if by in signal.valid_signals() else code


def _is_left(mark: Mark | None) -> bool:
    """Whether these are marks of an earlier life of the agent."""
    return mark is not None and mark.lock is None


def _left(command: Sequence[str], mark: Mark | None) -> _Process | None:
    """What an earlier life of the agent has begun; None where it is to be begun now."""
    if mark is None or not _is_left(mark):
        return None
    trace = mark.trace()
    if trace is Trace.KNOWN:
        return _Orphan(mark)
    if trace is Trace.UNKNOWN:
        raise HandlerFailed(f"{command[0]} was begun, and nobody saw how it ended.")
    try:
        mark.promise()
    except OSError as error:
        raise HandlerFailed(f"{command[0]} was not run: {error}.") from error
    return None


def _go_without(mark: Mark, command: Sequence[str]) -> None:
    """The disk takes no marks: what is begun now leaves none."""
    _LOG.warning("%s leaves no marks: if the agent dies, nobody knows its end", command[0])
    try:
        mark.take_back()
    except OSError as error:
        raise HandlerFailed(f"{command[0]} was not run: {error}.") from error


def _started(
    command: Sequence[str],
    environment: Mapping[str, str],
    directory: str | None,
    mark: Mark | None,
) -> _Process:
    try:
        if mark is None:
            return _Child(_spawned(command, environment, directory, None))
        _check_there(command[0], environment, directory)
        words = mark.wrapped(command)
        return _Marked(_spawned(words, environment, directory, mark.lock), mark)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HandlerFailed(f"{command[0]} cannot be run: {reason}.") from error


def _check_there(program: str, environment: Mapping[str, str], directory: str | None) -> None:
    """Say of a program that is not there what the system would say of it, not what a shell does."""
    folders = [directory or ""] if "/" in program else os.get_exec_path(dict(environment))
    if not any(os.access(os.path.join(one, program), os.X_OK) for one in folders):  # noqa: PTH118
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))


def _spawned(
    words: Sequence[str],
    environment: Mapping[str, str],
    directory: str | None,
    lock: int | None,
) -> subprocess.Popen[bytes]:
    """In a session of its own. Whoever inherits a lock has its output elsewhere."""
    return subprocess.Popen(  # noqa: S603 - to run what the owner of this VM configured
        list(words),
        env=environment,
        cwd=directory,
        stdin=subprocess.DEVNULL if lock is None else lock,
        stdout=subprocess.PIPE if lock is None else subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        # Windows takes no notice of it.
        start_new_session=True,
    )


def _ended_by(
    process: _Process, call: Call, instant: Callable[[], float], *, heed_stopping: bool
) -> bool:
    """Whether it has ended by this instant; no later than when it must, if that is to be heeded."""
    while True:
        left = instant() - call.clock.monotonic()
        if left <= 0 or (heed_stopping and call.stopping.is_set()):
            return process.ended_within(0)
        if process.ended_within(min(left, _LOOK_SECONDS)):
            return True


def _end(process: _Process, call: Call, kill_at: float) -> None:
    """TERM, and KILL for what is left of the group then."""
    process.signal(force=False)
    _ended_by(process, call, lambda: kill_at, heed_stopping=False)
    process.signal(force=True)
    # Whoever is stuck in the system's core cannot be waited for; its parent buries it later.
    process.ended_within(_KILL_SECONDS)


def _signal_group(leader: int, *, force: bool) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL if force else signal.SIGTERM)


def _decoded(said: bytes) -> str:
    return said.decode("utf-8", errors="replace")


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
        return _decoded(bytes(self._kept.copy()))
