"""A cloud in a test: what its methods do, what its clients see, and whose the clock is."""

import asyncio
import contextlib
import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from urllib.error import URLError

import pytest

from fairnotice.clock import SystemClock
from fairnotice.errors import UnknownName, UsageError
from fairnotice.metadata.rate import DEFAULT
from fairnotice.testing import Cloud, CloudRefused
from tests.testing.asking import approve, get

NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC)
# A scope of each kind, in a few lines; the zonal VM is standalone.
OWN_FLEET = """
[[node]]
name = "left"

[[node]]
name = "right"
fault_domain = 1

[[availability_set]]
name = "app"

[[scale_set]]
name = "pool"
terminate_notice_minutes = 10

[[cloud_service]]
name = "shop"

[[vm]]
name = "app-a"
node = "left"
availability_set = "app"

[[vm]]
name = "app-b"
node = "right"
availability_set = "app"

[[vm]]
name = "pool_0"
node = "right"
scale_set = "pool"

[[vm]]
name = "Role_IN_0"
node = "left"
cloud_service = "shop"

[[vm]]
name = "alone"
node = "left"
zone = "2"
"""


@pytest.fixture
def cloud():
    """The sample fleet, on New Year's Day."""
    with Cloud(start=NEW_YEAR) as it:
        yield it


def history(event):
    """Each step of an event's story, with the minutes since New Year."""
    return [(step.what, (step.at - NEW_YEAR).total_seconds() / 60) for step in event.history()]


# ---- What happens, and when ----


def test_a_restart_is_announced_seen_and_done_in_its_time(cloud):
    """The story of the docstring, over HTTP, with every instant as it has to be."""
    url = cloud.url_for("web-0")
    event = cloud.vm("web-0").restart()
    boot = cloud.vm("web-0").machine.boot_id

    shown, date = get(url)
    assert date == "Fri, 01 Jan 2027 00:00:00 GMT"
    assert [(one["EventId"], one["NotBefore"]) for one in shown["Events"]] == [
        (event.id, "Fri, 01 Jan 2027 00:15:00 GMT")
    ]
    assert cloud.seen_by("web-0") == [event]
    assert cloud.seen_by("web-1") == []

    cloud.advance(minutes=14, seconds=59)
    assert (event.status, get(url)[1]) == ("Scheduled", "Fri, 01 Jan 2027 00:14:59 GMT")
    cloud.advance(seconds=1)
    assert (event.status, cloud.vm("web-0").machine.boot_id) == ("Started", boot)
    cloud.advance(hours=1)
    assert event.status == "Completed"
    assert get(url)[0]["Events"] == []
    assert cloud.vm("web-0").machine.boot_id != boot
    assert [at for _, at in history(event)] == [0, 0, 15, 15, 15.75, 15.75]


def test_an_approval_of_a_client_starts_it_at_once_and_is_known(cloud):
    """No time has to pass for what is due now; and only the first approval counts."""
    event = cloud.vm("web-0").restart()
    cloud.advance(minutes=3)

    approve(cloud.url_for("web-1"), event.id)
    cloud.wait_until(lambda: event.status == "Started")
    approve(cloud.url_for("web-0"), event.id)

    assert cloud.approvals == [(event.id, "web-1", NEW_YEAR + timedelta(minutes=3))]
    assert event.approved_by == "web-1"
    assert [(asked.vm, asked.method, asked.status) for asked in cloud.requests] == [
        ("web-1", "POST", 200),
        ("web-0", "POST", 200),
    ]
    assert cloud.run_until(event, "Completed") is event
    assert cloud.now == NEW_YEAR + timedelta(minutes=3, seconds=45)


@pytest.mark.parametrize(
    ("cause", "types"),
    [
        (lambda cloud: [cloud.vm("web-0").restart()], ["Reboot"]),
        (lambda cloud: [cloud.vm("db").redeploy()], ["Redeploy"]),
        (lambda cloud: [cloud.vm("spot_0").evict()], ["Preempt"]),
        (lambda cloud: [cloud.vm("batch_3").delete()], ["Terminate"]),
        (lambda cloud: cloud.scale_set("batch").scale_in(2), ["Terminate"] * 2),
        (lambda cloud: cloud.node("node-0").maintain(duration_seconds=9), ["Freeze"] * 2),
        (lambda cloud: cloud.node("node-0").maintain(impact="reboot"), ["Reboot"] * 2),
        (lambda cloud: cloud.node("node-0").migrate(), ["Freeze"] * 2),
        (lambda cloud: cloud.node("node-5").repair(), ["Reboot"]),
        (lambda cloud: cloud.node("node-5").evacuate(), ["Freeze"]),
        (lambda cloud: cloud.node("node-5").predict_failure(risk="high"), ["Redeploy"]),
        (lambda cloud: cloud.node("node-5").fail(), ["Redeploy"]),
    ],
)
def test_everything_that_can_be_caused_is_announced_and_ends(cloud, cause, types):
    """Each method returns the events that its VMs are shown, and each of them gets to its end."""
    events = cause(cloud)

    assert [event.type for event in events] == types
    for event in events:
        (vm, *_) = event.resources
        assert event.id in {one["EventId"] for one in cloud.document(vm)["Events"]}
    for event in events:
        cloud.run_until(event, "Completed")


