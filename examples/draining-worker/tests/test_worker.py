"""The worker in the test's own process."""

import pytest
from draining_worker import Worker


@pytest.fixture
def worker(fairnotice_cloud):
    """The worker on web-0 of the sample fleet."""
    return Worker("web-0", fairnotice_cloud.url_for("web-0"))


def test_it_drains_then_gives_the_go_ahead(fairnotice_cloud, worker):
    worker.take("a")
    event = fairnotice_cloud.vm("web-0").restart()

    worker.look()
    assert not worker.take("b")
    assert fairnotice_cloud.seen_by("web-0") == [event]
    assert fairnotice_cloud.approvals == []

    worker.work()
    worker.look()
    assert [approval.event for approval in fairnotice_cloud.approvals] == [event.id]
    assert event.status == "Started"

    fairnotice_cloud.run_until(event, "Completed")
    worker.look()
    assert worker.take("b")


def test_a_job_that_takes_too_long_does_not_stop_the_platform(fairnotice_cloud, worker):
    worker.take("a")
    event = fairnotice_cloud.vm("web-0").restart()
    worker.look()

    fairnotice_cloud.advance(minutes=15)

    assert event.status == "Started"
    assert fairnotice_cloud.approvals == []


def test_it_does_not_mind_the_events_of_others(fairnotice_cloud, worker):
    fairnotice_cloud.vm("web-1").restart()
    worker.look()
    assert worker.take("a")
    assert fairnotice_cloud.approvals == []


def test_a_canceled_event_is_no_reason_to_stay_drained(fairnotice_cloud, worker):
    worker.take("a")
    event = fairnotice_cloud.node("node-0").maintain(duration_seconds=9)[0]
    worker.look()
    event.cancel()
    worker.look()
    assert worker.take("b")


@pytest.mark.fairnotice(
    fleet="""
    [[node]]
    name = "n"

    [[scale_set]]
    name = "spot"
    priority = "Spot"

    [[vm]]
    name = "spot_0"
    node = "n"
    scale_set = "spot"
    """
)
def test_half_a_minute_is_all_that_a_spot_vm_has(fairnotice_cloud):
    worker = Worker("spot_0", fairnotice_cloud.url_for("spot_0"))
    event = fairnotice_cloud.vm("spot_0").evict()
    assert (event.not_before - fairnotice_cloud.now).total_seconds() == 30
    worker.look()
    assert event.approved_by == "spot_0"


@pytest.mark.parametrize("fault", ["empty-body", "garbage", "error", "gone", "dropped", "cut-off"])
def test_it_outlives_a_bad_moment_of_the_service(fairnotice_cloud, worker, fault):
    event = fairnotice_cloud.vm("web-0").restart()
    with fairnotice_cloud.fault(fault, vm="web-0"):
        worker.look()
        assert fairnotice_cloud.approvals == []
    worker.look()
    assert event.approved_by == "web-0"
