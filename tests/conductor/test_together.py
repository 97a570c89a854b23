"""Commands that belong together."""

import asyncio

from fairnotice.conductor import conductor as conductor_module
from fairnotice.engine import Refusal
from tests.conductor.orchestra import Counting, approve, conducting, restart


def test_what_is_submitted_as_one_is_committed_as_one(monkeypatch):
    """However much waits beside it; a refusal in the middle is that command's alone."""
    monkeypatch.setattr(conductor_module, "TOGETHER_MAX", 2)

    async def story():
        store = Counting()
        async with conducting(store) as conductor:
            store.commits.clear()
            several = (restart("two", "web-1"), approve("NOBODY"), restart("three", "web-2"))
            alone, (two, refused, three) = await asyncio.gather(
                conductor.submit(restart("one", "web-0")), conductor.submit_all(several)
            )
            made = [len(one.changes) for one in (alone, two, three)]
            assert store.commits == [sum(made)]
            assert isinstance(refused, Refusal)

    asyncio.run(story())
