"""The agent in a cloud: every kind of event, and what may come in between."""

import signal
import subprocess
import sys
from datetime import timedelta
from threading import Event as Signal

import pytest

from fairnotice.agent import journal, status
from fairnotice.agent.handlers.handler import Handler
from fairnotice.agent.records import Outcome, Phase
from fairnotice.testing import Cloud
from tests.agent.agents import Home, process, thread, watching

BOTH = ["prepare one", "prepare two", "recover two", "recover one"]


@pytest.fixture
def home(tmp_path):
    """A VM's disk."""
    return Home(tmp_path / "vm")


@pytest.fixture
def cloud():
    """The sample fleet."""
    with Cloud() as made:
        yield made


def record(home):
    """What was done about the only event."""
    [one] = journal.read(home.state).values()
    return one


def outcomes(home):
    """What came of each handler, in its order."""
    return [step.outcome.value for step in record(home).steps.values()]


# ---- Every kind of event ----

KINDS = {
    "user reboot": ("web-0", lambda cloud: cloud.vm("web-0").restart()),
    "redeploy": ("web-0", lambda cloud: cloud.vm("web-0").redeploy()),
    "spot eviction": ("spot_0", lambda cloud: cloud.vm("spot_0").evict()),
    "terminate": ("batch_0", lambda cloud: cloud.vm("batch_0").delete()),
    "live migration": ("db", lambda cloud: of("db", cloud.node("node-1").migrate())),
    "host maintenance": (
        "db",
        lambda cloud: of("db", cloud.node("node-1").maintain(impact="reboot")),
    ),
    "predicted failure": (
        "db",
        lambda cloud: of("db", cloud.node("node-1").predict_failure(risk="high")),
    ),
}


# After which there is no VM in which anything could be recovered.
ENDS = {"terminate"}


def of(vm, events):
    """The event that names this VM."""
    return next(event for event in events if vm in event.resources)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_prepared_for_acknowledged_and_recovered(home, cloud, kind):
    """First the handlers, then the go-ahead, and the way back when it is over."""
    vm, cause = KINDS[kind]
    with thread(home, cloud.url_for(vm)):
        watching(home, cloud)
        event = cause(cloud)
        cloud.wait_until(lambda: any(one.by == vm for one in cloud.approvals))
        assert home.wrote == BOTH[:2]
        assert not home.ready.exists()
        cloud.run_until(event, "Completed")
        if kind in ENDS:
            return
        cloud.wait_until(lambda: home.over)
        cloud.wait_until(home.ready.exists)
    assert home.wrote == BOTH


def test_a_canceled_event_is_recovered_from(home, cloud):
    """It will not happen, so nothing stays prepared."""
    home = Home(home.folder, rule='prepare = ["one", "two"]\nacknowledge = "never"')
    with thread(home, cloud.url_for("web-0")):
        watching(home, cloud)
        event = cloud.vm("web-0").restart()
        cloud.wait_until(lambda: home.wrote == BOTH[:2])
        event.cancel()
        cloud.wait_until(lambda: home.over)
    assert home.wrote == BOTH
    assert not cloud.approvals


def test_what_a_recover_is_told_of_the_end(tmp_path, cloud):
    """The event as it was shown last, and whether it was over or canceled, where that is known."""
    told = '; test $FAIRNOTICE_PHASE = prepare || echo "$FAIRNOTICE_EVENT_STATUS'
    told += f' $FAIRNOTICE_ENDED $FAIRNOTICE_NOT_BEFORE" >> {tmp_path}/told'
    home = Home(tmp_path / "vm", 'prepare = ["one"]\nacknowledge = "never"', slow=told)
    file = tmp_path / "told"
    with thread(home, cloud.url_for("web-0")):
        watching(home, cloud)
        canceled = cloud.vm("web-0").restart()
        cloud.wait_until(lambda: home.wrote)
        canceled.cancel()
        cloud.wait_until(file.exists)
        came = cloud.vm("web-0").restart()
        cloud.wait_until(lambda: len(home.wrote) == 3)
        came.approve()
        cloud.wait_until(lambda: journal.read(home.state)[came.id].event.is_started)
        cloud.run_until(came, "Completed")
        cloud.wait_until(lambda: home.over)
    first, second = file.read_text().splitlines()
    assert first == f"Scheduled canceled {canceled.not_before:%Y-%m-%dT%H:%M:%SZ}"
    assert second == "Started over "


