"""Fleet files: read, refused with the place named, written, and compared with the fleet."""

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairnotice.control.fleet_body import NodeBody, ScaleSetBody, SetBody, VmBody
from fairnotice.control.fleet_differences import Added, Changed, FieldChange, Removed
from fairnotice.control.fleet_files import (
    Difference,
    FleetBody,
    difference,
    exported,
    read_toml,
    sample_fleet,
    specification,
    to_toml,
)
from fairnotice.engine import Decision
from fairnotice.engine.commands import ApplyFleet, SetPolicy
from fairnotice.engine.specs import FleetSpec, NodeSpec, ScaleSetSpec, SetSpec, VmSpec
from fairnotice.errors import UsageError
from fairnotice.testing.random_fleet import POLICIES, random_fleet
from fairnotice.testing.simulator import Simulation
from fairnotice.testing.stage import Stage
from fairnotice.words import EventType, EvictionPolicy, Network, Power, Priority
from tests.engine.story import Story
from tests.engine.story import sample as story_sample

SEEDS = range(40)


def staged(spec: FleetSpec) -> Stage:
    """A stage with this fleet on it."""
    stage = Stage()
    stage.tell(ApplyFleet(spec=spec))
    return stage


def returned(stage: Stage) -> FleetSpec:
    """The fleet of the stage after a way through a file."""
    return specification(read_toml(to_toml(exported(stage.fleet)), "fleet.toml"))


def nothing_to_do(stage: Stage, spec: FleetSpec) -> None:
    """The file finds the fleet as it says: no difference, and no change when it is applied."""
    assert difference(stage.fleet, spec) == Difference([], [], [], [])
    decision = stage.ask(ApplyFleet(spec=spec))
    assert isinstance(decision, Decision), decision
    assert decision.changes == ()


# ---- The sample fleet ----


def test_the_sample_fleet_is_the_one_that_people_rely_on():
    """Names, nodes, domains and addresses as promised."""
    fleet = staged(specification(sample_fleet())).fleet
    nodes = {node.name: (node.fault_domain, node.capacity) for node in fleet.nodes.values()}
    assert nodes == {f"node-{n}": (n % 3, 16) for n in range(6)}
    vms = fleet.vms.values()
    assert [(vm.name, vm.scope, vm.node, vm.update_domain) for vm in vms] == [
        ("web-0", "availability-set:web", "node-0", 0),
        ("web-1", "availability-set:web", "node-1", 1),
        ("web-2", "availability-set:web", "node-2", 2),
        ("batch_0", "scale-set:batch:0", "node-0", 0),
        ("batch_1", "scale-set:batch:0", "node-1", 1),
        ("batch_2", "scale-set:batch:0", "node-3", 2),
        ("batch_3", "scale-set:batch:0", "node-4", 3),
        ("spot_0", "scale-set:spot:0", "node-2", 0),
        ("spot_1", "scale-set:spot:0", "node-5", 1),
        ("FrontEnd_IN_0", "cloud-service:shop", "node-3", 0),
        ("BackEnd_IN_0", "cloud-service:shop", "node-3", 0),
        ("FrontEnd_IN_1", "cloud-service:shop", "node-4", 1),
        ("db", "vm:db", "node-1", None),
    ]
    assert [vm.addresses for vm in vms] == [(f"127.69.0.{10 + n}",) for n in range(13)]
    spot = {vm.name for vm in vms if vm.priority is Priority.SPOT}
    assert spot == {"spot_0", "spot_1"}
    rows = [*vms, *fleet.scopes.values(), *fleet.scale_sets.values()]
    assert {row.resource_group for row in rows} == {"sample"}
    notices = {one.name: one.terminate_notice_minutes for one in fleet.scale_sets.values()}
    assert notices == {"batch": 5, "spot": None}


