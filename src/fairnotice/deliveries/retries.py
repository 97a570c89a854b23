"""What comes of a try: taken, tried again later, or given up. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from fairnotice.stores.webhooks import Delivery, Webhook

# The schedule of Azure Event Grid, then every hour; it keeps trying for a day, 30 times at most.
RETRY_SECONDS = (10.0, 30.0, 60.0, 300.0, 600.0, 1_800.0, 3_600.0)
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
    retry_seconds: Sequence[float] = RETRY_SECONDS,
) -> Delivery:
    """A delivery after a try that failed: when it is tried again, or that it is given up."""
    attempts = delivery.attempts + 1
    wait = timedelta(seconds=retry_seconds[min(attempts, len(retry_seconds)) - 1])
    tried = msgspec.structs.replace(
        delivery, attempts=attempts, error=error, next_at=now + wait, dead_at=None
    )
    why = _why_given_up(webhook, tried, now, status)
    return msgspec.structs.replace(tried, error=f"{error}; {why}", dead_at=now) if why else tried


def _why_given_up(webhook: Webhook, tried: Delivery, now: datetime, status: int) -> str:
    if status in NEVER_TAKEN:
        return "given up at once, since another try would come to the same"
    if tried.attempts >= webhook.attempts_max:
        return f"given up after {tried.attempts} tries"
    if now >= tried.queued_at + timedelta(minutes=webhook.keep_minutes):
        return f"given up after {webhook.keep_minutes} minutes"
    return ""


def expired(webhook: Webhook, delivery: Delivery, now: datetime) -> Delivery | None:
    """A delivery that nobody could try for too long, given up; None where there is time left."""
    if now < delivery.queued_at + timedelta(minutes=webhook.keep_minutes):
        return None
    why = f"given up after {webhook.keep_minutes} minutes"
    error = f"{delivery.error}; {why}" if delivery.error else why
    return msgspec.structs.replace(delivery, dead_at=now, error=error)


def anew(delivery: Delivery, now: datetime) -> Delivery:
    """A dead letter that is to be delivered again, with all its tries before it."""
    return msgspec.structs.replace(delivery, attempts=0, queued_at=now, next_at=now, dead_at=None)
