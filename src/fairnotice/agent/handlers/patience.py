"""Talking to others without waiting longer than there is time.

A name that is not resolved, a server that answers one byte a second: no timeout of a socket bounds
these. So whatever may block is done by a thread, and is left to itself when the time is over.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar

from fairnotice.agent.handlers.handler import Call
from fairnotice.errors import HandlerFailed

if TYPE_CHECKING:
    from ssl import SSLContext

Answer = TypeVar("Answer")
_LOOK_SECONDS = 0.05
_FIRST_PAUSE_SECONDS = 0.25
_LAST_PAUSE_SECONDS = 5.0


class Again(Exception):
    """It did not work, and may if it is tried again, so many seconds later at the earliest."""

    def __init__(self, sentence: str, pause_seconds: float = 0.0) -> None:
        super().__init__(sentence)
        self.pause_seconds = pause_seconds


class Work(Generic[Answer]):
    """What a thread does from now on, and what came of it."""

    def __init__(self, work: Callable[[], Answer], what: str) -> None:
        self._work = work
        self._what = what
        self._answers: list[Answer] = []
        self._error: BaseException | None = None
        self.ended = threading.Event()
        threading.Thread(target=self._do, daemon=True, name=what).start()

    def _do(self) -> None:
        """Do it, and keep what came of it."""
        try:
            self._answers.append(self._work())
        # Whoever waits raises it: nothing is lost in a thread.
        except BaseException as error:  # noqa: BLE001
            self._error = error
        self.ended.set()

    def answer(self, call: Call) -> Answer:
        """What came of it; HandlerFailed where the call's time is over before."""
        while not self.ended.wait(min(_LOOK_SECONDS, call.remaining_seconds())):
            if not call.going_on():
                raise _not_ended(self._what, call)
        if self._error is not None:
            raise self._error
        return self._answers[0]


def within(call: Call, work: Callable[[], Answer], what: str) -> Answer:
    """What the work returns or raises; HandlerFailed where the call's time is over before."""
    if not call.going_on():
        raise _not_ended(what, call)
    return Work(work, what).answer(call)


def _not_ended(what: str, call: Call) -> HandlerFailed:
    return HandlerFailed(f"{what} did not end: {call.why_ended()}.")


def keep_trying(call: Call, work: Callable[[], Answer], what: str) -> Answer:
    """The same, tried again and again, with pauses that grow, for as long as it raises Again."""
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            return within(call, work, what)
        except Again as error:
            left = call.remaining_seconds()
            wait = max(min(pause, left / 2), error.pause_seconds)
            # Where no try could end in time, whoever comes next may have what remains.
            if left < _FIRST_PAUSE_SECONDS or wait >= left or not call.wait(wait):
                raise HandlerFailed(f"{what} failed: {error}") from error
        pause = min(pause * 2, _LAST_PAUSE_SECONDS)


def again(error: Exception) -> Exception:
    """What a failed connection is to be raised as: a certificate gets no better by asking again."""
    sentence = f"{type(error).__name__} {error}."
    # By its name, because `ssl` is loaded only where TLS is used.
    if type(error).__name__ == "SSLCertVerificationError":
        return HandlerFailed(f"The other side is not who it says: {sentence}")
    return Again(sentence)


def tls(ca_file: str | None) -> "SSLContext":
    """What a connection is checked with; HandlerFailed where the file cannot be used."""
    import ssl  # noqa: PLC0415 - megabytes, which only those with TLS pay for

    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise HandlerFailed(f"ca_file {ca_file} cannot be used: {error}.") from error


def at_most(call: Call, seconds: float) -> Call:
    """The same call with a deadline so many seconds from now, if its own is not before."""
    return replace(call, deadline=min(call.deadline, call.clock.monotonic() + seconds))
