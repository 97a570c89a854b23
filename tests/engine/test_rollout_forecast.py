"""Rule 22: a dry run shows order, forecast end and who is in the way, and changes nothing.

Every story begins on Thursday, the 1st of January 2026, at 00:00 UTC.
"""

from dataclasses import replace

import pytest

from fairnotice.engine import AZURE, DEV, Decision
from fairnotice.engine.answers import Forecast
from fairnotice.engine.commands import ReportReachable, StartRollout
from fairnotice.engine.specs import FleetSpec, NodeSpec, SetSpec, VmSpec
from fairnotice.model import Window
from fairnotice.words import OperationKind, RolloutStatus
from tests.engine.story import OPERATOR, Story

NODES = tuple(f"node-{n}" for n in range(6))


def dry_run(
    story: Story, *nodes: str, kind: OperationKind = OperationKind.HOST_UPDATE, **more: object
) -> Forecast:
    """What a rollout would do; nothing has changed by asking."""
    before = story.snapshot()
    decision = story.ask(
        StartRollout(id=story.new_id(), by=OPERATOR, nodes=nodes, kind=kind, dry_run=True, **more)
    )
    assert isinstance(decision, Decision)
    assert (decision.changes, decision.effects) == ((), ())
    assert story.snapshot() == before
    assert isinstance(decision.answer, Forecast)
    return decision.answer


def in_the_way(forecast: Forecast) -> dict[str, str]:
    """Why each node that cannot be taken at once cannot."""
    return {obstacle.node: obstacle.why for obstacle in forecast.in_the_way}


def test_rule_22_a_dry_run_shows_order_and_end_and_changes_nothing():
    """Node-0 at 00:00, over 9 s after 00:15; half an hour; node-1; the end at 01:00:18."""
    story = Story()
    forecast = dry_run(story, "node-0", "node-1")
    assert [node.node for node in forecast.order] == ["node-0", "node-1"]
    first, second = forecast.order
    assert (first.announced_at, first.over_at) == (story.at(), story.at(minutes=15, seconds=9))
    assert second.announced_at == story.at(minutes=45, seconds=9)
    assert forecast.ends_at == second.over_at == story.at(hours=1, seconds=18)


def test_rule_22_a_dry_run_in_the_dev_profile():
    """15 seconds of notice, 9 of pause, 5 of recovery, and again."""
    story = Story(timing=DEV)
    forecast = dry_run(story, "node-0", "node-1")
    assert forecast.ends_at == story.at(seconds=15 + 9 + 5 + 15 + 9)


def test_rule_22_a_dry_run_counts_no_notice_where_nobody_listens():
    """Disabled scopes are hit at once."""
    story = Story(listening=())
    assert dry_run(story, "node-5").ends_at == story.at(seconds=9)


def test_rule_22_a_dry_run_keeps_to_the_windows():
    """The second node waits for the window of the week after."""
    story = Story()
    forecast = dry_run(story, "node-0", "node-1", windows=(Window((3,), 120, 5),))
    first, second = forecast.order
    assert first.over_at == story.at(hours=2, seconds=9)
    assert second.over_at == story.at(days=7, hours=2, seconds=9)


def test_rule_22_a_dry_run_takes_several_nodes_at_once_where_it_may():
    """Node-0 and node-5 share no scope; node-1 has to wait for node-0."""
    story = Story()
    forecast = dry_run(story, "node-0", "node-1", "node-5", nodes_at_once_max=3)
    assert {node.node: node.announced_at for node in forecast.order} == {
        "node-0": story.at(),
        "node-5": story.at(),
        "node-1": story.at(minutes=45, seconds=9),
    }


def actual(story: Story, *nodes: str, **more: object) -> tuple[dict[str, object], object]:
    """Roll it out for real, every freeze over after 9 seconds: when each node came, and the end."""
    rollout = story.roll_out(*nodes, **more)
    announced = {}
    for _ in range(10_000):
        for node, status in story.statuses(rollout).items():
            if status != "pending":
                announced.setdefault(node, story.clock.wall())
        if story.rollout(rollout).status is RolloutStatus.COMPLETED:
            return announced, story.rollout(rollout).ended_at
        for key, impact in list(story.under_way.items()):
            if (story.clock.wall() - impact.begun_at).total_seconds() >= 9:
                story.report(key)
        story.advance(seconds=1)
    raise AssertionError(story.statuses(rollout))