def test_what_came_and_went_while_nobody_watched_is_not_called_canceled(home, cloud):
    """It may have been either: somebody else may have let it begin."""
    home = Home(home.folder, 'prepare = ["one"]\nacknowledge = "never"')
    with thread(home, cloud.url_for("web-0")):
        watching(home, cloud)
        event = cloud.vm("web-0").restart()
        cloud.wait_until(lambda: "prepared" in home.journal)
    event.approve()
    cloud.run_until(event, "Completed")
    with thread(home, cloud.url_for("web-0")):
        cloud.wait_until(lambda: home.over)
    assert (record(home).gone, record(home).ended) == (True, "")


def test_a_handler_is_ended_when_its_event_is_gone(tmp_path, cloud):
    """What it had begun is recovered; the handler behind it is not begun at all."""
    home = Home(tmp_path / "vm", slow="; test $FAIRNOTICE_PHASE = recover || sleep 60")
    with thread(home, cloud.url_for("web-0")):
        watching(home, cloud)
        event = cloud.vm("web-0").restart()
        cloud.wait_until(lambda: home.wrote)
        event.cancel()
        cloud.wait_until(lambda: home.over)
    assert home.wrote == ["prepare one", "recover one"]
    assert outcomes(home) == ["ended", "done"]


def test_a_sudden_failure_is_too_late_to_prepare_for(home, cloud):
    """Started when it is first shown: by the rule all is passed over, and nothing acknowledged."""
    with thread(home, cloud.url_for("db")):
        watching(home, cloud)
        event = of("db", cloud.node("node-1").fail())
        cloud.wait_until(lambda: home.state.exists() and "prepared" in home.journal)
        cloud.run_until(event, "Completed")
        cloud.wait_until(lambda: home.over)
    assert home.wrote == []
    assert outcomes(home) == ["skipped", "skipped"]
    assert not cloud.approvals


def test_or_it_is_prepared_for_as_well_as_can_be(tmp_path, cloud):
    """when_short = "run": whoever drains now may still save something."""
    home = Home(tmp_path / "vm", rule='prepare = ["one"]\nwhen_short = "run"')
    with thread(home, cloud.url_for("db")):
        watching(home, cloud)
        event = of("db", cloud.node("node-1").fail())
        cloud.wait_until(lambda: home.wrote == ["prepare one"])
        cloud.run_until(event, "Completed")
        cloud.wait_until(lambda: home.over)
    assert home.wrote == ["prepare one", "recover one"]
    assert not cloud.approvals


def test_short_freezes_are_logged_and_events_of_others_left_alone(tmp_path, cloud):
    """By default: a rule that says nothing of lengths or scopes is for neither."""
    home = Home(tmp_path / "vm", rule='prepare = ["one"]')
    with thread(home, cloud.url_for("web-0")):
        watching(home, cloud)
        freeze = of("web-0", cloud.node("node-0").maintain(duration_seconds=9))
        other = cloud.vm("web-1").restart()
        cloud.wait_until(lambda: set(cloud.seen_by("web-0")) == {freeze, other})
        cloud.wait_until(lambda: "prepared" in home.journal)
        assert record(home).event.id == freeze.id
        assert record(home).course.rule == "built-in"
    assert home.wrote == []
    assert not cloud.approvals


def test_a_freeze_that_turns_into_a_reboot_is_drained_after_all(tmp_path, cloud):
    """Nothing was begun for the Freeze, so another rule may be for it."""
    home = Home(tmp_path / "vm", rule='types = ["Reboot"]\nprepare = ["one"]')
    with thread(home, cloud.url_for("web-0")):
        watching(home, cloud)
        cloud.fault("freeze-for-reboot", vm="web-0")
        cloud.vm("web-0").restart()
        cloud.wait_until(lambda: "prepared" in home.journal)
        assert home.wrote == []
        cloud.clear_faults()
        cloud.wait_until(lambda: cloud.approvals)
    assert home.wrote == ["prepare one"]


# ---- Time ----


