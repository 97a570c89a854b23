"""Commands decided on a trial are decided as they would be one by one."""

import pytest

from fairnotice.engine import Fleet, Refusal, decide
from fairnotice.engine.invariants import check_indexes
from fairnotice.engine.tables import INDEXES, TABLES
from fairnotice.engine.trial import Trial
from fairnotice.testing.simulator import Simulation
from fairnotice.testing.stage import Stage

TOGETHER = 7


class TwiceDecided(Stage):
    """Decides every command on its fleet, and beside it on a trial over a fleet left behind."""

    def __init__(self, timing, witness=None) -> None:
        super().__init__(timing, witness=witness)
        self.behind = Fleet(timing)
        self.trial = Trial(self.behind)
        self.tried = []

    def ask(self, command):
        tried = decide(self.trial, command, self.now)
        decision = super().ask(command)
        assert tried == decision, command
        if not isinstance(tried, Refusal):
            for change in tried.changes:
                self.trial.apply(change)
            self.tried += tried.changes
        if self.commands_count % TOGETHER == 0:
            self.commit()
        return decision

    def commit(self) -> None:
        for change in self.tried:
            self.behind.apply(change)
        self.tried = []
        self.trial = Trial(self.behind)


@pytest.mark.parametrize("seed", range(6))
def test_commands_together_are_decided_as_one_by_one(seed):
    """A trial over a fleet left behind decides what the fleet itself decides, seven in a row."""
    simulation = Simulation(seed, 250, TwiceDecided)
    stage = simulation.stage
    simulation.run()
    stage.commit()
    for name in (*TABLES, *INDEXES):
        assert getattr(stage.behind, name) == getattr(stage.fleet, name), name
    assert not list(check_indexes(stage.behind))
    assert stage.behind.revision == stage.trial.revision == stage.fleet.revision


def test_a_trial_has_no_other_attributes():
    """What a fleet does not have a trial does not have."""
    with pytest.raises(AttributeError):
        _ = Trial(Fleet()).speed
