"""What may be said of a resource: of Azure's kinds, no secrets, and one rule for what is gone."""

import pytest

from fairnotice.stores.opening import open_store
from tests.arm.calling import BATCH, BATCH_0, COMPUTE, DB, WEB, asked

TERMINATE = "terminateNotificationProfile"


def at(value, *path):
    """A body with this at that place."""
    for name in reversed(path):
        value = {name: value}
    return value


def spelled(body, how):
    """The same with every name in another case, but those of tags, which are not Azure's."""
    if isinstance(body, list):
        return [spelled(part, how) for part in body]
    if not isinstance(body, dict):
        return body
    return {
        how(name): part if name == "tags" else spelled(part, how) for name, part in body.items()
    }


def names(body):
    """The names of each object in it."""
    if isinstance(body, dict):
        yield [*body]
    for part in body.values() if isinstance(body, dict) else body if isinstance(body, list) else ():
        yield from names(part)


def without_etag(answer):
    """A resource, whatever was said of it."""
    assert answer.status == 200, answer
    return {name: part for name, part in answer.json.items() if name != "etag"}


OF_SET = ("properties", "virtualMachineProfile", "scheduledEventsProfile", TERMINATE)
OF_VM = ("properties", "scheduledEventsProfile", TERMINATE)
POLICY = ("properties", "scheduledEventsPolicy")
MISFITS = [
    (DB, at([], "properties", "storageProfile")),
    (DB, at(7, "properties", "osProfile")),
    (DB, at({}, "properties", "storageProfile", "dataDisks")),
    (DB, at([None], "properties", "storageProfile", "dataDisks")),
    (DB, at([{"lun": "0"}], "properties", "storageProfile", "dataDisks")),
    (DB, at(7, "properties", "osProfile", "computerName")),
    (DB, at("x", "properties", "scheduledEventsProfile")),
    (DB, at(1, "properties", "osProfile", "allowExtensionOperations")),
    (DB, at("x", "plan")),
    (DB, at(2**63, "properties", "ours")),
    (DB, at([{"a": -(2**63) - 1}], "properties", "ours")),
    (DB, at(10**400, "properties", "billingProfile", "maxPrice")),
    (WEB, at(2**31, "properties", "platformFaultDomainCount")),
    (BATCH_0, at([], "properties", "storageProfile")),
    (BATCH_0, at("yes", "properties", "protectionPolicy", "protectFromScaleIn")),
    (BATCH_0, at(7, "properties", "licenseType")),
    (BATCH, at([], "properties", "upgradePolicy")),
    (BATCH, at("x", "properties", "virtualMachineProfile")),
    (BATCH, at([3], "properties", "platformFaultDomainCount")),
    (WEB, at("3", "properties", "platformFaultDomainCount")),
    (WEB, at([], "properties", "proximityPlacementGroup")),
]


@pytest.mark.parametrize(("path", "body"), MISFITS)
def test_what_would_break_the_tools_of_everybody_is_refused(looking, path, body):
    """Another kind than Azure has there, however deep: by PATCH and by PUT, and nothing is kept."""
    before = looking.get(path).json
    for method in ("PATCH", "PUT"):
        looking.refused(400, "InvalidRequestContent", method, path, body)
        looking.refused(400, "InvalidRequestContent", method, path, spelled(body, str.lower))
    assert looking.get(path).json == before


@pytest.mark.parametrize("path", [DB, WEB, BATCH, BATCH_0])
def test_what_is_shown_is_taken_again(looking, path):
    """Each part of it is of the kind that Azure has there; what Azure has no word for is free."""
    shown = without_etag(looking.get(path))
    assert without_etag(looking.call("PUT", path, shown)) == shown
    ours = [7, 2**63 - 1, -(2**63)]
    assert looking.call("PATCH", path, {"properties": {"ours": ours}}).status == 200
    if path == BATCH:
        # A PUT of a scale set leaves what it does not speak of, as `az vmss scale` needs it.
        shown["properties"]["ours"] = ours
    assert without_etag(looking.call("PUT", path, shown)) == shown


