"""What an operator reads in the log: what failed, and a driver that is away."""

import asyncio
import logging

from fairnotice.drivers.driver import Report
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.errors import Unavailable
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import ImpactStatus, Outcome
from tests.conductor.orchestra import conducting, only_impact, settled, simulated, started


def test_an_impact_that_failed_or_timed_out_is_in_the_log_with_its_reason(caplog):
    """One line each; of one that was done there is none."""

    async def story():
        clock = ManualClock()
        driver = simulated(clock)
        driver.next_fails("web-0", "no power")
        async with conducting(driver=driver, clock=clock) as conductor:
            await started(conductor)
            driver.next_hangs("web-1")
            await started(conductor, "web-1")
            await started(conductor, "web-2")
            clock.advance(minutes=11)
            await settled(turns=10)

    asyncio.run(story())
    assert [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING] == [
        "reboot of web-0 failed: no power (impact restart-web-0/web-0)",
        "reboot of web-1 timed out: its time limit passed (impact restart-web-1/web-1)",
    ]


def test_a_driver_that_cannot_be_asked_is_said_once_a_minute_and_when_it_can_again(caplog):
    """It is asked every second, for two minutes and a half."""
    silent = "the driver cannot say what became of restart-web-0/web-0"

    class Away(SimulatedDriver):
        gone = True

        async def impact(self, *_):
            raise Unavailable("the hypervisor is gone")

        async def outcome(self, *_):
            if self.gone:
                raise Unavailable("the hypervisor is gone")
            return Report(Outcome.DONE)

    async def story():
        clock = ManualClock()
        driver = Away(clock)
        async with conducting(driver=driver, clock=clock) as conductor:
            await started(conductor)
            for _ in range(150):
                clock.advance(seconds=1)
                await settled(turns=2)
            assert caplog.text.count(silent) == 3
            driver.gone = False
            clock.advance(seconds=1)
            await settled(turns=5)
            assert only_impact(conductor).status is ImpactStatus.DONE

    asyncio.run(story())
    assert caplog.text.count(silent) == 3
    assert caplog.text.count("can be asked again what became of restart-web-0/web-0") == 1
