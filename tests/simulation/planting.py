"""How a violation is planted, and how it is found: what the proofs have in common."""

from collections.abc import Callable

import pytest

from fairnotice.testing import simulator
from fairnotice.testing.simulator import simulate
from fairnotice.testing.witness import LawBroken

SEEDS = range(40)
STEPS = 300
# A weight among those of the simulator.
OFTEN = 30

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


def happens_often(patch: Patch, *names: str) -> None:
    """What is rare in a simulation, and needed to see this plant, is not rare here."""
    for name in names:
        patch.setitem(simulator.WEIGHTS, name, OFTEN)


def must_be_caught(plant: Plant, rules: set[int], patch: Patch) -> None:
    """Some seed finds it, and names one of these rules."""
    plant(patch)
    broken = first_violation()
    assert broken is not None, f"not caught in {len(SEEDS)} seeds"
    found = {violation.rule for violation in broken.violations}
    assert found & rules, broken


def first_violation() -> LawBroken | None:
    """What the first seed that finds anything finds."""
    for seed in SEEDS:
        try:
            simulate(seed, STEPS)
        except LawBroken as broken:
            return broken
    return None
