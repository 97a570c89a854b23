"""Very many that ask for the first time at once cost few requests."""

import asyncio

import pytest

from fairnotice.control.endpoint_shapes import REPORTED_MAX
from fairnotice.endpoint.enabling import TOGETHER_MAX, Enabling
from fairnotice.endpoint.front import Front, Manner
from fairnotice.errors import Unavailable
from fairnotice.testing.manual_clock import ManualClock


class ControlPlane:
    """Takes its time, and remembers which scopes it was told together."""

    def __init__(self, *, away=False, elsewhere=()):
        self.told = []
        self.answers = asyncio.Event()
        self.away = away
        self.elsewhere = elsewhere

    async def say(self, scopes):
        self.told.append(scopes)
        await self.answers.wait()
        if self.away:
            raise Unavailable("it is away")
        return self.elsewhere


async def asked(ask, scopes):
    """Whatever these wait for, all asked for in this moment."""
    tasks = [asyncio.create_task(ask(scope)) for scope in scopes]
    await asyncio.sleep(0.01)
    return tasks


def test_whoever_asks_while_a_request_is_under_way_goes_into_the_next():
    """A thousand scopes, two requests; nobody has an answer before it is durable."""

    async def story():
        far = ControlPlane()
        enabling = Enabling(far.say)
        first = await asked(enabling.enable, ["vm:a"])
        rest = await asked(enabling.enable, [f"vm:{n}" for n in range(1000)] * 2)
        assert far.told == [["vm:a"]]
        assert not any(task.done() for task in (*first, *rest))
        far.answers.set()
        await asyncio.gather(*first, *rest)
        assert far.told == [["vm:a"], [f"vm:{n}" for n in range(1000)]]

    asyncio.run(asyncio.wait_for(story(), 20))


def test_no_request_says_more_than_a_control_plane_takes():
    """More than fit into one go into the next; and nobody begins one where one is open."""

    async def story():
        far = ControlPlane()
        enabling = Enabling(far.say)
        tasks = await asked(enabling.enable, ["vm:a"])
        scopes = [f"vm:{number}" for number in range(TOGETHER_MAX + 1)]
        tasks += await asked(enabling.enable, scopes)
        far.answers.set()
        await tasks[1]
        # The second of them has begun, the third is open.
        tasks += await asked(enabling.enable, ["vm:b"])
        await asyncio.gather(*tasks)
        assert [len(told) for told in far.told[:2]] == [1, TOGETHER_MAX]
        assert sorted(scope for told in far.told[2:] for scope in told) == sorted(
            [scopes[-1], "vm:b"]
        )
        assert TOGETHER_MAX <= REPORTED_MAX

    asyncio.run(asyncio.wait_for(story(), 20))


def test_nobody_asks_again_where_one_before_him_had_no_answer():
    """Those who waited behind a request that failed are told so at once, and do not wait anew."""

    async def story():
        far = ControlPlane(away=True)
        enabling = Enabling(far.say)
        scopes = [f"vm:{number}" for number in range(2 * TOGETHER_MAX)]
        tasks = [*await asked(enabling.enable, ["vm:a"]), *await asked(enabling.enable, scopes)]
        far.answers.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(one) for one in found} == {Unavailable}
        assert far.told == [["vm:a"]]

    asyncio.run(asyncio.wait_for(story(), 20))


def test_who_is_elsewhere_is_not_taken_for_enabled():
    """The control plane passes one over: it alone is told so."""

    async def story():
        far = ControlPlane(elsewhere=["vm:b"])
        far.answers.set()
        here, there = await asked(Enabling(far.say).enable, ["vm:a", "vm:b"])
        await here
        with pytest.raises(Unavailable, match="no VM of vm:b"):
            await there

    asyncio.run(asyncio.wait_for(story(), 20))


def test_nobody_takes_a_failure_for_an_answer():
    """Everybody who waited is told that it could not be passed on; later it is tried anew."""

    async def story():
        far = ControlPlane(away=True)
        enabling = Enabling(far.say)
        tasks = await asked(enabling.enable, ["vm:a", "vm:b"])
        far.answers.set()
        for task in tasks:
            with pytest.raises(Unavailable):
                await task
        far.away = False
        await enabling.enable("vm:a")
        assert far.told[-1] == ["vm:a"]

    asyncio.run(asyncio.wait_for(story(), 20))


def test_one_that_hangs_up_takes_nobody_with_it():
    """The VM that asked first goes away; whoever asked with it is answered."""

    async def story():
        far = ControlPlane()
        one, other = await asked(Enabling(far.say).enable, ["vm:a", "vm:b"])
        one.cancel()
        far.answers.set()
        await other
        assert far.told == [["vm:a", "vm:b"]]

    asyncio.run(asyncio.wait_for(story(), 20))


class Desk:
    """Counts what is passed on."""

    def __init__(self):
        self.scopes = []

    async def approve(self, vm, events):
        raise AssertionError((vm, events))

    async def enable(self, scope):
        self.scopes.append(scope)
        await asyncio.sleep(0.02)

    async def identify(self, vm, resource, identity):
        raise AssertionError((vm, resource, identity))


def test_a_scope_whose_vms_all_ask_at_once_is_passed_on_once():
    """Twenty VMs of a set begin to poll in the same moment."""

    async def story():
        desk = Desk()
        front = Front(desk, ManualClock(), Manner(), lambda _: None)
        await asyncio.gather(*(front.worker.enable("availability-set:web") for _ in range(20)))
        assert desk.scopes == ["availability-set:web"]
        await front.worker.enable("availability-set:web")
        assert len(desk.scopes) == 2

    asyncio.run(asyncio.wait_for(story(), 20))


def test_a_vm_that_hangs_up_does_not_take_its_scope_with_it():
    """One of those who wait for the same scope is cancelled; the others are answered."""

    async def story():
        front = Front(Desk(), ManualClock(), Manner(), lambda _: None)
        one, *others = await asked(front.worker.enable, ["vm:a"] * 3)
        one.cancel()
        await asyncio.gather(*others)

    asyncio.run(asyncio.wait_for(story(), 20))
