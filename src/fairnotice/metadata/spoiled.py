"""What a VM receives in place of an answer while a fault of HTTP is on."""

from fairnotice.metadata.faults import Fault, FaultKind
from fairnotice.metadata.replies import NOT_MODIFIED, OK, Reply, reply
from fairnotice.metadata.request import Request
from fairnotice.metadata.respond import too_many
from fairnotice.wire import error_bodies

GONE = reply(410, error_bodies.UPDATING)
NOT_FOUND = reply(404, error_bodies.NOT_THERE)
ERROR = reply(500, error_bodies.SERVICE_ERROR)
EMPTY_BODY = reply(200)
# Neither JSON nor UTF-8, and it says that it is both.
GARBAGE = reply(200, b'<!DOCTYPE html>\x00\xff\xfe{"DocumentIncarnation":')

_STATUSES = {FaultKind.GONE: GONE, FaultKind.NOT_FOUND: NOT_FOUND, FaultKind.ERROR: ERROR}
_END = b"\r\n\r\n"


def stand_in(fault: Fault) -> Reply | None:
    """The answer that the service does not give itself; None where the connection ends instead."""
    if fault.kind is FaultKind.DROPPED:
        return None
    if fault.kind is FaultKind.TOO_MANY:
        return too_many(round(fault.seconds or 0))
    return _STATUSES[fault.kind]


def spoiled(fault: Fault, request: Request, answer: Reply) -> Reply:
    """What becomes of an answer that the service gives; the same where there is nothing to spoil.

    An answer that is cut off is written as the last one of its connection.
    """
    if fault.kind is FaultKind.CUT_OFF:
        return _cut_off(request, answer)
    if answer.status not in (OK, NOT_MODIFIED):
        return answer
    if fault.kind is FaultKind.GARBAGE:
        return GARBAGE
    # The 200 to an approval has no body in any case.
    return answer if request.post else EMPTY_BODY


def _cut_off(request: Request, answer: Reply) -> Reply:
    """All that was to be written up to the middle of the body; of the head where there is none."""
    written = answer.tail
    if request.close or request.kept:
        written = answer.tail_close if request.close else answer.tail_kept
    body = written.index(_END) + len(_END)
    middle = (body + len(written)) // 2 if body < len(written) else body // 2
    return answer._replace(tail_close=written[:middle])
