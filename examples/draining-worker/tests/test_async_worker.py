"""The worker inside a service that is a coroutine, with pytest-asyncio."""

import asyncio

import pytest
from draining_worker import Worker


async def watch(worker: Worker) -> None:
    """Look for ever, in the background of whatever else the service does."""
    while True:
        await asyncio.to_thread(worker.look)
        await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_it_drains_in_the_background(fairnotice_cloud):
    worker = Worker("web-0", fairnotice_cloud.url_for("web-0"))
    watching = asyncio.create_task(watch(worker))
    event = fairnotice_cloud.vm("web-0").restart()

    await fairnotice_cloud.wait_until_async(lambda: event.approved_by == "web-0")
    fairnotice_cloud.run_until(event, "Completed")
    await fairnotice_cloud.wait_until_async(lambda: not worker.draining)

    watching.cancel()
