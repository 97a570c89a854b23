"""The body of a POST: which events a VM approves.

Read leniently where clients differ (other keys, any DocumentIncarnation, a byte order mark as
.NET and PowerShell write it) and strictly where a mistake would approve nothing: every fault is
a BadBody whose message goes into the 400.
"""

import json
from typing import Never

from fairnotice.errors import BadBody

IDS_MAX = 100

_EXAMPLE = '{"StartRequests":[{"EventId":"…"}]}'


def parse(body: bytes) -> tuple[str, ...]:
    """The EventIds as given, in the order given; raises BadBody and nothing else."""
    read = _read_json(body)
    if not isinstance(read, dict):
        raise BadBody(f"The body is not a JSON object. Send {_EXAMPLE}.")
    if "StartRequests" not in read:
        raise BadBody(f"The body has no StartRequests. Send {_EXAMPLE}.")
    requests = read["StartRequests"]
    if not isinstance(requests, list):
        raise BadBody(f"StartRequests is not a list. Send {_EXAMPLE}.")
    if not requests:
        raise BadBody("StartRequests is empty. Name at least one EventId.")
    if len(requests) > IDS_MAX:
        raise BadBody(
            f"StartRequests has {len(requests)} items, at most {IDS_MAX} are taken at once. "
            "Send several requests."
        )
    return tuple(_event_id(request, position) for position, request in enumerate(requests))


def _read_json(body: bytes) -> object:
    try:
        text = body.decode("utf-8-sig")
        # Numbers mean nothing here. As floats they cost nothing either, however long they are.
        return json.loads(text, parse_int=float, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise BadBody(f"The body is not UTF-8. Send {_EXAMPLE}.") from error
    except RecursionError as error:
        raise BadBody(f"The body is nested too deeply. Send {_EXAMPLE}.") from error
    except ValueError as error:
        raise BadBody(f"The body is not JSON. Send {_EXAMPLE}.") from error


def _refuse_constant(name: str) -> Never:
    """Refuse NaN and the infinities: Python reads them, JSON does not have them."""
    raise ValueError(name)


def _event_id(request: object, position: int) -> str:
    if not isinstance(request, dict):
        raise BadBody(f"StartRequests[{position}] is not an object. Send {_EXAMPLE}.")
    event_id = request.get("EventId")
    if not isinstance(event_id, str):
        raise BadBody(
            f"StartRequests[{position}] has no EventId that is a string. Send {_EXAMPLE}."
        )
    return event_id
