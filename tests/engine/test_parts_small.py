"""Small words of the law that no longer story needs: bad input, and how a refusal reads."""

from datetime import datetime, timedelta

import pytest

from fairnotice.engine import Code
from fairnotice.engine import commands as ask
from fairnotice.engine.commands import ApplyFleet, Heard
from fairnotice.engine.draft import Overlay
from fairnotice.engine.specs import FleetSpec, NodeSpec
from fairnotice.words import OperationKind
from tests.engine.story import DB, OPERATOR, USER, Story


def test_a_refusal_reads_as_why_and_what_to_do():
    """A person gets both sentences at once."""
    refusal = Story().refused(ask.Cordon(node="nowhere"))
    assert str(refusal) == "There is no node nowhere. List the nodes."


def test_what_is_not_there_cannot_be_taken_out_of_a_draft():
    """A draft that dropped what the fleet does not have would not be the fleet's."""
    overlay = Overlay({"a": 1})
    del overlay["a"]
    with pytest.raises(KeyError):
        del overlay["a"]


def test_rule_02_an_instant_without_a_time_zone_is_refused():
    """Nobody knows which instant is meant."""
    story = Story()
    naive = datetime(2026, 1, 1, 12)  # noqa: DTZ001 - that is the point
    command = ask.Restart(id="r", by=USER, vms=("db",), not_before=naive)
    assert story.refused(command).code is Code.INVALID


def test_rule_08_a_report_older_than_a_day_enables_nobody():
    """What was heard 25 hours ago says nothing about now."""
    story = Story(listening=())
    story.advance(hours=30)
    long_ago = story.clock.wall() - timedelta(hours=25)
    story.unchanged(ask.ReportServed(heard=(Heard(DB, long_ago),)))
    assert not story.scope(DB).enabled


def test_rule_08_time_without_service_does_not_run_backwards():
    """Negative seconds are refused, none change nothing."""
    story = Story()
    assert story.refused(ask.ReportUnserved(scopes=(DB,), seconds=-1)).rule == 8
    story.unchanged(ask.ReportUnserved(scopes=(DB,), seconds=0))


def test_rule_19_a_key_that_stands_for_another_command_is_refused():
    """The same key and another VM is a mistake, not a repeat; another person's key is his own."""
    story = Story()
    first = ask.Restart(id="a", by=USER, vms=("db",), idempotency_key="k")
    story.tell(first)
    other = ask.Restart(id="b", by=USER, vms=("web-0",), idempotency_key="k")
    refusal = story.refused(other)
    assert (refusal.code, refusal.rule) == (Code.CONFLICT, 19)
    story.tell(ask.Restart(id="c", by=OPERATOR, vms=("web-0",), idempotency_key="k"))


def test_rule_21_a_fault_domain_below_zero_is_refused():
    """Fault domains are counted from 0."""
    spec = FleetSpec(nodes=(NodeSpec("node-0", -1),))
    assert "fault domain -1" in Story().refused(ApplyFleet(spec=spec)).why


def test_a_wrong_kind_on_a_node_is_refused():
    """A restart is nothing an operator plans on a node."""
    story = Story()
    command = story.node_command(OperationKind.RESTART, "node-0")
    assert story.refused(command).code is Code.INVALID
