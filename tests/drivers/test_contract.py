"""Each of our drivers keeps the contract, and drivers that break it are found out."""

import asyncio

import pytest

from fairnotice.clock import SystemClock
from fairnotice.drivers.driver import Found, Report, Survey
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.drivers.simulated.durations import AT_ONCE, Durations
from fairnotice.errors import LeadLost
from fairnotice.testing.driver_contract import check_driver
from fairnotice.words import ImpactKind, Outcome, Power
from tests.drivers.commands import FENCE, NOTE, OUTCOME, Bench


def simulated(path=None, durations=AT_ONCE, driver=SimulatedDriver):
    """A function that makes drivers of one machine room, and one that counts in it."""
    made = []

    def make():
        made.append(driver(SystemClock(), durations=durations, path=path))
        return made[-1]

    def count(key):
        rooms = [one._room.begun for one in made]
        return max(rooms, key=len).count(key) if path else sum(one.count(key) for one in rooms)

    return make, count


def test_simulated_keeps_the_contract():
    """Without a path: it does not answer after a restart."""
    make, count = simulated()

    asyncio.run(check_driver(make, count=count))


def test_simulated_with_a_path_keeps_the_contract(tmp_path):
    """With a path: it answers; impacts take a while, so that lives end within them."""
    make, count = simulated(tmp_path / "room", Durations(scale=0.0005))

    asyncio.run(check_driver(make, count=count))


def test_command_keeps_the_contract(tmp_path):
    """With a state directory: exactly once."""
    bench = Bench(tmp_path)
    discover = bench.shell("echo web_0 node-a running")

    asyncio.run(check_driver(lambda: bench.driver(discover=discover), count=bench.count))


def test_command_without_a_state_directory_keeps_the_contract(tmp_path):
    """It does not answer: at most once."""
    bench = Bench(tmp_path)

    asyncio.run(check_driver(lambda: bench.driver(durable=False), count=bench.count))


def test_command_with_an_outcome_command_keeps_the_contract(tmp_path):
    """The operator's own commands keep keys and epochs."""
    bench = Bench(tmp_path)
    asked = {
        "outcome": bench.shell(OUTCOME),
        "discover": bench.shell(FENCE + "echo web_0 - deallocated"),
    }

    def make():
        return bench.driver(note=FENCE + NOTE, durable=False, **asked)

    asyncio.run(check_driver(make, count=bench.count))


def test_the_same_machines_may_be_checked_again(tmp_path):
    """Another run has other keys; only its epochs have to go on."""
    make, count = simulated(tmp_path / "room")

    asyncio.run(check_driver(make, count=count))
    asyncio.run(check_driver(make, count=count, first_epoch=100))


# --- Broken ones ----------------------------------------------------------------------------


class ForgetsKeys(SimulatedDriver):
    async def impact(self, order, epoch):
        self._room.deeds.pop(order.key, None)
        return await super().impact(order, epoch)


class SaysNotBegun(SimulatedDriver):
    async def outcome(self, key, epoch, failed_nodes=frozenset()):
        report = await super().outcome(key, epoch, failed_nodes)
        unknown = report.outcome is Outcome.UNKNOWN
        return Report(Outcome.NOT_BEGUN) if unknown else report


class ForgetsOutcomes(SimulatedDriver):
    async def outcome(self, key, epoch, failed_nodes=frozenset()):
        await super().outcome(key, epoch, failed_nodes)
        return Report(Outcome.NOT_BEGUN)


class TakesAnyEpochInImpact(SimulatedDriver):
    async def impact(self, order, epoch):
        return await super().impact(order, max(epoch, self._room.epoch))


class TakesAnyEpochInDiscover(SimulatedDriver):
    async def discover(self, epoch):
        return await super().discover(max(epoch, self._room.epoch))


class Looks(SimulatedDriver):
    """It sees what it discovers, whatever befalls it, and there never is any news."""

    async def survey(self, epoch, failed_nodes=frozenset()):  # noqa: ARG002
        found = await self.discover(epoch)
        return Survey(found, frozenset(), frozenset(), whole=True)

    async def news(self):
        await asyncio.Event().wait()


