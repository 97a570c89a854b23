"""Every specification that is no fleet is refused whole, before it is compared with the fleet."""

import pytest

from fairnotice.engine.commands import ApplyFleet, SetPolicy, SetTerminateNotice
from fairnotice.engine.refusal import Code, Refusal
from fairnotice.engine.specs import FleetSpec, NodeSpec, ScaleSetSpec, SetSpec, VmSpec
from fairnotice.words import EventType, Network, Power, Priority, ScopeKind
from tests.engine.story import BATCH, DB, WEB, Story, sample

NODES = (NodeSpec("n-0"), NodeSpec("n-1"))
LONG = "x" * 201

# What is wrong: a specification, and a word of the reason.
BAD = {
    "node without a name": (FleetSpec((NodeSpec(""),)), "no name for a node"),
    "node with a slash": (FleetSpec((NodeSpec("a/b"),)), "no name for a node"),
    "node with a line break": (FleetSpec((NodeSpec("a\nb"),)), "no name for a node"),
    "node with a long name": (FleetSpec((NodeSpec(LONG),)), "no name for a node"),
    "two nodes of one name": (FleetSpec((NodeSpec("n"), NodeSpec("n"))), "two nodes n"),
    "set without a name": (
        FleetSpec(availability_sets=(SetSpec(""),)),
        "availability set",
    ),
    "two sets of one name": (
        FleetSpec(availability_sets=(SetSpec("web"), SetSpec("web"))),
        "two availability sets web",
    ),
    "two scale sets of one name": (
        FleetSpec(scale_sets=(ScaleSetSpec("s"), ScaleSetSpec("s"))),
        "two scale sets s",
    ),
    "scale set with a slash": (FleetSpec(scale_sets=(ScaleSetSpec("/"),)), "for a scale set"),
    "two cloud services of one name": (
        FleetSpec(cloud_services=(SetSpec("c"), SetSpec("c"))),
        "two cloud services c",
    ),
    "cloud service with a tab": (FleetSpec(cloud_services=(SetSpec("\t"),)), "for a cloud service"),
    "VM without a name": (FleetSpec(NODES, (VmSpec("", "n-0"),)), "no name for a VM"),
    "VM with a slash": (FleetSpec(NODES, (VmSpec("a/b", "n-0"),)), "no name for a VM"),
    "two VMs of one name": (
        FleetSpec(NODES, (VmSpec("a", "n-0"), VmSpec("a", "n-1"))),
        "two VMs a",
    ),
    "node without room": (FleetSpec((NodeSpec("n", 0, 0),)), "room for at least one"),
    "node with less than no room": (FleetSpec((NodeSpec("n", 0, -1),)), "room for at least one"),
    "scale set without a placement group": (
        FleetSpec(scale_sets=(ScaleSetSpec("s", placement_groups=0),)),
        "needs a placement group",
    ),
    "VM on an unknown node": (FleetSpec(NODES, (VmSpec("a", "n-9"),)), "n-9, which is no node"),
    "VM in two sets": (
        FleetSpec(
            NODES,
            (VmSpec("a", "n-0", "web", cloud_service="shop"),),
            (SetSpec("web"),),
            cloud_services=(SetSpec("shop"),),
        ),
        "availability_set and cloud_service",
    ),
    "VM in an unknown availability set": (
        FleetSpec(NODES, (VmSpec("a", "n-0", availability_set="web"),)),
        "unknown availability_set",
    ),
    "VM in an unknown scale set": (
        FleetSpec(NODES, (VmSpec("a", "n-0", scale_set="s"),)),
        "unknown scale_set",
    ),
    "VM in an unknown cloud service": (
        FleetSpec(NODES, (VmSpec("a", "n-0", cloud_service="c"),)),
        "unknown cloud_service",
    ),
    "VM in a placement group too far": (
        FleetSpec(
            NODES,
            (VmSpec("a", "n-0", scale_set="s", placement_group=2),),
            scale_sets=(ScaleSetSpec("s", placement_groups=2),),
        ),
        "no placement group 2",
    ),
    "VM in placement group -1": (
        FleetSpec(
            NODES,
            (VmSpec("a", "n-0", scale_set="s", placement_group=-1),),
            scale_sets=(ScaleSetSpec("s"),),
        ),
        "no placement group -1",
    ),
    "placement group without a scale set": (
        FleetSpec(NODES, (VmSpec("a", "n-0", placement_group=1),)),
        "no placement group 1",
    ),
    "standalone VM with an update domain": (
        FleetSpec(NODES, (VmSpec("a", "n-0", update_domain=0),)),
        "standalone",
    ),
    "update domain -1": (
        FleetSpec(NODES, (VmSpec("a", "n-0", "web", update_domain=-1),), (SetSpec("web"),)),
        "update domain -1",
    ),
    "two VMs of one address": (
        FleetSpec(
            NODES,
            (
                VmSpec("a", "n-0", addresses=("10.0.0.4",)),
                VmSpec("b", "n-1", addresses=("10.0.0.5", "10.0.0.4"), network=Network.CLASSIC),
            ),
        ),
        "a and b have the same address 10.0.0.4",
    ),
    "VM with an address twice": (
        FleetSpec(NODES, (VmSpec("a", "n-0", addresses=("10.0.0.4", "10.0.0.4")),)),
        "a has the address 10.0.0.4 twice",
    ),
}


