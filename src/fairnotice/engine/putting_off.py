"""Rules 2, 5 and 24: a later NotBefore, and notice that begins anew because nobody could use it."""

from fairnotice.engine.announce import least_notice
from fairnotice.engine.changes import EventPostponed, OperationChanged
from fairnotice.engine.draft import Draft
from fairnotice.engine.effects import Matter
from fairnotice.engine.notice import earliest
from fairnotice.model import Event

# What may be missing of the least notice when an endpoint shows an event at last. To show one
# takes it milliseconds; and a document that changes twice is read twice.
MISSING_MAX = 0.1


def put_off(draft: Draft, event: Event) -> None:
    """Write down a later NotBefore, for the event and for the operation as a whole."""
    draft.record(EventPostponed(draft.now, event))
    operation = draft.operations[event.operation]
    if event.not_before > operation.not_before:
        later = operation._replace(not_before=event.not_before)
        draft.record(OperationChanged(draft.now, later))
    draft.wake(event.not_before, Matter.OPERATION, event.operation)
    draft.candidates[event.operation] = None


def was_served(event: Event) -> bool:
    """Whether its notice counts as it is: somebody has looked, or it began anew once already."""
    return bool(event.seen) or event.notice_renewed


def renew(draft: Draft, event: Event) -> None:
    """Let the notice of an event begin now; the least of its type, however much was given."""
    _renew(draft, event, _least_seconds(draft, event))


def make_good(draft: Draft, event: Event) -> None:
    """Its endpoints show an event at last: where much of its notice is over, it begins anew."""
    if was_served(event):
        return
    least_seconds = _least_seconds(draft, event)
    missing = earliest(draft.now, least_seconds, None) - event.not_before
    if missing.total_seconds() > least_seconds * MISSING_MAX:
        _renew(draft, event, least_seconds)


def _renew(draft: Draft, event: Event, notice_seconds: int) -> None:
    not_before = max(event.not_before, earliest(draft.now, notice_seconds, None))
    if not_before > event.not_before:
        renewed = event._replace(
            not_before=not_before,
            notice_renewed=True,
            life=draft.life.number,
            elapsed_at=draft.moment.monotonic + (not_before - draft.now).total_seconds(),
        )
        put_off(draft, renewed)


def _least_seconds(draft: Draft, event: Event) -> int:
    kind = draft.operations[event.operation].kind
    return max(least_notice(draft, kind, draft.vms[name]) for name in event.resources)
