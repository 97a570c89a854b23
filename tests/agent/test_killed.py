"""The agent is killed at every step of a plan, and the next one goes on where it was."""

import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event as Signal

import pytest

from fairnotice.agent import journal
from fairnotice.agent.records import Outcome, Phase
from fairnotice.testing import Cloud
from tests.agent.agents import HANDLERS, Home, process, watching

# It is planned, two handlers are begun and end, and so on, until it is over.
LINES = 13
PREPARING = 7
# A kill that comes when a handler has begun meets it while it runs.
SLOW = "; sleep 0.1"
AT_ONCE = 4


def kill_at(home, agent, lines):
    """Kill it when its journal has so many lines; at once, without a good-bye."""
    while len(home.journal) < lines:
        assert agent.poll() is None
        Signal().wait(0.001)
    agent.send_signal(signal.SIGKILL)
    agent.wait(10)


def whole_life(home, cloud, lines):
    """One event, in which the agent is killed at this line, and once more it is started."""
    event = None
    with process(home, cloud) as agent:
        watching(home, cloud)
        event = cloud.vm("web-0").restart()
        if lines <= PREPARING:
            kill_at(home, agent, lines)
        else:
            cloud.wait_until(lambda: cloud.approvals)
            cloud.run_until(event, "Completed")
            kill_at(home, agent, lines)
    home.ready.unlink(missing_ok=True)
    with process(home, cloud):
        if lines <= PREPARING:
            # It is there, and goes on as far as it can.
            cloud.wait_until(lambda: "prepared" in home.journal)
            if not journal.read(home.state)[event.id].failed:
                cloud.wait_until(lambda: cloud.approvals)
            cloud.run_until(event, "Completed")
        cloud.wait_until(lambda: home.over)
        cloud.wait_until(home.ready.exists)
    return journal.read(home.state)[event.id]


def check(folder, lines):
    """What must hold wherever it was killed; a sentence where it does not."""
    home = Home(folder / f"killed-{lines}", slow=SLOW)
    with Cloud() as cloud:
        record = whole_life(home, cloud, lines)
        acknowledged = bool(cloud.approvals)
    count = home.count()
    cut_off = [step for step in record.steps.values() if step.outcome is Outcome.UNKNOWN]
    for name in HANDLERS:
        assert count[f"prepare {name}"] <= 1, f"{lines}: {name} prepared twice"
        # What was cut off in the middle of recovering is run once more, and nothing else.
        assert count[f"recover {name}"] <= 2, f"{lines}: {name}"
        assert record.begun(name) == (record.step(Phase.RECOVER, name) is not None), lines
        assert count[f"recover {name}"] >= record.begun(name), f"{lines}: {name} left prepared"
    assert record.over
    assert acknowledged == (not record.failed), f"{lines}: acknowledged {acknowledged}"
    return record.failed, len(cut_off)


def test_killed_at_every_line_of_the_journal(tmp_path):
    """No handler prepares twice, all that was begun is recovered, and the journal is over."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        came = list(pool.map(partial(check, tmp_path), range(1, LINES + 1)))
    # Some were cut off while a handler prepared, so that this test is about something.
    assert any(failed for failed, _ in came[:PREPARING])
    assert not any(failed for failed, _ in came[PREPARING:])


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
        with process(home, cloud):
            if not gone:
                asked = len(cloud.requests)
                cloud.wait_until(lambda: len(cloud.requests) > asked + 1)
                assert home.wrote == ["prepare one", "prepare two"]
                cloud.run_until(event, "Completed")
            cloud.wait_until(lambda: home.over)
        assert home.wrote == ["prepare one", "prepare two", "recover two", "recover one"]
        assert len(cloud.approvals) == 1
