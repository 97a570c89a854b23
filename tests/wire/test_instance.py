"""WIRE.md, section 6: /metadata/instance."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairnotice.model import Node, Scope, Vm
from fairnotice.wire import error_bodies
from fairnotice.wire.instance import Facts, answer, facts_of, tree
from fairnotice.wire.versions import INSTANCE
from fairnotice.words import EvictionPolicy, Priority, ScopeKind
from tests.wire.documents import event, rendered

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
NEWEST = "2025-04-07"
AT_LEAST = """
azEnvironment location name offer osType placementGroupId platformFaultDomain platformUpdateDomain
priority evictionPolicy provider publisher resourceGroupName resourceId sku subscriptionId tags
tagsList version vmId vmScaleSetName vmSize zone
""".split()  # noqa: SIM905 - as it stands in WIRE.md
NODE = Node("node-2", fault_domain=2)
BATCH = Scope("scale-set:batch:0", ScopeKind.PLACEMENT_GROUP, "batch")
WEB = Scope("availability-set:web", ScopeKind.AVAILABILITY_SET, "web")
SHOP = Scope("cloud-service:shop", ScopeKind.CLOUD_SERVICE, "shop")
ALONE = Scope("vm:db", ScopeKind.STANDALONE, "db")
SPOT = Vm(
    "batch_47",
    BATCH.name,
    NODE.name,
    update_domain=3,
    priority=Priority.SPOT,
    eviction_policy=EvictionPolicy.DELETE,
    addresses=("10.0.7.4", "fd00::7", "10.0.7.5", "/run/batch_47.sock"),
    resource_group="sample",
    zone="2",
    tags=(("team", "blue"), ("Größe", "a;b")),
)


def facts(vm: Vm = SPOT, node: Node | None = NODE, scope: Scope = BATCH) -> Facts:
    """What is said of a VM of the sample fleet."""
    return facts_of(vm, node, scope, subscription_id=SUBSCRIPTION, location="local")


def text(*path: str, about: Facts | None = None, version: str = NEWEST) -> tuple[int, str]:
    """The answer at a path with format=text."""
    status, body = answer(about or facts(), path, version, text=True)
    return status, body.decode("utf-8")


def data(*path: str, about: Facts | None = None, version: str = NEWEST) -> tuple[int, object]:
    """The answer at a path as JSON."""
    status, body = answer(about or facts(), path, version, text=False)
    return status, json.loads(body)


def primitives(element: object) -> list[object]:
    """Everything in a document that is no container."""
    if isinstance(element, dict):
        return [found for child in element.values() for found in primitives(child)]
    if isinstance(element, list):
        return [found for child in element for found in primitives(child)]
    return [element]


# ---- The document ----


@pytest.mark.parametrize("version", INSTANCE)
def test_at_least_these_elements_and_all_primitives_are_strings(version):
    """In every version; clients read `platformUpdateDomain` as a string of digits."""
    document = tree(facts(), version)

    assert {*AT_LEAST} <= {*document["compute"]}
    assert list(document) == ["compute", "network"]
    assert {type(found) for found in primitives(document)} == {str}


def test_newer_versions_have_more_elements_and_none_less():
    """With 2021-01-01 came userData, physicalZone with 2023-11-15."""
    counts = [len(tree(facts(), version)["compute"]) for version in INSTANCE]

    assert counts == sorted(counts)
    assert "userData" not in tree(facts(), "2020-12-01")["compute"]
    assert "userData" in tree(facts(), "2021-01-01")["compute"]
    assert "physicalZone" in tree(facts(), NEWEST)["compute"]


def test_a_spot_vm_of_a_scale_set():
    """What a client asks about: where it is, what it is part of, whether it may be evicted."""
    compute = tree(facts(), NEWEST)["compute"]

    assert {
        name: compute[name] for name in AT_LEAST if name not in {"vmId", "placementGroupId"}
    } == {
        "azEnvironment": "AzurePublicCloud",
        "evictionPolicy": "Delete",
        "location": "local",
        "name": "batch_47",
        "offer": "fairnotice",
        "osType": "Linux",
        "platformFaultDomain": "2",
        "platformUpdateDomain": "3",
        "priority": "Spot",
        "provider": "Microsoft.Compute",
        "publisher": "fairnotice",
        "resourceGroupName": "sample",
        "resourceId": f"/subscriptions/{SUBSCRIPTION}/resourceGroups/sample/providers"
        "/Microsoft.Compute/virtualMachineScaleSets/batch/virtualMachines/47",
        "sku": "simulated",
        "subscriptionId": SUBSCRIPTION,
        "tags": "team:blue;Größe:a;b",
        "tagsList": [{"name": "team", "value": "blue"}, {"name": "Größe", "value": "a;b"}],
        "version": "1.0.0",
        "vmScaleSetName": "batch",
        "vmSize": "Standard_D2s_v5",
        "zone": "2",
    }


def test_what_does_not_apply_is_an_empty_string():
    """A standalone VM that has no node: no scale set, no zone, no tags; its domains are 0."""
    compute = tree(facts(Vm("db", ALONE.name, None), None, ALONE), NEWEST)["compute"]

    empty = ["evictionPolicy", "placementGroupId", "tags", "vmScaleSetName", "zone"]
    assert [compute[name] for name in empty] == [""] * 5
    assert compute["tagsList"] == []
    assert (compute["platformFaultDomain"], compute["platformUpdateDomain"]) == ("0", "0")
    assert compute["priority"] == "Regular"


@pytest.mark.parametrize(
    ("name", "scope", "resource", "host"),
    [
        ("db", ALONE, "virtualMachines/db", "db"),
        ("web_0", WEB, "virtualMachines/web_0", "web_0"),
        ("batch_0", BATCH, "virtualMachineScaleSets/batch/virtualMachines/0", "batch000000"),
        ("batch_47", BATCH, "virtualMachineScaleSets/batch/virtualMachines/47", "batch00001b"),
        ("batch_3f9a01bc", BATCH, "virtualMachines/batch_3f9a01bc", "batch_3f9a01bc"),
        ("other_1", BATCH, "virtualMachines/other_1", "other_1"),
        ("FrontEnd_IN_0", SHOP, "cloudServices/shop/roleInstances/FrontEnd_IN_0", "FrontEnd_IN_0"),
    ],
)
def test_resource_ids_and_host_names(name, scope, resource, host):
    """In a uniform scale set the host name is not the resource name: `vmss_47`, `vmss00001b`."""
    compute = tree(facts(Vm(name, scope.name, None), None, scope), NEWEST)["compute"]

    assert compute["resourceId"].endswith(f"/providers/Microsoft.Compute/{resource}")
    assert compute["osProfile"]["computerName"] == host


@pytest.mark.parametrize(
    ("name", "scope", "scale_set"),
    [("batch_3f9a01bc", BATCH, "batch"), ("batch_47", BATCH, ""), ("db", ALONE, "")],
)
def test_the_id_of_a_scale_set_is_told_to_its_flexible_instances(name, scope, scale_set):
    """It is where such a VM learns of its set: its own resource id does not name it."""
    compute = tree(facts(Vm(name, scope.name, None), None, scope), NEWEST)["compute"]
    told = compute["virtualMachineScaleSet"]["id"]

    assert told.rpartition("/providers/Microsoft.Compute/virtualMachineScaleSets/")[2] == scale_set


@pytest.mark.parametrize("kind", ScopeKind)
def test_compute_name_equals_what_stands_in_resources(kind):
    """Pacemaker's agent compares the two exactly."""
    vm = Vm("FrontEnd_IN_0", "scope", None)
    about = facts(vm, None, Scope("scope", kind, "shop"))

    document = json.loads(rendered(event(resources=(vm.name,)), kind=kind))

    assert text("compute", "name", about=about) == (200, document["Events"][0]["Resources"][0])


