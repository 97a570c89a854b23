"""What comes of a try: taken, tried again later, or given up. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from fairnotice.stores.webhooks import Delivery, Webhook

# The schedule of Azure Event Grid, then every hour; it keeps trying for a day, 30 times at most.
RETRY_SECONDS = (10.0, 30.0, 60.0, 300.0, 600.0, 1_800.0, 3_600.0)
ATTEMPTS_MAX = 30
KEEP_MINUTES_MAX = 1_440
# However long a receiver asks to be left alone, it is not for longer.
PAUSE_SECONDS_MAX = 3_600.0
DIGITS_READ = 9
# What Azure Event Grid takes for "taken".
TAKEN = frozenset({200, 201, 202, 203, 204})
# The receiver will not take it later either: given up at once.
NEVER_TAKEN = frozenset({400, 401, 403, 404, 413})


def failed(
    webhook: Webhook,
    delivery: Delivery,
    now: datetime,
    error: str,
    *,
    status: int = 0,
    retry_after: str = "",
    retry_seconds: Sequence[float] = RETRY_SECONDS,
) -> Delivery:
    """A delivery after a try that failed: when it is tried again, or that it is given up."""
    attempts = delivery.attempts + 1
    pause_seconds = retry_seconds[min(attempts, len(retry_seconds)) - 1]
    wait = timedelta(seconds=max(pause_seconds, _asked_for_seconds(retry_after)))
    tried = msgspec.structs.replace(
        delivery, attempts=attempts, error=error, next_at=now + wait, dead_at=None
    )
    why = _why_given_up(webhook, tried, now, status)
    return _given_up(tried, now, why) if why else tried


def _asked_for_seconds(retry_after: str) -> float:
    """How long a receiver asks to be left alone by Retry-After; an instant there is not read."""
    if not (retry_after.isascii() and retry_after.isdigit()):
        return 0.0
    # Of its digits the first will do: it may have thousands.
    return min(float(retry_after[:DIGITS_READ]), PAUSE_SECONDS_MAX)


def is_due(delivery: Delivery, now: datetime) -> bool:
    """Whether it is to be tried now.

    Where the clock was set back, also what was to be tried at an instant that is farther off than
    any pause is long.
    """
    too_far = now + timedelta(seconds=PAUSE_SECONDS_MAX)
    return not delivery.attempts or not now < delivery.next_at <= too_far


def _why_given_up(webhook: Webhook, tried: Delivery, now: datetime, status: int) -> str:
    if status in NEVER_TAKEN:
        return "given up at once, since another try would come to the same"
    if tried.attempts >= webhook.attempts_max:
        return f"given up after {tried.attempts} {'try' if tried.attempts == 1 else 'tries'}"
    return _why_expired(webhook, tried, now)


def _why_expired(webhook: Webhook, tried: Delivery, now: datetime) -> str:
    if now < kept_until(webhook, tried):
        return ""
    minutes = webhook.keep_minutes
    return f"given up after {minutes} {'minute' if minutes == 1 else 'minutes'}"


def _given_up(tried: Delivery, now: datetime, why: str) -> Delivery:
    error = f"{tried.error}; {why}" if tried.error else why
    return msgspec.structs.replace(tried, error=error, dead_at=now)


def kept_until(webhook: Webhook, delivery: Delivery) -> datetime:
    """When a delivery is given up that nobody has taken."""
    return delivery.queued_at + timedelta(minutes=webhook.keep_minutes)


def looked_at(webhook: Webhook, delivery: Delivery) -> datetime:
    """When something is to be done about a delivery: it is tried again, or its time is over."""
    if not delivery.attempts:
        return delivery.next_at
    return min(delivery.next_at, kept_until(webhook, delivery))


def expired(webhook: Webhook, delivery: Delivery, now: datetime) -> Delivery | None:
    """A delivery that was tried for as long as may be, given up; None where there is time left.

    What could not be tried yet has one try, however long it has waited.
    """
    why = _why_expired(webhook, delivery, now) if delivery.attempts else ""
    return _given_up(delivery, now, why) if why else None


def anew(delivery: Delivery, now: datetime) -> Delivery:
    """A dead letter that is to be delivered again, with all its tries before it."""
    return msgspec.structs.replace(
        delivery, attempts=0, queued_at=now, next_at=now, error="", dead_at=None
    )
