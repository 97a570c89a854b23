"""How Azure Resource Manager says no: `{"error": {"code", "message"}}`, with Azure's codes."""

from collections.abc import Iterable, Mapping

import msgspec
from starlette.responses import Response

from fairnotice.control.shapes import Problem
from fairnotice.engine import Code, Refusal
from fairnotice.errors import Unavailable, UnknownName

RETRY_AFTER_SECONDS = 5
UNAVAILABLE = 503
_OF_REFUSAL = {
    Code.NOT_FOUND: (404, "ResourceNotFound"),
    Code.INVALID: (400, "InvalidParameter"),
    Code.FORBIDDEN: (403, "AuthorizationFailed"),
    Code.CONFLICT: (409, "OperationNotAllowed"),
    Code.NO_ROOM: (409, "AllocationFailed"),
    Code.TOO_MANY: (429, "TooManyRequests"),
    Code.CHANGED: (412, "PreconditionFailed"),
}
# Tools show no more of a 401, and would not sign in anew by themselves.
SIGN_IN_ANEW = "Sign in anew: fairnotice az-login."
# What the native API's own problems are called by Azure.
_OF_PROBLEM = {
    401: "InvalidAuthenticationToken",
    403: "AuthorizationFailed",
    413: "RequestContentTooLarge",
    503: "ServiceUnavailable",
}


class Failure(Exception):
    """A request that is refused, in Azure's words."""

    def __init__(self, status: int, code: str, message: str, target: str | None = None) -> None:
        super().__init__(message)
        # More of what is answered than its body.
        self.headers: dict[str, str] = {}
        self.status = status
        self.code = code
        self.message = message
        self.target = target

    @property
    def error(self) -> dict[str, str]:
        """What stands under `error`."""
        found = {"code": self.code, "message": self.message}
        return found if self.target is None else {**found, "target": self.target}


class WrongMethod(Failure):
    """The address is there, and takes other methods."""

    def __init__(self, method: str, taken: Iterable[str]) -> None:
        allowed = ", ".join(dict.fromkeys(taken))
        message = f"The method {method} is not taken there, but {allowed}."
        super().__init__(405, "HttpMethodNotAllowed", message)
        self.headers["Allow"] = allowed


class NotThere(Failure):
    """There is no such resource."""


def said(failure: Failure, headers: Mapping[str, str] | None = None) -> Response:
    """A failure as an answer."""
    more = {**failure.headers, **(headers or {})}
    if failure.status in (429, UNAVAILABLE):
        more["Retry-After"] = str(RETRY_AFTER_SECONDS)
    body = msgspec.json.encode({"error": failure.error})
    return Response(body, failure.status, headers=more, media_type="application/json")


def of_refusal(refusal: Refusal) -> Failure:
    """The law's no, in its own sentence."""
    status, code = _OF_REFUSAL[refusal.code]
    kind = NotThere if refusal.code is Code.NOT_FOUND else Failure
    return kind(status, code, str(refusal), refusal.field)


def of_problem(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """What the gate of the native API says, in Azure's shape."""
    code = _OF_PROBLEM.get(problem.status, "BadRequest")
    unknown = problem.status == 401  # noqa: PLR2004
    sentence = f"{problem.detail} {SIGN_IN_ANEW}" if unknown else problem.detail
    return said(Failure(problem.status, code, sentence), headers)


def of_error(error: Exception) -> Failure | None:
    """An error that whoever asked may hear of; None where it is our own fault."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, msgspec.DecodeError | UnicodeDecodeError | RecursionError):
        return malformed(str(error))
    if isinstance(error, UnknownName):
        return Failure(404, "ResourceNotFound", str(error))
    if isinstance(error, Unavailable):
        why = str(error).rstrip(".")
        return Failure(503, "ServiceUnavailable", f"It cannot be done now: {why}.")
    return None


def malformed(why: str) -> Failure:
    """The body is not what it should be."""
    return Failure(400, "InvalidRequestContent", f"The request content is invalid: {why}.")


def forbidden() -> Failure:
    """Not with this token. It says not what there is, nor what would be needed."""
    return Failure(
        403,
        "AuthorizationFailed",
        "This token may not do that, or there is nothing of the kind that it may see.",
    )


def no_namespace(what: str) -> Failure:
    """No resource provider of this name is here."""
    here = "only Microsoft.Compute and Microsoft.Maintenance are"
    return Failure(404, "InvalidResourceNamespace", f"'{what}' is not here: {here}.")


def no_group(group: str) -> NotThere:
    """There is no such resource group, so that nothing can be in it."""
    message = f"Resource group '{group}' could not be found."
    return NotThere(404, "ResourceGroupNotFound", message)


def ambiguous(name: str, meant: Iterable[str], remedy: str = "") -> Failure:
    """Azure would not have both: nothing is done to one that another may have been meant by."""
    either = " or ".join(sorted(meant))
    message = f"'{name}' may be {either}. {remedy}Declare another name for one in the fleet file."
    return Failure(409, "OperationNotAllowed", message)


def not_there(what: str, name: str, group: str) -> NotThere:
    """There is no such resource."""
    message = f"The Resource '{what}/{name}' under resource group '{group}' was not found."
    return NotThere(404, "ResourceNotFound", message)