def test_late_handlers_are_ended_before_not_before(tmp_path, cloud):
    """The first would sleep for ever; the second has its own time, and no go-ahead is given."""
    home = Home(
        tmp_path / "vm",
        rule='prepare = ["one", "hangs", "two"]',
        more='[handler.hangs]\nkind = "command"\nprepare = ["sleep", "60"]\nseconds = 0.5\n',
    )
    with thread(home, cloud.url_for("web-0")):
        watching(home, cloud)
        cloud.vm("web-0").restart()
        cloud.wait_until(lambda: "prepared" in home.journal)
    assert home.wrote == ["prepare one", "prepare two"]
    assert outcomes(home) == ["done", "failed", "done"]
    assert "its time was over" in record(home).step(Phase.PREPARE, "hangs").why
    assert not cloud.approvals


class Stubborn(Handler):
    """A handler of another package that heeds neither its deadline nor anybody."""

    def __init__(self):
        self.may_end = Signal()
        self.stopping = None
        self.did = []

    def prepare(self, call):
        self.stopping = call.stopping
        self.may_end.wait(30)
        self.did.append("prepared")

    def recover(self, call):  # noqa: ARG002 - it heeds nobody
        self.did.append("recovered")


def test_the_plan_goes_on_without_a_handler_that_does_not_end(tmp_path, cloud):
    """It is late, the next one runs in time, no go-ahead is given; recover comes when it ended."""
    home = Home(
        tmp_path / "vm",
        rule='prepare = ["stubborn", "two"]',
        more='[handler.stubborn]\nkind = "command"\nprepare = ["true"]\nseconds = 0.2\n',
    )
    with thread(home, cloud.url_for("web-0")) as agent:
        agent.shop.handlers["stubborn"] = handler = Stubborn()
        watching(home, cloud)
        event = cloud.vm("web-0").restart()
        cloud.wait_until(lambda: "prepared" in home.journal)
        assert outcomes(home) == ["late", "done"]
        assert handler.stopping.is_set()
        event.cancel()
        cloud.wait_until(lambda: home.wrote == ["prepare two", "recover two"])
        cloud.wait_until(lambda: outcomes(home)[2:] == ["done"])
        handler.may_end.set()
        cloud.wait_until(lambda: home.over)
    assert handler.did == ["prepared", "recovered"]
    assert not cloud.approvals


class Forgetful(Handler):
    """A handler of somebody else, which opens a file that is not there."""

    def prepare(self, call):  # noqa: ARG002 - as every handler
        open("/no/such/place")  # noqa: PTH123, SIM115 - as somebody else writes it


def test_what_another_package_raises_is_said_with_what_it_was_about(tmp_path, cloud):
    """The path is in the sentence; and a plan whose only handler failed is not called prepared."""
    home = Home(tmp_path / "vm", rule='prepare = ["one"]')
    with thread(home, cloud.url_for("web-0")) as agent:
        agent.shop.handlers["one"] = Forgetful()
        watching(home, cloud)
        cloud.vm("web-0").restart()
        cloud.wait_until(lambda: "prepared" in home.journal)
    [step] = record(home).steps.values()
    assert step.why.startswith("FileNotFoundError: ")
    assert "/no/such/place" in step.why
    assert status.state(record(home)) == "not prepared"
    assert status.row(record(home))["not_before"].endswith("Z")


def test_at_once_is_before_the_handlers(tmp_path, cloud):
    """The event has begun when the first handler does, which is run all the same."""
    home = Home(tmp_path / "vm", rule='prepare = ["one"]\nacknowledge = "at-once"')
    with thread(home, cloud.url_for("web-0")):
        watching(home, cloud)
        event = cloud.vm("web-0").restart()
        cloud.wait_until(lambda: "prepared" in home.journal)
    assert event.approved_by == "web-0"
    # That it is Started may be heard before the answer to the go-ahead is.
    first = [kind for kind in home.journal if kind != "shown"]
    assert first.index("acknowledged") == 1
    assert home.wrote == ["prepare one"]


