"""Which events an agent acts on, and what it does about them. Pure.

The first rule that an event fits decides. A rule's course is kept in the journal, so that a plan
that is under way goes on as it began, also when the configuration is another one by then.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum

from fairnotice.client.document import Event
from fairnotice.words import EventType

# Up to so long a Freeze is not worth a drain, unless a rule says how long it has to be.
SHORT_FREEZE_SECONDS = 10
RECOVER_TRIES = 5


class Acknowledge(StrEnum):
    """Whether and when the go-ahead is given."""

    WHEN_PREPARED = "when-prepared"
    AT_ONCE = "at-once"
    NEVER = "never"


class OnFailure(StrEnum):
    """What becomes of the plan when a handler has failed, was late, or was skipped."""

    # The others are run; no go-ahead is given, since the VM is not ready.
    GO_ON = "go-on"
    # The others are not run; no go-ahead is given.
    STOP = "stop"
    # The others are run, and the go-ahead is given all the same.
    ACKNOWLEDGE = "acknowledge"


class WhenShort(StrEnum):
    """What becomes of a handler for which there is not time enough."""

    SKIP = "skip"
    RUN = "run"


class Leader(StrEnum):
    """Who gives the go-ahead where an event names several VMs."""

    FIRST = "first"
    RENDEZVOUS = "rendezvous"
    NONE = "none"


class Reach(StrEnum):
    """Whose events: of this VM, or of all that it is told about."""

    VM = "vm"
    SCOPE = "scope"


@dataclass(frozen=True, slots=True)
class Match:
    """Which events a rule is for; what is left out fits all."""

    types: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()
    duration_at_least: int | None = None
    duration_at_most: int | None = None
    description: re.Pattern[str] | None = None
    scope: Reach = Reach.VM

    def fits(self, event: Event, vm: str) -> bool:
        """Whether the rule is for this event, seen by this VM."""
        return (
            (self.scope is Reach.SCOPE or event.names(vm))
            and _among(event.type, self.types)
            and _among(event.source, self.sources)
            and self._lasts(event)
            and (self.description is None or bool(self.description.search(event.description)))
        )

    def _lasts(self, event: Event) -> bool:
        least, most = self.duration_at_least, self.duration_at_most
        seconds = event.duration_seconds
        if seconds is None or seconds < 0:
            # Not known, or as long as a reboot takes: it counts as long.
            return most is None
        if least is None and most is None and event.type == EventType.FREEZE:
            return seconds > SHORT_FREEZE_SECONDS
        return (least is None or seconds >= least) and (most is None or seconds <= most)


@dataclass(frozen=True, slots=True)
class Course:
    """What is done about an event, and by which rule."""

    rule: str
    prepare: tuple[str, ...] = ()
    recover: tuple[str, ...] = ()
    acknowledge: Acknowledge = Acknowledge.WHEN_PREPARED
    on_failure: OnFailure = OnFailure.GO_ON
    when_short: WhenShort = WhenShort.SKIP
    leader: Leader = Leader.FIRST
    # Handlers whose recover is run once more where a crash has cut it off.
    recover_again: tuple[str, ...] = ()
    # Handlers that only tell somebody: what they could not tell leaves nothing to be undone.
    tells: tuple[str, ...] = ()
    # Handlers that let work in again, which waits until all the others are recovered.
    gates: tuple[str, ...] = ()

    # A recover that fails is tried so often in all.
    recover_tries: int = RECOVER_TRIES

    @property
    def called(self) -> str:
        """The rule in a sentence; one without a name is called by its number."""
        return self.rule if self.rule.startswith("rule ") else f"rule {self.rule}"

    def to_row(self) -> dict[str, object]:
        """As the journal keeps it."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[str, object]) -> "Course":
        """As it was kept; keys of a later fairnotice are left out."""
        made = {"acknowledge": Acknowledge, "on_failure": OnFailure, "when_short": WhenShort}
        read = {
            **made,
            "leader": Leader,
            "prepare": tuple,
            "recover": tuple,
            "recover_again": tuple,
            "tells": tuple,
            "gates": tuple,
        }
        known = {field.name for field in fields(cls)}
        return cls(**{key: read.get(key, _as_it_is)(row[key]) for key in row if key in known})  # type: ignore[arg-type]


def _as_it_is(value: object) -> object:
    return value


@dataclass(frozen=True, slots=True)
class Rule:
    """One `[[rule]]`."""

    match: Match
    course: Course


# Stands behind all others: whatever no rule is for is logged, and left to itself.
BUILT_IN = Rule(Match(duration_at_least=-1), Course("built-in", acknowledge=Acknowledge.NEVER))


def choose(rules: Iterable[Rule], event: Event, vm: str) -> Rule | None:
    """The rule that decides; None for an event of others that no rule is for."""
    return next((rule for rule in (*rules, BUILT_IN) if rule.match.fits(event, vm)), None)


def _among(word: str, words: frozenset[str]) -> bool:
    return not words or word in words
