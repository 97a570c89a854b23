"""WIRE sections 4 and 7: what every answer carries."""

import json
import re
from datetime import timedelta

import pytest

from fairnotice import __version__
from fairnotice.engine.commands import ApplyFleet
from fairnotice.metadata.faults import Fault, FaultKind
from fairnotice.metadata.rate import rate_of
from tests.engine.story import SHOP, WEB
from tests.metadata.wireless import (
    DB_0,
    FRONT_0,
    STRANGER,
    VERSIONS,
    WEB_0,
    approval,
    get,
    post,
    request,
    served_sample,
)

NAME = "/metadata/instance/compute/name?api-version=2021-12-13"

RFC_1123 = r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) "
RFC_1123 += r"\d{4} \d\d:\d\d:\d\d GMT"

ERRORS = {
    "malformed": (b"rubbish\r\n\r\n", 400),
    "path": (request("GET", "/nowhere"), 404),
    "method": (request("DELETE"), 405),
    "forwarded": (get("X-Forwarded-For: x"), 400),
    "origin": (get("Origin: x"), 403),
    "header": (get(metadata=None), 400),
    "version": (get(version="x"), 400),
    "version not there": (get(version="2024-07-09"), 404),
    "parameter": (request("GET", "/metadata/scheduledevents?a=1&a=2"), 400),
    "body": (post(b"{}"), 400),
    "unknown id": (approval("X"), 400),
    "too large": (post(b" " * 65_537), 413),
    "head": (get("X: " + "y" * 17_000), 431),
}


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_is_json(wireless, name):
    """An object whose first key is `error`, with a sentence, its type and its length."""
    raw, status = ERRORS[name]
    answer = wireless().connect().send(raw)[0]

    assert answer.status == status
    assert next(iter(answer.json)) == "error"
    assert answer.error.strip()
    assert int(answer.headers["content-length"]) == len(answer.body)
    assert "etag" not in answer.headers


@pytest.mark.parametrize("name", [*ERRORS, "200", "304", "403", "429", "503", "approved"])
def test_every_answer_says_who_and_when(wireless, name):
    """Server and Date on each, errors included."""
    world = wireless()
    world.stage.restart_vm("web-0")
    etag = world.ask(get()).etag
    event = world.stage.only(WEB).id
    raws = {
        "200": get(),
        "304": get(f"If-None-Match: {etag}"),
        "403": get(),
        "429": get(),
        "503": approval(event),
        "approved": approval(event),
    }
    world.stage.away = name == "503"
    if name == "429":
        world.worker.rate_limit = rate_of(per_second=0.001, burst=0)
    raw = raws[name] if name in raws else ERRORS[name][0]
    answer = world.connect(STRANGER if name == "403" else WEB_0).send(raw)[0]

    version = ".".join(__version__.split(".")[:2])
    assert answer.headers["server"] == f"IMDS/fairnotice-{version}"
    assert answer.headers["date"] == "Thu, 01 Jan 2026 00:00:00 GMT"
    assert re.fullmatch(RFC_1123, answer.headers["date"])
    if name.isdigit():
        assert answer.status == int(name)


def test_the_date_is_the_endpoints_clock(wireless):
    """It moves with every second, and follows a clock that is set; on all ways alike."""
    world = wireless()
    vm = world.connect()
    vm.ask(get())
    dates = []
    for _ in range(4):
        world.stage.clock.advance(seconds=0.5)
        dates.append(
            (vm.ask(get()).headers["date"][-6:-4], vm.ask(get("X: 1")).headers["date"][-6:-4])
        )
    assert dates == [("00", "00"), ("01", "01"), ("01", "01"), ("02", "02")]
    world.stage.clock.set_wall(world.now + timedelta(days=40))
    world.stage.clock.advance(seconds=1)

    assert vm.ask(get()).headers["date"] == "Tue, 10 Feb 2026 00:00:03 GMT"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_document_carries_its_headers(wireless, version):
    """Type, length in bytes, ETag; compact JSON without a line end."""
    world = wireless()
    world.stage.restart_vm("web-0")
    answer = world.ask(get(version=version))

    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert int(answer.headers["content-length"]) == len(answer.body)
    assert (
        answer.body == json.dumps(answer.json, separators=(",", ":"), ensure_ascii=False).encode()
    )
    assert set(answer.headers) >= {"server", "date", "content-type", "content-length", "etag"}


@pytest.mark.parametrize(
    ("target", "content_type"),
    [
        ("/metadata/versions", "application/json; charset=utf-8"),
        ("/metadata/instance?api-version=2021-12-13", "application/json; charset=utf-8"),
        (f"{NAME}&format=text", "text/plain; charset=utf-8"),
        (f"{NAME}&format=TEXT", "text/plain; charset=utf-8"),
    ],
)
def test_only_the_document_has_an_etag(wireless, target, content_type):
    """The instance document and the versions say what they are, and can be had only in full."""
    answer = wireless().ask(request("GET", target, "If-None-Match: *"))

    assert (answer.status, answer.headers["content-type"]) == (200, content_type)
    assert "etag" not in answer.headers


def test_the_instance_document_is_about_the_vm_as_it_is_now(wireless):
    """Nothing of it is kept from one request to the next."""
    world = wireless()
    vm = world.connect(DB_0)
    tags = request("GET", "/metadata/instance/compute/tags?api-version=2021-12-13&format=text")
    assert vm.ask(tags).body == b""
    spec = served_sample()
    tagged = (v._replace(tags=(("team", "blue"),)) if v.name == "db" else v for v in spec.vms)
    world.run(lambda: world.stage.tell(ApplyFleet(spec=spec._replace(vms=tuple(tagged)))))

    assert vm.ask(tags).body == b"team:blue"