# ---- There and back ----


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fleet_that_is_exported_and_applied_again_does_not_change(seed):
    """Whatever was declared, the file of it says the same."""
    spec = decorated(random_fleet(Random(seed)), Random(seed))
    stage = staged(spec)
    nothing_to_do(stage, spec)
    nothing_to_do(stage, returned(stage))


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_a_fleet_in_the_midst_of_its_life_is_exported_as_it_is(seed, monkeypatch):
    """VMs moved, stopped, deallocated and deleted, policies set, events live: no change."""
    monkeypatch.setattr(Simulation, "_bring_to_end", lambda self: None)
    simulation = Simulation(seed, steps=150)
    simulation.run()
    nothing_to_do(simulation.stage, returned(simulation.stage))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fleet_from_its_file_is_the_same_fleet_anew(seed):
    """Applied to an empty fleet, the exported file makes the same rows."""
    first = staged(decorated(random_fleet(Random(seed)), Random(seed)))
    second = staged(returned(first))
    assert first.fleet.vms == second.fleet.vms
    assert first.fleet.nodes == second.fleet.nodes
    assert first.fleet.scale_sets == second.fleet.scale_sets
    assert exported(first.fleet) == exported(second.fleet)


def decorated(spec: FleetSpec, chance: Random) -> FleetSpec:
    """The same fleet with all that random_fleet leaves out."""
    vms = []
    for vm in spec.vms:
        says_priority = vm.scale_set is None or chance.random() < 0.3
        priority = chance.choice(tuple(Priority)) if says_priority else None
        tags = tuple((f"key {n}", chance.choice(('a "b"', "ü", ""))) for n in range(2))
        vms.append(
            vm._replace(
                priority=priority,
                update_domain=None if chance.random() < 0.1 else vm.update_domain,
                network=chance.choice(tuple(Network)),
                zone=chance.choice((None, "1")),
                resource_group=chance.choice(("default", "other")),
                tags=chance.choice(((), tags)),
            )
        )
    group = chance.choice(("default", "sample"))
    return spec._replace(
        vms=tuple(vms),
        availability_sets=tuple(one._replace(resource_group=group) for one in spec[2]),
        scale_sets=tuple(one._replace(resource_group=group) for one in spec[3]),
    )


def test_a_policy_of_one_placement_group_survives_the_file():
    """It is the scale set's, so the file can say it."""
    stage = staged(FleetSpec(scale_sets=(ScaleSetSpec("s", placement_groups=3),)))
    stage.tell(SetPolicy(scope="scale-set:s:2", automatically_approve=(EventType.REDEPLOY,)))
    nothing_to_do(stage, returned(stage))


def test_a_deallocated_vm_is_exported_without_a_node():
    """It has none; applied again it stays deallocated."""
    story = Story()
    story.deallocate("db")
    story.done()
    (db,) = (vm for vm in exported(story.fleet).vm if vm.name == "db")
    assert db.node is None
    nothing_to_do(story, returned(story))
    assert story.vm("db").power is Power.DEALLOCATED


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
POLICY = st.lists(st.sampled_from(EventType), max_size=2)
NUMBER = st.integers(0, 1_000_000)
SETS = st.lists(st.builds(SetBody, TEXT, TEXT, POLICY), max_size=2)
BODIES = st.builds(
    FleetBody,
    node=st.lists(st.builds(NodeBody, TEXT, NUMBER, st.integers(1, 99)), max_size=2),
    availability_set=SETS,
    scale_set=st.lists(
        st.builds(
            ScaleSetBody,
            TEXT,
            st.sampled_from(Priority),
            st.none() | NUMBER,
            st.integers(1, 9),
            TEXT,
            POLICY,
        ),
        max_size=2,
    ),
    cloud_service=SETS,
    vm=st.lists(
        # A VM of its own has a policy; one of a set has not.
        st.builds(VmBody, TEXT, automatically_approve=POLICY)
        | st.builds(
            VmBody,
            name=TEXT,
            node=st.none() | TEXT,
            availability_set=st.none() | TEXT,
            scale_set=st.none() | TEXT,
            cloud_service=st.none() | TEXT,
            placement_group=NUMBER,
            update_domain=st.none() | NUMBER,
            address=st.none() | TEXT,
            addresses=st.lists(TEXT, max_size=2),
            network=st.sampled_from(Network),
            zone=st.none() | TEXT,
            priority=st.none() | st.sampled_from(Priority),
            eviction_policy=st.sampled_from(EvictionPolicy),
            resource_group=TEXT,
            tags=st.dictionaries(TEXT, TEXT, max_size=3),
        ),
        max_size=3,
    ),
)


