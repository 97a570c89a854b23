"""Draws docs/pictures/portal-*.png from a real service, in a real browser (`make picture`)."""

import asyncio
import os
import shutil
from pathlib import Path

from picture import ANYWHERE, happen
from playwright.async_api import Page, async_playwright

from fairnotice.clock import SystemClock
from fairnotice.control.fleet_body import specification
from fairnotice.control.fleet_files import sample_fleet
from fairnotice.control.running import Plan, running
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.portal.portal import portal
from fairnotice.stores.memory import MemoryStore

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
WINDOW = {"width": 1180, "height": 660}


async def main() -> None:
    """Let things happen to the sample fleet, and look at it."""
    clock = SystemClock()
    plan = Plan(MemoryStore(), SimulatedDriver(clock), clock, metadata=ANYWHERE, control=ANYWHERE)
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with running(plan._replace(fronts=portal)) as run, async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=options
        )
        await run.service.apply_fleet(specification(sample_fleet()))
        await happen(run, clock)
        url = f"http://{run.control}"
        page = await browser.new_page(viewport=WINDOW, color_scheme="light")  # type: ignore[arg-type]
        await _picture(page, f"{url}/", "now")
        await _picture(page, f"{url}/fleet", "fleet")
        dark = await browser.new_page(viewport=WINDOW, color_scheme="dark")  # type: ignore[arg-type]
        await dark.goto(f"{url}/nodes/node-2")
        await dark.get_by_role("button", name="Maintain node-2").click()
        await dark.locator("#foresight li").first.wait_for()
        await dark.screenshot(path=FOLDER / "portal-foresight.png")
        await browser.close()


async def _picture(page: Page, url: str, name: str) -> None:
    await page.goto(url)
    await page.locator("#connection[data-is=live]").wait_for()
    await page.screenshot(path=FOLDER / f"portal-{name}.png")


if __name__ == "__main__":
    asyncio.run(main())
