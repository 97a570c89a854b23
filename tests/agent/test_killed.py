"""The agent is killed at every step of a plan and between them, and the next one goes on."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from threading import Event as Signal
from typing import NamedTuple

import pytest

from fairnotice.agent import by_hand, config, journal, records
from fairnotice.agent.handlers.marks import Marks
from fairnotice.agent.journal import FILE, Journal
from fairnotice.agent.plan import Limits
from fairnotice.agent.records import Outcome, Phase
from fairnotice.agent.workshop import Workshop
from fairnotice.client import ScheduledEvents
from fairnotice.clock import SystemClock
from fairnotice.testing import Cloud
from tests.agent.agents import HANDLERS, Home, fork, process, thread, watching
from tests.agent.events import VM, course, event

# It is planned, two handlers are begun and end, and so on, until it is over.
LINES = 13
PREPARING = 7
# A kill that comes when a handler has begun meets it while it runs.
RUNS_SECONDS = 0.03
AT_ONCE = 6
SEED = 7
ORDER = ["prepare one", "prepare two", "recover two", "recover one"]


class Kill(NamedTuple):
    """When it is killed: so many seconds after this line."""

    lines: int
    seconds: float = 0.0
    # The event is gone when the next agent comes.
    gone: bool = False


def moments():
    """Every line, and any moments in between."""
    chance = Random(SEED)
    yield from (Kill(lines) for lines in range(1, LINES + 1))
    for _ in range(36):
        late = chance.uniform(0, 1.5 * RUNS_SECONDS)
        yield Kill(chance.randint(1, LINES), late, chance.random() < 0.5)


def kill_at(home, agent, moment):
    """Kill it then; at once, without a good-bye."""
    file = home.state / FILE
    while not file.exists() or file.read_bytes().count(b"\n") < moment.lines:
        assert agent.is_alive()
        Signal().wait(0.001)
    Signal().wait(moment.seconds)
    os.kill(agent.pid, signal.SIGKILL)
    agent.join(10)


def whole_life(home, cloud, moment):
    """One event, in which the agent is killed at this moment, and once more it is started.

    What came of it, and whether a handler was cut off.
    """
    url = cloud.url_for("web-0")
    with fork(home, url) as agent:
        watching(home, cloud)
        event = cloud.vm("web-0").restart()
        if moment.lines > PREPARING:
            cloud.wait_until(lambda: cloud.approvals)
            cloud.run_until(event, "Completed")
        kill_at(home, agent, moment)
    cut_off = journal.read(home.state)[event.id].cut_off is not None
    home.ready.unlink(missing_ok=True)
    if moment.gone:
        cloud.run_until(event, "Completed")
    with thread(home, url):
        if moment.lines <= PREPARING and not moment.gone:
            cloud.wait_until(lambda: cloud.approvals)
            cloud.run_until(event, "Completed")
        cloud.wait_until(lambda: home.over)
        cloud.wait_until(home.ready.exists)
    return journal.read(home.state)[event.id], cut_off


def check(folder, numbered):
    """What must hold whenever it was killed."""
    number, moment = numbered
    home = Home(folder / f"killed-{number}", slow=f"; sleep {RUNS_SECONDS}")
    with Cloud() as cloud:
        record, cut_off = whole_life(home, cloud, moment)
    count = home.count()
    for name in HANDLERS:
        begun = record.begun(name)
        assert begun or moment.gone, f"{moment}: {name} was not prepared"
        # One that was ended at once, since the event was gone, may have written nothing.
        least = begun and not moment.gone
        assert least <= count[f"prepare {name}"] <= begun, f"{moment}: {home.wrote}"
        assert count[f"recover {name}"] == begun, f"{moment}: {home.wrote}"
    ends = {step.outcome for step in record.steps.values()}
    assert Outcome.UNKNOWN not in ends, moment
    assert moment.gone or ends == {Outcome.DONE}, moment
    return cut_off


def test_killed_at_any_moment(tmp_path):
    """What was begun is prepared once and recovered once, what was not is not; all is known."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        came = list(pool.map(partial(check, tmp_path), enumerate(moments())))
    # Some died while a handler was at work, so that this test is about something.
    assert any(came)


