"""The machine room in memory."""

import asyncio
import resource

import pytest

from fairnotice.clock import SystemClock
from fairnotice.drivers.driver import Found, Order, Report
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.drivers.simulated.durations import AT_ONCE, Durations
from fairnotice.errors import LeadLost, Unavailable, UsageError
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import ImpactKind, Outcome, Power

DONE = Report(Outcome.DONE)
FREEZE = Order("op-1/web_0", "web_0", ImpactKind.FREEZE, node="node-a", duration_seconds=9)
REBOOT = Order("op-2/web_0", "web_0", ImpactKind.REBOOT, node="node-a")


def at_once(path=None):
    """A room in which nothing takes time."""
    return SimulatedDriver(SystemClock(), durations=AT_ONCE, path=path)


async def turns():
    """Let everybody who can go on do so."""
    for _ in range(10):
        await asyncio.sleep(0)


def kind_on(kind, **given):
    """An order of this kind on web_0."""
    return Order(f"op-{kind}/web_0", "web_0", kind, **{"node": "node-a", **given})


def after(*orders):
    """The machine before and after these impacts."""
    driver = at_once()
    driver.declare("web_0", "node-a")
    before = driver.machine("web_0")

    async def story():
        for order in orders:
            assert await driver.impact(order, 1) == DONE

    asyncio.run(story())
    return before, driver.machine("web_0")


def test_a_freeze_pauses_for_as_long_as_announced():
    """Frozen at 0 s for 9 s: paused at 8 s, and going on with its memory at 9 s."""

    async def story():
        clock = ManualClock()
        driver = SimulatedDriver(clock)
        freezing = asyncio.create_task(driver.impact(FREEZE, 1))
        await turns()
        before = driver.machine("web_0")
        assert before.paused
        clock.advance(seconds=8)
        await turns()
        assert driver.machine("web_0").paused
        assert (await driver.outcome(FREEZE.key, 1)).outcome is Outcome.UNDER_WAY
        clock.advance(seconds=1)
        assert await freezing == DONE
        assert driver.machine("web_0") == before._replace(paused=False, impacts=1)

    asyncio.run(story())


def test_a_reboot_loses_memory_and_nothing_else():
    """Another boot id, same node, same disks."""
    before, now = after(REBOOT)

    assert now == before._replace(boot_id=now.boot_id, impacts=1)
    assert now.boot_id != before.boot_id


def test_a_redeploy_moves_and_loses_ephemeral_disks():
    """Another boot id, another node, another generation of disks."""
    before, now = after(kind_on(ImpactKind.REDEPLOY, target="node-b"))

    assert (now.node, now.disk_generation) == ("node-b", 2)
    assert now.boot_id != before.boot_id


def test_a_migration_moves_and_loses_nothing():
    """Another node, same boot id, same disks."""
    before, now = after(kind_on(ImpactKind.MIGRATE, target="node-b", duration_seconds=5))

    assert now == before._replace(node="node-b", impacts=1)


def test_stop_and_start_keep_the_place():
    """Stopped where it is; started there with another boot id and the same disks."""
    before, stopped = after(kind_on(ImpactKind.STOP))
    _, started = after(kind_on(ImpactKind.STOP), kind_on(ImpactKind.START, target="node-a"))

    assert (stopped.power, stopped.node) == (Power.STOPPED, "node-a")
    assert (started.power, started.disk_generation) == (Power.RUNNING, 1)
    assert started.boot_id != before.boot_id


def test_deallocate_and_start_lose_the_place_and_its_disks():
    """A deallocated VM has no node; it comes back elsewhere with new disks."""
    _, gone = after(kind_on(ImpactKind.DEALLOCATE))
    start = kind_on(ImpactKind.START, node=None, target="node-b")
    _, back = after(kind_on(ImpactKind.DEALLOCATE), start)

    assert (gone.power, gone.node) == (Power.DEALLOCATED, None)
    assert (back.power, back.node, back.disk_generation) == (Power.RUNNING, "node-b", 2)


def test_a_deleted_machine_is_gone():
    """Nobody discovers it, and its key still says done."""
    _, now = after(kind_on(ImpactKind.DELETE))

    assert now is None


def test_a_machine_first_heard_of_in_an_order_is_there():
    """It is created on the node that the order names, and discovered there."""
    driver = at_once()

    asyncio.run(driver.impact(REBOOT, 1))

    assert asyncio.run(driver.discover(1)) == (Found("web_0", "node-a", Power.RUNNING),)
    assert [machine.impacts for machine in driver.machines()] == [1]


