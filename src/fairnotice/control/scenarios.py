"""Twelve stories that a platform must get right, each played with VMs that look for themselves.

A story has things done and waits for what a VM sees of it. Whether the platform kept its promise
is not its business: control/scenario_promises.py looks at all that was seen, afterwards.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from fairnotice.clock import Clock
from fairnotice.control import shapes
from fairnotice.control.scenario_play import OPERATOR, USER, Line, Play, Stalled, Tell
from fairnotice.control.scenario_promises import broken
from fairnotice.control.scenario_sites import Site
from fairnotice.errors import Unavailable
from fairnotice.words import EventStatus, EventType, ImpactKind, Risk, RolloutStatus

# How long a VM needs to get ready before it approves.
PREPARING_SECONDS = 1.5
# How often it is looked whether a rollout is over.
COMPLETED_LOOKS_MAX = 10
WEB = ("web-0", "web-1", "web-2")

Story = Callable[[Play], Awaitable[None]]


class Scenario(NamedTuple):
    """A story and what it is about."""

    name: str
    summary: str
    story: Story


class Played(NamedTuple):
    """What came of a scenario: what was seen, and what was broken."""

    name: str
    summary: str
    took_seconds: float
    lines: tuple[Line, ...]
    broken: tuple[str, ...]

    @property
    def kept(self) -> bool:
        """Whether the platform kept its promise."""
        return not self.broken


Opening = Callable[[], AbstractAsyncContextManager[Site]]


async def play(scenario: Scenario, site: Site, clock: Clock, tell: Tell = lambda _: None) -> Played:
    """Play one scenario in this service.

    Raises errors.UsageError where it cannot be played there, errors.Unavailable where nobody
    answers at the beginning.
    """
    began = clock.monotonic()
    one = Play(site, clock, tell)
    found: list[str] = []
    await one.begin()
    try:
        try:
            await scenario.story(one)
        except (Stalled, Unavailable) as error:
            found.append(str(error))
        over = not found
        found += broken(await one.evidence(), one.promised, over=over)
    except (Stalled, Unavailable) as error:
        found.append(str(error))
    finally:
        await one.close()
    took = clock.monotonic() - began
    return Played(scenario.name, scenario.summary, took, tuple(one.lines), tuple(found))


async def play_side_by_side(
    scenarios: Iterable[Scenario], opening: Opening, clock: Clock
) -> list[Played]:
    """Play these at once, each in a service of its own."""

    async def alone(scenario: Scenario) -> Played:
        async with opening() as site:
            return await play(scenario, site, clock)

    return await asyncio.gather(*map(alone, scenarios))


# ---- Pieces ----


async def _prepare_and_approve(play: Play, vm: str, event_type: EventType) -> None:
    """This VM sees its event, gets ready, gives its go-ahead, and sees it start."""
    event = await play.sees(vm, event_type)
    await play.wait(PREPARING_SECONDS)
    await play.approve(vm, event)
    await play.sees(vm, event_type, EventStatus.STARTED)


async def _live_through(play: Play, vm: str, event_type: EventType) -> None:
    """The same, until it is over."""
    event = await play.sees(vm, event_type)
    await _prepare_and_approve(play, vm, event_type)
    await play.sees_gone(vm, event)


async def _wait_it_out(play: Play, vm: str, event_type: EventType, seen_by: str = "") -> None:
    """Nobody approves: it starts when its NotBefore has passed, and ends."""
    watcher = seen_by or vm
    event = await play.sees(watcher, event_type, of=vm)
    await play.wait_beyond(event.not_before, 0.0)
    await play.sees(watcher, event_type, EventStatus.STARTED, of=vm)
    await play.sees_gone(watcher, event)


async def _return_to_service(play: Play, node: str) -> None:
    """What a node was taken out of service for is over."""
    await play.ask(OPERATOR, f"returns {node} to service", f"/v1/nodes/{node}/uncordon")


# ---- The platform's operations ----


async def live_migration(play: Play) -> None:
    """One VM approves and is moved early; another says nothing and has its whole notice."""
    node = play.node_of("db")
    other = next((name for name in play.on_node(node) if name in WEB), "db")
    await play.listen(*dict.fromkeys(("db", other, *WEB)))
    play.strikes(ImpactKind.MIGRATE, play.on_node(node))
    await play.ask(
        OPERATOR, f"moves the VMs of {node} away while they run", f"/v1/nodes/{node}/migrate"
    )
    waits = [] if other == "db" else [_wait_it_out(play, other, EventType.FREEZE)]
    await asyncio.gather(_live_through(play, "db", EventType.FREEZE), *waits)


async def host_maintenance(play: Play) -> None:
    """A node is rebooted when all its events allow it: one is approved, the other is not."""
    node = play.node_of("web-0")
    struck = play.on_node(node)
    quiet = next((name for name in struck if name.startswith("batch")), None)
    await play.listen("web-0", "web-1", *([] if quiet is None else [quiet]))
    play.strikes(ImpactKind.REBOOT, struck)
    await play.ask(OPERATOR, f"reboots {node}", f"/v1/nodes/{node}/maintain", impact="reboot")
    waits = [] if quiet is None else [_wait_it_out(play, quiet, EventType.REBOOT)]
    await asyncio.gather(_live_through(play, "web-0", EventType.REBOOT), *waits)


async def canceled_maintenance(play: Play) -> None:
    """What was announced, and even approved by one, is taken back: nothing happens."""
    node = play.node_of("web-2")
    quiet = next((name for name in play.on_node(node) if name != "web-2"), "web-2")
    await play.listen("web-2", "web-0", *([] if quiet == "web-2" else [quiet]))
    accepted = await play.ask(
        OPERATOR,
        f"freezes the VMs of {node} for 9 s",
        f"/v1/nodes/{node}/maintain",
        impact="freeze",
        duration_seconds=9,
    )
    event = await play.sees("web-2", EventType.FREEZE)
    if quiet != "web-2":
        await play.sees(quiet, EventType.FREEZE)
        await play.wait(PREPARING_SECONDS)
        await play.approve("web-2", event)
    await play.wait(PREPARING_SECONDS)
    canceled = frozenset(one.id for one in accepted.events)
    play.promised = play.promised._replace(canceled=canceled)
    await play.ask(OPERATOR, "takes it back", f"/v1/events/{event.id}/cancel")
    await play.sees_gone("web-2", event)
    # Only after its time can be said that it did not happen.
    await play.wait_beyond(event.not_before, PREPARING_SECONDS)


async def _failure_predicted(play: Play, node: str) -> None:
    """A node is going to fail soon, and is empty before it does."""
    seconds = play.site.timing.risk_seconds[Risk.HIGH]
    play.promised = play.promised._replace(notice_seconds={EventType.REDEPLOY: seconds})
    play.strikes(ImpactKind.REDEPLOY, play.on_node(node))
    play.afterwards(lambda: _return_to_service(play, node))
    path = f"/v1/nodes/{node}/predict-failure"
    await play.ask(OPERATOR, f"predicts that {node} fails soon", path, risk=Risk.HIGH.value)


async def redeploy(play: Play) -> None:
    """The platform moves VMs off a bad node; nobody approves, so nothing moves early."""
    node = play.node_of("FrontEnd_IN_1")
    batch = [name for name in play.on_node(node) if name.startswith("batch")]
    await play.listen("FrontEnd_IN_1", "FrontEnd_IN_0", *batch)
    await _failure_predicted(play, node)
    vms = ("FrontEnd_IN_1", *batch[:1])
    await asyncio.gather(*(_wait_it_out(play, vm, EventType.REDEPLOY) for vm in vms))


async def predicted_failure(play: Play) -> None:
    """One approves at once; another redeploys itself, and its prediction is off."""
    node = play.node_of("BackEnd_IN_0")
    batch = next((name for name in play.on_node(node) if name.startswith("batch")), None)
    await play.listen("FrontEnd_IN_0", "BackEnd_IN_0", *([] if batch is None else [batch]))
    await _failure_predicted(play, node)
    helps_himself = [] if batch is None else [_redeploys_itself(play, batch)]
    await asyncio.gather(_live_through(play, "BackEnd_IN_0", EventType.REDEPLOY), *helps_himself)
    shown = await play.shown(f"/v1/nodes/{node}", shapes.Node)
    if not shown.cordoned:
        raise Stalled(f"{node} is back in service, although it is going to fail.")


async def _redeploys_itself(play: Play, vm: str) -> None:
    predicted = await play.sees(vm, EventType.REDEPLOY)
    await play.wait(PREPARING_SECONDS)
    canceled = play.promised.canceled | {predicted.id}
    play.promised = play.promised._replace(canceled=canceled)
    accepted = await play.ask(USER, f"redeploys {vm}", f"/v1/vms/{vm}/redeploy")
    (mine,) = accepted.events
    asked = await play.until(lambda: play.last_shown(vm, mine.id), f"{vm} to see its redeploy")
    await play.approve(vm, asked)
    await play.sees_gone(vm, asked)
    await play.sees_gone(vm, predicted)


async def sudden_failure(play: Play) -> None:
    """A node fails: its VMs are told as soon as it is known, and come up elsewhere."""
    node = play.node_of("db")
    others = [name for name in play.on_node(node) if name in WEB]
    await play.listen("db", *dict.fromkeys((*others, "web-0")))
    play.promised = play.promised._replace(without_notice=True)
    play.strikes(ImpactKind.REDEPLOY, play.on_node(node))
    play.afterwards(lambda: _return_to_service(play, node))
    await play.ask(OPERATOR, f"says that {node} has failed", f"/v1/nodes/{node}/fail")
    for vm in ("db", *others):
        event = await play.sees(vm, EventType.REDEPLOY, EventStatus.STARTED)
        await play.sees_gone(vm, event)


# ---- What users ask ----


async def user_reboot(play: Play) -> None:
    """A user restarts a VM; it approves when it is ready, long before NotBefore."""
    await play.listen("web-0", "web-1", "db")
    play.strikes(ImpactKind.REBOOT, ["web-0"])
    await play.ask(USER, "restarts web-0", "/v1/vms/web-0/restart")
    await _live_through(play, "web-0", EventType.REBOOT)


async def user_redeploy(play: Play) -> None:
    """A user has a VM moved to another node; it approves when it is ready."""
    await play.listen("db", "web-0")
    play.strikes(ImpactKind.REDEPLOY, ["db"])
    await play.ask(USER, "redeploys db", "/v1/vms/db/redeploy")
    await _live_through(play, "db", EventType.REDEPLOY)


async def spot_eviction(play: Play) -> None:
    """A Spot VM has its short notice, says nothing, and is deallocated."""
    await play.listen("spot_0", "spot_1")
    play.strikes(ImpactKind.DEALLOCATE, ["spot_0"])
    play.afterwards(lambda: play.ask(USER, "starts spot_0 again", "/v1/vms/spot_0/start"))
    await play.ask(OPERATOR, "evicts spot_0", "/v1/vms/spot_0/evict")
    await _wait_it_out(play, "spot_0", EventType.PREEMPT, seen_by="spot_1")


async def scale_in(play: Play) -> None:
    """The newest instance of a scale set is told, gets ready, approves, and is deleted."""
    batch = await play.shown("/v1/scale-sets/batch", shapes.ScaleSet)
    newest = batch.vms[-1]
    minutes = batch.terminate_notice_minutes or 0
    seconds = minutes * play.site.timing.terminate_minute_seconds
    play.promised = play.promised._replace(notice_seconds={EventType.TERMINATE: seconds})
    before = await play.shown("/v1/fleet", dict)
    play.afterwards(lambda: _put_back(play, before, newest))
    await play.listen(newest, batch.vms[0])
    play.strikes(ImpactKind.DELETE, [newest])
    await play.ask(USER, "scales batch in by one", "/v1/scale-sets/batch/scale-in", count=1)
    event = await play.sees(newest, EventType.TERMINATE)
    await _prepare_and_approve(play, newest, EventType.TERMINATE)
    await play.sees_gone(batch.vms[0], event)


async def _put_back(play: Play, before: dict[str, Any], name: str) -> None:
    """The deleted VM is declared anew, as it was; the others stay as they are now."""
    fleet = await play.shown("/v1/fleet", dict)
    fleet["vm"] += [vm for vm in before["vm"] if vm["name"] == name]
    await play.put(f"declares {name} again", "/v1/fleet", fleet)


# ---- Rollouts ----


async def _rollout(play: Play, looking: tuple[str, ...]) -> None:
    """Reboot the nodes of the set one after another; who looks approves his own."""
    nodes = [play.node_of(name) for name in WEB]
    await play.listen(*looking)
    play.promised = play.promised._replace(recovery_seconds=play.site.timing.recovery_seconds)
    play.strikes(ImpactKind.REBOOT, [name for node in nodes for name in play.on_node(node)])
    words = f"reboots {', '.join(nodes)} one after another"
    accepted = await play.ask(OPERATOR, words, "/v1/rollouts", nodes=nodes, impact="reboot")
    for vm in WEB:
        if vm in looking:
            await _live_through(play, vm, EventType.REBOOT)
        else:
            await _wait_it_out(play, vm, EventType.REBOOT, seen_by=looking[0])
    await _completed(play, f"/v1/rollouts/{accepted.id}")


async def _completed(play: Play, path: str) -> None:
    """The events are gone; the impact of a VM that has none may still be under way."""
    for _ in range(COMPLETED_LOOKS_MAX):
        rollout = await play.shown(path, shapes.Rollout)
        if rollout.status is RolloutStatus.COMPLETED:
            return
        await play.wait(PREPARING_SECONDS)
    raise Stalled(f"The rollout is {rollout.status}: {rollout.reason or 'nobody says why'}.")


async def rollout_over_domains(play: Play) -> None:
    """Every VM of a set looks and approves: one update domain at a time, with a pause between."""
    await _rollout(play, WEB)


async def rollout_with_a_silent_vm(play: Play) -> None:
    """One VM never looks: nobody waits for it longer than for its NotBefore, nobody is early."""
    await _rollout(play, ("web-0", "web-2"))


SCENARIOS: dict[str, Scenario] = {
    name: Scenario(name, summary, story)
    for name, summary, story in (
        ("live-migration", "the platform moves VMs while they run", live_migration),
        ("user-reboot", "a user restarts a VM, which approves", user_reboot),
        ("host-maintenance", "a node is rebooted, when all agree or NotBefore", host_maintenance),
        ("redeploy", "the platform moves VMs off a node, unapproved", redeploy),
        ("user-redeploy", "a user moves a VM to another node", user_redeploy),
        ("canceled-maintenance", "an announced maintenance is taken back", canceled_maintenance),
        ("spot-eviction", "a Spot VM is evicted", spot_eviction),
        ("scale-in", "a scale-set instance is deleted with notice", scale_in),
        ("predicted-failure", "a node is going to fail", predicted_failure),
        ("sudden-failure", "a node has failed", sudden_failure),
        ("rollout", "three update domains, one after another", rollout_over_domains),
        ("rollout-silent-vm", "the same, with a VM that never looks", rollout_with_a_silent_vm),
    )
}
