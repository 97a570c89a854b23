"""The proof of the port `fairnotice.drivers.driver`: what every driver has to keep.

    asyncio.run(check_driver(make_driver, count=count))

Each call of `make_driver` gives the driver as it is after a restart of the control plane: what
it keeps outside the process is still there, what it kept inside is lost. A driver that breaks the
contract ends the check with an AssertionError that says in a sentence what it did.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from itertools import count as count_up
from typing import Any
from uuid import uuid4

from fairnotice.drivers.driver import Capabilities, Driver, Found, Order, Report, Watching
from fairnotice.errors import LeadLost
from fairnotice.words import ImpactKind, Outcome, Power

# An order in which each leaves the VM as the next one needs it.
_SEQUENCE = (
    ImpactKind.FREEZE,
    ImpactKind.REBOOT,
    ImpactKind.MIGRATE,
    ImpactKind.REDEPLOY,
    ImpactKind.STOP,
    ImpactKind.START,
    ImpactKind.DEALLOCATE,
    ImpactKind.START,
    ImpactKind.DELETE,
)
# Those that may be done to a running VM again and again, the gentlest first.
_REPEATABLE = (ImpactKind.FREEZE, ImpactKind.REBOOT, ImpactKind.MIGRATE, ImpactKind.REDEPLOY)
_ASK_AGAIN_SECONDS = 0.02


@dataclass
class _Check:
    """What the checks share: how to make a driver, and names that were never used."""

    make_driver: Callable[[], Driver]
    count: Callable[[str], int] | None
    vms: tuple[str, str]
    nodes: tuple[str, str]
    limit_seconds: float
    epoch: int
    capabilities: Capabilities
    _numbers: "count_up[int]" = field(default_factory=count_up)
    # Another run against the same machines has other keys.
    _run: str = field(default_factory=lambda: uuid4().hex[:8])

    def order(self, kind: ImpactKind | None = None, vm: int = 0) -> Order:
        """A new order, of a gentle kind if none is asked for."""
        number = next(self._numbers)
        here, there = self.nodes if number % 2 else self.nodes[::-1]
        return Order(
            key=f"check-{self._run}-{number}/{self.vms[vm]}",
            vm=self.vms[vm],
            kind=kind or self.gentle(),
            node=here,
            target=there,
            event=f"check-{self._run}-{number}",
            duration_seconds=0,
            limit_seconds=self.limit_seconds,
        )

    def gentle(self) -> ImpactKind:
        """A kind that the driver can do and that may be repeated."""
        for kind in _REPEATABLE:
            if kind in self.capabilities.kinds:
                return kind
        return min(self.capabilities.kinds)

    def must_be_done(self, key: str, times: int, when: str) -> None:
        """The impact of this key happened so often."""
        if self.count is not None:
            counted = self.count(key)
            assert counted == times, f"{when}, {key} was carried out {counted} times, not {times}."


async def check_driver(
    make_driver: Callable[[], Driver],
    *,
    count: Callable[[str], int] | None = None,
    vms: tuple[str, str] = ("check-0", "check-1"),
    nodes: tuple[str, str] = ("check-node-0", "check-node-1"),
    limit_seconds: float = 60.0,
    first_epoch: int = 1,
) -> None:
    """Try a driver out; AssertionError says what it breaks.

    `count(key)` says how often the impact of a key was carried out, counted where it happens;
    without it, "once" cannot be seen from outside and goes unchecked. The two VMs are impacted in
    every way that the driver says it can, and the first is deleted in the end if it can do that.
    Epochs are counted up from `first_epoch`.
    """
    driver = make_driver()
    capabilities = driver.capabilities()
    check = _Check(make_driver, count, vms, nodes, limit_seconds, first_epoch, capabilities)
    await _closing(driver, _check_capabilities(check, driver))
    for story in (
        _check_same_key,
        _check_fresh_key,
        _check_restart,
        _check_given_up,
        _check_concurrency,
        _check_epochs,
        _check_discover,
        _check_every_kind,
    ):
        check.epoch += 1
        driver = make_driver()
        await _closing(driver, story(check, driver))


async def _closing(driver: Driver, story: Coroutine[Any, Any, None]) -> None:
    try:
        await story
    finally:
        await driver.close()
        # Closing twice is closing.
        await driver.close()


async def _check_capabilities(check: _Check, driver: Driver) -> None:
    capabilities = check.capabilities
    assert capabilities.name, "The driver has no name."
    assert capabilities.kinds, "The driver can do nothing."
    odd = [kind for kind in capabilities.kinds if kind not in set(ImpactKind)]
    assert not odd, f"There are no such kinds of impact: {odd}."
    assert driver.capabilities() == capabilities, "Its capabilities changed from look to look."
    await _carry_out(check, driver, check.order())
    assert driver.capabilities() == capabilities, "Its capabilities changed after an impact."


async def _carry_out(check: _Check, driver: Driver, order: Order) -> Report:
    async with asyncio.timeout(check.limit_seconds):
        report = await driver.impact(order, check.epoch)
    assert report.outcome is Outcome.DONE, (
        f"A {order.kind} on {order.vm} came back as {report.outcome}, not as done: {report.reason}"
    )
    check.must_be_done(order.key, 1, f"After one {order.kind}")
    return report


async def _check_same_key(check: _Check, driver: Driver) -> None:
    """The same key again, and twice at once: one impact, one report."""
    order = check.order()
    report = await _carry_out(check, driver, order)
    again = await driver.impact(order, check.epoch)
    assert again == report, f"The same key came back as {again} after {report}."
    check.must_be_done(order.key, 1, "Given twice")
    order = check.order()
    both = await asyncio.gather(
        driver.impact(order, check.epoch), driver.impact(order, check.epoch)
    )
    assert both[0].outcome is both[1].outcome is Outcome.DONE, f"Given twice at once: {both}."
    check.must_be_done(order.key, 1, "Given twice at once")


async def _check_fresh_key(check: _Check, driver: Driver) -> None:
    """Not begun, or unknown, before; done after."""
    order = check.order()
    before = (await driver.outcome(order.key, check.epoch)).outcome
    wanted = Outcome.NOT_BEGUN if check.capabilities.answers else Outcome.UNKNOWN
    # One that does not answer after a restart may still be sure of what it has not begun; it
    # cannot be sure of what another life has begun, and this key could be such a one.
    assert before is wanted, f"A key nobody has used is {before}; it should be {wanted}."
    check.must_be_done(order.key, 0, "After asking for it")
    await _carry_out(check, driver, order)
    # It is also told which nodes have failed; that of others changes nothing.
    after = (await driver.outcome(order.key, check.epoch, frozenset({"another"}))).outcome
    assert after is Outcome.DONE, f"After it was done, its outcome is {after}."


async def _check_restart(check: _Check, driver: Driver) -> None:
    """Another life is asked for what this one has done."""
    order = check.order()
    await _carry_out(check, driver, order)
    await driver.close()
    later = check.make_driver()
    check.epoch += 1
    await _closing(later, _check_later(check, later, order))


async def _check_later(check: _Check, later: Driver, order: Order) -> None:
    outcome = (await later.outcome(order.key, check.epoch)).outcome
    assert outcome is not Outcome.NOT_BEGUN, (
        "After a restart it says that what was done is not begun: it would be done twice."
    )
    if not check.capabilities.answers:
        assert outcome is Outcome.UNKNOWN, f"It does not answer, and yet says {outcome}."
        return
    assert outcome is Outcome.DONE, f"It answers, and says after a restart that it is {outcome}."
    again = await later.impact(order, check.epoch)
    assert again.outcome is Outcome.DONE, f"The same key after a restart is {again.outcome}."
    check.must_be_done(order.key, 1, "Given again after a restart")


async def _check_given_up(check: _Check, driver: Driver) -> None:
    """Who gave the order is gone before it has ended; another life asks, and sees it through."""
    for turns in range(4):
        order = check.order()
        carrying = asyncio.create_task(driver.impact(order, check.epoch))
        for _ in range(turns):
            await asyncio.sleep(0)
        carrying.cancel()
        await asyncio.gather(carrying, return_exceptions=True)
        check.epoch += 1
        later = check.make_driver()
        await _closing(later, _check_seen_through(check, later, order))


async def _check_seen_through(check: _Check, later: Driver, order: Order) -> None:
    outcome = await _ended_outcome(check, later, order.key)
    if not check.capabilities.answers:
        assert outcome is Outcome.UNKNOWN, f"It does not answer, and yet says {outcome}."
        return
    if outcome is Outcome.NOT_BEGUN:
        check.must_be_done(order.key, 0, "Said not to have begun")
        outcome = (await later.impact(order, check.epoch)).outcome
    assert outcome is Outcome.DONE, f"Nobody waited for it, and it is {outcome}."
    check.must_be_done(order.key, 1, "Given up and asked for by another life")


async def _ended_outcome(check: _Check, driver: Driver, key: str) -> Outcome:
    async with asyncio.timeout(check.limit_seconds):
        while True:
            outcome = (await driver.outcome(key, check.epoch)).outcome
            if outcome is not Outcome.UNDER_WAY:
                return outcome
            await asyncio.sleep(_ASK_AGAIN_SECONDS)


async def _check_concurrency(check: _Check, driver: Driver) -> None:
    """Two VMs at once, each with its own report."""
    orders = [check.order(vm=0), check.order(vm=1)]
    reports = await asyncio.gather(*(driver.impact(order, check.epoch) for order in orders))
    for order, report in zip(orders, reports, strict=True):
        assert report.outcome is Outcome.DONE, f"Beside another VM, {order.vm} is {report}."
        check.must_be_done(order.key, 1, "Beside another VM")


async def _check_epochs(check: _Check, driver: Driver) -> None:
    """An older epoch is refused everywhere, and nothing happens."""
    old = check.epoch
    check.epoch += 1
    await driver.outcome(check.order().key, check.epoch)
    await _check_refuses(check, driver, old, "")
    await _carry_out(check, driver, check.order())
    await driver.close()
    if check.capabilities.answers:
        later = check.make_driver()
        await _closing(later, _check_refuses(check, later, old, " after a restart"))


async def _check_refuses(check: _Check, driver: Driver, old: int, when: str) -> None:
    order = check.order()
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "impact": lambda: driver.impact(order, old),
        "outcome": lambda: driver.outcome(order.key, old),
    }
    if check.capabilities.discovers:
        calls["discover"] = lambda: driver.discover(old)
    if isinstance(driver, Watching):
        calls["survey"] = partial(driver.survey, old)
    for name, call in calls.items():
        try:
            await call()
        except LeadLost:
            continue
        raise AssertionError(f"{name} took an older epoch{when}; it should raise LeadLost.")
    check.must_be_done(order.key, 0, "Refused for its epoch")


async def _check_discover(check: _Check, driver: Driver) -> None:
    """VMs with names, each once."""
    found = await driver.discover(check.epoch)
    if not check.capabilities.discovers:
        assert found == (), f"It does not discover, and yet has found {found}."
    _check_found(found)
    if isinstance(driver, Watching):
        # It is also told which nodes have failed; that of others changes nothing.
        survey = await driver.survey(check.epoch, frozenset({"another"}))
        _check_found(survey.found)
        assert not survey.reached & survey.away, "It has reached a node that it says is away."


def _check_found(found: tuple[Found, ...]) -> None:
    names = [one.vm for one in found]
    assert len(set(names)) == len(names), f"It has found a VM twice: {names}."
    assert all(names), "It has found a VM without a name."
    assert all(one.power in set(Power) for one in found), f"A power that there is not: {found}."


async def _check_every_kind(check: _Check, driver: Driver) -> None:
    for kind in _SEQUENCE:
        if kind in check.capabilities.kinds:
            await _carry_out(check, driver, check.order(kind))