@pytest.mark.parametrize("how", [str.upper, str.lower])
@pytest.mark.parametrize("path", [DB, WEB, BATCH, BATCH_0, f"{COMPUTE}/virtualMachines/web-0"])
def test_names_are_read_without_regard_to_case(looking, path, how):
    """As Azure reads them; and given back under its own name, each once."""
    shown = without_etag(looking.get(path))
    assert without_etag(looking.call("PUT", path, spelled(looking.get(path).json, how))) == shown
    fixed = at("westeurope", "location")
    looking.refused(409, "PropertyChangeNotAllowed", "PATCH", path, spelled(fixed, how))
    ours = {"systemData": {}}
    if path != WEB:
        inside = ("virtualMachineProfile",) if path == BATCH else ()
        ours |= at({"networkInterfaces": []}, "properties", *inside, "networkProfile")
    assert without_etag(looking.call("PATCH", path, spelled(ours, how))) == shown


@pytest.mark.parametrize("how", [str.upper, str.lower])
def test_what_is_said_in_another_case_is_obeyed(arm, how):
    """Notice, policy, tags, and how many."""
    said = at({"enable": True, "notBeforeTimeout": "PT10M"}, *OF_SET)
    said["properties"] |= at({"automaticallyApprove": True}, *POLICY, "userInitiatedReboot")[
        "properties"
    ]
    said |= {"sku": {"capacity": 5}, "tags": {"Team": "red"}}
    found = arm.call("PATCH", BATCH, spelled(said, how)).json
    assert arm.fleet.scale_sets["batch"].terminate_notice_minutes == 10
    assert len(arm.fleet.scopes["scale-set:batch:0"].automatically_approve) == 1
    assert (found["sku"]["capacity"], found["tags"]) == (5, {"Team": "red"})
    web = f"{COMPUTE}/virtualMachines/web-0"
    body = spelled(at({"automaticallyApprove": True}, *POLICY, "userInitiatedReboot"), how)
    arm.refused(400, "InvalidParameter", "PATCH", web, body)
    assert arm.call("PATCH", WEB, body).status == 200
    assert len(arm.fleet.scopes["availability-set:web"].automatically_approve) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"tags": {"a": "b"}, "Tags": {"a": "c"}},
        {"tags": {"a": "b", "A": "c"}},
        at({"ours": 1, "OURS": 2}, "properties"),
        at([{"x": [{"ours": 1, "Ours": 2}]}], "properties", "ours"),
    ],
)
def test_two_names_that_differ_by_case_alone_are_refused(looking, body):
    """PowerShell reads no list in which there is such a document."""
    for method in ("PATCH", "PUT"):
        said = looking.refused(400, "InvalidRequestContent", method, DB, body)
        assert "differ by case alone" in said


@pytest.mark.parametrize("path", [DB, WEB, BATCH, BATCH_0])
def test_what_is_said_again_in_another_case_is_the_same(arm, path):
    """Tags, and what Azure has no word for: said by several, in whatever case, it is there once."""
    for method, tags, ours in (
        ("PATCH", {"Team": "red"}, {"One": {"Two": 1}, "Gone": 1}),
        ("PATCH", {"team": "blue"}, {"ONE": {"TWO": 2, "more": 3}, "gONE": None}),
        ("PUT", {"TEAM": "green"}, {"one": {"two": 3}}),
    ):
        found = arm.call(method, path, {"tags": tags, "properties": ours, "Extra": ours}).json
        assert [*found["tags"].values()] == [*tags.values()]
        assert all(len({one.lower() for one in some}) == len(some) for some in names(found))
    kept = {name.lower(): part for name, part in found["properties"].items()}
    assert [*kept["one"].values()] == [3]
    assert "gone" not in kept


def test_what_is_ours_to_say_is_passed_over(looking):
    """Ids, states and views: a tool sends them back with the rest, and no other is believed."""
    named = {"id": "/x", "name": "x", "type": "x/y", "etag": "x", "systemData": {"createdBy": "x"}}
    states = {
        "provisioningState": "Failed",
        "timeCreated": "2020-01-01T00:00:00Z",
        "uniqueId": "x",
        "vmId": "x",
        "instanceView": {"statuses": []},
        "networkProfile": {"networkInterfaces": [{"id": "/x"}]},
        "networkProfileConfiguration": {"networkInterfaceConfigurations": []},
        "virtualMachines": [{"id": "/x"}],
        "latestModelApplied": False,
        "modelDefinitionApplied": "x",
        "virtualMachineResourceId": "/x",
    }
    for path in (DB, WEB, BATCH, BATCH_0):
        before = looking.get(path).json
        body = {**named, "instanceId": "x", "properties": states}
        assert looking.call("PATCH", path, body).json == before
        assert looking.get(path).json == before


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (DB, at({"notBeforeTimeout": "PT20M"}, *OF_VM)),
        (DB, at({"notBeforeTimeout": 7}, *OF_VM)),
        (DB, at({"enable": "false"}, *OF_VM)),
        (DB, at(7, *POLICY, "userInitiatedReboot")),
        (DB, at(1, *POLICY, "userInitiatedReboot", "automaticallyApprove")),
        (BATCH, at({"enable": 1}, *OF_SET)),
    ],
)
def test_what_is_obeyed_is_taken_at_its_word(looking, path, body):
    """1 is not true, and a time is one even where it means nothing."""
    looking.refused(400, "InvalidParameter", "PATCH", path, body)
    looking.refused(400, "InvalidParameter", "PUT", path, body)


