"""Handing impacts to the driver, and their outcomes back to the law."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any

from fairnotice.clock import Clock
from fairnotice.drivers.driver import Driver, Order, Report
from fairnotice.engine import Fleet
from fairnotice.engine.commands import ReportOutcome
from fairnotice.engine.effects import BeginImpact
from fairnotice.errors import LeadLost, NotLeading, Unavailable
from fairnotice.model import Impact
from fairnotice.words import NodeHealth, Outcome

log = logging.getLogger(__name__)

# How long until a driver, or the store, that could not be reached is tried again.
RETRY_SECONDS = 1.0
# How often a driver is asked about an impact that outlived the process that began it.
ASK_AGAIN_SECONDS = 1.0
# How often it is said that a driver still cannot be asked.
SAY_AGAIN_SECONDS = 60.0

Tell = Callable[[ReportOutcome], Awaitable[object]]
# Whether the law still waits for the impact of this key.
Wanted = Callable[[str], bool]
# The nodes that are surely down, as the law has it now.
Failed = Callable[[], frozenset[str]]


class Orders:
    """The impacts that this process waits for."""

    def __init__(
        self, driver: Driver, clock: Clock, tell: Tell, wanted: Wanted, failed: Failed
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._tell = tell
        self._wanted = wanted
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self, order: Order, epoch: int) -> None:
        """Have this carried out; its intent is durable."""
        self._spawn(self._carry_out(order, epoch))

    def ask(self, key: str, epoch: int) -> None:
        """Find out what became of this one, which an earlier life had begun or meant to."""
        self._spawn(self._find_out(key, epoch))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drop(self) -> None:
        """Wait for nothing any more; what machines are doing they go on doing."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry_out(self, order: Order, epoch: int) -> None:
        # What the law has ended meanwhile is not begun any more: its VM may be another's by now.
        while self._wanted(order.key):
            report = await self._impact(order, epoch)
            if report.outcome is Outcome.UNDER_WAY:
                report = await self._end(order.key, epoch)
            if report.outcome is not Outcome.NOT_BEGUN:
                await self._report(order.key, report)
                return
            await self._clock.sleep(RETRY_SECONDS)
            order = order._replace(failed_nodes=self._failed())

    async def _impact(self, order: Order, epoch: int) -> Report:
        """How it ended, as far as that is known."""
        try:
            return await self._driver.impact(order, epoch)
        except LeadLost as error:
            # If it is so, this cannot be recorded either; if not, somebody has to look at it.
            log.error("%s was refused: %s", order.key, error)  # noqa: TRY400 - nobody's bug
            return Report(Outcome.FAILED, f"the driver refused it: {error}")
        except Unavailable as error:
            # It may have begun before the driver was lost, so it is asked for, not begun again.
            log.warning("the driver was lost during %s: %s", order.key, error)
            await self._clock.sleep(RETRY_SECONDS)
            return await self._end(order.key, epoch)
        except asyncio.CancelledError:
            if _canceled():
                raise
            log.exception("the driver gave up on %s", order.key)
        except Exception:
            log.exception("the driver broke during %s", order.key)
        return Report(Outcome.UNKNOWN)

    async def _find_out(self, key: str, epoch: int) -> None:
        report = await self._outcome(key, epoch)
        if report.outcome is Outcome.UNDER_WAY:
            await self._report(key, report)
            report = await self._end(key, epoch)
        await self._report(key, report)

    async def _end(self, key: str, epoch: int) -> Report:
        """What became of it, once it is no longer under way or the law no longer waits."""
        while True:
            report = await self._outcome(key, epoch)
            if report.outcome is not Outcome.UNDER_WAY or not self._wanted(key):
                return report
            await self._clock.sleep(ASK_AGAIN_SECONDS)

    async def _outcome(self, key: str, epoch: int) -> Report:
        """The driver's answer, however long it takes to get one while somebody waits for it."""
        said_at: float | None = None
        while self._wanted(key):
            try:
                # A node may have been declared failed since it was asked last.
                report = await self._driver.outcome(key, epoch, self._failed())
            except LeadLost as error:
                log.error("nothing is said of %s: %s", key, error)  # noqa: TRY400 - nobody's bug
                break
            except Unavailable as error:
                now = self._clock.monotonic()
                if said_at is None or now - said_at >= SAY_AGAIN_SECONDS:
                    log.warning("the driver cannot say what became of %s: %s", key, error)
                    said_at = now
                await self._clock.sleep(RETRY_SECONDS)
            except asyncio.CancelledError:
                if _canceled():
                    raise
                log.exception("the driver gave up when asked for %s", key)
                break
            except Exception:
                log.exception("the driver broke when asked for %s", key)
                break
            else:
                if said_at is not None:
                    log.warning("the driver can be asked again what became of %s", key)
                return report
        return Report(Outcome.UNKNOWN)

    async def _report(self, key: str, report: Report) -> None:
        """Tell the law, again and again until it is durable."""
        command = ReportOutcome(key=key, outcome=report.outcome, reason=report.reason)
        while True:
            try:
                await self._tell(command)
            except (LeadLost, NotLeading):
                # Whoever leads now asks for it.
                return
            except Unavailable:
                await self._clock.sleep(RETRY_SECONDS)
            except Exception:
                # A bug. The law will give up on this impact in time.
                log.exception("the outcome of %s could not be recorded", key)
                return
            else:
                return


def order_of(fleet: Fleet, effect: BeginImpact, now: datetime) -> Order:
    """What the driver is told of an impact."""
    impact = effect.impact
    return Order(
        key=impact.key,
        vm=impact.vm,
        kind=impact.kind,
        node=impact.source,
        target=impact.target,
        event=_event_of(fleet, impact),
        duration_seconds=effect.duration_seconds,
        limit_seconds=(impact.limit_at - now).total_seconds(),
        failed_nodes=failed_nodes(fleet),
    )


def failed_nodes(fleet: Fleet) -> frozenset[str]:
    """Those that an operator or a fencing command has declared failed."""
    nodes = fleet.nodes.values()
    return frozenset(node.name for node in nodes if node.health is NodeHealth.FAILED)


def _event_of(fleet: Fleet, impact: Impact) -> str | None:
    events = (fleet.events[name] for name in fleet.operations[impact.operation].events)
    return next((event.id for event in events if impact.vm in event.resources), None)


def _canceled() -> bool:
    """Whether it is we who are canceled, and not something that the driver waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
