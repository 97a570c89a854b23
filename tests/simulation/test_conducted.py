"""The simulator through the real conductor and each store, crashing at commits on the way.

At every crash what is remembered is held against what the process knew, to the last row.
"""

import os
from functools import partial
from random import Random

import pytest

from fairnotice.stores.memory import MemoryStore
from fairnotice.stores.opening import open_store
from fairnotice.testing.conducted import ConductedStage, CrashPoint
from fairnotice.testing.simulator import Simulation

STEPS = 200
# `make soak` has more of them.
SEEDS = int(os.environ.get("CONDUCTED_SEEDS", "0"))


def crashing(seed, probability=0.08):
    """Dies at one commit of so many, before it or after."""
    chance = Random(seed)

    def crash():
        if chance.random() < probability:
            return chance.choice(tuple(CrashPoint))
        return None

    return crash


def conduct(seed, open_again, crash=None, steps=STEPS):
    """One seed through the conductor, to its end; the stage."""
    crash = crash or crashing(seed)
    make_stage = partial(ConductedStage, open_store=open_again, crash=crash)
    simulation = Simulation(seed, steps, make_stage)
    try:
        run = simulation.run()
    finally:
        simulation.stage.close()
    assert run.steps == steps
    return simulation.stage


@pytest.mark.parametrize("seed", range(100, 100 + (SEEDS or 6)))
def test_the_law_holds_through_the_conductor_in_memory(seed):
    """Crashes cost nothing that was answered."""
    store = MemoryStore()
    assert conduct(seed, lambda: store).crashes_count > 3


@pytest.mark.parametrize("seed", range(200, 200 + (SEEDS or 3)))
def test_the_law_holds_through_the_conductor_on_sqlite(seed, tmp_path):
    """The same on a file that is opened anew after each crash."""
    url = f"sqlite:{tmp_path}/fairnotice.db"
    assert conduct(seed, lambda: open_store(url)).crashes_count > 3


@pytest.mark.parametrize("seed", range(300, 300 + (SEEDS or 2)))
def test_the_law_holds_through_the_conductor_on_postgres(seed, postgres_url):
    """The same on PostgreSQL."""
    assert conduct(seed, lambda: open_store(postgres_url)).crashes_count > 3


# ---- The proof can fail ----


class Forgetful(MemoryStore):
    """Gives back all rows but one."""

    def load(self):
        loaded = super().load()
        return loaded._replace(rows=list(loaded.rows)[:-1])


class Torn(MemoryStore):
    """Writes half of what belongs together."""

    def commit(self, epoch, after, changes):
        super().commit(epoch, after, changes[: (len(changes) + 1) // 2])
        self._revision = after + len(changes)


@pytest.mark.parametrize("broken", [Forgetful, Torn])
def test_a_store_that_forgets_is_found_out(broken):
    """What it does not remember is missed at the next crash."""
    store = broken()
    with pytest.raises(AssertionError, match="was not remembered"):
        conduct(1, lambda: store)