def test_ids_are_guids_that_last_and_differ():
    """The same VM keeps its vmId, another has another; one placement group has one id."""
    other = facts(SPOT._replace(name="batch_48"))

    assert facts() == facts()
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", facts().vm_id)
    assert facts().vm_id != other.vm_id
    assert facts().placement_group_id == other.placement_group_id
    assert (
        facts().placement_group_id
        != facts(scope=BATCH._replace(name="scale-set:batch:1")).placement_group_id
    )


# ---- The network ----


def test_the_network_names_the_addresses():
    """Each kind of address in its place; a socket's path is no address."""
    (interface,) = tree(facts(), NEWEST)["network"]["interface"]

    assert interface["ipv4"] == {
        "ipAddress": [
            {"privateIpAddress": "10.0.7.4", "publicIpAddress": ""},
            {"privateIpAddress": "10.0.7.5", "publicIpAddress": ""},
        ],
        "subnet": [{"address": "10.0.7.0", "prefix": "24"}],
    }
    assert interface["ipv6"] == {"ipAddress": [{"privateIpAddress": "fd00::7"}]}
    assert re.fullmatch(r"02[0-9A-F]{10}", interface["macAddress"])


def test_a_vm_without_addresses_still_has_an_interface():
    """Its lists are empty, never null."""
    (interface,) = tree(facts(SPOT._replace(addresses=())), NEWEST)["network"]["interface"]

    assert interface["ipv4"] == {"ipAddress": [], "subnet": []}
    assert interface["ipv6"] == {"ipAddress": []}