@pytest.mark.parametrize("at_once", [1, 2, 6])
@pytest.mark.parametrize("listening", [(), ("availability-set:web", "vm:db")])
def test_rule_22_what_is_forecast_comes_true(at_once, listening):
    """Over the whole sample fleet: each node comes when it was foretold, to the second or two."""
    story = Story(timing=DEV, listening=listening)
    forecast = dry_run(story, *NODES, nodes_at_once_max=at_once)
    announced, ended_at = actual(story, *NODES, nodes_at_once_max=at_once)
    foretold = {node.node: node.announced_at for node in forecast.order}
    assert foretold.keys() == announced.keys()
    for node, instant in announced.items():
        assert abs((instant - foretold[node]).total_seconds()) <= 2 * len(NODES), node
    assert abs((ended_at - forecast.ends_at).total_seconds()) <= 2 * len(NODES)


def test_rule_22_a_dry_run_counts_the_recovery_that_is_under_way():
    """Node-1 was maintained a minute ago: node-0 comes in 29 minutes, not now."""
    story = Story()
    story.maintain("node-1")
    story.advance(minutes=15)
    story.done()
    story.advance(minutes=1)
    forecast = dry_run(story, "node-0")
    assert "recovers" in in_the_way(forecast)["node-0"]
    assert forecast.order[0].announced_at == story.at(minutes=45)
    assert forecast.ends_at == story.at(minutes=60, seconds=9)


# ---- Who is in the way ----


def test_rule_22_a_dry_run_names_who_is_in_the_way():
    """Somebody else's maintenance, a node out of reach, a node with an operation of its own."""
    story = Story()
    story.maintain("node-1")
    story.tell(ReportReachable(node="node-5", reachable=False))
    forecast = dry_run(story, "node-0", "node-5", "node-1", "node-3")
    obstacles = in_the_way(forecast)
    assert "node-1" in obstacles["node-0"]
    assert "cannot be reached" in obstacles["node-5"]
    assert "announced or under way" in obstacles["node-1"]
    assert "node-1" in obstacles["node-3"]


def test_rule_22_a_dry_run_names_the_vm_to_move():
    """A node with two update domains is not in the order, and the VM is named."""
    spec = FleetSpec(
        (NodeSpec("n-0"), NodeSpec("n-1")),
        (VmSpec("w-0", "n-0", "web"), VmSpec("w-1", "n-0", "web"), VmSpec("a", "n-1")),
        (SetSpec("web"),),
    )
    story = Story(spec)
    forecast = dry_run(story, "n-0", "n-1")
    assert [node.node for node in forecast.order] == ["n-1"]
    assert "redeploy w-1" in in_the_way(forecast)["n-0"]
    assert forecast.ends_at is not None


def test_rule_22_what_stands_in_the_way_of_one_node_is_gone_when_it_is_done_as_said():
    """The VM is redeployed, as the refusal says; then the node may be maintained."""
    spec = FleetSpec(
        (NodeSpec("n-0"), NodeSpec("n-1")),
        (VmSpec("w-0", "n-0", "web"), VmSpec("w-1", "n-0", "web")),
        (SetSpec("web"),),
    )
    story = Story(spec)
    maintain = story.node_command(OperationKind.HOST_UPDATE, "n-0")
    assert "Redeploy w-1 first" in story.refused(maintain).remedy
    story.redeploy("w-1")
    story.approve("w-1")
    story.done()
    assert story.fleet.vms["w-1"].node == "n-1"
    story.maintain("n-0")


def test_rule_22_a_dry_run_with_a_failed_node_past_the_budget_has_no_end():
    """It would pause itself; with a budget of 1 it would end."""
    story = Story()
    story.fail("node-5")
    story.done()
    story.advance(hours=1)
    forecast = dry_run(story, "node-5", "node-0")
    assert forecast.ends_at is None
    assert "failed" in in_the_way(forecast)["node-5"]
    forecast = dry_run(story, "node-5", "node-0", failure_budget=1)
    assert forecast.ends_at is not None
    assert [node.node for node in forecast.order] == ["node-0"]


def test_rule_22_a_dry_run_with_nothing_in_the_way_says_so():
    """No obstacle, no word; an empty node is over at once."""
    story = Story(FleetSpec((NodeSpec("n-0"),)))
    forecast = dry_run(story, "n-0", kind=OperationKind.HOST_REBOOT)
    assert forecast.in_the_way == ()
    assert forecast.ends_at == story.at()


@pytest.mark.parametrize(
    "kind",
    [
        OperationKind.HOST_REBOOT,
        OperationKind.REPAIR,
        OperationKind.MIGRATION,
        OperationKind.EVACUATION,
    ],
)
def test_rule_22_every_kind_can_be_forecast(kind):
    """What takes longer ends later than its notice, and within its time limit."""
    story = Story()
    ends_at = dry_run(story, "node-5", kind=kind).ends_at
    assert story.at(minutes=15) < ends_at <= story.at(minutes=45)


def test_rule_22_settling_is_part_of_the_forecast():
    """With five minutes to settle the end is five minutes later."""
    story = Story(timing=replace(AZURE, settle_seconds=300))
    assert dry_run(story, "node-5").ends_at == story.at(minutes=20, seconds=9)
