"""What an endpoint may be told, and what it tells Prometheus."""

import pytest

from fairnotice.clock import SystemClock
from fairnotice.errors import UsageError
from fairnotice.metadata import board, worker
from fairnotice.metadata.identity import Door
from fairnotice.metadata.metrics import exposition
from fairnotice.metadata.rate import rate_of
from fairnotice.model import Document
from fairnotice.testing.live import LiveStage
from tests.engine.story import WEB
from tests.metadata.wireless import (
    DB_0,
    SPOT_0,
    TARGET,
    WEB_0,
    WEB_1,
    LiveStory,
    approval,
    get,
    request,
    served_sample,
)


@pytest.mark.parametrize("seconds", [-1, 121, float("nan")])
def test_a_delay_of_the_first_answer_beyond_azures_is_refused(seconds):
    """0 to 120 seconds."""
    with pytest.raises(UsageError, match="give 0 to 120"):
        LiveStage().worker(first_answer_delay_seconds=seconds)


def test_the_metrics_tell_what_was_answered(wireless):
    """Two polls, one of them known already, one stranger's path, one document published more."""
    world = wireless()
    etag = world.ask(get()).etag
    world.ask(get(f"If-None-Match: {etag}"))
    world.ask(b"GET /nowhere HTTP/1.1\r\n\r\n")
    text = exposition(world.worker)

    for line in (
        'fairnotice_metadata_requests_total{status="200",api_version="2020-07-01"} 1',
        'fairnotice_metadata_requests_total{status="304",api_version="2020-07-01"} 1',
        'fairnotice_metadata_requests_total{status="404",api_version=""} 1',
        "fairnotice_metadata_vms_seen 1",
        "fairnotice_metadata_held_waits 0",
    ):
        assert line in text.splitlines()
    assert "# TYPE fairnotice_metadata_polls_per_second gauge" in text
    before = world.worker.board.published_count
    world.stage.restart_vm("web-0")
    assert f"fairnotice_metadata_documents_published_total {before + 1}" in exposition(world.worker)


def told(world, name):
    """One number that Prometheus would read."""
    (line,) = (line for line in exposition(world.worker).splitlines() if line.startswith(name))
    return float(line.rpartition(" ")[2])


@pytest.mark.parametrize("way", ["fast", "304", "name", "kept 1.0", "wait"])
def test_polls_of_all_ways_count_for_the_polls_a_second(wireless, way):
    """Ten in five seconds are two a second; what is no poll does not count."""
    world = wireless()
    raws = {
        "fast": get(),
        "304": get('If-None-Match: "1-1"'),
        "name": request("GET", f"/vm/web-0{TARGET}"),
        "kept 1.0": get("Connection: keep-alive", http="HTTP/1.0"),
        "wait": get('If-None-Match: "0-0"', "Prefer: wait=5"),
    }
    door = Door(prefix_allowed=True)
    world.advance(seconds=5)
    for _ in range(10):
        assert world.ask(raws[way], door=door).status in (200, 304)
    world.ask(request("GET", "/metadata/versions"))
    world.ask(approval("x"))
    world.stage.restart_vm("web-0")
    assert world.ask(approval(world.stage.only(WEB).id)).status == 200
    world.advance(seconds=5)
    assert told(world, "fairnotice_metadata_polls_per_second") == 2
    world.advance(seconds=5)

    assert told(world, "fairnotice_metadata_polls_per_second") == 0


def test_vms_that_asked_within_a_minute_are_seen(wireless):
    """Each once, by whichever way; a minute later they are not."""
    world = wireless()
    seen = "fairnotice_metadata_vms_seen"
    assert told(world, seen) == 0
    for address in (WEB_0, WEB_0, WEB_1):
        world.ask(get(), address)
    world.advance(seconds=59)
    world.ask(get('If-None-Match: "0"', "Prefer: wait=5"), DB_0)
    world.ask(request("GET", "/metadata/versions"), SPOT_0)
    assert told(world, seen) == 3
    world.advance(seconds=2)
    assert told(world, seen) == 1
    world.advance(seconds=60)

    assert told(world, seen) == 0


def test_what_is_remembered_is_bounded(wireless, monkeypatch):
    """Requests by their bytes, and empty documents: no more than so many, and no long request."""
    monkeypatch.setattr(worker, "KNOWN_MAX", 20)
    monkeypatch.setattr(board, "_SHARED_MAX", 5)
    world = wireless()
    for number in range(50):
        assert world.ask(get(f"X: {number}")).status == 200
        assert len(world.worker.known) <= 20
        world.worker.board.publish(world.stage.scope(WEB), Document(number))
        assert len(world.worker.board._shared) <= 5
    known = dict(world.worker.known)
    assert known
    world.ask(get("X: " + "y" * 1_000))

    assert world.worker.known == known


def test_a_stage_takes_a_profile_by_its_name():
    """As any stage does."""
    assert LiveStage("dev").fleet.timing.name == "dev"


def test_date_is_on_the_clock_of_the_stage_and_the_rate_on_the_machines():
    """NotBefore and Date can be compared; a stage that stands still does not stop the clients."""
    stage = LiveStory(served_sample())
    endpoint = stage.worker(rate_limit=rate_of(per_second=1_000, burst=1))
    assert endpoint.date == b"Thu, 01 Jan 2026 00:00:00 GMT"
    stage.advance(hours=1)
    assert endpoint.date == b"Thu, 01 Jan 2026 01:00:00 GMT"

    assert endpoint.monotonic == SystemClock.monotonic


def test_what_could_not_be_handed_on_is_handed_on_later(wireless):
    """The control plane is away when the batch is due; nothing of it is lost."""
    world = wireless(listening=())
    world.stage.away = True
    world.ask(get())
    world.run(world.stage.report_served)
    world.stage.away = False
    world.run(world.stage.report_served)
    assert world.stage.scope("availability-set:web").enabled


def test_a_vm_is_known_on_several_listeners(wireless):
    """Two networks, two addresses, one VM; the one does not take the other away."""
    shown = wireless().worker.board
    caller = shown.put_caller("db", "vm:db", ("10.9.9.9",), listener="blue")
    assert shown.addresses["blue"]["10.9.9.9"] is caller
    assert caller in shown.addresses[""].values()


def test_metrics_are_exact(wireless):
    """A counter beyond a million is not rounded to six digits."""
    world = wireless()
    world.worker.polls[-1] = 12_345_678
    assert '"} 12345678' in exposition(world.worker)