def test_what_does_not_fit_any_more_is_skipped(tmp_path, cloud):
    """Shown 30 s ahead: 29 with the margin, too few for the first and enough for the second."""
    home = Home(
        tmp_path / "vm",
        rule='prepare = ["long", "two"]\non_failure = "acknowledge"',
        more='[handler.long]\nkind = "command"\nprepare = ["true"]\nseconds = 60\n',
    )
    with thread(home, cloud.url_for("web-0")):
        watching(home, cloud)
        cloud.fault("short-notice", vm="web-0", seconds=60)
        event = cloud.vm("web-0").restart()
        cloud.advance_to(event.not_before - timedelta(seconds=30))
        cloud.wait_until(lambda: cloud.approvals)
    assert outcomes(home) == ["skipped", "done"]


# ---- Twice ----


def test_nothing_is_undone_while_another_event_needs_it(tmp_path, cloud):
    """A second event is announced before the first is over: it stays drained until both are."""
    home = Home(tmp_path / "vm", rule='prepare = ["one"]\nacknowledge = "never"')
    with thread(home, cloud.url_for("web-0")):
        watching(home, cloud)
        first = cloud.vm("web-0").restart()
        second = cloud.vm("web-0").redeploy()
        cloud.wait_until(lambda: home.count()["prepare one"] == 2)
        first.cancel()
        cloud.wait_until(lambda: "gone" in home.journal)
        assert "recover one" not in home.wrote
        second.cancel()
        cloud.wait_until(lambda: home.over)
    assert home.count() == {"prepare one": 2, "recover one": 2}


def test_what_is_recovered_for_a_later_event_is_so_for_the_earlier_one(tmp_path, cloud):
    """Its recover had failed; once the same handler has recovered, nobody needs to look."""
    broken = tmp_path / "broken"
    broken.touch()
    fails = f"; test $FAIRNOTICE_PHASE = prepare -o ! -e {broken}"
    home = Home(tmp_path / "vm", rule='prepare = ["one"]\nacknowledge = "never"', slow=fails)
    with thread(home, cloud.url_for("web-0")):
        watching(home, cloud)
        first = cloud.vm("web-0").restart()
        cloud.wait_until(lambda: "prepared" in home.journal)
        first.cancel()
        cloud.wait_until(lambda: journal.read(home.state)[first.id].unrecovered)
        broken.unlink()
        second = cloud.vm("web-0").restart()
        cloud.wait_until(lambda: home.count()["prepare one"] == 2)
        second.cancel()
        cloud.wait_until(lambda: home.over)
        cloud.wait_until(home.ready.exists)
    step = journal.read(home.state)[first.id].step(Phase.RECOVER, "one")
    assert step.why == f"with event {second.id}"


@pytest.mark.parametrize(
    ("folder", "said"),
    [("vm", "An agent runs here already"), ("another", "Another agent of this VM acts on")],
)
def test_the_second_agent_says_so_and_exits(home, cloud, folder, said):
    """One is enough, wherever each has its journal; the first goes on."""
    with thread(home, cloud.url_for("web-0")):
        watching(home, cloud)
        other = home if folder == "vm" else Home(home.folder.parent / folder)
        second = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-m", "fairnotice", "agent", "run", "--config", str(other.config)],
            env=cloud.environment("web-0"),
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
        assert second.returncode == 1
        assert said in second.stderr
        cloud.vm("web-0").restart()
        cloud.wait_until(lambda: cloud.approvals)


# ---- In vain ----


def test_a_recover_that_fails_once_is_tried_again(tmp_path, cloud):
    """One blip leaves nothing drained; the VM is not ready meanwhile."""
    once, again = tmp_path / "once", tmp_path / "again"
    # It fails the first time; the second time it waits until it was looked at.
    waits = f"{{ test -e {once} && until test -e {again}; do sleep 0.02; done; }}"
    home = Home(
        tmp_path / "vm",
        rule='prepare = ["one"]\nacknowledge = "never"',
        slow=f"; test $FAIRNOTICE_PHASE = prepare || {waits} || ! touch {once}",
    )
    with thread(home, cloud.url_for("web-0")):
        watching(home, cloud)
        event = cloud.vm("web-0").restart()
        cloud.wait_until(lambda: "prepared" in home.journal)
        event.cancel()
        cloud.wait_until(once.exists)
        cloud.wait_until(lambda: home.journal.count("ended") == 2)
        cloud.wait_until(lambda: not home.ready.exists())
        again.touch()
        cloud.wait_until(lambda: home.over)
        cloud.wait_until(home.ready.exists)
    assert home.wrote == ["prepare one", "recover one", "recover one"]