def refused(story: Story, spec: FleetSpec) -> Refusal:
    """The specification is refused, and nothing has changed."""
    return story.refused(ApplyFleet(spec=spec))


@pytest.mark.parametrize("name", BAD)
def test_rule_21_a_bad_specification_is_refused_whole(name):
    """Nothing of it is applied, and the reason names what is wrong."""
    spec, why = BAD[name]
    refusal = refused(Story(), spec)
    assert (refusal.code, refusal.rule) == (Code.INVALID, 21)
    assert why in refusal.why


@pytest.mark.parametrize("minutes", [-5, 0, 4, 16, 60])
def test_rule_02_terminate_notice_outside_5_to_15_minutes_is_no_specification(minutes):
    """4 and 16 minutes are refused, in a file as in the command."""
    story = Story()
    spec = FleetSpec(scale_sets=(ScaleSetSpec("s", terminate_notice_minutes=minutes),))
    for command in (
        ApplyFleet(spec=spec),
        SetTerminateNotice(scale_set="batch", minutes=minutes),
    ):
        refusal = story.refused(command)
        assert (refusal.code, refusal.rule) == (Code.INVALID, 2)
        assert "5 to 15 minutes" in refusal.remedy


@pytest.mark.parametrize("minutes", [5, 15, None])
def test_rule_02_terminate_notice_from_5_to_15_minutes_is_taken(minutes):
    """The limits themselves, and none at all."""
    story = Story()
    story.tell(SetTerminateNotice(scale_set="batch", minutes=7))
    story.tell(SetTerminateNotice(scale_set="batch", minutes=minutes))
    assert story.fleet.scale_sets["batch"].terminate_notice_minutes == minutes
    story.unchanged(SetTerminateNotice(scale_set="batch", minutes=minutes))


def test_rule_02_terminate_notice_of_an_unknown_scale_set_is_refused():
    """The name is told."""
    refusal = Story().refused(SetTerminateNotice(scale_set="nobody", minutes=5))
    assert refusal.code is Code.NOT_FOUND
    assert "nobody" in refusal.why


AUTOMATIC = [
    FleetSpec(availability_sets=(SetSpec("a", automatically_approve=(EventType.FREEZE,)),)),
    FleetSpec(cloud_services=(SetSpec("c", automatically_approve=(EventType.PREEMPT,)),)),
    FleetSpec(scale_sets=(ScaleSetSpec("s", automatically_approve=(EventType.TERMINATE,)),)),
    FleetSpec(NODES, (VmSpec("v", "n-0", automatically_approve=(EventType.FREEZE,)),)),
]


@pytest.mark.parametrize("spec", AUTOMATIC)
def test_rule_18_only_reboot_and_redeploy_can_be_approved_by_policy(spec):
    """Freeze, Preempt and Terminate are no policy for any kind of scope."""
    refusal = refused(Story(), spec)
    assert (refusal.code, refusal.rule) == (Code.INVALID, 18)


def test_rule_18_a_policy_is_set_for_a_scope_that_is_there():
    """Set once; set again it changes nothing; an unknown scope and a Freeze are refused."""
    story = Story()
    both = (EventType.REBOOT, EventType.REDEPLOY)
    story.tell(SetPolicy(scope=DB, automatically_approve=both))
    assert story.scope(DB).automatically_approve == both
    story.unchanged(SetPolicy(scope=DB, automatically_approve=both))
    refusal = story.refused(SetPolicy(scope="vm:nobody", automatically_approve=()))
    assert refusal.code is Code.NOT_FOUND
    freeze = SetPolicy(scope=DB, automatically_approve=(EventType.FREEZE,))
    assert story.refused(freeze).rule == 18


