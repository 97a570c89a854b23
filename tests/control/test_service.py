"""The use cases without HTTP: what is asked for, shown, offered and refused."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from fairnotice.control import bodies, misfits, shapes, views
from fairnotice.control.foreseeing import Foreseeing
from fairnotice.control.keys import Keys
from fairnotice.control.service import Service, Who, beyond, named
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.engine import Refusal
from fairnotice.errors import Unavailable, UnknownName
from fairnotice.model import Requester
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import EventStatus, EventType, ImpactKind, Role
from tests.conductor.orchestra import Failing, conducting

OPERATOR = Who(Requester("ada", Role.OPERATOR))
USER = Who(Requester("bob", Role.USER), key="k")


@asynccontextmanager
async def service_of(store=None):
    """A service of the small fleet."""
    async with conducting(store) as conductor:
        yield Service(conductor, iter(f"id-{n}" for n in range(99)).__next__)


def test_what_is_asked_for_has_an_id_and_a_requester():
    """Several VMs at once are one request, all or none."""

    async def story():
        async with service_of() as service:
            accepted = await service.on_vms("restart", ("web-0", "db"), OPERATOR)
            assert accepted.id == "id-0"
            assert [event.resources for event in accepted.events] == [["web-0"], ["db"]]
            assert {one.requested_by for one in service.operations()} == {"ada"}
            revision = service.fleet.revision
            with pytest.raises(UnknownName):
                await service.on_vms("restart", ("web-0", "nobody"), OPERATOR)
            assert service.fleet.revision == revision

    asyncio.run(story())


class RebootsOnly(SimulatedDriver):
    """A driver that has a command for one kind."""

    def capabilities(self):
        return super().capabilities()._replace(kinds=frozenset({ImpactKind.REBOOT}))


def test_what_the_driver_cannot_do_is_warned_of():
    """Of the request, before it, and of a rollout that has planned nothing yet."""

    async def story():
        async with conducting(driver=RebootsOnly(ManualClock())) as conductor:
            service = Service(conductor)
            foreseen = await Foreseeing(service).on_vms("redeploy", ("db",), OPERATOR)
            assert foreseen.warnings == ["The driver (simulated) cannot redeploy: this will fail."]
            asked = await service.on_vms("redeploy", ("db",), OPERATOR)
            assert asked.warnings == foreseen.warnings
            assert (await service.on_vms("restart", ("web-0",), OPERATOR)).warnings == []
            body = bodies.StartRollout(nodes=["node-0"], impact="migrate", dry_run=True)
            (warning,) = (await service.start_rollout(OPERATOR, body)).warnings
            assert "cannot migrate" in warning

    asyncio.run(story())


def test_a_refusal_of_the_law_is_an_answer():
    """A user has no say over nodes."""

    async def story():
        async with service_of() as service:
            refused = await service.fail_node("node-0", USER)
            assert isinstance(refused, Refusal)
            assert "operator" in refused.remedy

    asyncio.run(story())


def test_what_cannot_be_recorded_is_unavailable():
    """And nothing is shown of it."""

    async def story():
        store = Failing()
        async with service_of(store) as service:
            store.broken = True
            with pytest.raises(Unavailable):
                await service.on_vms("restart", ("db",), OPERATOR)
            assert list(service.events()) == []
            store.broken = False

    asyncio.run(story())


def test_events_are_listed_by_status_and_from_a_place_on():
    """The place stays valid when that event has another status."""

    async def story():
        async with service_of() as service:
            for _ in range(3):
                await service.on_vms("restart", ("db",), OPERATOR)
            first, second, third = (event.id for event in service.events())
            await service.cancel(second, OPERATOR)
            scheduled = [one.id for one in service.events("", EventStatus.SCHEDULED)]
            assert scheduled == [first, third]
            after = [one.id for one in service.events(second, EventStatus.SCHEDULED)]
            assert after == [third]
            assert (await service.event(second.lower())).status is EventStatus.CANCELED

    asyncio.run(story())


def test_every_vm_is_the_same_in_list_and_alone():
    """As are nodes and scopes."""

    async def story():
        async with service_of() as service:
            assert [service.vm(one.name) for one in service.vms()] == list(service.vms())
            assert [service.node(one.name) for one in service.nodes()] == list(service.nodes())
            assert [service.scope(one.name) for one in service.scopes()] == list(service.scopes())
            assert list(service.scale_sets()) == []

    asyncio.run(story())


def test_why_a_node_waits_is_told_of_the_first_only(monkeypatch):
    """Of a rollout over thousands of nodes the others wait for those."""
    monkeypatch.setattr(views, "WAITING_TOLD_MAX", 2)

    async def story():
        async with service_of() as service:
            body = bodies.StartRollout(nodes=list(service.fleet.nodes)[:4])
            rollout = (await service.start_rollout(OPERATOR, body)).id
            await service.steer_rollout("pause", rollout, OPERATOR)
            nodes = service.rollout(rollout).nodes
            waiting = [bool(one.reason) for one in nodes if one.status == "pending"]
            assert waiting[:3] == [True, True, False]

    asyncio.run(story())


# ---- Names ----


def test_a_name_that_nobody_has_comes_with_the_nearest():
    """The likeliest first; of those equally alike, the first."""
    rows = {f"web-{n}": n for n in range(5)}
    assert named("VM", rows, "web-3") == 3
    with pytest.raises(UnknownName) as unknown:
        named("VM", rows, "wbe-9")
    assert unknown.value.nearest == ("web-0", "web-1", "web-2")
    assert str(unknown.value) == "There is no VM wbe-9. Did you mean web-0 or web-1 or web-2?"
    with pytest.raises(UnknownName) as unknown:
        named("VM", rows, "x")
    assert str(unknown.value) == "There is no VM x."


def test_rows_beyond_a_name():
    """All without one, and none after the last."""
    rows = {"a": 1, "b": 2, "c": 3}
    assert list(beyond(rows, "")) == [1, 2, 3]
    assert list(beyond(rows, "a")) == [2, 3]
    assert list(beyond(rows, "c")) == []


def test_a_key_is_kept_for_as_long_as_the_law_keeps_its_own():
    """And the oldest are let go where there are too many."""
    clock = ManualClock()
    keys = Keys(clock.wall, kept_seconds=60, kept_max=2)
    for key in "abc":
        keys.keep(key, f"request {key}", b"{}")
    assert keys.get("a") is None
    assert keys.get("c").request == "request c"
    clock.advance(seconds=59)
    assert keys.get("c") is not None
    keys.keep("b", "another", b"{}")
    clock.advance(seconds=1)
    assert keys.get("c") is None
    assert keys.get("b").request == "another"


def test_the_type_at_a_path():
    """However deep, through lists and what may be null."""
    assert misfits.shape_at(bodies.StartRollout, "windows[3]") is shapes.WindowBody
    choices = misfits.choices_of(misfits.shape_at(bodies.ChangeScope, "automatically_approve[0]"))
    assert choices == [kind.value for kind in EventType]
    assert misfits.shape_at(bodies.StartRollout, "nowhere.at.all") is None
    assert misfits.names_of(int) == ()
