"""Loops that go on whatever they meet: those that a control plane has beside its conductor."""

import asyncio

from fairnotice.control.admission import Auth
from fairnotice.control.loops import Loops
from fairnotice.stores.access import Audited
from fairnotice.stores.memory import MemoryStore
from fairnotice.testing.manual_clock import ManualClock
from tests.control.bearers import NOW, kept
from tests.control.test_tokens import asked

LINE = Audited(at=NOW, token=None, name="", source="::1", method="POST", path="/v1/x", status=200)


class Odd(MemoryStore):
    """A store that has a fault of its own, once each."""

    odd = False

    def tokens_changed(self):
        if self.odd:
            self.odd = False
            raise ValueError("nobody has thought of this")
        return super().tokens_changed()


async def passing(clock, holds):
    """Let time pass until something holds."""
    for _ in range(1000):
        if holds():
            return
        clock.advance(seconds=0.5)
        await asyncio.sleep(0.001)
    raise AssertionError("it never came")


def test_a_revocation_is_learned_after_a_fault_as_well():
    """Who follows the tokens meets what nobody has thought of: it is counted, and he goes on."""

    async def story():
        store, clock = Odd(), ManualClock()
        text = kept(store, "a", now=clock.wall())
        auth = Auth(asked(store), clock)
        async with auth.on_duty():
            bearer = await auth.tokens.find(text)
            store.odd = True
            await passing(clock, lambda: auth.loops.faults_count == 1)
            store.revoke_token(bearer.token.id, clock.wall())
            await passing(clock, bearer.ended.is_set)

    asyncio.run(story())


def test_the_audit_is_written_after_a_fault_as_well():
    """What could not be written is kept, and written in the end."""

    async def story():
        store, clock = MemoryStore(), ManualClock()
        add, odd = store.add_audit, [ValueError("nobody has thought of this")]

        def add_audit(lines):
            if odd:
                raise odd.pop()
            add(lines)

        store.add_audit = add_audit
        auth = Auth(asked(store), clock)
        async with auth.on_duty():
            auth.audits.note(LINE, refused=False, changes=True)
            await passing(clock, lambda: store.audit(10, before=None, who=None, since=None))
        return auth.loops.faults_count

    assert asyncio.run(story()) == 1


def test_one_that_goes_round_no_more_is_stuck():
    """Of those that say when they have."""
    clock = ManualClock()
    loops = Loops(clock)
    loops.turned("reporting")
    loops.turned("saving")
    clock.advance(seconds=50)
    loops.turned("saving")
    clock.advance(seconds=20)

    assert loops.stuck(60) == ["reporting"]
