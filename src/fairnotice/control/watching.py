"""What befalls machines without our doing, told to the law: gone, stopped, started, moved, away."""

import logging
from collections.abc import Iterator

from fairnotice.clock import Clock
from fairnotice.conductor.conductor import Conductor
from fairnotice.drivers.driver import Found, Survey, Watching
from fairnotice.engine import Fleet, Refusal
from fairnotice.engine.commands import Command, ReportReachable, ReportVm
from fairnotice.errors import LeadLost, Unavailable
from fairnotice.model import Vm
from fairnotice.words import NodeHealth, Power

log = logging.getLogger(__name__)

# Before the first look of a life, and after one that failed.
PAUSE_SECONDS = 0.5
# A VM that is not found is gone only when it is not found again.
MISSES = 2


class Watchman:
    """Looks at machines for as long as this process leads."""

    def __init__(self, conductor: Conductor, driver: Watching, clock: Clock) -> None:
        self._conductor = conductor
        self._driver = driver
        self._clock = clock
        self._misses: dict[str, int] = {}
        # What was said of machines that the fleet does not know, or does not take.
        self._said: set[str] = set()

    async def watching(self) -> None:
        """Look, and look again whenever there is news."""
        while True:
            await self._clock.sleep(PAUSE_SECONDS)
            if self._conductor.leading:
                try:
                    await self.look()
                except LeadLost as error:
                    log.debug("machines are looked at by whoever leads now: %s", error)
                except Unavailable as error:
                    log.warning("machines cannot be looked at now: %s", error)
            await self._driver.news()

    async def look(self) -> None:
        """Look once, and tell the law what is not as it is recorded."""
        before = dict(self._conductor.fleet.vms)
        survey = await self._driver.survey(self._conductor.epoch)
        fleet = self._conductor.fleet
        # What changed while we looked, or is being changed, is looked at the next time.
        still = {
            name: vm
            for name, vm in before.items()
            if fleet.vms.get(name) == vm and name not in fleet.impact_on_vm
        }
        commands: list[Command] = [*_reachable(fleet, survey), *self._differences(still, survey)]
        for command in commands:
            answer = await self._conductor.submit(command)
            if isinstance(answer, Refusal):
                self._say(str(answer))
        for one in survey.found:
            if one.vm not in fleet.vms:
                self._say(f"{one.vm} runs on {one.node}, and the fleet does not have it.")

    def _differences(self, vms: dict[str, Vm], survey: Survey) -> Iterator[ReportVm]:
        found = {one.vm: one for one in survey.found}
        for name, vm in vms.items():
            seen = found.get(name)
            if seen is not None:
                self._misses.pop(name, None)
                if _differs(vm, seen):
                    node = seen.node if seen.power is not Power.DEALLOCATED else None
                    yield ReportVm(vm=name, node=node, power=seen.power)
            elif survey.whole:
                self._misses[name] = self._misses.get(name, 0) + 1
                if self._misses[name] >= MISSES:
                    del self._misses[name]
                    yield ReportVm(vm=name)

    def _say(self, sentence: str) -> None:
        """Once: it is found again at every look."""
        if sentence not in self._said:
            self._said.add(sentence)
            log.warning("%s", sentence)


def _reachable(fleet: Fleet, survey: Survey) -> Iterator[ReportReachable]:
    """A node that has failed stays so until an operator has said otherwise."""
    for name, node in fleet.nodes.items():
        if name in survey.away and node.health is NodeHealth.REACHABLE:
            yield ReportReachable(node=name, reachable=False)
        if name in survey.reached and node.health is NodeHealth.UNREACHABLE:
            yield ReportReachable(node=name, reachable=True)


def _differs(vm: Vm, seen: Found) -> bool:
    if vm.power is Power.DEALLOCATED and seen.power is Power.STOPPED:
        # Off is off; whether its place is free is ours to say.
        return False
    return vm.power is not seen.power or (seen.node is not None and vm.node != seen.node)
