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
