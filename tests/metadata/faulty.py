"""What the tests of faults have in common: a story to tell, and how spoiled answers look."""

import json

import pytest

from fairnotice.metadata.faults import FaultKind
from tests.metadata.sockets import endpoint, on_sockets
from tests.metadata.wireless import request

INSTANCE = request("GET", "/metadata/instance?api-version=2021-02-01", "Connection: close")
# The VMs of this machine: web-0 asks unless another does.
DB, OTHER_WEB = "127.0.0.2", "127.0.0.3"
CLOSING = {"metadata": "Metadata: true\r\nConnection: close"}


def told(story):
    """Run a story with an endpoint on which web-0 is going to be restarted."""

    async def whole():
        async with endpoint() as served:
            served.stage.restart_vm("web-0")
            await story(served)

    on_sockets(whole)


def one_answer(raw, status):
    """An answer of this status, and nothing behind it; its body."""
    head, _, body = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), raw
    assert b"Content-Length: %d\r\n" % len(body) in head + b"\r\n"
    return body


def looks_like(kind, raw, usual):
    """Whether a fault of HTTP shows as it should, where the usual answer is known."""
    statuses = {FaultKind.GONE: 410, FaultKind.NOT_FOUND: 404, FaultKind.ERROR: 500}
    if kind in statuses:
        assert json.loads(one_answer(raw, statuses[kind]))["error"]
    elif kind is FaultKind.TOO_MANY:
        assert json.loads(one_answer(raw, 429))["error"]
        assert b"\r\nRetry-After: 7\r\n" in raw
    elif kind is FaultKind.DROPPED:
        assert raw == b""
    elif kind is FaultKind.CUT_OFF:
        body = usual.index(b"\r\n\r\n") + 4
        assert usual.startswith(raw)
        assert body < len(raw) < len(usual)
    elif kind is FaultKind.EMPTY_BODY:
        assert one_answer(raw, 200) == b""
        assert b"ETag" not in raw
    else:
        with pytest.raises(ValueError, match=r"decode|Expecting"):
            json.loads(one_answer(raw, 200))
        assert b"\r\nContent-Type: application/json" in raw
