"""Rule 3: what is over stays known for a day, then it is history (rule 26)."""

from collections.abc import Iterator
from datetime import timedelta

from fairnotice.engine.changes import (
    EventForgotten,
    ImpactForgotten,
    OperationForgotten,
    RequestForgotten,
    RolloutForgotten,
    RolloutNodeForgotten,
)
from fairnotice.engine.draft import Draft
from fairnotice.engine.effects import Matter
from fairnotice.engine.ending import impact_key
from fairnotice.model import Approval, Operation, Request


def forget_request(draft: Draft, request_id: str) -> None:
    """Forget a request all of whose operations are over for long, with all that hangs on it.

    One that has approved events waits for what they announce, too: until then it is the only word
    of whoever asked on what he may follow. One that came too late to approve them does not, or
    whoever approves again and again would be remembered as often.
    """
    request = draft.requests.get(request_id)
    if request is None:
        return
    operations = [draft.operations[name] for name in request.operations]
    ends = [operation.ended_at for operation in operations]
    remembered = timedelta(seconds=draft.timing.remembered_seconds)
    for ended_at in (request.asked_at, *ends):
        if ended_at is None or draft.now < ended_at + remembered:
            return
    for operation in _approved(draft, request):
        # As long as it is live, nobody knows when it will be over for long.
        forgotten_at = (operation.ended_at or draft.now) + remembered
        if draft.now < forgotten_at:
            draft.wake(forgotten_at, Matter.REQUEST, request.id)
            return
    for operation in operations:
        _forget_operation(draft, operation)
    draft.record(RequestForgotten(draft.now, request))


def _approved(draft: Draft, request: Request) -> Iterator[Operation]:
    """What a request has given the go-ahead for, as far as it is known."""
    given = Approval(request.requester.name, request.asked_at)
    events = (draft.events[name] for name in request.events if name in draft.events)
    for name in dict.fromkeys(one.operation for one in events if one.approval == given):
        # An event is known for as long as its operation is.
        yield draft.operations[name]


def _forget_operation(draft: Draft, operation: Operation) -> None:
    for event in operation.events:
        draft.record(EventForgotten(draft.now, draft.events[event]))
    for vm in operation.vms:
        impact = draft.impacts.get(impact_key(operation.id, vm))
        if impact is not None:
            draft.record(ImpactForgotten(draft.now, impact))
    draft.record(OperationForgotten(draft.now, operation))


def forget_rollout(draft: Draft, rollout_id: str) -> None:
    """Forget a rollout that has been over for as long as history is kept."""
    rollout = draft.rollouts.get(rollout_id)
    kept = timedelta(days=draft.timing.history_days)
    if rollout is None or rollout.ended_at is None or draft.now < rollout.ended_at + kept:
        return
    for row in [row for row in draft.rollout_nodes.values() if row.rollout == rollout_id]:
        draft.record(RolloutNodeForgotten(draft.now, row))
    draft.record(RolloutForgotten(draft.now, rollout))
