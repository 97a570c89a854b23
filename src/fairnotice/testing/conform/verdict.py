"""What came of a client: a verdict for each situation, and all of them together."""

from enum import StrEnum
from typing import Any, NamedTuple

from fairnotice.testing.conform.declared import Declared


class Verdict(StrEnum):
    """How a client came out of a situation."""

    SURVIVED = "survived"
    FAILED = "failed"
    NOT_ASKED = "not asked"


class Result(NamedTuple):
    """How it came out of one situation, why, and what it printed meanwhile."""

    situation: str
    verdict: Verdict
    why: str = ""
    seconds: float = 0.0
    output: str = ""


class Report(NamedTuple):
    """How it came out of all that were played, in the order of the table."""

    declared: Declared
    results: tuple[Result, ...]
    seconds: float

    def count(self, verdict: Verdict) -> int:
        """How many came out so."""
        return sum(one.verdict is verdict for one in self.results)

    @property
    def survived(self) -> bool:
        """Whether it survived all that it was asked."""
        return not self.count(Verdict.FAILED)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "command": list(self.declared.command),
            "poll_seconds": round(self.declared.interval_seconds, 3),
            "seconds": round(self.seconds, 3),
            "survived": self.count(Verdict.SURVIVED),
            "failed": self.count(Verdict.FAILED),
            "not_asked": self.count(Verdict.NOT_ASKED),
            "situations": [
                {**one._asdict(), "seconds": round(one.seconds, 3)} for one in self.results
            ],
        }