def test_nodes_are_rolled_out_one_after_another(cloud):
    """A rollout goes its way in simulated days, and can be paused on it."""
    rollout = cloud.rollout(["node-0", "node-1", "node-2"])
    rollout.pause()
    cloud.advance(days=1)
    assert rollout.status == "paused"
    cloud.listen()
    rollout.resume()
    cloud.advance(days=2)
    assert (rollout.status, rollout.look().done_count) == ("completed", 3)


def test_power_needs_no_notice(cloud):
    """Stopping, starting and deallocating are the user's own, and take their time."""
    vm = cloud.vm("db")
    for act, power in ((vm.stop, "stopped"), (vm.start, "running"), (vm.deallocate, "deallocated")):
        act()
        cloud.advance(minutes=5)
        assert vm.look().power == power
    assert cloud.events == []


def test_an_event_can_be_postponed_canceled_and_approved(cloud):
    """An operator's words on an event."""
    event = cloud.vm("web-0").restart(not_before=NEW_YEAR + timedelta(hours=1))
    event.postpone(NEW_YEAR + timedelta(hours=2))
    assert event.not_before == NEW_YEAR + timedelta(hours=2)
    event.cancel()
    assert event.status == "Canceled"
    other = cloud.vm("web-1").restart()
    other.approve(by="web-2")
    third = cloud.vm("db").restart()
    third.approve()
    assert [event.approved_by for event in (other, third)] == ["web-2", "test"]
    assert cloud.events == [other, third]


def test_run_until_has_patience(cloud):
    """Also for what is planned for a day weeks ahead."""
    event = cloud.vm("db").restart(not_before=NEW_YEAR + timedelta(days=20))
    cloud.run_until(event, "Started")
    assert cloud.now == NEW_YEAR + timedelta(days=20)


def test_a_week_of_impacts_happens_in_order(cloud):
    """What is due on the way of one long advance happens at its own instant, not at the end."""
    first = cloud.vm("web-0").restart()
    second = cloud.vm("db").redeploy(not_before=NEW_YEAR + timedelta(days=2))
    cloud.advance(days=7)
    assert history(first)[-1] == ("EventGone", 15.75)
    assert history(second)[-1] == ("EventGone", 2 * 24 * 60 + 3)


# ---- What is wrong ----


def test_run_until_says_why_it_cannot_get_there(cloud):
    """Waiting for ever is no answer, and what is over does not come back."""
    event = cloud.vm("web-0").restart()
    with pytest.raises(AssertionError, match=r"Event .* is Completed and will not be Canceled"):
        cloud.run_until(event, "Canceled")
    with pytest.raises(ValueError, match="Begun"):
        cloud.run_until(event, "Begun")
    with pytest.raises(UnknownName):
        cloud.run_until("2B9C", "Started")


def test_what_the_law_forbids_fails_the_test_with_its_rule(cloud):
    """A refusal is said where it was caused."""
    with pytest.raises(CloudRefused, match="Spot") as refused:
        cloud.vm("web-0").evict()
    assert refused.value.refusal.rule == 20


def test_names_that_nobody_has_are_answered_with_the_nearest(cloud):
    """Typing mistakes are found where they are made."""
    event = cloud.vm("web-0").restart()
    assert repr(event) == f"<Reboot of web-0, Scheduled, {event.id}>"
    for mistake in (
        lambda: cloud.vm("web-O"),
        lambda: cloud.url_for("web-O"),
        lambda: cloud.seen_by("web-O"),
        lambda: cloud.listen("web-O"),
        lambda: event.approve(by="web-O"),
    ):
        with pytest.raises(UnknownName, match="web-0"):
            mistake()
    with pytest.raises(UnknownName, match="node-0"):
        cloud.node("node_0")
    with pytest.raises(UsageError, match="backwards"):
        cloud.advance(seconds=-1)
    with pytest.raises(UsageError, match="freeze or reboot"):
        cloud.node("node-0").maintain(impact="migrate")
    with pytest.raises(UnknownName, match="2019-08-01"):
        cloud.document("web-0", "2019-08-02")
    with pytest.raises(UsageError, match="one event, not"):
        cloud.run_until([event], "Started")
    cloud.vm("db").stop()
    cloud.advance(minutes=5)
    with pytest.raises((CloudRefused, AssertionError), match="db"):
        cloud.vm("db").restart()


