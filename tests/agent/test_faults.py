"""The agent and an endpoint that misbehaves: every fault there is, all at once, each in a cloud."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import pytest

from fairnotice.metadata.faults import FaultKind
from fairnotice.testing import Cloud
from tests.agent.agents import Home, thread, watching

BOTH = {"prepare one": 1, "prepare two": 1, "recover one": 1, "recover two": 1}
# Here the event is not what it seems.
OF_EVENTS = {
    FaultKind.SHORT_NOTICE,
    FaultKind.CANCELED_LATE,
    FaultKind.STRAIGHT_TO_STARTED,
    FaultKind.TWO_EVENTS,
}
SLOW = {FaultKind.SLOW: 0.5, FaultKind.SLOW_FIRST: 0.5}


def survives(folder, kind):
    """An event is announced while the fault is on; when it is off all comes right."""
    home = Home(folder / kind.value)
    with Cloud() as cloud, thread(home, cloud.url_for("web-0")):
        watching(home, cloud)
        cloud.fault(kind, vm="web-0", seconds=SLOW.get(kind))
        event = cloud.vm("web-0").restart()
        # One that is slow is spoiled when it is answered, and all may have been asked before.
        cloud.wait_until(lambda: cloud.core.worker.faults.spoiled[kind] or cloud.approvals)
        cloud.clear_faults()
        cloud.wait_until(lambda: cloud.approvals, 20)
        cloud.run_until(event, "Completed")
        cloud.wait_until(lambda: home.over, 20)
    return kind, home.count() == BOTH


def test_the_agent_survives_every_fault(tmp_path):
    """It is prepared once, acknowledged and recovered, as if nothing had been."""
    kinds = [kind for kind in FaultKind if kind not in OF_EVENTS]
    assert len(kinds) > 10
    with ThreadPoolExecutor(len(kinds)) as pool:
        came = list(pool.map(partial(survives, tmp_path), kinds))
    assert [kind for kind, well in came if not well] == []


@pytest.fixture
def cloud():
    """The sample fleet."""
    with Cloud() as made:
        yield made


def test_a_go_ahead_that_nobody_knows_the_address_of_is_given_again(tmp_path, cloud, caplog):
    """404 was seen on hosts that lacked a version for a while: it is no answer to the go-ahead."""
    home = Home(tmp_path, rule='prepare = ["one"]', slow="; sleep 0.5")
    with thread(home, cloud.url_for("web-0")):
        watching(home, cloud)
        event = cloud.vm("web-0").restart()
        cloud.wait_until(lambda: home.count()["prepare one"])
        cloud.fault("not-found", vm="web-0")
        cloud.wait_until(lambda: "the go-ahead waits" in caplog.text)
        assert event.approved_by is None
        cloud.clear_faults()
        cloud.wait_until(lambda: event.approved_by == "web-0", 20)


def test_an_event_that_vanishes_late_is_recovered_from_and_never_prepared_for_again(
    tmp_path, cloud
):
    """Gone 60 s before its NotBefore, and back when the fault is over: a handler is run once."""
    home = Home(tmp_path, rule='prepare = ["one"]\nacknowledge = "never"')
    with thread(home, cloud.url_for("web-0")):
        watching(home, cloud)
        event = cloud.vm("web-0").restart()
        cloud.wait_until(lambda: home.count()["prepare one"])
        cloud.fault("canceled-late", vm="web-0", seconds=60)
        cloud.advance_to(event.not_before - timedelta(seconds=30))
        cloud.wait_until(lambda: home.over)
        cloud.clear_faults()
        # Whoever prepares for the next one has seen this one again.
        cloud.vm("web-0").redeploy()
        cloud.wait_until(lambda: home.count()["prepare one"] == 2)
    wrote = [line.split()[2] for line in home.lines.read_text().splitlines()]
    assert wrote == ["Reboot", "Reboot", "Redeploy"]


def test_shown_only_when_it_has_started(tmp_path, cloud):
    """Nothing is acknowledged, and by the rule nothing prepared."""
    home = Home(tmp_path)
    with thread(home, cloud.url_for("web-0")):
        watching(home, cloud)
        cloud.fault("straight-to-started", vm="web-0")
        event = cloud.vm("web-0").restart()
        cloud.run_until(event, "Started")
        cloud.wait_until(lambda: "prepared" in home.journal)
        cloud.run_until(event, "Completed")
        cloud.wait_until(lambda: home.over)
    assert home.wrote == []
    assert not cloud.approvals


def test_a_twin_is_an_event_of_its_own(tmp_path, cloud):
    """Each is prepared for; nothing is recovered while the other is there."""
    home = Home(tmp_path, rule='duration_at_least = 0\nprepare = ["one"]\nacknowledge = "never"')
    with thread(home, cloud.url_for("web-0")):
        watching(home, cloud)
        cloud.fault("two-events", vm="web-0")
        event = cloud.vm("web-0").restart()
        cloud.wait_until(lambda: home.count()["prepare one"] == 2)
        cloud.run_until(event, "Completed")
        cloud.wait_until(lambda: home.over)
    assert home.wrote == ["prepare one"] * 2 + ["recover one"] * 2
