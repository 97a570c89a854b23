"""What would come of a command, told by the law before it is given: as rows, and in words.

    Foreseeing(service).on_vms("restart", ("web-0",), who)     # a Foresight, or a Refusal

The law decides as if it was asked in earnest; what it would change is laid over the fleet, told
from there, and thrown away.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from fairnotice.control import shapes, views
from fairnotice.control.auth import ANYBODY, Caller
from fairnotice.control.in_words import seconds_in_words
from fairnotice.control.limits import Reach
from fairnotice.control.service import Result, Service
from fairnotice.engine import Decision, Fleet, Refusal, changes
from fairnotice.engine.changes import Change
from fairnotice.engine.commands import Command
from fairnotice.engine.ending import impact_key
from fairnotice.engine.trial import Trial
from fairnotice.model import Event, Operation, Rollout
from fairnotice.words import EventStatus, ImpactKind, OperationKind, RolloutStatus

NAMES_SHOWN = 8

# What will be done to VMs, said of one or of several.
_WILL_BE = {
    OperationKind.HOST_UPDATE: "frozen for a moment while {node} is updated",
    OperationKind.HOST_REBOOT: "rebooted together with {node}",
    OperationKind.REPAIR: "rebooted for an emergency repair of {node}",
    OperationKind.MIGRATION: "live-migrated away from {node}, paused for some seconds",
    OperationKind.EVACUATION: "live-migrated away from {node}, paused for some seconds",
    OperationKind.PREDICTED_FAILURE: (
        "moved to other nodes before {node} fails; what is on their local disks is lost"
    ),
    OperationKind.FAILURE: (
        "started anew on other nodes, since {node} has failed; what is on their local disks is lost"
    ),
    OperationKind.RESTART: "rebooted",
    OperationKind.REDEPLOY: "moved to another node; what is on its local disk is lost",
    OperationKind.EVICTION: "evicted",
    OperationKind.DELETE: "deleted for good",
    OperationKind.STOP: "stopped, and keeps its place",
    OperationKind.START: "started",
    OperationKind.DEALLOCATE: "stopped, and its place is given up",
}
# Where an impact says more than the operation: it has already chosen where a VM goes.
_GOES = (ImpactKind.REDEPLOY, ImpactKind.MIGRATE, ImpactKind.START)
_NODE_SENTENCES: dict[type[Change[Any]], str] = {
    changes.NodeCordoned: "No VM is put on {name} from now on.",
    changes.NodeReturned: "{name} is in service again: VMs may be put on it.",
    changes.NodeFailed: "{name} is taken for failed: its VMs surely do not run there any more.",
}


class Foreseeing(Service):
    """The same use cases, of which none is carried out."""

    def __init__(self, service: Service, caller: Caller = ANYBODY) -> None:
        super().__init__(service.conductor)
        self._caller = caller

    async def _decided(self, command: Command) -> Decision | Refusal:
        return self.conductor.foresee(command)

    def _shown(self, decision: Decision | Refusal) -> Result:
        if isinstance(decision, Refusal):
            return decision
        after = Trial(self.fleet)
        for change in decision.changes:
            after.apply(change)
        accepted = views.accepted(after, decision)
        return shapes.Foresight(
            id=accepted.id,
            operations=accepted.operations,
            events=accepted.events,
            left=accepted.left,
            warnings=accepted.warnings,
            sentences=sentences(
                Sight(self.fleet, after, self._caller), decision.changes, accepted.left
            ),
        )


class Sight(NamedTuple):
    """The fleet before and after, as far as he who asks may see it."""

    before: Fleet
    after: Fleet
    caller: Caller

    @property
    def has_nodes(self) -> bool:
        """Whether he is told which nodes there are."""
        return self.caller.limits is None

    def listed(self, names: Sequence[str]) -> str:
        """These VMs by their names; of those that are none of his, and of many, how many."""
        his = [name for name in names if self.caller.reaches(self.before, Reach.VM, name)]
        shown = his[:NAMES_SHOWN]
        more = len(names) - len(shown)
        if not shown:
            return "1 VM" if more == 1 else f"{more} VMs"
        return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def sentences(sight: Sight, made: Sequence[Change[Any]], left: Sequence[str]) -> list[str]:
    """What these changes mean to people, in the order in which they would notice."""
    told = [*_nodes(made), *_planned(sight, made), *_known(sight, made), *_rollouts(made)]
    if left:
        told.append(
            f"{sight.listed(left)} stay where they are: there is no room for them elsewhere."
        )
    return list(dict.fromkeys(told)) or ["Nothing changes: it was asked for already, or is so."]


def _nodes(made: Iterable[Change[Any]]) -> Iterator[str]:
    for change in made:
        sentence = _NODE_SENTENCES.get(type(change))
        if sentence is not None:
            yield sentence.format(name=change.row.name)


# ---- What is new ----


def _planned(sight: Sight, made: Iterable[Change[Any]]) -> Iterator[str]:
    after = sight.after
    planned = [one.row.id for one in made if isinstance(one, changes.OperationPlanned)]
    operations = [after.operations[name] for name in planned]
    # An operation that is made of several, one per scope, is one to whoever asks for it.
    together: dict[tuple[OperationKind, str | None], list[Operation]] = {}
    for operation in operations:
        together.setdefault((operation.kind, operation.node), []).append(operation)
    for (kind, node), same in together.items():
        vms = [name for operation in same for name in operation.vms]
        if vms:
            will_be = _WILL_BE[kind].format(node=node or "its node")
            yield f"{sight.listed(vms)} will be {will_be}."
    for operation in operations:
        yield from _announced(sight, operation)
        yield from _untold(sight, operation)
        yield from _begun(sight, operation)


def _announced(sight: Sight, operation: Operation) -> Iterator[str]:
    for name in operation.events:
        event = sight.after.events[name]
        seen_by = sight.listed(sight.after.vms_in_scope.get(event.scope, ()))
        what = f"{event.type} of {sight.listed(event.resources)}"
        if event.status is not EventStatus.SCHEDULED:
            yield f"{event.scope} sees it as {event.status} at once, without notice: {what}."
            continue
        notice = seconds_in_words(int((event.not_before - event.announced_at).total_seconds()))
        yield (
            f"{event.scope} is told at once: {what}, with {notice} of notice. "
            f"Earliest start: {event.not_before:%Y-%m-%d %H:%M:%S} UTC, or as soon as it is "
            f"approved. Those who see it: {seen_by}."
        )


def _untold(sight: Sight, operation: Operation) -> Iterator[str]:
    after = sight.after
    named = {name for event in operation.events for name in after.events[event].resources}
    silent: dict[str, list[str]] = {}
    for name in operation.vms:
        if name not in named:
            silent.setdefault(after.vms[name].scope, []).append(name)
    for scope, vms in silent.items():
        enabled = after.scopes[scope].enabled
        why = (
            "it is done without an event"
            if enabled
            else "none of its VMs has asked within 24 hours"
        )
        yield f"Of {sight.listed(vms)} nobody in {scope} is told: {why}."


def _begun(sight: Sight, operation: Operation) -> Iterator[str]:
    if operation.started_at is not None:
        yield "It begins at once."
        if sight.has_nodes:
            yield from _going(sight.after, operation)
    elif not operation.events:
        yield f"It begins at {operation.not_before:%Y-%m-%d %H:%M:%S} UTC, or after what is due."


def _going(after: Fleet, operation: Operation) -> Iterator[str]:
    for name in operation.vms:
        impact = after.impacts.get(impact_key(operation.id, name))
        if impact is not None and impact.kind in _GOES and impact.target is not None:
            yield f"{name} goes to {impact.target}."


# ---- What was announced already ----


def _known(sight: Sight, made: Iterable[Change[Any]]) -> Iterator[str]:
    before = sight.before
    for change in made:
        row = change.row
        if not isinstance(row, Event) or row.id not in before.events:
            continue
        what = f"The {row.type} of {sight.listed(row.resources)} in {row.scope}"
        if isinstance(change, changes.EventApproved):
            yield from _approved(sight, row, what)
        elif isinstance(change, changes.EventPostponed):
            yield (
                f"{what} starts at {row.not_before:%Y-%m-%d %H:%M:%S} UTC at the earliest, not at "
                f"{before.events[row.id].not_before:%H:%M:%S}. Its VMs see that."
            )
        elif isinstance(change, changes.EventStarted):
            yield f"{what} starts at once."
        elif isinstance(change, changes.EventGone):
            yield f"{what} is {row.status.lower()}: it is in no document any more."
        elif isinstance(change, changes.EventConfirmed):
            yield f"{what} waits for no endpoint any more."


def _approved(sight: Sight, event: Event, what: str) -> Iterator[str]:
    after = sight.after
    operation = after.operations[event.operation]
    if operation.started_at is not None:
        return
    waiting = [
        other
        for other in (after.events[name] for name in operation.events)
        if other.scheduled and other.approval is None
    ]
    others = [name for other in waiting for name in other.resources]
    if others:
        yield (
            f"{what} is approved. It starts when that of {sight.listed(others)} is approved too, "
            f"or at {operation.not_before:%Y-%m-%d %H:%M:%S} UTC."
        )
    else:
        yield f"{what} is approved. It starts as soon as its VMs are free."


def _rollouts(made: Iterable[Change[Any]]) -> Iterator[str]:
    says = {
        RolloutStatus.RUNNING: "The rollout goes on: the next nodes are taken as they come free.",
        RolloutStatus.PAUSED: "No further node is taken; what is announced or under way goes on.",
        RolloutStatus.CANCELED: (
            "The rollout ends: no further node is taken, and what has not started is canceled."
        ),
    }
    for change in made:
        row = change.row
        if isinstance(row, Rollout) and row.status in says:
            yield says[row.status]
