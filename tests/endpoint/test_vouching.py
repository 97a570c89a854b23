"""Whoever was contradicted a moment ago is not believed yet, whatever the tables say by now."""

import pytest

from fairnotice.endpoint.vouching import DISPUTED_SECONDS, Network, Verdict, Vouching
from fairnotice.testing.manual_clock import ManualClock


class Told(Vouching):
    """Vouching, by tables that say what a test says."""

    says = Verdict.VOUCHED

    def _verdict(self, *_):
        return self.says

    def vouches(self, says, vm="a"):
        """Whether it is this VM that asks, by tables that say so."""
        self.says = says
        return self.vouch("10.79.0.11", vm)


@pytest.fixture
def clock():
    """Time that a test lets pass."""
    return ManualClock()


@pytest.fixture
def vouching(clock, tmp_path):
    """Of a node whose tables a test makes up."""
    one = Told(Network("nowhere", places=tmp_path / "vms.json"), clock)
    yield one
    one.close()


@pytest.mark.parametrize("contradicted", [Verdict.OTHER_MAC, Verdict.OTHER_PORT])
def test_two_that_send_in_turn_are_neither_of_them_believed(vouching, clock, contradicted):
    """Not within a second of the last time that somebody else was there; then the VM is again."""
    for _ in range(3):
        assert not vouching.vouches(contradicted)
        clock.advance(seconds=DISPUTED_SECONDS - 0.1)
        vouching.renew()
        assert not vouching.vouches(Verdict.VOUCHED)
    assert vouching.counts == {contradicted: 3, Verdict.DISPUTED: 3}
    # That is nobody else's.
    assert vouching.vouches(Verdict.VOUCHED, "b")
    clock.advance(seconds=0.1)
    assert vouching.vouches(Verdict.VOUCHED)


def test_what_the_tables_do_not_say_contradicts_nobody(vouching):
    """As of a VM that was not heard of for a while: the next check may say that it is there."""
    for silent in (Verdict.NO_NEIGHBOUR, Verdict.NO_PORT, Verdict.FAILED):
        assert not vouching.vouches(silent)
        assert vouching.vouches(Verdict.VOUCHED)
