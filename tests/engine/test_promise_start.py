"""Rule 5: when an operation is due, what it waits for, and who goes first."""

import pytest

from fairnotice.engine.commands import Approve, Postpone
from fairnotice.model import Window
from fairnotice.words import OperationKind
from tests.engine.story import BATCH, DB, OPERATOR, SHOP, WEB, Story

# Thursday 1 January 2026, when every story begins.
THURSDAY = 3


def busy(story: Story, vm: str) -> None:
    """This VM is under a reboot."""
    story.approve(vm, *story.restart_vm(vm).events)
    assert vm in story.fleet.impact_on_vm


def hit(story: Story) -> set[str]:
    """The VMs under impact."""
    return {impact.vm for impact in story.under_way.values()}


# ---- Due ----


def test_rule_05_due_when_every_event_is_approved():
    """The batch approves at 00:01, shop at 00:02, and node-3 starts at 00:02."""
    story = Story()
    story.maintain("node-3")
    story.advance(minutes=1)
    story.approve("batch_0")
    assert story.shows(BATCH) == (2, [("Freeze", "Scheduled")])
    story.advance(minutes=1)
    story.approve("FrontEnd_IN_1")
    assert story.only(BATCH).started_at == story.at(minutes=2)
    assert story.only(SHOP).started_at == story.at(minutes=2)


def test_rule_05_due_when_some_are_approved_and_the_others_past_not_before():
    """The batch approves, shop is silent: both start at shop's NotBefore."""
    story = Story()
    story.maintain("node-3")
    story.approve("batch_0")
    story.advance(minutes=14, seconds=59)
    assert story.only(BATCH).scheduled
    story.advance(seconds=1)
    assert story.only(BATCH).started_at == story.only(SHOP).started_at == story.at(minutes=15)


def test_rule_05_due_when_all_are_past_not_before():
    """Nobody says a word."""
    story = Story()
    story.maintain("node-3")
    story.advance(minutes=15)
    assert hit(story) == {"batch_2", "FrontEnd_IN_0", "BackEnd_IN_0"}


def test_rule_05_all_events_start_in_one_commit():
    """One decision starts the operation, both events and all three impacts."""
    story = Story()
    story.maintain("node-3")
    story.advance(minutes=15)
    changes = story.changes()
    assert changes.count("OperationStarted") == 1
    assert changes.count("EventStarted") == 2
    assert changes.count("ImpactBegun") == 3
    assert changes.count("DocumentChanged") == 2


# ---- Busy VMs ----


def test_rule_05_it_waits_for_an_impact_on_one_of_its_vms():
    """batch_2 reboots when node-3 is due: all wait, Scheduled, until it is over."""
    story = Story()
    story.maintain("node-3")
    story.advance(minutes=14)
    busy(story, "batch_2")
    story.advance(minutes=3)
    assert hit(story) == {"batch_2"}
    assert story.only(SHOP).scheduled
    assert story.only(SHOP).not_before == story.at(minutes=15)
    story.done("batch_2")
    assert story.only(SHOP).started_at == story.at(minutes=17)
    assert hit(story) == {"batch_2", "FrontEnd_IN_0", "BackEnd_IN_0"}


@pytest.mark.parametrize("end", ["failed", "timed out"])
def test_rule_05_however_the_other_impact_ends(end):
    """A reboot that fails, or passes its ten minutes, frees its VM too."""
    story = Story()
    second = story.restart_vm("db").events[0]
    busy(story, "db")
    story.approve("db", second)
    assert story.event(second).scheduled
    if end == "failed":
        story.failed("db")
    else:
        story.advance(minutes=10)
    assert not story.event(second).scheduled


def test_rule_05_an_approved_operation_waits_too():
    """The second restart of db is approved while the first is under way."""
    story = Story()
    busy(story, "db")
    second = story.restart_vm("db").events[0]
    story.approve("db", second)
    assert story.event(second).scheduled
    story.done("db")
    assert story.shows(DB)[1] == [("Reboot", "Started")]
    assert hit(story) == {"db"}


def test_rule_05_a_power_impact_is_an_impact_too():
    """node-3 is due while batch_2 is being stopped; then it goes on without batch_2."""
    story = Story()
    story.maintain("node-3")
    story.advance(minutes=14, seconds=30)
    story.stop("batch_2")
    story.advance(minutes=1)
    assert story.only(SHOP).scheduled
    story.done("batch_2")
    assert hit(story) == {"FrontEnd_IN_0", "BackEnd_IN_0"}
    assert story.events(BATCH) == ()


def test_rule_05_an_impact_elsewhere_holds_up_nobody():
    """web-0 reboots; db does not care."""
    story = Story()
    busy(story, "web-0")
    story.restart_vm("db")
    story.approve("db")
    assert hit(story) == {"web-0", "db"}


