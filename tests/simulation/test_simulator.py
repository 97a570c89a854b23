"""The simulator: random fleets, a witness at every commit, an end to everything."""

import pytest

from fairnotice.engine.invariants import Violation
from fairnotice.testing import simulate as command
from fairnotice.testing import simulator
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


def test_the_command_prints_what_it_did(capsys):
    """Seeds, steps, simulated days, commands, violations."""
    assert command.main(["--seeds", "2", "--steps", "50", "--jobs", "1"]) == 0
    printed = capsys.readouterr().out
    for name in ("seeds", "steps", "simulated days", "commands", "violations"):
        assert f"\n{name} " in f"\n{printed}"
    assert "violations      0" in printed


def test_the_command_prints_the_seed_that_repeats_a_failure(capsys, monkeypatch):
    """A broken law is a non-zero exit, and a line to copy."""
    monkeypatch.setattr(simulator.LawWitness, "after", _complain)
    assert command.main(["--seed", "5", "--jobs", "1"]) == 1
    printed = capsys.readouterr().out
    assert "seed 5 breaks the law: rule 99: planted (seed 5, step 0)" in printed
    assert "python -m fairnotice.testing.simulate --seed 5" in printed


def test_the_command_reports_a_crash_of_the_engine(capsys, monkeypatch):
    """An exception in the engine is a finding like any other."""
    monkeypatch.setattr(Simulation, "run", lambda simulation: 1 / 0)
    assert command.main(["--seed", "5", "--jobs", "1"]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().out


def test_the_command_refuses_no_seeds(capsys):
    """Nothing to run is wrong usage, not success."""
    with pytest.raises(SystemExit, match="2"):
        command.main(["--seeds", "0"])
    assert "from 1 on" in capsys.readouterr().err
