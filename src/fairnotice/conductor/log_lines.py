"""What an operator reads in the log of what was decided."""

import logging

from fairnotice.engine import Decision
from fairnotice.engine.changes import ImpactEnded
from fairnotice.words import ImpactStatus

log = logging.getLogger(__name__)


def log_decision(decision: Decision) -> None:
    """Log the warnings of a decision that is in force, and the impacts that failed."""
    for warning in decision.warnings:
        log.warning("%s", warning)
    for change in decision.changes:
        if isinstance(change, ImpactEnded) and change.row.status is not ImpactStatus.DONE:
            impact = change.row
            why = (impact.kind, impact.vm, impact.status, impact.reason, impact.key)
            log.warning("%s of %s %s: %s (impact %s)", *why)