# ---- The queue ----


def test_rule_05_of_two_due_at_once_the_earlier_revision_goes_first():
    """Two restarts of db have the same NotBefore: first asked, first served."""
    story = Story()
    first = story.restart_vm("db").events[0]
    second = story.restart_vm("db").events[0]
    story.advance(minutes=15)
    assert (story.event(first).scheduled, story.event(second).scheduled) == (False, True)
    story.done("db")
    assert not story.event(second).scheduled


def test_rule_05_so_too_when_one_request_approves_the_later_one_first():
    """VM db lists its EventIds backwards; the order of the queue is not the client's."""
    story = Story()
    first = story.restart_vm("db").events[0]
    second = story.restart_vm("db").events[0]
    story.tell(Approve(events=(second, first), by=OPERATOR))
    assert (story.event(first).scheduled, story.event(second).scheduled) == (False, True)


def test_rule_05_the_earlier_due_time_goes_before_the_earlier_revision():
    """The second restart was approved at 00:05, the first is due at 00:15: second first."""
    story = Story()
    busy(story, "db")
    first = story.restart_vm("db").events[0]
    second = story.restart_vm("db").events[0]
    story.advance(minutes=5)
    story.approve("db", second)
    story.advance(minutes=1)
    story.approve("db", first)
    story.done("db")
    assert (story.event(first).scheduled, story.event(second).scheduled) == (True, False)
    story.done("db")
    assert not story.event(first).scheduled


def test_rule_05_a_late_approval_does_not_cost_the_place_in_the_queue():
    """Due at 00:15 by NotBefore, approved at 00:17: it is still before one approved at 00:16."""
    story = Story()
    first = story.restart_vm("db").events[0]
    story.advance(minutes=14)
    busy(story, "db")
    second = story.restart_vm("db").events[0]
    story.advance(minutes=2)
    story.approve("db", second)
    story.advance(minutes=1)
    story.approve("db", first)
    story.done("db")
    assert (story.event(first).scheduled, story.event(second).scheduled) == (False, True)


def test_rule_05_what_is_not_due_holds_back_nobody():
    """A restart asked for first, but not due yet, lets the approved second one pass."""
    story = Story()
    story.restart_vm("db")
    second = story.restart_vm("db").events[0]
    story.approve("db", second)
    assert not story.event(second).scheduled


def held_back(story: Story) -> tuple[str, str]:
    """node-3 is due and waits for batch_2; FrontEnd_IN_0's restart is due after it, and waits.

    The events of shop: that of node-3, that of the restart.
    """
    story.maintain("node-3")
    node = story.only(SHOP).id
    later = story.restart_vm("FrontEnd_IN_0").events[0]
    story.advance(minutes=14)
    busy(story, "batch_2")
    story.advance(minutes=1)
    assert hit(story) == {"batch_2"}
    assert story.event(node).scheduled
    assert story.event(later).scheduled
    return node, later


def test_rule_05_an_earlier_one_that_waits_holds_back_later_ones_on_the_same_vms():
    """FrontEnd_IN_0 is free, but node-3 was due first: its turn comes after node-3's."""
    story = Story()
    node, later = held_back(story)
    story.done("batch_2")
    assert not story.event(node).scheduled
    assert story.event(later).scheduled
    story.done("batch_2", "BackEnd_IN_0")
    assert story.event(later).scheduled
    story.done("FrontEnd_IN_0")
    assert not story.event(later).scheduled


def test_rule_05_an_approval_does_not_overtake_what_is_due_already():
    """node-3 is due at 00:15; an approval of 00:16 is later."""
    story = Story()
    _, later = held_back(story)
    story.advance(minutes=1)
    story.approve("FrontEnd_IN_1", later)
    assert story.event(later).scheduled


def test_rule_05_a_canceled_one_holds_back_nobody_any_more():
    """node-3 is taken back, and FrontEnd_IN_0's turn has come."""
    story = Story()
    node, later = held_back(story)
    story.cancel(node)
    assert story.event(later).started_at == story.at(minutes=15)


def test_rule_05_a_postponed_one_holds_back_nobody_any_more():
    """node-3 is postponed and so not due; FrontEnd_IN_0 is due, free, and starts."""
    story = Story()
    node, later = held_back(story)
    story.tell(Postpone(event=node, not_before=story.at(hours=2), by=OPERATOR))
    assert story.event(node).scheduled
    assert story.event(later).started_at == story.at(minutes=15)


