"""The simulator: random fleets, a witness at every commit, an end to everything."""

import pytest

from fairnotice.engine.invariants import Violation
from fairnotice.testing.random_fleet import NODES_MAX, VMS_MAX
from fairnotice.testing.simulator import STEPS, Simulation, simulate
from fairnotice.testing.witness import LawBroken, LawWitness


@pytest.mark.parametrize("seed", range(1000, 1024))
def test_a_fleet_lives_under_the_law(seed):
    """Five hundred random steps, then everything becomes due: nothing broken, nothing stuck."""
    run = simulate(seed)
    assert run.steps == STEPS >= 500
    assert run.commands > run.steps / 2
    assert run.impacts


def test_the_seed_repeats_everything():
    """The same seed takes the same decisions, row by row."""

    def decisions(seed):
        simulation = Simulation(seed, 200)
        simulation.stage.keep_decisions = True
        simulation.run()
        return simulation.stage.decisions

    assert decisions(7) == decisions(7)
    assert decisions(7) != decisions(8)


def test_fleets_are_mixed_and_no_larger_than_promised():
    """Among fifty seeds are small fleets and large ones, with scopes of all four kinds."""
    specs = [Simulation(seed).spec for seed in range(50)]
    assert max(len(spec.vms) for spec in specs) > 120
    assert all(len(spec.vms) <= VMS_MAX and len(spec.nodes) <= NODES_MAX for spec in specs)
    vms = [vm for spec in specs for vm in spec.vms]
    for kind in ("availability_set", "scale_set", "cloud_service"):
        assert any(getattr(vm, kind) for vm in vms)
    assert any(not (vm.availability_set or vm.scale_set or vm.cloud_service) for vm in vms)


def test_a_failure_names_seed_and_step(monkeypatch):
    """Whoever reads the report can repeat it."""
    monkeypatch.setattr(LawWitness, "after", _complain)
    with pytest.raises(LawBroken, match="rule 99: planted") as caught:
        simulate(3)
    assert caught.value.__notes__ == ["seed 3, step 0"]


def _complain(*_):
    raise LawBroken([Violation(99, "planted")])


def test_a_crash_names_seed_and_step(monkeypatch):
    """So does an exception of the engine."""
    monkeypatch.setattr("fairnotice.testing.stage.decide", lambda *_: {}["planted"])
    with pytest.raises(KeyError) as caught:
        simulate(3)
    assert caught.value.__notes__ == ["seed 3, step 0"]