def test_there_is_no_request_id(wireless):
    """On no answer; Azure's have x-ms-request-id in some years."""
    world = wireless()
    asked = [world.ask(raw) for raw in (get(), get(metadata=None), approval("X"))]

    assert not any("x-ms-request-id" in answer.headers for answer in asked)


def test_a_role_instance_has_no_underscore(wireless):
    """In 2017-03-01 only IaaS VMs carry it; the kinds do not mix on the shared board."""
    world = wireless()
    for _ in range(2):
        world.stage.restart_vm("FrontEnd_IN_0")
        world.stage.restart_vm("web-0")
    version = "2017-03-01"

    assert world.ask(get(version=version), FRONT_0).events[0]["Resources"] == ["FrontEnd_IN_0"]
    assert world.ask(get(version=version), WEB_0).events[0]["Resources"] == ["_web-0"]
    assert world.stage.events(SHOP)


def test_an_approval_is_answered_with_nothing(wireless):
    """200, Content-Length 0, no ETag, no body."""
    world = wireless()
    world.stage.restart_vm("web-0")
    answer = world.ask(approval(world.stage.only(WEB).id))

    assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "0")
    assert "etag" not in answer.headers


def test_what_a_client_sent_comes_back_only_as_json(wireless):
    """Ids with line ends and quotes cannot write headers or markup of their own."""
    world = wireless()
    nasty = 'x\r\nSet-Cookie: a=b\r\n\r\n<script>"'
    for raw in (approval(nasty), get(version="2020%0d%0aSet-Cookie:a=b")):
        answer = world.ask(raw)
        assert answer.status == 400
        assert "set-cookie" not in answer.headers
        assert b"\r\n" not in answer.body


@pytest.mark.parametrize(
    "raw",
    [
        get(),
        get('If-None-Match: "1-1"'),
        get('If-None-Match: "1-1"', "Prefer: wait=5"),
        get("Connection: close"),
        approval("X"),
        request("GET", "/metadata/instance?api-version=2021-02-01"),
        request("GET", "/metadata/versions"),
    ],
    ids=lambda raw: raw[:60].decode(),
)
def test_while_the_service_is_being_updated_it_is_410(wireless, raw):
    """Switched on and off by whoever tests a client; requests that were seen before too."""
    world = wireless(listening=())
    world.stage.away = True
    before = world.connect().send(raw)
    world.stage.away = False
    world.worker.faults.set(Fault(FaultKind.GONE))
    for _ in range(3):
        answer = world.ask(raw)
        assert (answer.status, answer.error[:5]) == (410, "Gone.")
    assert not world.stage.scope(WEB).enabled
    world.worker.faults.clear_all()
    world.stage.away = True

    assert [one.status for one in world.connect().send(raw)] == [one.status for one in before]


def test_a_poll_that_was_seen_before_is_410_too(wireless):
    """On the fast way, before, during and after."""
    world = wireless()
    vm = world.connect()
    answers = []
    for updating in (False, True, True, False, False):
        world.worker.faults.clear_all()
        if updating:
            world.worker.faults.set(Fault(FaultKind.GONE))
        answers += [vm.ask(get()).status for _ in range(3)]

    assert answers == [200] * 3 + [410] * 6 + [200] * 6


def test_what_is_wrong_with_a_request_is_said_also_during_an_update(wireless):
    """The checks come first: the client is tested by a right request."""
    world = wireless()
    world.worker.faults.set(Fault(FaultKind.GONE))
    raws = {
        404: request("GET", "/nowhere"),
        405: request("PUT"),
        403: get("Origin: x"),
        400: get(metadata=None),
    }

    assert [world.ask(raw).status for raw in raws.values()] == list(raws)
    assert world.ask(get(), STRANGER).status == 403


def test_a_fault_of_ours_is_500_and_logged(wireless):
    """Never a 400 that blames the client: on the fast way, on the long way, and when woken."""
    world = wireless()
    etag = world.ask(get()).etag
    held, vm = world.connect(), world.connect()
    held.send(get(f"If-None-Match: {etag}", "Prefer: wait=50"))
    board = world.worker.board
    board.note = None
    world.run(lambda: world.stage.restart_vm("web-0"))
    answers = [*held.read(), *vm.send(get()), *world.connect().send(get("X: 1") + get())]

    assert [answer.status for answer in answers] == [500] * 3
    assert {answer.headers["connection"] for answer in answers} == {"close"}
    assert all(answer.error for answer in answers)
    assert len(world.mishaps.found) == 3
    world.mishaps.found.clear()


def test_a_fault_of_ours_while_a_request_is_read_is_500_and_logged(wireless):
    """Inside the parser's call it would look like malformed HTTP."""
    world = wireless()
    world.worker.limits = world.worker.limits._replace(body_bytes_max=None)
    answer = world.ask(get())

    assert (answer.status, answer.headers["connection"]) == (500, "close")
    (fault,) = world.mishaps.found
    assert "TypeError" in fault or "CallbackError" in fault
    world.mishaps.found.clear()


def test_a_broken_request_costs_no_more_than_a_line_at_debug(wireless, caplog):
    """Nothing above debug is logged, and one line at most, for each of the errors."""
    caplog.set_level("DEBUG", "fairnotice")
    world = wireless()
    for raw, _ in ERRORS.values():
        caplog.clear()
        world.connect().send(raw)
        assert len(caplog.records) <= 1
        assert all(record.levelname == "DEBUG" for record in caplog.records)