# ---- What became of a command ----


def prepare_one_and_die(home, cloud):
    """The agent is killed while the first handler prepares; the event it is for."""
    with fork(home, cloud.url_for("web-0")):
        watching(home, cloud)
        event = cloud.vm("web-0").restart()
        cloud.wait_until(lambda: home.wrote)
    home.ready.unlink(missing_ok=True)
    return event


def goes_on_until(file):
    """For a handler that prepares until this file is there."""
    return f"; until [ -e {file} ] || [ $FAIRNOTICE_PHASE = recover ]; do sleep 0.01; done"


def steps(home, event):
    """What came of each handler that prepared."""
    found = journal.read(home.state)[event.id].steps.items()
    return [step.outcome for (phase, _), step in found if phase is Phase.PREPARE]


@pytest.mark.parametrize("nobody_there", [True, False])
def test_a_command_outlives_the_agent(tmp_path, nobody_there):
    """It ends while nobody is there, or is waited for; it is not run twice, and all is well."""
    home = Home(tmp_path / "vm", slow=goes_on_until(tmp_path / "go"))
    with Cloud() as cloud:
        event = prepare_one_and_die(home, cloud)
        mark = Marks(home.state).of(event.id, Phase.PREPARE, "one")
        assert mark.under_way()
        if nobody_there:
            (tmp_path / "go").touch()
            cloud.wait_until(lambda: not mark.under_way())
        asked = len(cloud.requests)
        with thread(home, cloud.url_for("web-0")):
            if not nobody_there:
                cloud.wait_until(lambda: len(cloud.requests) > asked + 1)
                assert steps(home, event) == [Outcome.BEGUN]
                (tmp_path / "go").touch()
            cloud.wait_until(lambda: cloud.approvals)
            cloud.run_until(event, "Completed")
            cloud.wait_until(lambda: home.over)
    assert home.wrote == ORDER
    assert steps(home, event) == [Outcome.DONE] * 2


def test_a_command_that_outlives_the_agent_is_ended_in_time(tmp_path):
    """As any other; what it was to prepare is recovered."""
    home = Home(tmp_path / "vm", slow=goes_on_until(tmp_path / "never"))
    text = home.config.read_text().replace("[handler.one]", "[handler.one]\nseconds = 1")
    home.config.write_text(text)
    with Cloud() as cloud:
        event = prepare_one_and_die(home, cloud)
        mark = Marks(home.state).of(event.id, Phase.PREPARE, "one")
        with thread(home, cloud.url_for("web-0")):
            cloud.wait_until(lambda: "prepare two" in home.wrote)
            assert not mark.under_way()
            event.cancel()
            cloud.wait_until(lambda: home.over)
    first, _ = steps(home, event)
    assert first is Outcome.FAILED
    assert home.count()["prepare one"] == home.count()["recover one"] == 1