@settings(deadline=None)
@given(BODIES)
def test_what_is_written_is_read_as_it_was(body):
    """Quotes, backslashes, control characters, empty strings: in TOML and in JSON."""
    assert read_toml(to_toml(body), "fleet.toml") == body
    assert msgspec.json.decode(msgspec.json.encode(body), type=FleetBody) == body


def test_a_file_is_written_without_what_is_left_to_its_default():
    """A person reads what was decided, and nothing else."""
    body = FleetBody(
        node=[NodeBody("n-0"), NodeBody("n-1", 1)],
        vm=[VmBody("a", "n-0", addresses=["10.0.0.4"], tags={"team": "shop", "a b": 'c"d'})],
    )
    assert to_toml(body) == (
        '[[node]]\nname = "n-0"\n\n'
        '[[node]]\nname = "n-1"\nfault_domain = 1\n\n'
        '[[vm]]\nname = "a"\nnode = "n-0"\naddresses = ["10.0.0.4"]\n'
        'tags = { team = "shop", "a b" = "c\\"d" }\n'
    )
    assert to_toml(FleetBody()) == "vm = []\n"


# ---- What is read ----


def test_every_key_of_a_file_is_read():
    """The example of the reference, with all its keys, says the same to the law."""
    text = """
        [[node]]
        name = "node-0"
        fault_domain = 0
        capacity = 16                  # VM slots
        [[availability_set]]
        name = "web"
        resource_group = "sample"
        automatically_approve = ["Reboot", "Redeploy"]
        [[scale_set]]
        name = "batch"
        priority = "Regular"
        terminate_notice_minutes = 5
        placement_groups = 1
        [[cloud_service]]
        name = "shop"
        [[vm]]
        name = "web-0"
        node = "node-0"
        availability_set = "web"
        update_domain = 0
        placement_group = 0
        address = "127.69.0.10"
        addresses = ["fd00::4"]
        network = "classic"
        zone = "1"
        priority = "Spot"
        eviction_policy = "Delete"
        tags = { team = "shop" }
    """
    assert specification(read_toml(text, "fleet.toml")) == FleetSpec(
        nodes=(NodeSpec("node-0", 0, 16),),
        availability_sets=(SetSpec("web", "sample", (EventType.REBOOT, EventType.REDEPLOY)),),
        scale_sets=(ScaleSetSpec("batch", terminate_notice_minutes=5),),
        cloud_services=(SetSpec("shop"),),
        vms=(
            VmSpec(
                "web-0",
                "node-0",
                "web",
                update_domain=0,
                addresses=("127.69.0.10", "fd00::4"),
                network=Network.CLASSIC,
                zone="1",
                priority=Priority.SPOT,
                eviction_policy=EvictionPolicy.DELETE,
                tags=(("team", "shop"),),
            ),
        ),
    )


VM = '[[vm]]\nname = "web-0"\n'

