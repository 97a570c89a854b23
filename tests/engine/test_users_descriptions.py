"""What Azure's tools say of VMs and sets: rules 2, 14, 18 and 21, all of it or nothing."""

from dataclasses import replace

import pytest

from fairnotice.engine import Code
from fairnotice.engine import commands as ask
from fairnotice.engine.commands import Notice
from fairnotice.engine.describing import version
from fairnotice.engine.specs import FleetSpec, NodeSpec, ScaleSetSpec, SetSpec, VmSpec
from fairnotice.model import Kept
from fairnotice.words import EventType, Priority
from tests.engine.story import BATCH, DB, USER, WEB, Story, sample


def said(resource, kept='{"a":1}', **more):
    """A description."""
    return ask.Describe(resource=resource, kept=kept, **more)


@pytest.mark.parametrize("resource", [DB, WEB, "scale-set:batch"])
def test_what_means_nothing_is_kept_and_forgotten(resource):
    """The same text again is no change; nothing is kept of nothing."""
    story = Story()
    story.tell(said(resource))
    assert story.fleet.kept == {resource: Kept(resource, '{"a":1}')}
    assert not story.ask(said(resource)).changes
    story.tell(said(resource, "{}"))
    assert story.fleet.kept == {}
    assert not story.ask(said(resource, "{}")).changes


def test_rule_21_what_was_said_goes_with_what_it_was_said_of():
    """A VM, an availability set and a scale set that are removed; the next of the name is new."""
    story = Story()
    for resource in (DB, "vm:web-0", WEB, "scale-set:batch"):
        story.tell(said(resource))
    story.tell(ask.ApplyFleet(spec=sample()))
    assert len(story.fleet.kept) == 4
    story.tell(ask.ApplyFleet(spec=FleetSpec()))
    assert story.fleet.kept == {}


@pytest.mark.parametrize(
    "resource", ["vm:nobody", "scale-set:nobody", "availability-set:nobody", "node:node-0", "x"]
)
def test_of_what_is_not_there_nothing_is_said(resource):
    """Refused as not found."""
    story = Story()
    assert story.refused(said(resource)).code is Code.NOT_FOUND


def test_rule_18_a_policy_is_said_of_a_whole_set():
    """Of a standalone VM, an availability set, and all groups of a scale set."""
    groups = FleetSpec(
        nodes=(NodeSpec("n"),),
        scale_sets=(ScaleSetSpec("batch", placement_groups=2),),
        vms=(VmSpec("db", "n"),),
    )
    story = Story(spec=groups)
    policy = (EventType.REBOOT,)
    for resource in (DB, "scale-set:batch"):
        story.tell(said(resource, automatically_approve=policy))
    approved = {name: one.automatically_approve for name, one in story.fleet.scopes.items()}
    assert approved == {DB: policy, BATCH: policy, "scale-set:batch:1": policy}


def test_rule_18_a_vm_of_a_set_has_no_policy_of_its_own():
    """It is the set's, and the refusal says so; nothing is kept either."""
    story = Story()
    refusal = story.refused(said("vm:web-0", automatically_approve=(EventType.REBOOT,)))
    assert (refusal.rule, refusal.field) == (18, "automatically_approve")
    assert story.fleet.kept == {}


def test_rule_2_terminate_notice_is_said_with_the_rest():
    """From 5 to 15 minutes or none; where it does not fit, nothing of it is taken."""
    story = Story()
    story.tell(said("scale-set:batch", terminate_notice=Notice(10)))
    assert story.fleet.scale_sets["batch"].terminate_notice_minutes == 10
    story.refused(said("scale-set:batch", '{"b":2}', terminate_notice=Notice(20)))
    assert story.fleet.kept["scale-set:batch"].body == '{"a":1}'
    story.tell(said("scale-set:batch", terminate_notice=Notice(None)))
    assert story.fleet.scale_sets["batch"].terminate_notice_minutes is None


@pytest.mark.parametrize("resource", [DB, WEB, "scale-set:batch", "vm:web-0"])
def test_what_somebody_else_has_changed_is_not_overwritten(resource):
    """Whoever has read it says what he read."""
    story = Story()
    read = version(story.fleet, resource)
    assert version(story.fleet, resource) == read
    story.tell(said(resource, expected=read))
    refusal = story.refused(said(resource, '{"b":2}', expected=read))
    assert refusal.code is Code.CHANGED
    story.tell(said(resource, '{"b":2}', expected=version(story.fleet, resource)))


