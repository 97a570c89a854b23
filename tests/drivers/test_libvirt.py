"""The libvirt driver's logic, on libvirt's own test driver: freezes, labels, looks, settings."""

import asyncio
import contextlib
import logging
import threading
from datetime import timedelta

import pytest

from fairnotice.drivers.driver import Order
from fairnotice.drivers.libvirt import happenings, labels
from fairnotice.drivers.libvirt.happenings import SAME_WITHIN_SECONDS, Happening, Happenings
from fairnotice.drivers.libvirt.labels import Label
from fairnotice.drivers.libvirt.settings import LibvirtSettings, NodeAddress
from fairnotice.errors import LeadLost, Unavailable, UsageError
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import ImpactKind, Outcome, Power
from tests.drivers.libvirt_nodes import RUNNING, TestNodes, ended, libvirt, order, states
from tests.waiting import soon


@pytest.fixture
def nodes(tmp_path):
    """Two nodes, and a VM with an ephemeral disk on the first."""
    both = TestNodes(tmp_path, "n1", "n2")
    both["n1"].run("vm", Label(ephemeral_disks=("vdb",)))
    return both


async def becomes(nodes, wanted):
    """Wait until the VM is there, and so."""
    await soon(lambda: states(nodes) == wanted, str(wanted))


def test_a_freeze_that_nobody_asks_for_is_ended_by_whoever_looks_next(nodes):
    """Its control plane died, and the law has given it up: the domain itself says when it ends."""

    async def story():
        first = nodes.driver()
        frozen = asyncio.create_task(
            first.impact(order(ImpactKind.FREEZE)._replace(duration_seconds=1), 1)
        )
        await becomes(nodes, {"n1": libvirt.VIR_DOMAIN_PAUSED})
        later = nodes.driver()
        await later.survey(2)
        await becomes(nodes, {"n1": RUNNING})
        report = await ended(later, "op/vm", 2)
        await asyncio.gather(frozen, return_exceptions=True)
        await later.close()
        await first.close()
        return report

    assert asyncio.run(asyncio.wait_for(story(), 20)).outcome is Outcome.DONE


def test_an_end_in_the_middle_of_a_freeze_lets_the_vm_go(nodes):
    """A service that is stopped does not leave a VM waiting for its return."""

    async def story():
        driver = nodes.driver()
        long = order(ImpactKind.FREEZE)._replace(duration_seconds=600)
        frozen = asyncio.create_task(driver.impact(long, 1))
        await becomes(nodes, {"n1": libvirt.VIR_DOMAIN_PAUSED})
        await driver.close()
        await asyncio.gather(frozen, return_exceptions=True)
        later = nodes.driver()
        report = await ended(later, "op/vm", 2)
        await later.close()
        return report

    assert asyncio.run(asyncio.wait_for(story(), 20)).outcome is Outcome.DONE
    assert states(nodes) == {"n1": RUNNING}


def test_an_end_while_a_vm_is_being_paused_lets_it_go(nodes):
    """Libvirt pauses it when nobody waits for that any more."""
    begun, paused = threading.Event(), threading.Event()

    def slow(_, name, call, *given):
        if name != "suspend":
            return call(*given)
        begun.set()
        threading.Event().wait(0.3)
        call(*given)
        paused.set()
        return 0

    nodes["n1"].around = slow

    async def story():
        driver = nodes.driver()
        long = order(ImpactKind.FREEZE)._replace(duration_seconds=600)
        frozen = asyncio.create_task(driver.impact(long, 1))
        await asyncio.to_thread(begun.wait)
        await driver.close()
        await asyncio.gather(frozen, return_exceptions=True)
        await asyncio.to_thread(paused.wait)

    asyncio.run(asyncio.wait_for(story(), 20))
    assert states(nodes) == {"n1": RUNNING}