# A file, and all that is said of it after its name.
BAD = {
    VM + 'adress = "x"': ": vm web-0: unknown key `adress`; did you mean `address`?",
    VM + "colour = 1": ": vm web-0: unknown key `colour`",
    VM + "[[vm]]\nnode = 'n'": ": vm number 2: `name` is missing",
    "[[vm]]\nname = ''\nNode = 'n'": ": vm number 1: unknown key `Node`; did you mean `node`?",
    "[[vm]]\nname = 1": ": vm number 1: `name` must be text, not a whole number",
    VM + "update_domain = '0'": ": vm web-0: `update_domain` must be a whole number, not text",
    VM + "update_domain = -1": ": vm web-0: `update_domain` must be 0 or more",
    VM + "zone = 2026-01-01": ": vm web-0: `zone` must be text, not a date",
    VM + "addresses = 'x'": ": vm web-0: `addresses` must be a list, not text",
    VM + "addresses = [1]": ": vm web-0: `addresses[0]` must be text, not a whole number",
    VM + "tags = []": ": vm web-0: `tags` must be a table, not a list",
    VM + "tags = { a = 1 }": ": vm web-0: `tags[...]` must be text, not a whole number",
    VM + "priority = 'spot'": ": vm web-0: `priority` cannot be `spot`; did you mean `Spot`?",
    VM + 'network = "it\'s"': (
        ": vm web-0: `network` cannot be `it's`; choose among vnet, classic"
    ),
    VM + "automatically_approve = ['Rebot']": (
        ": vm web-0: `automatically_approve[0]` cannot be `Rebot`; did you mean `Reboot`?"
    ),
    VM + "scale_set = 's'\nautomatically_approve = ['Reboot']": (
        ": vm web-0: `automatically_approve`: That is a whole set's; put it on the scale_set `s`"
    ),
    "[[node]]\nname = 'n'\ncapacity = 0": ": node n: `capacity` must be 1 or more",
    "[[node]]\nname = 'n'\ncapacity = 1000001": ": node n: `capacity` must be 1000000 or less",
    "[[vms]]\nname = 'a'": ": unknown table `vms`; did you mean `vm`?",
    "title = 'my fleet'": ": unknown table `title`",
    "[vm]\nname = 'a'": ": `vm` is no list of tables; write [[vm]]",
    "vm = ['a']": ": `vm` is no list of tables; write [[vm]]",
    VM + "node = node-0": ", line 3: this is no TOML: Invalid value",
    VM + "tags = {": ", line 3: this is no TOML: Invalid initial character for a key part",
    VM + "name = 'b'\n": ", line 3: this is no TOML: Cannot overwrite a value",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_file_is_refused_in_one_sentence(text):
    """It names the file, the table, the entry, the key, and what may have been meant."""
    with pytest.raises(UsageError) as refused:
        read_toml(text, "fleet.toml")
    assert str(refused.value) == f"fleet.toml{BAD[text]}"


def test_a_file_that_declares_nothing_is_taken_for_a_mistake_unless_it_says_so():
    """Whoever reads it, for a running service or at a start: it would remove the whole fleet."""
    for text in ("", "\n", "# my fleet\n"):
        with pytest.raises(UsageError, match="declares nothing"):
            read_toml(text, "fleet.toml")
    assert read_toml("vm = []", "fleet.toml") == FleetBody()


@pytest.mark.parametrize("text", ["vm = " + "[" * 9999, "vm = " + "9" * 9999, "", "\n", "a"])
def test_a_strange_file_is_refused_or_an_empty_fleet(text):
    """Neither depth nor length ends in anything but a sentence."""
    try:
        assert read_toml(text, "fleet.toml") == FleetBody()
    except UsageError as refused:
        assert str(refused).startswith("fleet.toml")  # noqa: PT017, either end is right


@settings(deadline=None)
@given(st.text() | BODIES.map(to_toml).flatmap(lambda text: st.permutations(text).map("".join)))
def test_no_text_is_too_strange(text):
    """A fleet or a UsageError, whatever is in the file."""
    try:
        read_toml(text, "fleet.toml")
    except UsageError as refused:
        assert str(refused).startswith("fleet.toml")  # noqa: PT017, either end is right


# ---- The difference ----


def test_the_difference_names_all_that_a_file_changes():
    """Nodes, sets, scale sets, cloud services and VMs: added, changed by field, and removed."""
    fleet = staged(story_sample()).fleet
    spec = story_sample()
    spec = spec._replace(
        nodes=(*spec.nodes[:-1], NodeSpec("node-5", 2, 4), NodeSpec("node-6")),
        availability_sets=(SetSpec("web", automatically_approve=(EventType.REBOOT,)),),
        scale_sets=(spec.scale_sets[0]._replace(terminate_notice_minutes=None),),
        cloud_services=(*spec.cloud_services, SetSpec("mail")),
        vms=(
            spec.vms[0]._replace(addresses=("10.0.0.4",), tags=(("team", "shop"),)),
            *(vm for vm in spec.vms[1:-1] if vm.scale_set != "spot"),
            spec.vms[-1]._replace(automatically_approve=(EventType.REDEPLOY,)),
            VmSpec("new"),
        ),
    )
    found = difference(fleet, spec)
    assert found.added == [
        Added("node", "node-6"),
        Added("cloud_service", "mail"),
        Added("vm", "new"),
    ]
    assert found.removed == [
        Removed("scale_set", "spot"),
        Removed("vm", "spot_0"),
        Removed("vm", "spot_1"),
    ]
    policy = "automatically_approve"
    assert found.changed == [
        Changed("node", "node-5", [FieldChange("capacity", 16, 4)]),
        Changed("availability_set", "web", [FieldChange(policy, [], ["Reboot"])]),
        Changed("scale_set", "batch", [FieldChange("terminate_notice_minutes", 5, None)]),
        Changed(
            "vm",
            "web-0",
            [
                FieldChange("addresses", [], ["10.0.0.4"]),
                FieldChange("tags", {}, {"team": "shop"}),
            ],
        ),
        Changed("vm", "db", [FieldChange(policy, [], ["Redeploy"])]),
    ]
    assert found.warnings == []
    assert not found.nothing
    assert msgspec.json.decode(msgspec.json.encode(found), type=Difference) == found


def test_a_file_that_names_another_node_moves_nothing_and_is_told_so():
    """The change is shown, and that it is only written down."""
    fleet = staged(story_sample()).fleet
    spec = story_sample()
    found = difference(fleet, spec._replace(vms=(*spec.vms[:-1], VmSpec("db", "node-4"))))
    assert found.changed == [Changed("vm", "db", [FieldChange("node", "node-1", "node-4")])]
    (warning,) = found.warnings
    assert warning == (
        "db is on node-1 and the file names node-4: applying it only records that db is there, "
        "it moves nothing."
    )


def test_a_vm_that_changes_its_set_is_shown_with_its_new_domain():
    """web-2 leaves web for the shop: its scope changes, and its update domain by position."""
    fleet = staged(story_sample()).fleet
    spec = story_sample()
    rest = tuple(vm for vm in spec.vms if vm.name != "web-2")
    moved = VmSpec("web-2", "node-2", cloud_service="shop")
    found = difference(fleet, spec._replace(vms=(*rest, moved)))
    (changed,) = found.changed
    assert changed.changes == [
        FieldChange("scope", "availability-set:web", "cloud-service:shop"),
        FieldChange("update_domain", 2, 3),
    ]


def test_a_file_that_the_law_refuses_has_a_difference_all_the_same():
    """Two VMs of one name, in a set that is not there, on a node that is not there."""
    vms = (VmSpec("a", "nowhere", "nothing"), VmSpec("a", scale_set="nothing"))
    found = difference(Stage().fleet, FleetSpec(vms=vms))
    assert found.added == [Added("vm", "a")]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_difference_is_nothing_exactly_when_applying_changes_nothing(seed):
    """Of what the law accepts; and after it was applied there is no difference any more."""
    chance = Random(seed)
    stage = staged(decorated(random_fleet(chance), chance))
    accepted = 0
    for _ in range(20):
        spec = changed(specification(exported(stage.fleet)), chance)
        found = difference(stage.fleet, spec)
        decision = stage.ask(ApplyFleet(spec=spec))
        if isinstance(decision, Decision):
            accepted += 1
            assert found.nothing == (not decision.changes)
            assert difference(stage.fleet, spec).nothing
    assert accepted > 5


def changed(spec: FleetSpec, chance: Random) -> FleetSpec:
    """A little different, or not: fields, members, and what is left out."""
    fields: dict[str, tuple[object, ...]] = {
        "node": (None, "node-0"),
        "update_domain": (None, 1),
        "priority": (None, Priority.SPOT),
        "zone": (None, "2"),
        "automatically_approve": POLICIES,
        "addresses": ((), ("10.9.9.9",)),
        "resource_group": ("default", "other"),
    }
    vms = list(spec.vms)
    for _ in range(chance.randrange(3)):
        place, field = chance.randrange(len(vms)), chance.choice(list(fields))
        vms[place] = vms[place]._replace(**{field: chance.choice(fields[field])})
    if chance.random() < 0.2:
        vms.pop(chance.randrange(len(vms)))
    if chance.random() < 0.2:
        vms.append(VmSpec(f"new-{chance.random()}"))
    if chance.random() < 0.2:
        place = chance.randrange(len(vms))
        vms[place] = vms[place]._replace(
            availability_set=None, scale_set=None, cloud_service=None, placement_group=0
        )
    nodes = tuple(
        node._replace(capacity=chance.choice((node.capacity, node.capacity + 1)))
        if chance.random() < 0.1
        else node
        for node in spec.nodes
    )
    return spec._replace(nodes=nodes, vms=tuple(vms))
