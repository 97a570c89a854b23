"""Conformance of clients: situations that every client meets one day, and which it survives.

from fairnotice.testing.conform import conform

report = conform(["python3", "my_client.py"])
assert report.survived, [one.why for one in report.results]
"""

from fairnotice.testing.conform.declared import Declared
from fairnotice.testing.conform.junit import junit
from fairnotice.testing.conform.player import conform
from fairnotice.testing.conform.situation import Situation
from fairnotice.testing.conform.situations import SITUATIONS
from fairnotice.testing.conform.verdict import Report, Result, Verdict

__all__ = [
    "SITUATIONS",
    "Declared",
    "Report",
    "Result",
    "Situation",
    "Verdict",
    "conform",
    "junit",
]