def test_durations_are_like_azures_and_scale():
    """A reboot takes 45 s, a tenth of it at scale 0.1, and another time if one is given."""
    assert Durations().seconds(REBOOT) == 45
    assert Durations(scale=0.1).seconds(REBOOT) == 4.5
    assert Durations(reboot=7).seconds(REBOOT) == 7
    assert Durations().seconds(FREEZE) == 9
    assert Durations(freeze=3).seconds(FREEZE._replace(duration_seconds=-1)) == 3


@pytest.mark.parametrize("durations", [Durations(scale=-1), Durations(stop=float("inf"))])
def test_a_length_of_time_that_is_none_is_refused(durations):
    """The message names the field."""
    with pytest.raises(UsageError, match=r"durations\.(scale|stop)"):
        SimulatedDriver(SystemClock(), durations=durations)


def test_a_failure_takes_its_time_and_leaves_the_machine_alone():
    """The reboot fails after 45 s with the reason given; the next one works."""

    async def story():
        clock = ManualClock()
        driver = SimulatedDriver(clock)
        driver.declare("web_0", "node-a")
        before = driver.machine("web_0")
        driver.next_fails("web_0", "no power")
        failing = asyncio.create_task(driver.impact(REBOOT, 1))
        await turns()
        assert not failing.done()
        clock.advance(seconds=45)
        assert await failing == Report(Outcome.FAILED, "no power")
        assert driver.machine("web_0") == before
        assert await driver.outcome(REBOOT.key, 1) == Report(Outcome.FAILED, "no power")

    asyncio.run(story())


def test_a_hang_ends_when_it_is_let_go():
    """A day passes and it is under way; then it is let go and done."""

    async def story():
        clock = ManualClock()
        driver = SimulatedDriver(clock)
        driver.next_hangs(kind=ImpactKind.REBOOT)
        hanging = asyncio.create_task(driver.impact(REBOOT, 1))
        await turns()
        clock.advance(days=1)
        await turns()
        assert (await driver.outcome(REBOOT.key, 1)).outcome is Outcome.UNDER_WAY
        driver.let_go("web_0")
        assert await hanging == DONE
        assert driver.machine("web_0").impacts == 1

    asyncio.run(story())


def test_a_hang_does_not_outlast_the_driver():
    """Whoever waits for it is told that the room is closed."""

    async def story():
        driver = at_once()
        driver.next_hangs()
        hanging = asyncio.create_task(driver.impact(REBOOT, 1))
        await turns()
        await driver.close()
        with pytest.raises(Unavailable, match="closed"):
            await hanging

    asyncio.run(story())


def test_a_refusal_begins_nothing():
    """Refused, and known not to have begun; the same key is carried out the second time."""

    async def story():
        driver = at_once()
        driver.next_refuses("web_0", "no hands free")
        with pytest.raises(Unavailable, match="no hands free"):
            await driver.impact(REBOOT, 1)
        assert (await driver.outcome(REBOOT.key, 1)).outcome is Outcome.NOT_BEGUN
        assert driver.machine("web_0") is None
        assert await driver.impact(REBOOT, 1) == DONE
        assert driver.begun() == (REBOOT.key,)

    asyncio.run(story())


def test_faults_choose_whom_they_strike():
    """By VM and by kind, once; a standing one until it is cleared."""

    async def story():
        driver = at_once()
        driver.next_fails("web_1")
        driver.next_fails(kind=ImpactKind.FREEZE, standing=True)
        assert await driver.impact(REBOOT, 1) == DONE
        for key in ("a", "b"):
            failed = await driver.impact(FREEZE._replace(key=key), 1)
            assert failed.outcome is Outcome.FAILED
        driver.clear_faults()
        assert await driver.impact(FREEZE._replace(key="c"), 1) == DONE
        assert await driver.impact(REBOOT._replace(key="d", vm="web_1"), 1) == DONE

    asyncio.run(story())


def test_an_impact_goes_on_although_nobody_waits(tmp_path):
    """Whoever waited is gone at 1 s; at 9 s it is done, once, and written down."""

    async def story():
        clock = ManualClock()
        driver = SimulatedDriver(clock, path=tmp_path / "room")
        freezing = asyncio.create_task(driver.impact(FREEZE, 1))
        await turns()
        clock.advance(seconds=1)
        freezing.cancel()
        clock.advance(seconds=8)
        assert await driver.outcome(FREEZE.key, 1) == DONE
        assert await driver.impact(FREEZE, 1) == DONE
        assert driver.machine("web_0").impacts == 1

    asyncio.run(story())