def test_whoever_does_not_listen_is_not_told_and_the_test_is(cloud):
    """A restart without an event would surprise a test: it is refused, and says what to do."""
    with Cloud(listening=False) as silent:
        with pytest.raises(UsageError, match=r'cloud\.listen\("web-0"\)'):
            silent.vm("web-0").restart()
        assert get(silent.url_for("web-1"))[0]["Events"] == []
        assert silent.vm("web-0").restart().status == "Scheduled"
    cloud.advance(hours=25)
    with pytest.raises(UsageError, match="within a day"):
        cloud.vm("web-0").restart()
    cloud.listen("web-2")
    cloud.vm("web-0").restart()


def test_a_poll_before_a_long_advance_counts_when_it_was_made(cloud):
    """A client that has not asked for a day is not told, however the test's clock jumps."""
    get(cloud.url_for("db"))
    cloud.advance(hours=23)
    get(cloud.url_for("db"))
    cloud.advance(hours=23)
    assert cloud.vm("db").restart().status == "Scheduled"
    cloud.advance(hours=25)
    with pytest.raises(UsageError, match="within a day"):
        cloud.vm("db").redeploy()


def test_the_endpoint_misbehaves_when_the_test_wants_it_to(cloud):
    """Towards one VM, for a while; every fault by itself is proven in tests/metadata."""
    url = cloud.url_for("web-0")
    with cloud.fault("error", vm="web-0"):
        with pytest.raises(URLError, match="500"):
            get(url)
        assert get(cloud.url_for("web-1"))[0]["Events"] == []
        dropped = cloud.fault("dropped", vm="web-0")
        with pytest.raises((URLError, ConnectionError)):
            get(url)
        dropped.clear()
        dropped.clear()
        with pytest.raises(URLError, match="500"):
            get(url)
    get(url)
    assert [asked.status for asked in cloud.requests] == [500, 200, 0, 500, 200]
    with pytest.raises(UnknownName, match="Did you mean slow"):
        cloud.fault("slo")


def test_faults_of_the_document_go_by_the_clouds_clock(cloud):
    """Short notice is short on the clock that the test moves."""
    cloud.fault("short-notice", seconds=60)
    event = cloud.vm("web-0").restart()
    url = cloud.url_for("web-0")
    cloud.advance(minutes=13, seconds=59)
    assert get(url)[0]["Events"] == []
    cloud.advance(seconds=1)
    assert [one["EventId"] for one in get(url)[0]["Events"]] == [event.id]
    cloud.clear_faults()


# ---- The fleet, the clients, the clock ----


def test_a_fleet_of_your_own_is_a_few_lines(tmp_path):
    """As text, as a file, as a mapping; every kind of scope in it is told."""
    path = tmp_path / "fleet.toml"
    path.write_text(OWN_FLEET)
    for given in (OWN_FLEET, path, str(path)):
        with Cloud(given) as cloud:
            for vm in ("app-a", "Role_IN_0", "alone"):
                assert cloud.vm(vm).restart().resources == [vm]
            (gone,) = cloud.scale_set("pool").scale_in()
            assert gone.not_before == cloud.now + timedelta(minutes=10)
            assert cloud.node("right").look().vms == ["app-b", "pool_0"]
    with Cloud({"node": [{"name": "n"}], "vm": [{"name": "v", "node": "n"}]}) as cloud:
        assert cloud.vm("v").restart().resources == ["v"]
    with pytest.raises(UsageError, match="the fleet: vm v: unknown key `nod`"):
        Cloud({"vm": [{"name": "v", "nod": "n"}]})


def test_versions_show_what_azure_shows_in_them(cloud):
    """Also without a client."""
    cloud.vm("web-0").restart()
    (old,) = cloud.document("web-0", "2017-11-01")["Events"]
    (new,) = cloud.vm("web-0").document()["Events"]
    assert set(new) - set(old) == {"Description", "EventSource", "DurationInSeconds"}
    assert get(cloud.url_for("web-0"), "2017-11-01")[0]["Events"] == [old]


def test_the_clock_begins_now_and_stands_still():
    """So that a client that looks at its own clock finds NotBefore ahead of it."""
    before = SystemClock().wall()
    with Cloud() as cloud:
        assert timedelta(0) <= before - cloud.now < timedelta(seconds=5)
        began = cloud.now
        get(cloud.url_for("web-0"))
        assert cloud.now == began


