"""Rules 24 and 25: what a new life of the process has to make good."""

from datetime import timedelta

from fairnotice.engine.answers import Accepted
from fairnotice.engine.changes import LifeBegan
from fairnotice.engine.commands import Restarted
from fairnotice.engine.draft import Draft
from fairnotice.engine.effects import Matter
from fairnotice.engine.enabling import wake_enabled_scopes
from fairnotice.engine.impacts import ask_again
from fairnotice.engine.notice import in_utc
from fairnotice.engine.putting_off import renew, was_served
from fairnotice.engine.rollout_commands import wake_rollout
from fairnotice.model import Life


def restarted(draft: Draft, command: Restarted) -> Accepted:
    """Begin a new life: renew notice nobody was served, ask drivers, set all timers anew."""
    recorded_at = draft.fleet.recorded_at or draft.now
    away_seconds = (draft.now - recorded_at).total_seconds()
    behind = away_seconds < 0
    unserved = draft.life.unserved_seconds
    if not command.takeover:
        served_until = in_utc(command.served_until or recorded_at)
        unserved += max((draft.now - served_until).total_seconds(), 0.0)
    life = Life(draft.life.number + 1, draft.now, unserved)
    draft.record(LifeBegan(draft.now, life))
    if behind:
        draft.warnings.append(
            f"The clock is {-away_seconds:.0f} s behind the last record; "
            "everything Scheduled has its notice from now on."
        )
    for event_id in list(draft.events):
        event = draft.events[event_id]
        unseen = not (command.takeover or was_served(event))
        if event.scheduled and event.approval is None and (unseen or behind):
            renew(draft, event)
    _wake_everything(draft)
    return Accepted()


def _wake_everything(draft: Draft) -> None:
    """All timers, and all questions to drivers, that a running process would have at hand."""
    remembered = timedelta(seconds=draft.timing.remembered_seconds)
    for request in draft.requests.values():
        if not request.operations:
            draft.wake(request.asked_at + remembered, Matter.REQUEST, request.id)
    for operation in draft.operations.values():
        ended_at = operation.ended_at
        at = operation.not_before if ended_at is None else ended_at + remembered
        draft.wake(at, Matter.OPERATION, operation.id)
        draft.consider((operation.id,))
    for key in list(draft.impact_on_vm.values()):
        ask_again(draft, draft.impacts[key])
    for event in draft.events.values():
        if event.visible and event.settling_since is not None:
            over_at = event.settling_since + timedelta(seconds=draft.timing.settle_seconds)
            draft.wake(over_at, Matter.EVENT, event.id)
    kept = timedelta(days=draft.timing.history_days)
    for rollout in draft.rollouts.values():
        if rollout.ended_at is None:
            wake_rollout(draft, rollout.id)
        else:
            draft.wake(rollout.ended_at + kept, Matter.ROLLOUT, rollout.id)
    wake_enabled_scopes(draft)