def test_what_is_not_there_is_done_when_it_is_to_be_deleted_and_fails_else(nodes):
    """A delete of a VM that somebody has removed by hand has nothing left to do."""

    async def story():
        driver = nodes.driver()
        gone = Order(key="op/other", vm="other", kind=ImpactKind.DELETE)
        deleted = await driver.impact(gone, 1)
        rebooted = await driver.impact(gone._replace(key="p/other", kind=ImpactKind.REBOOT), 1)
        await driver.close()
        return deleted.outcome, rebooted.outcome

    assert asyncio.run(story()) == (Outcome.DONE, Outcome.FAILED)


def test_a_node_that_is_away_is_said_and_found_again(nodes):
    """Its VMs are not gone: the survey is not whole. An older epoch learns nothing."""

    async def story():
        clock = ManualClock()
        driver = nodes.driver(clock, unreachable_after_seconds=15)
        nodes["n2"].away = True
        first = await driver.survey(3)
        clock.advance(seconds=15)
        second = await driver.survey(3)
        with pytest.raises(Unavailable):
            await driver.discover(3)
        nodes["n2"].away = False
        third = await driver.survey(3)
        with pytest.raises(LeadLost):
            await driver.survey(2)
        await driver.close()
        return first, second, third

    first, second, third = asyncio.run(story())
    assert (first.whole, first.away) == (False, frozenset())
    assert second.away == {"n2"}
    assert (third.whole, third.away) == (True, frozenset())
    assert [(one.vm, one.node, one.power) for one in third.found] == [("vm", "n1", Power.RUNNING)]


def test_a_node_that_becomes_unreachable_and_answers_again_is_a_line_each(nodes, caplog):
    """With since when and why; at the looks in between there is nothing new."""
    caplog.set_level(logging.INFO, "fairnotice.drivers.libvirt.surveying")

    async def story():
        clock = ManualClock()
        driver = nodes.driver(clock, unreachable_after_seconds=15)
        for away, seconds in ((True, 10), (False, 10), *[(True, 10)] * 6, (False, 10), (False, 0)):
            nodes["n2"].away = away
            await driver.survey(1)
            clock.advance(seconds=seconds)
        await driver.close()
        return clock.wall()

    ended = asyncio.run(story())
    since = f"{ended - timedelta(seconds=70):%Y-%m-%d %H:%M:%S} UTC"
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "n2 is passed over: n2 cannot be reached: nobody is there."),
        ("INFO", "n2 answers again, after 10 s"),
        ("INFO", "n2 is passed over: n2 was lost: the node is away."),
        ("WARNING", f"n2 is unreachable, since {since}: n2 cannot be reached: nobody is there."),
        ("WARNING", "n2 answers again, after 60 s"),
    ]


def test_how_long_a_node_is_away_is_counted_anew_by_whoever_leads_again(nodes):
    """It failed to answer once before another led, and once since: that is twice a moment."""

    async def story():
        clock = ManualClock()
        driver = nodes.driver(clock)
        nodes["n2"].away = True
        await driver.survey(1)
        clock.advance(hours=1)
        first = await driver.survey(3)
        clock.advance(seconds=20)
        second = await driver.survey(3)
        await driver.close()
        return first.away, second.away

    assert asyncio.run(story()) == (frozenset(), {"n2"})


def test_a_reboot_that_is_told_three_times_is_heard_once():
    """Firmware resets again; the next reboot, a while later, is another."""
    clock, heard = ManualClock(), []
    following = Happenings(clock, heard.append)
    reboot = Happening("n1", "vm", "rebooted")
    for _ in range(3):
        following.heard(reboot)
    assert heard == [reboot]
    clock.advance(seconds=SAME_WITHIN_SECONDS + 1)
    following.heard(reboot)
    assert heard == [reboot, reboot]