def test_passwords_and_the_like_are_never_kept(tmp_path):
    """Neither shown, nor in the journal or any other table: of a VM and of a scale set."""
    secret = {
        "osProfile": {"adminPassword": "hush-1", "customData": "hush-2", "secrets": []},
        "userData": "hush-3",
        "licenseType": "said-aloud",
        "extensionProfile": {
            "extensions": [{"name": "one", "properties": {"protectedSettings": {"a": "hush-4"}}}]
        },
    }
    with asked(open_store(f"sqlite:{tmp_path}/it.db")) as arm:
        for method in ("PATCH", "PUT"):
            for path, body in (
                (DB, {"properties": secret, "resources": [{"properties": secret}]}),
                (BATCH_0, {"properties": secret}),
                (BATCH, at(secret, "properties", "virtualMachineProfile")),
            ):
                answer = arm.call(method, path, body)
                assert answer.status == 200
                assert b"said-aloud" in answer.body
                assert b"hush" not in answer.body + arm.get(path).body
    written = b"".join(one.read_bytes() for one in tmp_path.iterdir())
    assert b"said-aloud" in written
    assert b"hush" not in written


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("PUT", {"properties": {"scheduledEventsPolicy": None, "virtualMachineProfile": None}}),
        ("PATCH", {"properties": None}),
        ("PATCH", {"properties": {"scheduledEventsPolicy": None, "virtualMachineProfile": None}}),
    ],
)
def test_what_is_taken_away_is_obeyed_no_longer(arm, method, body):
    """By null: notice and policy alike."""
    said = at({"enable": True, "notBeforeTimeout": "PT10M"}, *OF_SET)
    approved = {"automaticallyApprove": True}
    said["properties"]["scheduledEventsPolicy"] = {"userInitiatedReboot": approved}
    assert arm.call("PATCH", BATCH, said).status == 200
    assert arm.call("PATCH", BATCH, {"tags": {"a": "b"}}).status == 200
    scope = "scale-set:batch:0"
    assert arm.fleet.scale_sets["batch"].terminate_notice_minutes == 10
    assert len(arm.fleet.scopes[scope].automatically_approve) == 1
    assert arm.call(method, BATCH, body).status == 200
    assert arm.fleet.scale_sets["batch"].terminate_notice_minutes is None
    assert arm.fleet.scopes[scope].automatically_approve == ()


def test_tags_of_the_fleet_file_can_be_taken_away(arm):
    """One by null, all by PUT; and they are back when what was said is just they."""
    fleet = arm.served.call("GET", "/v1/fleet").json
    (row,) = [one for one in fleet["vm"] if one["name"] == "db"]
    row["tags"] = {"team": "shop", "cost": "12"}
    assert arm.served.call("PUT", "/v1/fleet", fleet).status == 200

    def tags(method, body):
        answer = arm.call(method, DB, body)
        assert answer.json["tags"] == arm.get(DB).json["tags"]
        return answer.json["tags"]

    assert tags("PATCH", {"tags": {"team": None, "new": "x"}}) == {"cost": "12", "new": "x"}
    assert tags("PATCH", {"properties": {"licenseType": "x"}}) == {"cost": "12", "new": "x"}
    assert tags("PATCH", {"tags": None}) == {}
    assert tags("PUT", {"tags": {"other": "y"}}) == {"other": "y"}
    assert tags("PUT", {"location": "local"}) == {}
    assert tags("PUT", {"tags": row["tags"]}) == row["tags"]
    assert "vm:db" not in arm.fleet.kept
    # On Azure that is one tag.
    row["tags"] = {"team": "shop", "TEAM": "red"}
    assert arm.served.call("PUT", "/v1/fleet", fleet).status == 200
    assert arm.get(DB).json["tags"] == {"team": "red"}