@pytest.mark.parametrize("kept", ["promised", "another boot", "begun", "nothing"])
@pytest.mark.parametrize("phase", Phase)
def test_a_step_that_was_written_down_and_no_more(tmp_path, phase, kept):
    """Never begun, it is run; where nobody knows it is not run, and what it prepared recovered."""
    home = Home(tmp_path / "vm", more="heartbeat_seconds = 1")
    with Cloud() as cloud:
        event = cloud.vm("web-0").restart()
        url = cloud.url_for("web-0")
        written = Journal(home.state, SystemClock())
        [shown] = ScheduledEvents(url).get().events
        [rule] = config.load(home.config).rules
        written.append(records.planned(shown, "web-0", rule.course))
        if phase is Phase.RECOVER:
            done = (records.Step(Phase.PREPARE, name, Outcome.DONE) for name in HANDLERS)
            for line in map(partial(records.ended, event.id), done):
                written.append(line)
            written.append(records.gone(event.id))
            event.cancel()
        first = HANDLERS[0 if phase is Phase.PREPARE else 1]
        written.append(records.begun(event.id, phase, first))
        written.close()
        leave(home, event, phase, first, kept)
        with thread(home, url):
            if phase is Phase.PREPARE:
                end = "acknowledged" if kept == "promised" else "prepared"
                cloud.wait_until(lambda: end in home.journal)
                cloud.run_until(event, "Completed")
            elif kept != "promised":
                # Somebody has to look, and does.
                cloud.wait_until(lambda: journal.read(home.state)[event.id].unrecovered)
                by_hand.say(home.state, event.id)
            cloud.wait_until(lambda: home.over)
        acknowledged = cloud.approvals
    expected = ORDER if phase is Phase.PREPARE else ORDER[2:]
    lost = [] if kept == "promised" else [f"{phase} {first}"]
    assert home.wrote == [line for line in expected if line not in lost]
    if phase is Phase.PREPARE:
        assert bool(acknowledged) == (kept == "promised")


def leave(home, event, phase, handler, kept):
    """Marks as a killed agent leaves them, or a killed machine."""
    if kept == "nothing":
        return
    mark = Marks(home.state).of(event.id, phase, handler)
    mark.promise()
    mark.close()
    [lock] = home.state.glob("marks/*/*.lock")
    if kept == "another boot":
        lock.write_text(kept)
    elif kept == "begun":
        lock.with_suffix(".begun").write_text("4194305\n")


def test_a_handler_that_goes_on_is_for_no_other_event(tmp_path):
    """Not before the plan that began it has seen its end."""
    written = Journal(tmp_path, SystemClock())
    written.append(records.planned(event(), VM, course("a", "b")))
    written.append(records.begun("E1", Phase.PREPARE, "a"))
    shop = Workshop(written, (), {}, Limits(0.0, {}), clock=SystemClock())
    with shop.changed:
        assert not shop.take("a")
        assert shop.take("b")
        shop.give_back("a")
        assert shop.take("a")
    written.close()


def test_a_state_that_takes_no_marks(tmp_path, caplog):
    """Handlers are run all the same; of one that was cut off nobody knows, as of any other kind."""
    home = Home(tmp_path / "vm", slow=goes_on_until(tmp_path / "go"))
    home.state.mkdir()
    (home.state / "marks").touch()
    with Cloud() as cloud:
        event = prepare_one_and_die(home, cloud)
        (tmp_path / "go").touch()
        with thread(home, cloud.url_for("web-0")):
            cloud.wait_until(lambda: "prepare two" in home.wrote)
            event.cancel()
            cloud.wait_until(lambda: home.over)
    assert steps(home, event) == [Outcome.UNKNOWN, Outcome.DONE]
    assert home.count()["prepare one"] == home.count()["recover one"] == 1
    assert "prepare two leaves no marks" in caplog.text


# ---- The machine, and not the agent alone ----


@pytest.mark.parametrize("gone", [False, True])
def test_the_vm_is_rebooted_by_the_very_event(tmp_path, gone):
    """The agent dies with the VM, and comes back while the event is Started, or when it is gone."""
    home = Home(tmp_path / "vm")
    with Cloud() as cloud:
        with process(home, cloud) as agent:
            watching(home, cloud)
            event = cloud.vm("web-0").restart()
            cloud.wait_until(lambda: cloud.approvals)
            cloud.wait_until(lambda: event.status == "Started")
            agent.kill()
        home.ready.unlink(missing_ok=True)
        if gone:
            cloud.run_until(event, "Completed")
        asked = len(cloud.requests)
        with process(home, cloud):
            if not gone:
                cloud.wait_until(lambda: len(cloud.requests) > asked + 1)
                assert home.wrote == ["prepare one", "prepare two"]
                cloud.run_until(event, "Completed")
            cloud.wait_until(lambda: home.over)
        assert home.wrote == ORDER
        assert len(cloud.approvals) == 1
