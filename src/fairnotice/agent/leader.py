"""Who gives the go-ahead for an event that names several VMs. Pure.

One approval counts for all who are named, so it must not be given while one of them is not ready.
"""

from enum import StrEnum
from typing import NamedTuple

from fairnotice.agent.rules import Leader
from fairnotice.client.document import Event

# With a rendezvous: so long after all were ready each further VM in Resources believes that those
# before it are dead, and gives the go-ahead itself.
TAKEOVER_SECONDS = 5.0


class Say(StrEnum):
    """What this VM has to do about the go-ahead."""

    GIVE = "give"
    WAIT = "wait"
    LEAVE = "leave"


class Verdict(NamedTuple):
    """What to do; for how long to wait, or to whom it is left, in words."""

    say: Say
    why: str = ""
    seconds: float = 0.0


def first_named(event: Event) -> str:
    """The VM that leads by Azure's suggestion."""
    return event.resources[0] if event.resources else ""


def verdict(leader: Leader, event: Event, vm: str) -> Verdict:
    """Without a rendezvous: by the document alone."""
    first = first_named(event)
    if leader is Leader.FIRST and first.casefold() != vm.casefold():
        return Verdict(Say.LEAVE, f"left to {first}")
    return Verdict(Say.GIVE)


def missing(event: Event, ready: frozenset[str]) -> tuple[str, ...]:
    """Those of the named VMs that have not said that they are ready."""
    folded = {name.casefold() for name in ready}
    return tuple(name for name in event.resources if name.casefold() not in folded)


def verdict_at_rendezvous(
    event: Event,
    vm: str,
    ready: frozenset[str],
    all_ready_seconds: float,
    takeover_seconds: float = TAKEOVER_SECONDS,
) -> Verdict:
    """With a rendezvous: who of the named is ready, and for how long all of them have been."""
    lacking = missing(event, ready)
    if lacking:
        return Verdict(Say.WAIT, f"not ready: {', '.join(lacking)}")
    names = [name.casefold() for name in event.resources]
    rank = names.index(vm.casefold()) if vm.casefold() in names else len(names)
    left = rank * takeover_seconds - all_ready_seconds
    if left > 0:
        return Verdict(Say.WAIT, f"all are ready; {first_named(event)} leads", left)
    return Verdict(Say.GIVE)
