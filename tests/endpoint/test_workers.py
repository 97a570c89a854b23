"""The workers of an endpoint as real processes, and what their parent makes of their ends."""

import asyncio
import os
import signal

from fairnotice.endpoint.front import Manner
from fairnotice.endpoint.steering import listening
from fairnotice.endpoint.workers import Workers
from tests.endpoint.test_link import linked, tell
from tests.waiting import soon


def test_rule_05_what_a_dead_worker_showed_is_shown_by_nobody(tmp_path):
    """Nothing counts as shown until the next one shows it."""

    async def story():
        (listener,) = listening(("127.0.0.1", 0), 1, 16)
        async with linked(tmp_path) as (link, _):
            workers = Workers(link, Manner(), link.saved, [[listener]])
            tell(link, 9)
            async with workers.kept():
                await soon(lambda: link.shown == 9)
                killed = workers.fronts[0].process
                os.kill(killed.pid, signal.SIGKILL)
                await soon(lambda: killed.returncode is not None)
                after = link.shown
                await soon(lambda: link.shown == 9)
        listener.close()
        return after

    assert asyncio.run(story()) == 0