def test_rule_05_one_that_has_somebody_new_to_wait_for_holds_back_nobody_any_more():
    """node-3 is approved and waits for batch_2; then shop listens, and has not approved it.

    FrontEnd_IN_0's own restart, unheard by anybody, was due after node-3: now it is first.
    """
    story = Story(listening=(BATCH,))
    story.maintain("node-3", not_before=story.at(hours=2))
    busy(story, "batch_2")
    story.approve("batch_2")
    story.advance(minutes=1)
    (later,) = story.restart_vm("FrontEnd_IN_0").operations
    assert hit(story) == {"batch_2"}
    story.listen(SHOP)
    assert story.only(SHOP).not_before == story.at(hours=2)
    assert story.operation(later).started_at == story.at(minutes=1)


def test_rule_05_one_whose_window_has_closed_holds_back_nobody_any_more():
    """node-3 waits for batch_2 until its window closes at 00:20: then FrontEnd_IN_0 may go."""
    story = Story()
    window = Window(weekdays=(THURSDAY,), start_minute=0, length_minutes=20)
    story.roll_out("node-3", windows=(window,))
    node = story.only(SHOP).id
    story.advance(seconds=30)
    later = story.restart_vm("FrontEnd_IN_0").events[0]
    story.advance_to(story.at(minutes=14))
    busy(story, "batch_2")
    story.advance_to(story.at(minutes=19))
    assert hit(story) == {"batch_2"}
    assert story.event(later).scheduled
    story.advance_to(story.at(minutes=21))
    assert story.event(node).scheduled
    assert not story.event(later).scheduled


def test_rule_05_the_queue_goes_on_through_others():
    """node-3 waits for batch_2, FrontEnd_IN_0's restart for node-3, its redeploy for both."""
    story = Story()
    node, restart = held_back(story)
    redeploy = story.redeploy("FrontEnd_IN_0").events[0]
    story.advance(minutes=1)
    story.approve("FrontEnd_IN_1", redeploy)
    started = []
    for _ in range(3):
        story.done()
        started.append([story.event(event).scheduled for event in (node, restart, redeploy)])
    assert started == [[False, True, True], [False, False, True], [False, False, False]]


def test_rule_05_a_vm_that_waits_in_no_other_queue_is_not_held_back():
    """FrontEnd_IN_1 is not on node-3, so node-3's waiting is nothing to it."""
    story = Story()
    held_back(story)
    other = story.restart_vm("FrontEnd_IN_1").events[0]
    story.approve("FrontEnd_IN_1", other)
    assert not story.event(other).scheduled


def test_rule_05_operations_without_an_event_queue_as_well():
    """Nobody listens: the restarts of db are due when asked for, and go one after another."""
    story = Story(listening=())
    first, second, third = (story.restart_vm("db").operations[0] for _ in range(3))
    assert [story.operation(o).pending for o in (first, second, third)] == [False, True, True]
    story.done()
    assert [story.operation(o).pending for o in (first, second, third)] == [False, False, True]


def test_rule_05_what_becomes_due_when_its_listeners_leave_is_due_from_then_on():
    """At 00:01 a restart of batch_2 is due; at 00:02 node-3 is, as shop's VMs there have stopped.

    batch_2 is busy until 00:03. Then the restart goes first: it was due first.
    """
    story = Story(listening=(SHOP,))
    (node,) = story.maintain("node-3").operations
    story.restart_vm("batch_2")
    story.advance(minutes=1)
    (restart,) = story.restart_vm("batch_2").operations
    story.advance(minutes=1)
    story.stop("FrontEnd_IN_0", "BackEnd_IN_0")
    story.done("FrontEnd_IN_0", "BackEnd_IN_0")
    story.advance(minutes=1)
    assert story.operation(node).pending
    assert story.operation(restart).pending
    story.done("batch_2")
    assert (story.operation(restart).pending, story.operation(node).pending) == (False, True)
    story.done("batch_2")
    assert not story.operation(node).pending


def test_rule_05_a_busy_vm_of_a_disabled_scope_holds_the_operation_too():
    """Only shop listens; batch_2 reboots unheard, and node-3 waits for it all the same."""
    story = Story(listening=(SHOP,))
    story.restart_vm("batch_2")
    story.maintain("node-3")
    story.approve("FrontEnd_IN_1")
    assert hit(story) == {"batch_2"}
    assert story.only(SHOP).scheduled
    story.done("batch_2")
    assert not story.only(SHOP).scheduled


def test_rule_05_two_nodes_of_one_set_do_not_wait_for_each_other_when_forced():
    """The queue is per VM: web-0's node and web-1's node have none in common."""
    story = Story()
    story.maintain("node-0")
    story.on_node(OperationKind.HOST_REBOOT, "node-1", force=True)
    story.advance(minutes=15)
    assert story.shows(WEB)[1] == [("Freeze", "Started"), ("Reboot", "Started")]