def test_after_a_crash_it_knows_its_machines(tmp_path):
    """Killed 3 s into a freeze of 9 s: under way at 5 s, done at 9 s, once."""

    async def story():
        clock = ManualClock()
        first = SimulatedDriver(clock, path=tmp_path / "room")
        first.declare("idle", "node-z", Power.STOPPED)
        freezing = asyncio.create_task(first.impact(FREEZE, 4))
        await turns()
        clock.advance(seconds=3)
        freezing.cancel()
        # Another life: its monotonic clock begins anew.
        clock = ManualClock(clock.wall())
        clock.advance(seconds=2)
        second = SimulatedDriver(clock, path=tmp_path / "room")
        assert (await second.outcome(FREEZE.key, 5)).outcome is Outcome.UNDER_WAY
        assert second.machine("web_0").paused
        waiting = asyncio.create_task(second.impact(FREEZE, 5))
        await turns()
        clock.advance(seconds=4)
        assert await waiting == DONE
        assert second.machine("web_0").impacts == 1
        assert second.machine("idle").power is Power.STOPPED
        assert second.begun() == (FREEZE.key,)
        with pytest.raises(LeadLost):
            await second.outcome(FREEZE.key, 4)

    asyncio.run(story())


def test_a_clock_that_was_set_back_prolongs_nothing(tmp_path):
    """The wall clock goes back a year in the crash; the freeze takes 9 s more at most."""

    async def story():
        clock = ManualClock()
        first = SimulatedDriver(clock, path=tmp_path / "room")
        asyncio.create_task(first.impact(FREEZE, 1)).add_done_callback(lambda _: None)
        await turns()
        clock = ManualClock(clock.wall().replace(year=2025))
        second = SimulatedDriver(clock, path=tmp_path / "room")
        assert (await second.outcome(FREEZE.key, 2)).outcome is Outcome.UNDER_WAY
        clock.advance(seconds=9)
        assert await second.outcome(FREEZE.key, 2) == DONE

    asyncio.run(story())


@pytest.mark.parametrize("torn", ['{"begun": {"key": "op-9/w', '{"ended": "op-1/web_0"}', "{"])
def test_a_torn_last_line_is_as_if_never_written(tmp_path, torn):
    """What was written before it is there, and what is written after it too."""
    path = tmp_path / "room"
    asyncio.run(at_once(path).impact(FREEZE, 1))
    whole = path.read_text("utf-8")
    path.write_text(whole + torn, "utf-8")

    driver = at_once(path)

    assert asyncio.run(driver.outcome(FREEZE.key, 1)) == DONE
    assert asyncio.run(driver.outcome("op-9/web_0", 1)) == Report(Outcome.NOT_BEGUN)
    assert asyncio.run(driver.impact(REBOOT, 1)) == DONE
    assert at_once(path).begun() == (FREEZE.key, REBOOT.key)
    assert path.read_text("utf-8").startswith(whole)


def test_every_beginning_of_the_file_is_a_possible_past(tmp_path):
    """Cut after any byte, it tells a story in which the reboot happened once or not at all."""
    path = tmp_path / "room"
    asyncio.run(at_once(path).impact(REBOOT, 1))
    text = path.read_bytes()

    for length in range(len(text) + 1):
        path.write_bytes(text[:length])
        driver = at_once(path)
        assert asyncio.run(driver.impact(REBOOT, 1)) == DONE
        assert driver.begun() == (REBOOT.key,)
        assert driver.machine("web_0").impacts == 1
        asyncio.run(driver.close())


def test_two_processes_see_each_other(tmp_path):
    """What a later control plane writes fences the older one, which still holds the file."""
    old, new = at_once(tmp_path / "room"), at_once(tmp_path / "room")

    async def story():
        assert await old.impact(FREEZE, 1) == DONE
        assert await new.impact(FREEZE, 2) == DONE
        with pytest.raises(LeadLost, match="Epoch 1 is over"):
            await old.impact(REBOOT, 1)
        assert new.begun() == old.begun() == (FREEZE.key,)

    asyncio.run(story())


def test_a_file_that_cannot_be_is_said_so(tmp_path):
    """A directory that is not there, a damaged line."""
    with pytest.raises(Unavailable, match=r"Cannot open .*nowhere"):
        at_once(tmp_path / "nowhere" / "room")

    (tmp_path / "room").write_text("not json\n")
    with pytest.raises(Unavailable, match="damaged"):
        at_once(tmp_path / "room").begun()


def test_a_full_disk_begins_nothing(tmp_path):
    """The disk takes half a line: it is taken back, and the impact begins when there is room."""
    path = tmp_path / "room"
    driver = at_once(path)
    driver.declare("web_0", "node-a")
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, hard))
    try:
        with pytest.raises(Unavailable, match="Cannot write"):
            asyncio.run(driver.impact(REBOOT, 0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert path.read_bytes() == before
    assert driver.begun() == ()
    assert asyncio.run(driver.impact(REBOOT, 0)) == DONE