def test_rule_18_a_policy_set_for_one_placement_group_is_that_of_the_scale_set():
    """A scale set has one policy, as a file says it: both groups have it, its neighbour not."""
    sets = (ScaleSetSpec("s", placement_groups=2), ScaleSetSpec("t"))
    story = Story(FleetSpec(NODES, scale_sets=sets))
    story.tell(SetPolicy(scope="scale-set:s:1", automatically_approve=(EventType.REBOOT,)))
    policies = {name: scope.automatically_approve for name, scope in story.fleet.scopes.items()}
    assert policies == {
        "scale-set:s:0": (EventType.REBOOT,),
        "scale-set:s:1": (EventType.REBOOT,),
        "scale-set:t:0": (),
    }


# ---- What a good specification makes ----


def test_rule_21_two_vms_may_exchange_their_addresses_and_many_may_have_none():
    """What counts is the file as a whole, not what another VM had before."""

    def spec(a: str, b: str) -> FleetSpec:
        vms = (VmSpec("a", "n-0", addresses=(a,)), VmSpec("b", "n-0", addresses=(b,)))
        return FleetSpec(NODES, (*vms, VmSpec("c", "n-0"), VmSpec("d", "n-0")))

    story = Story(spec("10.0.0.4", "10.0.0.5"))
    story.tell(ApplyFleet(spec=spec("10.0.0.5", "10.0.0.4")))
    assert story.vm("a").addresses == ("10.0.0.5",)
    assert story.vm("b").addresses == ("10.0.0.4",)


def test_rule_21_the_same_file_again_changes_nothing():
    """Applied twice, the second time there is nothing to do."""
    Story().unchanged(ApplyFleet(spec=sample()))


def test_rule_21_a_fleet_is_removed_and_comes_back():
    """An empty file removes all that nothing keeps; the first file makes it anew."""
    story = Story()
    story.tell(ApplyFleet(spec=FleetSpec()))
    for table in ("nodes", "vms", "scopes", "scale_sets", "vms_on_node", "vms_in_scope"):
        assert getattr(story.fleet, table) == {}, table
    assert story.fleet.open_nodes == {}
    story.tell(ApplyFleet(spec=sample()))
    assert story.vm("web-2").update_domain == 2


def test_rule_04_a_vm_in_a_zone_is_standalone_unless_it_is_in_a_set():
    """A zone makes no scope; a set does."""
    vms = (VmSpec("a", "n-0", zone="1"), VmSpec("b", "n-1", "web", zone="1"))
    story = Story(FleetSpec(NODES, vms, (SetSpec("web"),)))
    assert story.scope(story.vm("a").scope).kind is ScopeKind.STANDALONE
    assert story.vm("a").update_domain is None
    assert story.vm("b").scope == WEB


def test_rule_04_an_update_domain_is_the_position_modulo_five_and_is_kept():
    """The sixth of a set is in domain 0; it stays there when the file is reordered."""
    nodes = tuple(NodeSpec(f"n-{n}") for n in range(6))
    vms = tuple(VmSpec(f"w-{n}", f"n-{n}", "web") for n in range(6))
    story = Story(FleetSpec(nodes, vms, (SetSpec("web"),)))
    domains = {f"w-{n}": n % 5 for n in range(6)}
    assert {vm.name: vm.update_domain for vm in story.fleet.vms.values()} == domains
    story.unchanged(ApplyFleet(spec=FleetSpec(nodes, vms[::-1], (SetSpec("web"),))))


def test_rule_04_a_vm_that_changes_its_set_gets_its_position_there():
    """web-2 joins the shop as its fourth VM: update domain 3, and it sees that scope only."""
    story = Story()
    spec = sample()
    moved = VmSpec("web-2", "node-2", cloud_service="shop")
    rest = tuple(vm for vm in spec.vms if vm.name != "web-2")
    story.tell(ApplyFleet(spec=spec._replace(vms=(*rest, moved))))
    assert story.vm("web-2").scope == "cloud-service:shop"
    assert story.vm("web-2").update_domain == 3


