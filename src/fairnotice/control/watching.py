"""What befalls machines without our doing, told to the law: gone, stopped, started, moved, away."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from fairnotice.clock import Clock
from fairnotice.conductor.conductor import Conductor
from fairnotice.conductor.orders import failed_nodes
from fairnotice.drivers.driver import Found, Survey, Watching
from fairnotice.engine import Fleet, Refusal
from fairnotice.engine.changes import Change
from fairnotice.engine.commands import ReportReachable, ReportVm
from fairnotice.errors import LeadLost, Unavailable
from fairnotice.model import Impact, Vm
from fairnotice.words import NodeHealth, Power

log = logging.getLogger(__name__)

# Before the first look of a life, after one that failed, and after one that has to be repeated.
PAUSE_SECONDS = 0.5
# A VM that is not found is gone only when it is not found again.
MISSES = 2


class Watchman:
    """Looks at machines for as long as this process leads.

    A look takes as long as the slowest node. What it says of a VM counts only if, from its
    beginning until the law is told, no impact was on the VM and nothing was recorded of it: a VM
    that is being rebooted is off for a while, and one that is being moved is elsewhere.
    """

    def __init__(self, conductor: Conductor, driver: Watching, clock: Clock) -> None:
        self._conductor = conductor
        self._driver = driver
        self._clock = clock
        # VMs of which the look under way says nothing.
        self._touched: set[str] = set()
        # How often in a row a VM was not found, in this epoch and with nothing done to it.
        self._misses: dict[str, int] = {}
        self._epoch = conductor.epoch
        # What was said of machines that the fleet does not know, or does not take.
        self._said: set[str] = set()
        conductor.feed.follow(self)

    # ---- What is committed meanwhile ----

    def loaded(self, fleet: Fleet) -> None:
        """The whole state anew: nobody can say what befell which VM."""
        self._touch(fleet.vms)

    def committed(self, fleet: Fleet, changes: Sequence[Change[Any]]) -> None:  # noqa: ARG002
        """Whatever this commit says of a VM is newer than what the look under way has seen."""
        rows = [change.row for change in changes]
        self._touch(row.vm for row in rows if isinstance(row, Impact))
        self._touch(row.name for row in rows if isinstance(row, Vm))

    def _touch(self, names: Iterable[str]) -> None:
        for name in names:
            self._touched.add(name)
            self._misses.pop(name, None)

    # ---- Looking ----

    async def watching(self) -> None:
        """Look, and look again whenever there is news."""
        while True:
            await self._clock.sleep(PAUSE_SECONDS)
            # Whoever follows for months looks at nothing, and keeps nothing.
            self._touched.clear()
            again = False
            if self._conductor.leading:
                try:
                    again = await self.look()
                except LeadLost as error:
                    log.debug("machines are looked at by whoever leads now: %s", error)
                except Unavailable as error:
                    log.warning("machines cannot be looked at now: %s", error)
            if not again:
                await self._driver.news()

    async def look(self) -> bool:
        """Look once, and tell the law what is not as it is recorded; whether to look again soon."""
        conductor = self._conductor
        self._touched = set(conductor.fleet.impact_on_vm)
        if self._epoch != conductor.epoch:
            # Another one has led meanwhile: what was missed before is not missed again.
            self._epoch = conductor.epoch
            self._misses.clear()
        failed = failed_nodes(conductor.fleet)
        survey = await self._driver.survey(conductor.epoch, failed)
        self._say_who_is_unknown(survey)
        for reachable in _reachable(conductor.fleet, survey):
            await self._tell(reachable)
        again = False
        for difference in self._differences(survey, failed - survey.reached):
            # Asked for each: while the law is told of one, it may do something to another.
            if difference.vm not in self._touched:
                await self._tell(difference)
            elif difference.vm not in conductor.fleet.impact_on_vm:
                # It may be so all the same, and the news that told of it is used up.
                again = True
        return again

    def _say_who_is_unknown(self, survey: Survey) -> None:
        for one in survey.found:
            if one.vm not in self._conductor.fleet.vms and one.vm not in self._touched:
                self._say(f"{one.vm} runs on {one.node}, and the fleet does not have it.")

    async def _tell(self, command: ReportReachable | ReportVm) -> None:
        answer = await self._conductor.submit(command)
        if isinstance(answer, Refusal):
            self._say(str(answer))

    def _differences(self, survey: Survey, lost: frozenset[str]) -> list[ReportVm]:
        found = {one.vm: one for one in survey.found}
        differences, misses = [], {}
        for name, vm in self._conductor.fleet.vms.items():
            seen = found.get(name)
            if seen is not None:
                if _differs(vm, seen):
                    node = seen.node if seen.power is not Power.DEALLOCATED else None
                    differences.append(ReportVm(vm=name, node=node, power=seen.power))
            elif name not in self._touched and name not in survey.unsure:
                missed = self._misses.get(name, 0) + (survey.whole and not _may_be_on(lost, vm))
                if missed >= MISSES:
                    differences.append(ReportVm(vm=name))
                elif missed:
                    misses[name] = missed
        self._misses = misses
        return differences

    def _say(self, sentence: str) -> None:
        """Once: it is found again at every look."""
        if sentence not in self._said:
            self._said.add(sentence)
            log.warning("%s", sentence)


def _reachable(fleet: Fleet, survey: Survey) -> list[ReportReachable]:
    """A node that has failed stays so until an operator has said otherwise."""
    told = []
    for name, node in fleet.nodes.items():
        if name in survey.away and node.health is NodeHealth.REACHABLE:
            told.append(ReportReachable(node=name, reachable=False))
        if name in survey.reached and node.health is NodeHealth.UNREACHABLE:
            told.append(ReportReachable(node=name, reachable=True))
    return told


def _may_be_on(lost: frozenset[str], vm: Vm) -> bool:
    """Whether it was on a node that has failed, and that says nothing; it is to come back then.

    So may be one that has given up its place: nobody knows where it has its domain.
    """
    return vm.node in lost or (vm.node is None and bool(lost))


def _differs(vm: Vm, seen: Found) -> bool:
    if vm.power is Power.DEALLOCATED and seen.power is Power.STOPPED:
        # Off is off; whether its place is free is ours to say.
        return False
    return vm.power is not seen.power or (seen.node is not None and vm.node != seen.node)
