"""How the law says no: why, and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn


class Code(StrEnum):
    """What sort of no it is; fronts turn it into a status or an exit code."""

    NOT_FOUND = "not-found"
    INVALID = "invalid"
    FORBIDDEN = "forbidden"
    CONFLICT = "conflict"
    NO_ROOM = "no-room"
    TOO_MANY = "too-many"
    # Somebody else was first: what was read before is no longer so.
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A command that was not carried out. Nothing has changed."""

    code: Code
    # The rule of SPECIFICATION.md that says no; 0 where it is plain bad input.
    rule: int
    why: str
    remedy: str
    event: str | None = None
    # What was wrong of what was asked, in the words of the API; and the operation in the way, where
    # the sentence names one.
    field: str | None = None
    operation: str | None = None

    def __str__(self) -> str:
        return f"{self.why} {self.remedy}"


class Refused(Exception):
    """Carries a refusal from where it was found up to `decide`."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.why)
        self.refusal = refusal


def refuse(
    code: Code,
    why: str,
    remedy: str,
    *,
    rule: int = 0,
    event: str | None = None,
    operation: str | None = None,
) -> NoReturn:
    """Give up on the command at hand."""
    raise Refused(Refusal(code, rule, why, remedy, event, operation=operation))


def misfit(
    field: str, why: str, remedy: str, *, rule: int = 0, event: str | None = None
) -> NoReturn:
    """Give up on what can never be done, because of this field: nobody looks for it in words."""
    raise Refused(Refusal(Code.INVALID, rule, why, remedy, event, field))
