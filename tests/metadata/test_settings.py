"""What an endpoint may be told, and what it tells Prometheus."""

import pytest

from fairnotice.errors import UsageError
from fairnotice.metadata.metrics import exposition
from fairnotice.testing.live import LiveStage
from tests.metadata.wireless import get


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
    board = wireless().worker.board
    caller = board.put_caller("db", "vm:db", ("10.9.9.9",), listener="blue")
    assert board.addresses["blue"]["10.9.9.9"] is caller
    assert caller in board.addresses[""].values()