def test_a_ready_file_that_cannot_be_taken_away_stops_nothing(home, cloud, caplog):
    """It is said; the handlers run, and then the go-ahead is given."""
    home.ready.mkdir(parents=True)
    with thread(home, cloud.url_for("web-0")):
        event = cloud.vm("web-0").restart()
        cloud.wait_until(lambda: cloud.approvals)
        assert home.wrote == BOTH[:2]
        cloud.run_until(event, "Completed")
        cloud.wait_until(lambda: home.over)
    assert home.wrote == BOTH
    assert f"ready_file {home.ready} cannot be taken away" in caplog.text


def test_what_is_canceled_while_the_disk_is_full_is_not_prepared_for(home, cloud):
    """Documents are read meanwhile, so what is there when there is space again is what counts."""
    with thread(home, cloud.url_for("web-0")) as agent:
        watching(home, cloud)
        live = agent.shop.journal
        good, live._out = live._out, open("/dev/full", "ab", buffering=0)  # noqa: SIM115, PTH123
        first = cloud.vm("web-0").restart()
        cloud.wait_until(lambda: agent.shop.shown(first.id))
        first.cancel()
        second = cloud.vm("web-0").redeploy()
        cloud.wait_until(lambda: agent.shop.shown(second.id) and not agent.shop.shown(first.id))
        with agent.shop.changed:
            live._out.close()
            live._out = good
        cloud.wait_until(lambda: cloud.approvals)
    assert record(home).event.id == second.id
    assert home.wrote == BOTH[:2]


# ---- Ended ----


def test_a_polite_end_leaves_prepared_what_is_prepared(home, cloud):
    """SIGTERM while the VM is prepared: exit code 0, nothing is undone; the next one recovers."""
    with process(home, cloud) as agent:
        watching(home, cloud)
        event = cloud.vm("web-0").restart()
        cloud.wait_until(lambda: cloud.approvals)
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(10) == 0
    assert home.wrote == BOTH[:2]
    assert not home.ready.exists()
    cloud.run_until(event, "Completed")
    with thread(home, cloud.url_for("web-0")):
        cloud.wait_until(lambda: home.over)
    assert home.wrote == BOTH


def test_a_polite_end_ends_the_handler_that_runs(tmp_path, cloud):
    """It is written down as ended, and not run again by the next agent, which recovers it."""
    home = Home(tmp_path / "vm", slow="; test $FAIRNOTICE_PHASE = recover || sleep 60")
    with process(home, cloud) as agent:
        watching(home, cloud)
        event = cloud.vm("web-0").restart()
        cloud.wait_until(lambda: home.wrote)
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(10) == 0
    assert outcomes(home) == [Outcome.ENDED]
    event.cancel()
    with thread(home, cloud.url_for("web-0")):
        cloud.wait_until(lambda: home.over)
    assert home.wrote == ["prepare one", "recover one"]


def test_a_polite_end_in_the_middle_of_a_recover_is_gone_on_from(tmp_path, cloud):
    """What was not recovered to its end is recovered by the next agent, which is not ready yet."""
    first = tmp_path / "first"
    home = Home(
        tmp_path / "vm",
        rule='prepare = ["one"]\nacknowledge = "never"',
        slow="; test $FAIRNOTICE_PHASE = prepare"
        f" || test -e {first} || {{ touch {first}; sleep 60; }}",
    )
    with process(home, cloud) as agent:
        watching(home, cloud)
        event = cloud.vm("web-0").restart()
        cloud.wait_until(lambda: "prepared" in home.journal)
        event.cancel()
        cloud.wait_until(first.exists)
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(10) == 0
    assert outcomes(home) == [Outcome.DONE, Outcome.ENDED]
    with thread(home, cloud.url_for("web-0")):
        cloud.wait_until(lambda: home.over)
    assert outcomes(home) == [Outcome.DONE, Outcome.DONE]
    assert home.wrote == ["prepare one", "recover one", "recover one"]