# ---- Drill-down ----


def test_the_whole_document_is_compact_json():
    """Everything, as clients read it."""
    status, body = answer(facts(), (), NEWEST, text=False)

    assert status == 200
    assert body.startswith(b'{"compute":{"additionalCapabilities":{"hibernationEnabled":"false"},')
    assert "Größe:a;b".encode() in body
    assert json.loads(body) == tree(facts(), NEWEST)


def test_an_element_by_its_path_without_case():
    """Containers are answered as JSON, lists count from 0."""
    assert data("Network", "INTERFACE", "0", "ipv4", "subnet") == (
        200,
        [{"address": "10.0.7.0", "prefix": "24"}],
    )
    assert data("compute", "tagslist", "0") == (200, {"name": "team", "value": "blue"})


def test_a_leaf_with_format_text():
    """The value itself, without quotes or a newline; an empty one is an empty body."""
    assert text("compute", "name") == (200, "batch_47")
    assert text("compute", "VMID") == (200, facts().vm_id)
    assert text("compute", "tags") == (200, "team:blue;Größe:a;b")
    assert text("compute", "licenseType") == (200, "")
    assert text("network", "interface", "0", "ipv4", "ipAddress", "1", "privateIpAddress") == (
        200,
        "10.0.7.5",
    )


def test_a_container_with_format_text_lists_what_it_holds():
    """One name a line, a slash behind those that hold more."""
    assert text() == (200, "compute/\nnetwork/")
    assert text("network") == (200, "interface/")
    assert text("network", "interface", "0") == (200, "ipv4/\nipv6/\nmacAddress")
    assert text("compute", "tagsList") == (200, "0/\n1/")
    assert text("compute", "publicKeys") == (200, "")


def test_a_leaf_without_format_text_is_400():
    """As on Azure; the answer says what to add."""
    assert answer(facts(), ("compute", "name"), NEWEST, text=False) == (
        400,
        error_bodies.LEAF_WITHOUT_TEXT,
    )


@pytest.mark.parametrize(
    "path",
    [
        ("nothing",),
        ("compute", "nothing"),
        ("compute", "name", "more"),
        ("compute", "tagsList", "2"),
        ("compute", "tagsList", "-1"),
        ("compute", "tagsList", "\u0660"),
        ("compute", "", "name"),
        ("compute", ""),
        ("",),
        ("", ""),
    ],
)
@pytest.mark.parametrize("as_text", [True, False])
def test_an_unknown_element_is_404(path, as_text):
    """Past the end, below a value or misspelled: not found."""
    assert answer(facts(), path, NEWEST, text=as_text) == (404, error_bodies.NO_SUCH_ELEMENT)


def test_an_element_of_a_newer_version_is_404():
    """What a version does not have cannot be asked of it."""
    assert text("compute", "physicalZone", version="2021-02-01")[0] == 404


@given(st.lists(st.text(), max_size=4), st.sampled_from(INSTANCE), st.booleans())
def test_any_path_has_an_answer(path, version, as_text):
    """Whatever is asked for, it is found or it is not."""
    assert answer(facts(), path, version, text=as_text).status in {200, 400, 404}


@given(st.text(st.characters()), st.text(st.characters()))
def test_any_name_and_tag_is_answered_in_utf_8(name, value):
    """Neither a quote nor half of a surrogate pair breaks the document."""
    about = facts(SPOT._replace(name=name, tags=((value, value),)))

    for as_text in (True, False):
        answer(about, (), NEWEST, text=as_text).body.decode("utf-8")
    assert text("compute", "name", about=about)[0] == 200