def test_a_hundred_quick_polls_are_no_crowd_unless_the_test_wants_it_so(cloud):
    """No rate limit by default: a test's client does not wait, and its time stands still."""
    for _ in range(100):
        get(cloud.url_for("web-0"))
    with Cloud(rate_limit=DEFAULT) as strict:
        urls = [strict.url_for("web-0")] * 100
        with pytest.raises(URLError, match="429"):
            list(map(get, urls))
        assert strict.requests[-1].status == 429


def test_a_client_in_another_process_is_told_where_to_ask(cloud, monkeypatch):
    """By the environment; the command line reaches this cloud the same way, past any proxy."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "example.org")
    event = cloud.vm("web-0").restart()
    script = "import os, sys; sys.path.insert(0, ''); from tests.testing.asking import get\n"
    script += "print(get(os.environ['FAIRNOTICE_METADATA_URL'])[0]['Events'][0]['EventId'])"
    environment = cloud.environment("web-0")
    for command in (
        [sys.executable, "-c", script],
        [sys.executable, "-m", "fairnotice", "event", "show", event.id, "--json"],
    ):
        run = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)  # noqa: S603
        assert event.id in run.stdout
    assert environment["no_proxy"].startswith("example.org,127.0.0.1,")


def test_waiting_is_for_real_clients_and_ends(cloud):
    """In a test that is a coroutine its own loop goes on, where the client may live."""
    event = cloud.vm("web-0").restart()
    with pytest.raises(AssertionError, match=r"within 0\.05 s"):
        cloud.wait_until(lambda: cloud.approvals, seconds=0.05)

    async def test() -> None:
        client = asyncio.create_task(asyncio.to_thread(approve, cloud.url_for("web-0"), event.id))
        assert await cloud.wait_until_async(lambda: event.approved_by) == "web-0"
        await client
        with pytest.raises(AssertionError, match=r"within 0\.05 s"):
            await cloud.wait_until_async(lambda: False, seconds=0.05)

    asyncio.run(test())


@pytest.mark.parametrize(("before", "between"), [(3.8, 9.3), (1234.56, 0.1), (0.000001, 2.9)])
def test_time_passes_also_in_pieces_that_no_float_can_say(cloud, before, between):
    """Nobody is woken a rounding error late, for then nothing would ever move again."""
    cloud.advance(seconds=before)
    cloud.node("node-3").fail()
    cloud.advance(seconds=between)
    cloud.advance(minutes=30)
    assert cloud.now == NEW_YEAR + timedelta(minutes=30, seconds=before) + timedelta(
        seconds=between
    )
    assert cloud.events == []


def test_what_stands_still_is_said(cloud):
    """A bug that asks to be woken for ever fails the test that meets it; it does not hang."""
    cloud.core._next_due = lambda: cloud.now
    with pytest.raises(AssertionError, match="Time stands still"):
        cloud.advance(seconds=1)


@pytest.mark.parametrize("seed", [6, 34, 51])
def test_after_an_approval_of_a_client_nothing_is_left_due(cloud, seed):
    """What the law wants to look at again at this very instant is looked at, without an advance."""
    chance = random.Random(seed)
    causes = (
        lambda: cloud.vm("web-0").restart(),
        lambda: cloud.node("node-0").maintain(),
        lambda: cloud.node("node-1").migrate(),
        lambda: cloud.vm("spot_0").evict(),
        lambda: cloud.scale_set("batch").scale_in(),
        lambda: cloud.node("node-3").predict_failure(risk="low"),
        lambda: cloud.rollout(["node-0", "node-1", "node-2"]),
    )

    def nothing_due() -> bool:
        due = cloud.inside(lambda: cloud.core.conductor.timers.next)
        return due is None or due > cloud.now

    for _ in range(6):
        with contextlib.suppress(AssertionError, UsageError):
            chance.choice(causes)()
        for event in cloud.events:
            if event.status == "Scheduled" and chance.random() < 0.7:
                approve(cloud.url_for(event.resources[0]), event.id)
                cloud.wait_until(nothing_due)
        cloud.advance(seconds=chance.choice((1, 30, 300, 900)))


def test_the_wall_clock_can_be_stepped_and_date_shows_it(cloud):
    """Rule 25: an approval is still needed until the notice has elapsed."""
    event = cloud.vm("web-0").restart()
    cloud.set_wall(NEW_YEAR + timedelta(hours=1))
    assert get(cloud.url_for("web-0"))[1] == "Fri, 01 Jan 2027 01:00:00 GMT"
    cloud.advance(seconds=1)
    assert event.status == "Scheduled"
