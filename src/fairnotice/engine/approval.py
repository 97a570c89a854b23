"""Rules 2, 3, 5 and 16: what an event still waits for, and who lets it go."""

from datetime import datetime, timedelta

from fairnotice.engine.announce import must_be_near, unconfirmed_nodes
from fairnotice.engine.answers import Accepted
from fairnotice.engine.changes import (
    EndpointChanged,
    EndpointRemoved,
    EventApproved,
    EventConfirmed,
    OperationChanged,
)
from fairnotice.engine.commands import (
    Approve,
    Confirm,
    HearEndpoint,
    JoinEndpoint,
    LeaveEndpoint,
    Postpone,
    Release,
)
from fairnotice.engine.draft import Draft
from fairnotice.engine.ending import consider_terminates, scheduled_events
from fairnotice.engine.notice import HOUR, in_utc, whole_second
from fairnotice.engine.putting_off import make_good, put_off
from fairnotice.engine.refusal import Code, misfit, refuse
from fairnotice.model import Approval, Endpoint, Event, Operation, Requester
from fairnotice.words import EventType, Role

# How often it is written down that an endpoint was heard of.
ENDPOINT_EVERY_SECONDS = HOUR / 2

# Two readings of a monotonic clock that should be equal may differ by rounding.
CLOCK_ROUNDING_SECONDS = 1e-6


# ---- What a Scheduled event waits for ----


def cleared_at(draft: Draft, event: Event) -> datetime:
    """When the event stops, or stopped, holding up its operation: approved, NotBefore, or gone."""
    cleared = _approved_at(draft, event)
    if event.gone_at is not None:
        return min(cleared, event.gone_at, draft.now)
    if event.type is EventType.TERMINATE and event.approval is not None:
        others = (_approved_at(draft, other) for other in _terminates_before(draft, event))
        cleared = min(event.not_before, max((cleared, *others)))
    return cleared


def _approved_at(draft: Draft, event: Event) -> datetime:
    if event.approval is None:
        return event.not_before
    # An approval counts also where the clock has gone back since it was given (rule 25).
    return min(event.approval.at, event.not_before, draft.now)


def _terminates_before(draft: Draft, event: Event) -> list[Event]:
    """Rule 16: Terminates of the scale set announced before this one, or by its command."""
    request = draft.operations[event.operation].request
    scale_set = draft.scopes[event.scope].of
    waiting = (draft.events[other] for other in draft.terminates_in_set.get(scale_set, ()))
    return [
        other
        for other in waiting
        if other.revision < event.revision or draft.operations[other.operation].request == request
    ]


def held_by(event: Event) -> tuple[str, ...]:
    """Nodes whose endpoints an unapproved event waits for although its time has come."""
    return () if event.approval is not None else event.unconfirmed


def unelapsed_seconds(draft: Draft, event: Event) -> float:
    """What is missing of the notice on the clock that nobody can set (rule 25)."""
    if event.approval is not None or event.life != draft.life.number:
        return 0.0
    missing = event.elapsed_at - draft.moment.monotonic
    return missing if missing > CLOCK_ROUNDING_SECONDS else 0.0


# ---- Who lets it go ----


def approve(draft: Draft, command: Approve) -> Accepted:
    """Approve all of these events, or none where one was never seen by who approves."""
    events = [_seen_event(draft, event_id, command.by) for event_id in command.events]
    for event in dict.fromkeys(events):
        if event.scheduled and event.approval is None:
            approval = Approval(command.by.name, draft.now)
            draft.record(EventApproved(draft.now, event._replace(approval=approval)))
            draft.candidates[event.operation] = None
            consider_terminates(draft, event)
    return Accepted(events=tuple(event.id for event in events))


def _seen_event(draft: Draft, event_id: str, by: Requester) -> Event:
    """The event, if whoever asks could see it: a VM sees only its own scope's."""
    event = draft.events.get(event_id.upper())
    if event is not None and event.gone_at is not None:
        remembered = timedelta(seconds=draft.timing.remembered_seconds)
        event = event if draft.now < event.gone_at + remembered else None
    if event is not None and by.role is Role.VM:
        vm = draft.vms.get(by.name)
        event = event if vm is not None and vm.scope == event.scope else None
    if event is None:
        refuse(
            Code.NOT_FOUND,
            f"EventId not found: {event_id}.",
            "Read the document again; an event is known for a day after it is gone.",
            rule=3,
        )
    return event


def postpone(draft: Draft, command: Postpone) -> Accepted:
    """Give more notice: a visible change, and only before anybody approved."""
    event = operators_event(draft, command.event, command.by, rule=2)
    if not event.scheduled:
        _refuse_late(event, "postponed")
    if event.approval is not None:
        refuse(
            Code.CONFLICT,
            f"{event.approval.by} has approved {event.id} already.",
            "Cancel it and ask anew for a later time.",
            rule=2,
            event=event.id,
        )
    asked = in_utc(command.not_before)
    must_be_near(draft, asked)
    not_before = whole_second(asked)
    if not_before < event.not_before:
        misfit(
            "not_before",
            "An event is never brought forward.",
            f"Give an instant after {event.not_before:%Y-%m-%d %H:%M:%S} UTC.",
            rule=2,
            event=event.id,
        )
    if not_before > event.not_before:
        longer_seconds = (not_before - event.not_before).total_seconds()
        elapsed_at = event.elapsed_at + longer_seconds
        # Also those whom nobody has told are not hit before the instant the operator gave.
        operation = draft.operations[event.operation]
        latest = max(operation.asked_not_before or not_before, not_before)
        postponed = operation._replace(asked_not_before=latest)
        draft.record(OperationChanged(draft.now, postponed))
        put_off(draft, event._replace(not_before=not_before, elapsed_at=elapsed_at))
    return Accepted(operations=(event.operation,), events=(event.id,))


