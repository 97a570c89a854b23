"""A number as it is printed: what it is, its median and spread, its limit, whether it holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple


@dataclass(frozen=True, kw_only=True)
class Number:
    """Measured values of one thing. Without a limit it is printed for information only."""

    name: str
    values: Sequence[float]
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def median(self) -> float:
        """The middle one of the measured values."""
        return median(self.values)

    @property
    def holds(self) -> bool:
        """Whether the median keeps the limit."""
        if self.at_least is not None:
            return self.median >= self.at_least
        return self.at_most is None or self.median <= self.at_most

    def __str__(self) -> str:
        line = f"{self.name:<58} {_plain(self.median):>9} {self.unit:<9} {self._spread():<20}"
        if self.at_least is not None:
            line += f" at least {_plain(self.at_least)}: {'holds' if self.holds else 'MISSED'}"
        elif self.at_most is not None:
            line += f" at most {_plain(self.at_most)}: {'holds' if self.holds else 'MISSED'}"
        return line.rstrip()

    def _spread(self) -> str:
        if len(self.values) == 1:
            return "one run"
        return f"{_plain(min(self.values))} to {_plain(max(self.values))}"


class LeftOut(NamedTuple):
    """Something that could not be measured here, and why."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name:<58} left out: {self.reason}"


def _plain(value: float) -> str:
    """Three digits or more: 0.84, 12.3, 21,500."""
    if value < 10:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"
