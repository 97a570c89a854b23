"""How the API says no: application/problem+json, with a sentence for people (RFC 9457)."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus

import msgspec
from starlette.responses import Response

from fairnotice.control.misfits import Misfit, misfit
from fairnotice.control.shapes import Problem
from fairnotice.engine import Code, Refusal
from fairnotice.errors import LeadLost, Unavailable, UnknownName, UsageError

CONTENT_TYPE = "application/problem+json"
# What every problem is called: docs/reference/api.md lists them.
TYPES = "urn:fairnotice:problem:"

STATUS_OF_REFUSAL = {
    Code.NOT_FOUND: 404,
    Code.INVALID: 422,
    Code.FORBIDDEN: 403,
    Code.CONFLICT: 409,
    Code.NO_ROOM: 409,
    Code.TOO_MANY: 429,
    Code.CHANGED: 412,
}
# Problems that are not the law's.
OTHER_TYPES = {
    "forbidden": 403,
    "foreign": 403,
    "internal": 500,
    "invalid": 422,
    "no-address": 404,
    "no-method": 405,
    "not-found": 404,
    "not-json": 400,
    "too-large": 413,
    "unauthenticated": 401,
    "unavailable": 503,
}
RETRY_AFTER_SECONDS = 5


def problem(
    kind: str,
    status: int,
    detail: str,
    field: str | None = None,
    *,
    rule: int | None = None,
    event: str | None = None,
    operation: str | None = None,
    nearest: Iterable[str] = (),
) -> Problem:
    """A problem of this kind."""
    return Problem(
        type=TYPES + kind,
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        field=field,
        rule=rule,
        event=event,
        operation=operation,
        nearest=list(nearest),
    )


def of_refusal(refusal: Refusal) -> Problem:
    """The law's no, in its own words."""
    return problem(
        refusal.code.value,
        STATUS_OF_REFUSAL[refusal.code],
        str(refusal),
        refusal.field,
        rule=refusal.rule or None,
        event=refusal.event,
        operation=refusal.operation,
    )


def of_error(error: Exception, shape: type | None = None) -> Problem | None:
    """An error that whoever asked may hear of; None where it is our own fault."""
    if isinstance(error, msgspec.ValidationError):
        return of_misfit(misfit(error, shape))
    if isinstance(error, msgspec.DecodeError | UnicodeDecodeError | RecursionError):
        return problem("not-json", 400, f"The body is not JSON: {error}.")
    if isinstance(error, UnknownName):
        return problem("not-found", 404, str(error), nearest=error.nearest)
    if isinstance(error, Unavailable):
        return unavailable(error)
    if isinstance(error, UsageError):
        return problem("invalid", 422, str(error))
    return None


def unavailable(error: Unavailable) -> Problem:
    """It cannot be done now."""
    why = str(error).rstrip(".")
    # Whoever has lost the lead for good cannot do it later either.
    remedy = "Ask the one that leads" if isinstance(error, LeadLost) else "Try again later"
    return problem("unavailable", 503, f"It cannot be done now: {why}. {remedy}.")


def too_large(bytes_max: int) -> Problem:
    """The body is more than is taken."""
    return problem("too-large", 413, f"At most {bytes_max:,} bytes are taken.")


def of_misfit(found: Misfit) -> Problem:
    """What was sent does not fit."""
    return problem("invalid", 422, found.sentence, found.field, nearest=found.nearest)


def said(found: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """A problem as an answer."""
    more = dict(headers or {})
    if found.status == HTTPStatus.SERVICE_UNAVAILABLE:
        more["Retry-After"] = str(RETRY_AFTER_SECONDS)
    body = msgspec.json.encode(found)
    return Response(body, found.status, headers=more, media_type=CONTENT_TYPE)