def operators_event(draft: Draft, event_id: str, by: Requester, rule: int) -> Event:
    """The event that an operator names."""
    if by.role is not Role.OPERATOR:
        refuse(Code.FORBIDDEN, "Only an operator may do that.", "Ask one.", rule=rule)
    event = draft.events.get(event_id.upper())
    if event is None:
        refuse(Code.NOT_FOUND, f"There is no event {event_id}.", "List the events.", rule=rule)
    return event


def _refuse_late(event: Event, what: str) -> None:
    refuse(
        Code.CONFLICT,
        f"{event.id} is {event.status} and cannot be {what}.",
        "Only what is still Scheduled can.",
        rule=6,
        event=event.id,
    )


# ---- Endpoints that have to confirm (rule 5) ----


def release(draft: Draft, command: Release) -> Accepted:
    """An operator decides that nobody waits for unconfirmed endpoints any more."""
    event = operators_event(draft, command.event, command.by, rule=5)
    if not event.scheduled:
        _refuse_late(event, "released")
    if event.unconfirmed:
        _confirmed(draft, event._replace(released=True, released_by=command.by.name), ())
    return Accepted(operations=(event.operation,), events=(event.id,))


def join_endpoint(draft: Draft, command: JoinEndpoint) -> Accepted:
    """From now on events for VMs of this node wait until its endpoint shows them."""
    if command.node not in draft.nodes:
        refuse(Code.NOT_FOUND, f"There is no node {command.node}.", "Add it to the fleet.", rule=5)
    if command.node not in draft.endpoints:
        draft.record(EndpointChanged(draft.now, Endpoint(command.node, heard_at=draft.now)))
        for name in draft.vms_on_node.get(command.node, ()):
            for operation in draft.operations_on_vm.get(name, ()):
                ask_endpoints(draft, draft.operations[operation])
    return Accepted()


def hear_endpoint(draft: Draft, command: HearEndpoint) -> Accepted:
    """What this endpoint served until now was reported; nothing where there is none."""
    endpoint = draft.endpoints.get(command.node)
    if endpoint is not None and _was_long_ago(draft, endpoint.heard_at):
        draft.record(EndpointChanged(draft.now, endpoint._replace(heard_at=draft.now)))
    return Accepted()


def _was_long_ago(draft: Draft, heard_at: datetime | None) -> bool:
    return heard_at is None or (draft.now - heard_at).total_seconds() >= ENDPOINT_EVERY_SECONDS


def ask_endpoints(draft: Draft, operation: Operation) -> None:
    """Endpoints that now serve a VM of a Scheduled event have to confirm it, if any are new."""
    for event in scheduled_events(draft, operation):
        vms = [draft.vms[name] for name in event.resources]
        unconfirmed = unconfirmed_nodes(draft, event.type, vms)
        if unconfirmed != event.unconfirmed and not event.released:
            since = draft.revision + 1
            asked = event._replace(unconfirmed=unconfirmed, unconfirmed_since=since)
            draft.record(EventConfirmed(draft.now, asked))
            draft.candidates[operation.id] = None


def leave_endpoint(draft: Draft, command: LeaveEndpoint) -> Accepted:
    """Nobody waits for this endpoint any more."""
    remove_endpoint(draft, command.node)
    return Accepted()


def remove_endpoint(draft: Draft, node: str) -> None:
    """Take a node's endpoint away, if it has one; nothing waits for it any more."""
    endpoint = draft.endpoints.get(node)
    if endpoint is not None:
        draft.record(EndpointRemoved(draft.now, endpoint))
        _confirm_up_to(draft, node, draft.revision)


def confirm(draft: Draft, command: Confirm) -> Accepted:
    """The endpoint shows all that was announced up to this revision."""
    endpoint = draft.endpoints.get(command.node)
    if endpoint is None:
        refuse(
            Code.NOT_FOUND,
            f"{command.node} has no endpoint of its own.",
            "Let it join first.",
            rule=5,
        )
    # Nobody can have confirmed what is still to come: such a word is worth no more than now.
    revision = min(command.revision, draft.revision)
    if revision > endpoint.confirmed_revision:
        confirmed = endpoint._replace(confirmed_revision=revision)
        draft.record(EndpointChanged(draft.now, confirmed))
        for event in _confirm_up_to(draft, command.node, revision):
            if not event.unconfirmed and event.approval is None:
                make_good(draft, event)
    return Accepted()


def _confirm_up_to(draft: Draft, node: str, revision: int) -> list[Event]:
    """Wait no more for this node, with what was asked of it until then; those events."""
    asked = [draft.events[event_id] for event_id in draft.unconfirmed_on_node.get(node, ())]
    return [
        _confirmed(draft, event, tuple(other for other in event.unconfirmed if other != node))
        for event in asked
        if event.unconfirmed_since <= revision
    ]


def _confirmed(draft: Draft, event: Event, unconfirmed: tuple[str, ...]) -> Event:
    confirmed = event._replace(unconfirmed=unconfirmed)
    draft.record(EventConfirmed(draft.now, confirmed))
    draft.candidates[event.operation] = None
    return confirmed