class TakesAnyEpochInSurvey(Looks):
    async def survey(self, epoch, failed_nodes=frozenset()):
        return await super().survey(max(epoch, self._room.epoch), failed_nodes)


class FindsTwice(Looks):
    async def survey(self, epoch, failed_nodes=frozenset()):
        survey = await super().survey(epoch, failed_nodes)
        twice = 2 * (Found("vm", None, Power.STOPPED),)
        return survey._replace(found=survey.found + twice)


class SaysOfOneNodeBoth(Looks):
    async def survey(self, epoch, failed_nodes=frozenset()):
        survey = await super().survey(epoch, failed_nodes)
        return survey._replace(reached=frozenset({"a"}), away=frozenset({"a"}))


class ForgetsEpochs(SimulatedDriver):
    """Keeps them for as long as it lives, and no longer."""

    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self._own_epoch = 0
        self._room.raise_epoch = lambda _: None

    async def outcome(self, key, epoch, failed_nodes=frozenset()):
        self._own(epoch)
        return await super().outcome(key, epoch, failed_nodes)

    async def impact(self, order, epoch):
        self._own(epoch)
        return await super().impact(order, epoch)

    async def discover(self, epoch):
        self._own(epoch)
        return await super().discover(epoch)

    def _own(self, epoch):
        if epoch < self._own_epoch:
            raise LeadLost
        self._own_epoch = epoch


class CannotStop(SimulatedDriver):
    async def impact(self, order, epoch):
        if order.kind is ImpactKind.STOP:
            return Report(Outcome.FAILED, "cannot stop")
        return await super().impact(order, epoch)


class ClosesOnce(SimulatedDriver):
    async def close(self):
        assert not self._closed, "It was closed twice."
        await super().close()


class ChangesItsMind(SimulatedDriver):
    def capabilities(self):
        return self._capabilities._replace(answers=bool(self._room.begun))


BROKEN = {
    ForgetsKeys: "came back as|carried out 2 times",
    SaysNotBegun: "nobody has used is not begun",
    ForgetsOutcomes: "nobody has used|outcome is not begun",
    TakesAnyEpochInImpact: "impact took an older epoch",
    TakesAnyEpochInDiscover: "discover took an older epoch",
    TakesAnyEpochInSurvey: "survey took an older epoch",
    FindsTwice: "found a VM twice",
    SaysOfOneNodeBoth: "reached a node that it says is away",
    CannotStop: "A stop on check-0 came back as failed",
    ClosesOnce: "closed twice",
    ChangesItsMind: "capabilities changed",
}


@pytest.mark.parametrize("driver", BROKEN, ids=lambda driver: driver.__name__)
def test_a_broken_driver_is_found_out(driver):
    """The check ends with a sentence that names what is broken."""
    make, count = simulated(driver=driver)

    with pytest.raises(AssertionError, match=BROKEN[driver]):
        asyncio.run(check_driver(make, count=count))


@pytest.mark.parametrize(
    ("driver", "sentence"),
    [
        (ForgetsOutcomes, "outcome is not begun"),
        (ForgetsEpochs, "impact took an older epoch after a restart"),
    ],
)
def test_a_broken_memory_is_found_out(driver, sentence, tmp_path):
    """What is to be kept outside the process is not."""
    make, count = simulated(tmp_path / "room", driver=driver)

    with pytest.raises(AssertionError, match=sentence):
        asyncio.run(check_driver(make, count=count))


def test_a_second_time_after_a_restart_is_found_out(tmp_path):
    """A driver that claims to answer and forgets its keys would strike twice."""
    bench = Bench(tmp_path)
    lives = iter(range(100))

    def make():
        return bench.driver(state_directory=tmp_path / f"life-{next(lives)}")

    with pytest.raises(AssertionError, match="it would be done twice"):
        asyncio.run(check_driver(make, count=bench.count))