def test_rule_21_a_standalone_vm_that_joins_a_set_takes_its_old_scope_away():
    """The VM db joins web: vm:db is gone, and comes back when db leaves the set."""
    story = Story()
    spec = sample()
    vms = (*spec.vms[:-1], spec.vms[-1]._replace(availability_set="web"))
    story.tell(ApplyFleet(spec=spec._replace(vms=vms)))
    assert DB not in story.fleet.scopes
    assert story.vm("db").update_domain == 3
    story.tell(ApplyFleet(spec=spec))
    assert story.vm("db").scope == DB
    assert story.vm("db").update_domain is None
    assert not story.scope(DB).enabled


def test_rule_21_a_scale_set_gives_its_instances_their_priority_unless_they_say():
    """spot_0 is Spot by its set, an instance that says Regular is Regular."""
    spec = FleetSpec(
        NODES,
        (
            VmSpec("s-0", "n-0", scale_set="s"),
            VmSpec("s-1", "n-1", scale_set="s", priority=Priority.REGULAR),
        ),
        scale_sets=(ScaleSetSpec("s", priority=Priority.SPOT, placement_groups=2),),
    )
    story = Story(spec)
    assert story.vm("s-0").priority is Priority.SPOT
    assert story.vm("s-1").priority is Priority.REGULAR
    assert {"scale-set:s:0", "scale-set:s:1"} <= set(story.fleet.scopes)


def test_rule_21_a_placement_group_goes_when_the_scale_set_shrinks():
    """Two groups, then one: the second scope is gone, the first stays."""
    story = Story(FleetSpec(NODES, scale_sets=(ScaleSetSpec("s", placement_groups=2),)))
    story.tell(ApplyFleet(spec=FleetSpec(NODES, scale_sets=(ScaleSetSpec("s"),))))
    assert list(story.fleet.scopes) == ["scale-set:s:0"]


def test_rule_14_a_new_vm_without_a_node_is_placed():
    """It is put where rule 14 allows: not on the cordoned, not beside another update domain."""
    vms = (VmSpec("w-0", "n-0", "web"), VmSpec("w-1", None, "web"))
    story = Story(FleetSpec(NODES, vms, (SetSpec("web"),)))
    assert story.vm("w-1").node == "n-1"


def test_rule_14_a_new_vm_without_any_place_is_refused():
    """Two update domains and one node: the file names no place, and there is none."""
    vms = (VmSpec("w-0", "n-0", "web"), VmSpec("w-1", None, "web"))
    spec = FleetSpec(NODES[:1], vms, (SetSpec("web"),))
    refusal = refused(Story(FleetSpec(NODES[:1])), spec)
    assert (refusal.code, refusal.rule) == (Code.NO_ROOM, 14)
    assert "w-1" in refusal.why


def test_rule_14_a_file_with_more_vms_than_slots_is_refused():
    """Two VMs do not fit into one slot; nor does a node shrink below what is on it."""
    small = (NodeSpec("n-0", 0, 1),)
    two = (VmSpec("a", "n-0"), VmSpec("b", "n-0"))
    refusal = refused(Story(FleetSpec(small)), FleetSpec(small, two))
    assert (refusal.code, refusal.rule) == (Code.NO_ROOM, 14)
    assert "1 slots and 2 VMs" in refusal.why
    assert refused(Story(FleetSpec(NODES, two)), FleetSpec(small, two)).code is Code.NO_ROOM


def test_rule_20_a_deallocated_vm_stays_without_a_node():
    """The file still names the node where it was; that does not put it back."""
    story = Story()
    story.deallocate("db")
    story.done()
    story.unchanged(ApplyFleet(spec=sample()))
    assert (story.vm("db").node, story.vm("db").power) == (None, Power.DEALLOCATED)


def test_rule_21_a_vm_whose_file_names_no_node_stays_where_it_is():
    """Left out, the node is kept."""
    story = Story()
    vms = tuple(vm._replace(node=None) for vm in sample().vms)
    story.unchanged(ApplyFleet(spec=sample()._replace(vms=vms)))
    assert story.vm("db").node == "node-1"


def test_rule_21_resource_group_and_policy_of_a_set_can_change():
    """A set is described anew; who listens there is not forgotten."""
    story = Story()
    sets = (SetSpec("web", "other", (EventType.REBOOT,)),)
    story.tell(ApplyFleet(spec=sample()._replace(availability_sets=sets)))
    scope = story.scope(WEB)
    assert (scope.resource_group, scope.automatically_approve) == ("other", (EventType.REBOOT,))
    assert scope.enabled
    assert not story.scope(BATCH).automatically_approve
