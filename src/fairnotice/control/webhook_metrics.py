"""What the platform tells Prometheus of webhooks."""

from collections.abc import Iterator

from fairnotice.control.metrics import Metric
from fairnotice.deliveries.delivering import Delivering

OUTCOMES = ("delivered", "failed", "dead")


def of_webhooks(delivering: Delivering) -> Iterator[Metric]:
    """All metrics of webhooks; without samples where there is none, or another leads."""
    yield Metric(
        "fairnotice_webhook_tries_total",
        "counter",
        "Deliveries that were taken, tries that failed, and letters given up, by webhook.",
        [
            ("", (("webhook", name), ("outcome", outcome)), counts[outcome])
            for name, counts in delivering.counts().items()
            for outcome in OUTCOMES
        ],
    )
    yield Metric(
        "fairnotice_webhook_dead_letters_forgotten_total",
        "counter",
        "Dead letters that went because there were too many of them, by webhook.",
        [
            ("", (("webhook", name),), counts["forgotten"])
            for name, counts in delivering.counts().items()
        ],
    )
    yield Metric(
        "fairnotice_webhook_dead_letters",
        "gauge",
        "Letters that were given up, whenever that was, and can be redelivered, by webhook.",
        [("", (("webhook", name),), count) for name, count in delivering.dead().items()],
    )
    waiting = delivering.waiting()
    yield Metric(
        "fairnotice_webhook_waiting",
        "gauge",
        "Deliveries that wait for a receiver, 1,000 at most; more wait in the journal.",
        [("", (("webhook", name),), count) for name, (count, _) in waiting.items()],
    )
    yield Metric(
        "fairnotice_webhook_waiting_seconds",
        "gauge",
        "For how long the first of them has waited.",
        [("", (("webhook", name),), seconds) for name, (_, seconds) in waiting.items()],
    )
