"""WIRE section 1: the order of checks. The first that fails answers, whatever else is wrong."""

from itertools import combinations

import pytest

from fairnotice.metadata.rate import DEFAULT
from tests.metadata.wireless import NEWEST, PATH, STRANGER, WEB_0, get, request

# In the order of the wire; `rate` never refuses a POST, so `rate` and `body` do not meet.
CHECKS = (
    "http",
    "path",
    "method",
    "forwarded",
    "origin",
    "who",
    "rate",
    "header",
    "version",
    "body",
)
# What each says: its status, and a word of its own.
SAYS = {
    "http": (400, "HTTP"),
    "path": (404, "ot found"),
    "method": (405, "GET, POST"),
    "forwarded": (400, "X-Forwarded-For"),
    "origin": (403, "Origin"),
    "who": (403, STRANGER),
    "rate": (429, ""),
    "header": (400, "Required metadata header"),
    "version": (400, "api-version"),
    "body": (400, "JSON"),
}


def wrong(faults: frozenset[str]) -> bytes:
    """A request with all of these wrong."""
    method = "PUT" if "method" in faults else "POST" if "body" in faults else "GET"
    path = "/metadata/nothing" if "path" in faults else PATH
    version = "latest" if "version" in faults else NEWEST
    body = b"{" if "body" in faults else b""
    lines = [f"Content-Length: {len(body)}"] if body else []
    lines += ["X-Forwarded-For: 10.0.0.1"] if "forwarded" in faults else []
    lines += ["Origin: http://example.com"] if "origin" in faults else []
    lines += ["no colon in this line"] if "http" in faults else []
    metadata = None if "header" in faults else "Metadata: true"
    return request(method, f"{path}?api-version={version}", *lines, metadata=metadata, body=body)


def meet(faults: frozenset[str]) -> bool:
    """Whether these can all be wrong at once: a stranger has no rate, a POST is not refused."""
    return not ({"rate", "who"} <= faults or {"rate", "body"} <= faults)


@pytest.mark.parametrize("limited", [False, True], ids=["within the rate", "over the rate"])
def test_whatever_is_wrong_the_earliest_check_answers(wireless, limited):
    """Every set of faults that can meet: one, two, or all of them at once."""
    world = wireless(rate_limit=DEFAULT)
    others = [check for check in CHECKS if check != "rate"]
    for count in range(len(others) + 1):
        for some in combinations(others, count):
            faults = frozenset((*some, "rate") if limited else some)
            if not faults or not meet(faults):
                continue
            world.stage.clock.advance(seconds=10)
            for _ in range(10 if limited else 0):
                assert world.ask(get(), WEB_0).status == 200
            answer = world.ask(wrong(faults), STRANGER if "who" in faults else WEB_0)
            first = min(faults, key=CHECKS.index)
            status, word = SAYS[first]
            assert answer.status == status, faults
            assert word in answer.error, faults


def test_a_post_over_the_rate_is_judged_by_what_follows(wireless):
    """Header, version and body answer it; the rate never does."""
    world = wireless(rate_limit=DEFAULT)
    for faults in ({"body"}, {"version", "body"}, {"header", "version", "body"}):
        for _ in range(12):
            world.ask(get())
        answer = world.ask(wrong(frozenset(faults)))
        status, word = SAYS[min(faults, key=CHECKS.index)]
        assert answer.status == status
        assert word in answer.error


def test_too_large_a_body_is_looked_at_last(wireless):
    """413 only where nothing else is wrong."""
    world = wireless()
    body = b" " * 70_000
    line = f"Content-Length: {len(body)}"

    def send(target=f"{PATH}?api-version={NEWEST}", *lines, address=WEB_0, **more):
        raw = request("POST", target, line, *lines, body=body, **more)
        return world.connect(address).send(raw)[0].status

    assert send() == 413
    assert send("/nowhere") == 404
    assert send(f"{PATH}?api-version={NEWEST}", "X-Forwarded-For: x") == 400
    assert send(f"{PATH}?api-version={NEWEST}", "Origin: x") == 403
    assert send(address=STRANGER) == 403
    assert send(metadata=None) == 400
    assert send(f"{PATH}?api-version=2024-07-09") == 404


def test_the_unknown_version_is_looked_at_after_the_header(wireless):
    """A 404 for a version is not given to whoever does not say Metadata: true."""
    answer = wireless().ask(get(version="2024-07-09", metadata=None))

    assert answer.status == 400


def test_parameters_are_looked_at_between_the_header_and_the_version(wireless):
    """Then the version, then for the instance document the format, then its element."""
    world = wireless()
    asked = "/metadata/instance/nothing?x=1&x=2&api-version=latest&format=xml"

    def error(target, **more):
        return world.ask(request("GET", target, **more)).error

    assert "Required metadata header" in error(asked, metadata=None)
    assert "twice" in error(asked)
    assert "api-version" in error(asked.replace("&x=2", ""))
    assert "neither json nor text" in error(
        "/metadata/instance/nothing?api-version=2021-12-13&format=xml"
    )
    assert "no such element" in error("/metadata/instance/nothing?api-version=2021-12-13")


def test_only_the_instance_document_has_a_format(wireless):
    """To scheduled events it is one of the parameters that nobody knows."""
    assert wireless().ask(request("GET", f"{PATH}?api-version={NEWEST}&format=xml")).status == 200
