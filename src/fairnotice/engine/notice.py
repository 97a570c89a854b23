"""Rules 1 and 2: how much notice each operation gives, and the two timing profiles."""

from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta

from fairnotice.engine.refusal import misfit
from fairnotice.words import EventType, ImpactKind, Risk

MINUTE, HOUR, DAY = 60, 3600, 86400

TERMINATE_NOTICE_MINUTES_MIN, TERMINATE_NOTICE_MINUTES_MAX = 5, 15


def _azure_notice() -> dict[EventType, int]:
    return {
        EventType.FREEZE: 15 * MINUTE,
        EventType.REBOOT: 15 * MINUTE,
        EventType.REDEPLOY: 10 * MINUTE,
        EventType.PREEMPT: 30,
    }


def _azure_risk() -> dict[Risk, int]:
    return {Risk.LOW: 7 * DAY, Risk.MEDIUM: DAY, Risk.HIGH: 10 * MINUTE}


def _impact_limit() -> dict[ImpactKind, int]:
    return {
        ImpactKind.FREEZE: MINUTE,  # on top of the duration
        ImpactKind.REBOOT: 10 * MINUTE,
        ImpactKind.REDEPLOY: 20 * MINUTE,
        ImpactKind.DELETE: 20 * MINUTE,
        ImpactKind.MIGRATE: 30 * MINUTE,
        ImpactKind.STOP: 10 * MINUTE,
        ImpactKind.START: 10 * MINUTE,
        ImpactKind.DEALLOCATE: 20 * MINUTE,
    }


@dataclass(frozen=True)
class Timing:
    """Every time and limit of the law. `AZURE` and `DEV` are the two profiles."""

    name: str
    notice_seconds: dict[EventType, int] = field(default_factory=_azure_notice)
    risk_seconds: dict[Risk, int] = field(default_factory=_azure_risk)
    # How long one minute of a scale set's terminate notice is.
    terminate_minute_seconds: int = MINUTE
    recovery_seconds: int = 30 * MINUTE
    settle_seconds: int = 0
    impact_limit_seconds: dict[ImpactKind, int] = field(default_factory=_impact_limit)
    nodes_at_once_max: int = 1
    failure_budget: int = 0
    user_operations_max: int = 100
    disabled_after_seconds: int = 24 * HOUR
    # How long what is over stays known, so that a late approval is understood (rule 3).
    remembered_seconds: int = DAY
    history_days: int = 90
    journal_days: int = 7
    audit_days: int = 365

    def __repr__(self) -> str:
        # Signatures and failing tests show it: the profile, and where it is not as it was made.
        profile = PROFILES.get(self.name, self)
        names = (field.name for field in fields(self))
        changed = [name for name in names if getattr(self, name) != getattr(profile, name)]
        return f"<Timing {self.name}{', changed: ' if changed else ''}{', '.join(changed)}>"


AZURE = Timing("azure")

DEV = Timing(
    "dev",
    notice_seconds={
        EventType.FREEZE: 15,
        EventType.REBOOT: 15,
        EventType.REDEPLOY: 10,
        EventType.PREEMPT: 5,
    },
    risk_seconds={Risk.LOW: 60, Risk.MEDIUM: 30, Risk.HIGH: 10},
    terminate_minute_seconds=1,
    recovery_seconds=5,
)

PROFILES = {profile.name: profile for profile in (AZURE, DEV)}


def least_notice_seconds(
    timing: Timing, event_type: EventType, terminate_notice_minutes: int | None
) -> int:
    """The notice no event of this type goes below; for Terminate its scale set says it."""
    if event_type is EventType.TERMINATE:
        minutes = terminate_notice_minutes or TERMINATE_NOTICE_MINUTES_MIN
        return minutes * timing.terminate_minute_seconds
    return timing.notice_seconds[event_type]


def limit_seconds(timing: Timing, impact: ImpactKind, duration_seconds: int) -> int:
    """How long an impact may take before it counts as timed out (rule 11)."""
    limit = timing.impact_limit_seconds[impact]
    if impact is ImpactKind.FREEZE:
        limit += max(duration_seconds, 0)
    return limit


def whole_second(instant: datetime) -> datetime:
    """Rounded up, so that a promise never shrinks when it is written in seconds (rule 1)."""
    if instant.microsecond:
        return instant.replace(microsecond=0) + timedelta(seconds=1)
    return instant


# Nothing is planned further ahead, so that no sum of instants is beyond what a clock can show.
PLANNED_DAYS_MAX = 400


def in_utc(instant: datetime) -> datetime:
    """The same instant in UTC; one without a time zone is refused."""
    if instant.tzinfo is None:
        misfit(
            "not_before",
            f"{instant} has no time zone.",
            "Say which instant is meant, e.g. with a Z for UTC.",
            rule=2,
        )
    return instant.astimezone(UTC)


def earliest(now: datetime, notice_seconds: int, asked: datetime | None) -> datetime:
    """NotBefore for an event that becomes visible now: the notice, or later where asked."""
    promised = now + timedelta(seconds=notice_seconds)
    if asked is not None and asked > promised:
        promised = asked
    return whole_second(promised)
