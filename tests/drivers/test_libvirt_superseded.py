"""Impacts that the law has let go of: a later one decides, and they do nothing more."""

import asyncio
import threading
from datetime import timedelta

import pytest

from fairnotice.clock import SystemClock
from fairnotice.drivers.libvirt import driver as drivers
from fairnotice.drivers.libvirt import footing
from fairnotice.words import ImpactKind, Outcome
from tests.drivers.libvirt_nodes import RUNNING, TestNodes, ended, libvirt, order, states

OFF = libvirt.VIR_DOMAIN_SHUTOFF
PAUSED = libvirt.VIR_DOMAIN_PAUSED
REBOOT = order(ImpactKind.REBOOT)
LONG_FREEZE = order(ImpactKind.FREEZE)._replace(duration_seconds=600)


class Another(SystemClock):
    """That of a machine which has another time."""

    def __init__(self, hours):
        super().__init__()
        self._ahead = timedelta(hours=hours)

    def wall(self):
        """The time as it is there."""
        return super().wall() + self._ahead


@pytest.fixture
def nodes(tmp_path):
    """Two, and a VM on the first."""
    both = TestNodes(tmp_path, "n1", "n2")
    both["n1"].run("vm")
    return both


@pytest.fixture
def hung(nodes, monkeypatch):
    """The first guest that is asked to end: QEMU hears of it only when this is set."""
    monkeypatch.setattr(drivers, "LAST_SECONDS", 0.2)
    asked, answers = threading.Event(), threading.Event()

    def around(_, name, call, *given):
        if name == "shutdown" and not asked.is_set():
            asked.set()
            answers.wait(20)
            return None
        return call(*given)

    for node in nodes.nodes.values():
        node.around = around
    yield asked, answers
    answers.set()


async def becomes(nodes, wanted):
    """Wait until the VM is there, and so."""
    while states(nodes) != wanted:  # noqa: ASYNC110 - libvirt is asked, it does not tell
        await asyncio.sleep(0.01)


def told(story, seconds=20):
    """What a story comes to, in time."""
    return asyncio.run(asyncio.wait_for(story(), seconds))


def test_a_reboot_that_hung_does_not_start_what_a_later_redeploy_has_moved(nodes, hung):
    """It wakes when the VM ends on its source, which is the redeploy's doing."""
    asked, answers = hung

    def late(_, name, call, *given):
        if name == "create":
            # It is off on its source by now, and the reboot sees that first.
            answers.set()
            threading.Event().wait(0.5)
        return call(*given)

    async def story():
        driver = nodes.driver()
        reboot = asyncio.create_task(driver.impact(REBOOT, 1))
        await asyncio.to_thread(asked.wait)
        nodes["n2"].around = late
        report = await driver.impact(order(ImpactKind.REDEPLOY, "later/vm"), 1)
        (given_up,) = await asyncio.gather(reboot, return_exceptions=True)
        await driver.close()
        return report, given_up

    report, given_up = told(story)
    assert report.outcome is Outcome.DONE
    assert isinstance(given_up, asyncio.CancelledError) or given_up.outcome is Outcome.FAILED
    assert states(nodes) == {"n2": RUNNING}
    assert ("create", "op/vm") not in nodes["n1"].calls


def test_a_reboot_of_another_process_sees_the_later_key_and_stops(nodes, hung):
    """It is on the domain; the epoch is the same."""
    asked, answers = hung

    async def story():
        first, second = nodes.driver(), nodes.driver()
        reboot = asyncio.create_task(first.impact(REBOOT, 1))
        await asyncio.to_thread(asked.wait)
        stopped = await second.impact(order(ImpactKind.STOP, "later/vm"), 1)
        answers.set()
        report = await reboot
        await first.close()
        await second.close()
        return stopped, report

    stopped, report = told(story)
    assert stopped.outcome is Outcome.DONE
    assert (report.outcome, report.reason) == (Outcome.FAILED, "later/vm was begun after it")
    assert states(nodes) == {"n1": OFF}


