"""The law of scheduled events: pure, and the same wherever it is asked.

decision = decide(fleet, command, now)     # Decision or Refusal; changes nothing
for change in decision.changes:
    fleet.apply(change)                    # the only thing that changes a fleet
"""

from fairnotice.engine.answers import Accepted, Decision, Forecast
from fairnotice.engine.decide import decide
from fairnotice.engine.documents import document
from fairnotice.engine.fleet import Fleet
from fairnotice.engine.notice import AZURE, DEV, PROFILES, Timing
from fairnotice.engine.refusal import Code, Refusal

__all__ = [
    "AZURE",
    "DEV",
    "PROFILES",
    "Accepted",
    "Code",
    "Decision",
    "Fleet",
    "Forecast",
    "Refusal",
    "Timing",
    "decide",
    "document",
]
