"""A fleet loaded from its rows is the fleet that was saved: tables, indexes, documents."""

from datetime import timedelta

import pytest

from fairnotice.engine import Fleet, document
from fairnotice.engine.changes import Row
from fairnotice.engine.commands import ApplyFleet, Delete, Describe, JoinEndpoint, StartRollout
from fairnotice.engine.specs import FleetSpec
from fairnotice.engine.tables import INDEXES, TABLES
from fairnotice.words import OperationKind, Risk
from tests.engine.story import BATCH, OPERATOR, SPOT, USER, WEB, Story, sample

# Indexes whose order somebody can see: a document's, the terminate queue's.
ORDERED = ("events_in_scope", "terminates_in_set")


def rows_of(fleet: Fleet, *, backwards: bool = False) -> list[Row]:
    """What a store holds: every row as it is now. Scopes first, the rest as it comes."""
    rest = [row for table in TABLES if table != "scopes" for row in getattr(fleet, table).values()]
    rest.append(fleet.life)
    return [*fleet.scopes.values(), *(reversed(rest) if backwards else rest)]


def loaded(fleet: Fleet, *, backwards: bool = False) -> Fleet:
    """The fleet after it was stored and read again."""
    rows = rows_of(fleet, backwards=backwards)
    return Fleet.load(rows, fleet.timing, fleet.revision, fleet.recorded_at)


def assert_same(one: Fleet, other: Fleet) -> None:
    """Equal in all that the law reads; the order of an index only where it can be seen."""
    for table in TABLES:
        assert getattr(one, table) == getattr(other, table), table
    for index in INDEXES:
        assert members(one, index) == members(other, index), index
    assert set(one.open_nodes) == set(other.open_nodes)
    assert {name: list(nodes) for name, nodes in one.pending_nodes.items()} == {
        name: list(nodes) for name, nodes in other.pending_nodes.items()
    }
    assert (one.life, one.revision, one.recorded_at, one.timing) == (
        other.life,
        other.revision,
        other.recorded_at,
        other.timing,
    )
    for scope in one.scopes:
        assert document(one, scope) == document(other, scope)


def members(fleet: Fleet, index: str) -> dict[str, object]:
    """An index by value: sorted where nobody can see its order."""
    held = getattr(fleet, index)
    if index in ORDERED:
        return dict(held)
    return {
        key: sorted(value) if isinstance(value, tuple) else value for key, value in held.items()
    }


def a_busy_story() -> Story:
    """Something of everything: waiting, under way, moved, over, canceled, unconfirmed."""
    story = Story()
    story.tell(JoinEndpoint(node="node-1"))
    story.tell(Delete(id="delete-1", by=USER, vms=("batch_1",), idempotency_key="once"))
    story.delete("batch_2", "batch_3")
    story.redeploy("db")
    story.approve("db")
    story.done("db")
    story.restart_vm("web-2")
    story.approve("web-2")
    story.cancel(story.restart_vm("web-1").operations[0])
    story.predict("node-2", risk=Risk.LOW)
    story.redeploy("web-0")
    story.approve("web-0", story.events(WEB)[-1].id)
    story.evict("spot_1")
    story.tell(Describe(resource="vm:db", kept='{"a":1}'))
    story.tell(
        StartRollout(
            id="rollout",
            by=OPERATOR,
            nodes=("node-5", "node-3", "node-4", "node-0"),
            kind=OperationKind.HOST_UPDATE,
            idempotency_key="rolled",
        )
    )
    story.advance(seconds=20)
    story.restart(takeover=True)
    return story


def test_a_fleet_loaded_from_its_rows_is_the_one_that_was_saved():
    """In the middle of everything, all tables and indexes come back."""
    story = a_busy_story()
    assert all(getattr(story.fleet, name) for name in (*TABLES, *INDEXES)), "the story is dull"
    assert_same(story.fleet, loaded(story.fleet))


@pytest.mark.parametrize("minutes", [1, 10, 16, 40, 60 * 25])
def test_a_fleet_loaded_later_in_its_story_is_still_the_same(minutes):
    """Impacts end, time passes, things are forgotten: it is the same at every stop."""
    story = a_busy_story()
    story.done()
    story.advance(minutes=minutes)
    assert_same(story.fleet, loaded(story.fleet))


def test_a_loaded_fleet_decides_as_the_saved_one_would():
    """It goes on where the other stood: the same events start at the same time."""
    story = Story()
    story.restart_vm("web-0")
    story.maintain("node-3")
    story.fleet = loaded(story.fleet)
    story.advance(minutes=15)
    assert story.shows(WEB) == (3, [("Reboot", "Started")])
    assert story.shows(BATCH) == (3, [("Freeze", "Started")])


def test_rule_07_a_loaded_fleet_shows_the_same_documents_in_whatever_order_rows_come():
    """Same number, same content: five events keep their order when rows are read backwards."""
    story = Story()
    for vm in ("web-2", "web-0", "web-1", "web-0", "web-2"):
        story.restart_vm(vm)
    again = loaded(story.fleet, backwards=True)
    assert document(again, WEB) == story.document(WEB)


def test_rule_22_a_loaded_rollout_keeps_its_order_in_whatever_order_rows_come():
    """Its nodes come in the order they were named, not in the order they were read."""
    story = Story()
    rollout = story.roll_out("node-4", "node-0", "node-2", "node-1")
    again = loaded(story.fleet, backwards=True)
    assert list(again.pending_nodes[rollout]) == ["node-0", "node-2", "node-1"]


def test_a_fleet_loads_although_the_scale_set_of_a_terminate_is_gone():
    """The set went the way of its last VM; its Terminate is known for a day, through a restart."""
    story = Story()
    story.delete("batch_0", "batch_1", "batch_2", "batch_3")
    story.approve("batch_0")
    story.done()
    spec = sample()
    spec = FleetSpec(
        spec.nodes,
        tuple(vm for vm in spec.vms if vm.scale_set != "batch"),
        spec.availability_sets,
        spec.scale_sets[1:],
        spec.cloud_services,
    )
    story.tell(ApplyFleet(spec=spec))
    assert BATCH not in story.fleet.scopes
    assert_same(story.fleet, loaded(story.fleet))


def test_an_empty_fleet_loads():
    """A store with nothing in it is a fleet with nothing in it."""
    again = loaded(Fleet())
    assert_same(again, Fleet())
    assert again.recorded_at is None


def test_rule_26_the_last_record_is_known_after_a_load():
    """When the last change was made comes back with the rows."""
    story = Story()
    story.advance(minutes=5)
    story.evict("spot_0")
    again = loaded(story.fleet)
    assert again.recorded_at == story.began + timedelta(minutes=5)
    assert document(again, SPOT).events == story.events(SPOT)
