"""Commands under way, whoever waits for their answers, and what is decided on them together."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fairnotice.clock import Clock
from fairnotice.engine import Decision, Fleet, Refusal
from fairnotice.engine.commands import Command
from fairnotice.engine.trial import Trial
from fairnotice.errors import NotLeading, Unavailable
from fairnotice.model import Moment

log = logging.getLogger(__name__)

# After so much deciding in a row, whoever polls gets his turn.
DECIDING_SECONDS_MAX = 0.002

Decide = Callable[[Fleet, Command, Moment], Decision | Refusal]


@dataclass(slots=True, eq=False)
class Submission:
    """A command under way, and whoever waits for its answer."""

    command: Command
    answer: asyncio.Future[Decision | Refusal]
    decision: Decision | Refusal | None = None
    # The next one was submitted with it, and is committed with it.
    goes_on: bool = False


def give_up(together: Iterable[Submission], error: Exception) -> None:
    """Tell all of them that nothing comes of it."""
    for one in together:
        if not one.answer.done():
            one.answer.set_exception(_for_one(error))
            # Whoever asked may be gone, and then nobody is there to be told.
            one.answer.exception()


def answer(together: Iterable[Submission]) -> None:
    """Tell all of them what was decided: it is durable."""
    for one in together:
        if one.decision is not None and not one.answer.done():
            one.answer.set_result(one.decision)


async def decide_all(
    together: list[Submission],
    known: Fleet,
    decide: Decide,
    now: Callable[[], Moment],
    clock: Clock,
) -> list[Decision]:
    """What each of them changes, seeing those before it; a bug in one fails that one alone."""
    # One command alone needs no trial: it is decided on the fleet itself.
    fleet = known if len(together) == 1 else Trial(known)
    decisions: list[Decision] = []
    began = clock.monotonic()
    for one in together:
        try:
            one.decision = decide(fleet, one.command, now())
        except Exception as error:
            log.exception("%s could not be decided", type(one.command).__name__)
            give_up([one], error)
            continue
        if isinstance(one.decision, Decision):
            decisions.append(one.decision)
            if fleet is not known:
                for change in one.decision.changes:
                    fleet.apply(change)
        if clock.monotonic() - began > DECIDING_SECONDS_MAX:
            await asyncio.sleep(0)
            began = clock.monotonic()
    return decisions


def _for_one(error: Exception) -> Exception:
    """The same for one of several who are told: raised twice at once it would be a muddle."""
    if not isinstance(error, Unavailable):
        return error
    told = type(error)(str(error))
    if isinstance(error, NotLeading) and isinstance(told, NotLeading):
        told.leader = error.leader
    told.__cause__ = error
    return told