def test_events_that_cannot_be_delivered_are_tried_again(monkeypatch, caplog):
    """The thread that delivers them lives on, and says so."""
    monkeypatch.setattr(happenings, "TRY_AGAIN_SECONDS", 0.01)

    def fail():
        raise libvirt.libvirtError("poll failed")

    monkeypatch.setattr(libvirt, "virEventRunDefaultImpl", fail)
    happenings.deliver()
    assert "libvirt's events cannot be delivered: poll failed" in caplog.text


@pytest.mark.parametrize("do", ["destroy", "suspend"])
def test_what_is_done_by_hand_is_news_at_once(nodes, do):
    """Nobody waits until it is time to look anyway."""

    async def story():
        driver = nodes.driver(look_every_seconds=600)
        await driver.survey(1)
        # What the survey itself has made is no news any more.
        await asyncio.sleep(0.2)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(driver.news(), 0.2)
        getattr(nodes["n1"].connection.lookupByName("vm"), do)()
        await asyncio.wait_for(driver.news(), 10)
        await driver.close()

    asyncio.run(story())


def test_a_label_is_what_was_written(nodes):
    """Every field goes into the domain and comes out of it."""
    fields = {
        "name": "web-0", "availability_set": "web", "placement_group": "1", "update_domain": "3",
        "priority": "Spot", "eviction_policy": "Delete", "resource_group": "shop", "zone": "2",
        "addresses": "10.0.0.4 10.0.0.5", "network": "classic", "ephemeral_disks": "vdb vdc",
    }  # fmt: skip
    label = labels.label_of(fields)
    assert labels.label_in(nodes["n2"].run("odd", label).XMLDesc(0)) == label
    assert labels.fields_of(label) == fields
    assert label.spec("domain", "n1").addresses == ("10.0.0.4", "10.0.0.5")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"colour": "red"}, "A label has no colour"),
        ({"update_domain": "first"}, "update_domain cannot be 'first'"),
        ({"update_domain": "-1"}, "whole number from 0 on"),
        ({"priority": "Low"}, "priority cannot be 'Low': give Regular or Spot"),
        ({"addresses": "10.0.0.4 here"}, "give IP addresses"),
        ({"name": "a/b"}, "but no slash"),
        ({"availability_set": "a", "scale_set": "b"}, "in one of"),
    ],
)
def test_a_label_that_cannot_be_is_refused_by_its_field(fields, said):
    """And a domain that carries one is passed over."""
    with pytest.raises(UsageError, match=said):
        labels.label_of(fields)


def test_a_domain_with_a_damaged_label_is_passed_over(nodes, caplog):
    """It is said, and the others are found."""
    domain = nodes["n2"].run("odd")
    domain.setMetadata(2, '<vm colour="red"/>', "fairnotice", labels.LABEL, 3)

    async def story():
        driver = nodes.driver()
        found = await driver.discover(1)
        await driver.close()
        return found

    with caplog.at_level(logging.WARNING):
        assert [one.vm for one in asyncio.run(story())] == ["vm"]
    assert "odd" in caplog.text


@pytest.mark.parametrize(
    "settings",
    [
        {"nodes": {}},
        {"nodes": {"n1": NodeAddress("nowhere")}},
        {"nodes": {"n1": NodeAddress("")}},
        {"nodes": {"": NodeAddress("test:///a")}},
        {"nodes": {"n1": NodeAddress("qemu+tsl://n1/system")}},
        {"nodes": {"n1": NodeAddress("https://n1/system")}},
        {"nodes": {"n1": NodeAddress("qemu+tls:/n1/system")}},
        {"nodes": {"n1": NodeAddress("qemu+tls://n1/system", peer_uri="qemu+shh://n1/system")}},
        {"nodes": {"n1": NodeAddress("test:///a"), "n2": NodeAddress("test:///a")}},
        {"nodes": {"n1": NodeAddress("test:///a")}, "reboot_limit_seconds": 0},
    ],
)
def test_settings_that_cannot_be_are_refused(settings):
    """No node, no URI, none that libvirt knows, one libvirtd under two names, no time."""
    with pytest.raises(UsageError):
        LibvirtSettings(**settings)