@pytest.mark.parametrize(("has_ended", "said"), [(False, "was not over in time"), (True, "")])
def test_a_reboot_whose_limit_has_passed_asks_nothing_more_and_leaves_nobody_off(
    nodes, hung, monkeypatch, has_ended, said
):
    """It is not reset any more, as the law has given up; if it has ended after all, it boots."""
    monkeypatch.setattr(footing, "LATE_SECONDS", 0.0)
    asked, answers = hung

    async def story():
        driver = nodes.driver()
        reboot = asyncio.create_task(driver.impact(REBOOT._replace(limit_seconds=0.3), 1))
        await asyncio.to_thread(asked.wait)
        await asyncio.sleep(0.4)
        if has_ended:
            nodes["n1"].connection.lookupByName("vm").destroy()
        answers.set()
        report = await reboot
        await driver.close()
        return report

    report = told(story)
    assert report.outcome is (Outcome.DONE if has_ended else Outcome.FAILED)
    assert said in report.reason
    assert states(nodes) == {"n1": RUNNING}
    assert [call for call, _ in nodes["n1"].calls if call != "shutdown"] == ["create"] * has_ended


def test_whoever_carries_on_after_a_long_time_has_as_long_again(nodes, monkeypatch):
    """The law gives each control plane its limit anew when that asks."""
    monkeypatch.setattr(footing, "LATE_SECONDS", 0.0)

    def die(*_):
        raise RuntimeError("the control plane died")

    async def story():
        first, later = nodes.driver(), nodes.driver()
        nodes["n1"].before = die
        with pytest.raises(RuntimeError):
            await first.impact(REBOOT._replace(limit_seconds=0.5), 1)
        nodes["n1"].before = lambda *_: None
        await asyncio.sleep(0.5)
        report = await ended(later, "op/vm", 2)
        await first.close()
        await later.close()
        return report

    assert told(story).outcome is Outcome.DONE
    assert states(nodes) == {"n1": RUNNING}


def test_a_freeze_ends_when_a_later_impact_begins(nodes):
    """Nobody is left paused by one that the law has let go of."""

    async def story():
        driver = nodes.driver()
        frozen = asyncio.create_task(driver.impact(LONG_FREEZE, 1))
        await becomes(nodes, {"n1": PAUSED})
        report = await driver.impact(order(ImpactKind.FREEZE, "later/vm"), 1)
        await asyncio.gather(frozen, return_exceptions=True)
        await driver.close()
        return report

    assert told(story).outcome is Outcome.DONE
    assert states(nodes) == {"n1": RUNNING}


def test_an_earlier_freeze_that_is_found_does_not_end_a_later_one(nodes):
    """Both are on the domain, and whoever looks carries both on."""

    async def story():
        first, second, third = nodes.driver(), nodes.driver(), nodes.driver()
        frozen = [asyncio.create_task(first.impact(LONG_FREEZE, 1))]
        await becomes(nodes, {"n1": PAUSED})
        nodes["n1"].connection.lookupByName("vm").resume()
        later = LONG_FREEZE._replace(key="later/vm")
        frozen.append(asyncio.create_task(second.impact(later, 1)))
        await becomes(nodes, {"n1": PAUSED})
        await third.survey(1)
        report = await ended(third, "op/vm", 1)
        still = states(nodes)
        for driver in (first, second, third):
            await driver.close()
        await asyncio.gather(*frozen, return_exceptions=True)
        return report, still

    report, still = told(story)
    assert report.outcome is Outcome.FAILED
    assert still == {"n1": PAUSED}
    assert states(nodes) == {"n1": RUNNING}


def test_a_freeze_by_a_clock_that_is_ahead_is_not_held_longer_than_announced(nodes):
    """Its domain says that it ends in an hour."""

    async def story():
        ahead, later = nodes.driver(Another(hours=1)), nodes.driver()
        frozen = asyncio.create_task(ahead.impact(LONG_FREEZE._replace(duration_seconds=1), 1))
        await becomes(nodes, {"n1": PAUSED})
        nodes["n1"].around = refuse_to_resume
        await asyncio.gather(frozen, return_exceptions=True)
        nodes["n1"].around = lambda _, __, call, *given: call(*given)
        report = await ended(later, "op/vm", 2)
        await ahead.close()
        await later.close()
        return report

    def refuse_to_resume(_, name, call, *given):
        if name == "resume":
            raise RuntimeError("the control plane died")
        return call(*given)

    assert told(story, 8).outcome is Outcome.DONE
    assert states(nodes) == {"n1": RUNNING}


def test_a_clock_that_is_behind_does_not_make_an_impact_an_earlier_one(nodes):
    """What was begun after another is later, whatever the clocks say."""

    async def story():
        reports = []
        for number, clock in enumerate((SystemClock(), Another(hours=-1))):
            driver = nodes.driver(clock)
            reports.append(await driver.impact(order(ImpactKind.REBOOT, f"{number}/vm"), 1))
            await driver.close()
        return reports

    assert [one.outcome for one in told(story)] == [Outcome.DONE, Outcome.DONE]