def test_the_version_changes_with_policy_and_notice_and_with_nothing_else():
    """An event of it is none of its description."""
    story = Story()
    seen = {version(story.fleet, "scale-set:batch")}
    story.tell(said("scale-set:batch", "{}", automatically_approve=(EventType.REBOOT,)))
    seen.add(version(story.fleet, "scale-set:batch"))
    story.tell(said("scale-set:batch", "{}", terminate_notice=Notice(9)))
    seen.add(version(story.fleet, "scale-set:batch"))
    assert len(seen) == 3
    story.listen(BATCH)
    assert version(story.fleet, "scale-set:batch") in seen


def test_the_version_changes_with_the_number_of_instances():
    """Which deletes some where it is said again: those that are about to go count no longer."""
    story = Story()
    four = version(story.fleet, "scale-set:batch")
    story.tell(ask.ScaleOut(scale_set="batch", addresses=("10.0.0.1",)))
    five = version(story.fleet, "scale-set:batch")
    story.delete("batch_0")
    assert four == version(story.fleet, "scale-set:batch") != five
    refusal = story.refused(said("scale-set:batch", "{}", expected=five))
    assert refusal.code is Code.CHANGED
    story.cancel(story.only(BATCH).id)
    assert five == version(story.fleet, "scale-set:batch")


def test_the_version_changes_with_the_tags_of_the_fleet_file():
    """A VM's own, wherever they were said."""
    story = Story()
    read = version(story.fleet, DB)
    vms = (
        one._replace(tags=(("owner", "bob"),)) if one.name == "db" else one for one in sample().vms
    )
    story.tell(ask.ApplyFleet(spec=sample()._replace(vms=tuple(vms))))
    assert story.refused(said(DB, "{}", expected=read)).code is Code.CHANGED


def test_what_somebody_else_has_changed_is_not_deleted():
    """By whoever says what he has read; who did not look deletes it as it is."""
    story = Story()
    read = version(story.fleet, DB)
    story.tell(said(DB))
    delete = {"id": "x", "by": USER, "vms": ("db",)}
    assert story.refused(ask.Delete(**delete, expected=read)).code is Code.CHANGED
    story.tell(ask.Delete(**delete, expected=version(story.fleet, DB)))


# ---- More instances ----


def test_rule_14_new_instances_are_placed_by_the_law():
    """Each with the next number, the next update domain, and the priority of its set."""
    story = Story()
    story.tell(ask.ScaleOut(scale_set="spot", addresses=("10.0.0.1", "10.0.0.2")))
    new = [story.fleet.vms[name] for name in ("spot_2", "spot_3")]
    assert [vm.addresses for vm in new] == [("10.0.0.1",), ("10.0.0.2",)]
    assert [vm.update_domain for vm in new] == [2, 3]
    assert all(vm.node and vm.running and vm.priority is Priority.SPOT for vm in new)


def test_a_new_instance_has_a_name_that_nobody_has():
    """Where somebody else is called like it, and where the names of a set have no numbers."""
    spec = FleetSpec(
        nodes=(NodeSpec("n"), NodeSpec("m")),
        scale_sets=(ScaleSetSpec("s", placement_groups=2),),
        availability_sets=(SetSpec("t"),),
        vms=(VmSpec("odd", "n", scale_set="s"), VmSpec("s_0", "n", availability_set="t")),
    )
    story = Story(spec=spec)
    story.tell(ask.ScaleOut(scale_set="s", addresses=("10.0.0.1",)))
    assert story.fleet.vms["s_1"].scope == "scale-set:s:1"


def test_rule_19_a_repeat_makes_no_more_instances():
    """Nor does it when none were to be made; whatever was done to the set since."""
    story = Story()
    for key, addresses in (("k", ("10.0.0.1",)), ("l", ())):
        command = ask.ScaleOut(scale_set="batch", addresses=addresses)
        keyed = ask.Keyed(id=key, by=USER, command=command, idempotency_key=key)
        story.tell(keyed)
        assert not story.ask(replace(keyed, id=f"{key}-again")).changes
    assert len(story.fleet.vms_in_scope[BATCH]) == 5


def test_new_instances_that_cannot_be():
    """No such set, an address that is taken, or no room: none of them is there."""
    story = Story()
    unknown = ask.ScaleOut(scale_set="nobody", addresses=("10.0.0.1",))
    assert story.refused(unknown).code is Code.NOT_FOUND
    twice = ask.ScaleOut(scale_set="batch", addresses=("10.0.0.1", "10.0.0.1"))
    assert story.refused(twice).code is Code.CONFLICT
    many = tuple(f"10.0.{number // 200}.{number % 200}" for number in range(400))
    assert story.refused(ask.ScaleOut(scale_set="batch", addresses=many)).code is Code.NO_ROOM
    assert len(story.fleet.vms) == len(sample().vms)
