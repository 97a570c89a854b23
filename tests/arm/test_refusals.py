"""What is refused: with Azure's status and code, and a sentence that says what is wrong."""

import pytest

from tests.arm.calling import BATCH, BATCH_0, COMPUTE, GROUP, SUBSCRIPTION, WEB_0

OTHER = SUBSCRIPTION[:-1] + "2"


@pytest.mark.parametrize(
    ("code", "method", "path"),
    [
        ("ResourceNotFound", "GET", f"{COMPUTE}/virtualMachines/nobody"),
        ("ResourceNotFound", "POST", f"{COMPUTE}/virtualMachines/nobody/restart"),
        ("ResourceNotFound", "PATCH", f"{COMPUTE}/availabilitySets/nobody"),
        ("ResourceNotFound", "GET", f"{COMPUTE}/virtualMachineScaleSets/nobody"),
        ("ResourceNotFound", "GET", f"{BATCH}/virtualMachines/9"),
        ("ResourceNotFound", "GET", f"{COMPUTE}/availabilitySets/nobody"),
        ("ResourceGroupNotFound", "GET", WEB_0.replace("/sample/", "/other/")),
        ("ResourceGroupNotFound", "POST", f"{BATCH}/restart".replace("/sample/", "/other/")),
        ("ResourceGroupNotFound", "DELETE", f"{SUBSCRIPTION}/resourceGroups/other"),
        ("ResourceGroupNotFound", "GET", f"{SUBSCRIPTION}/resourceGroups/other"),
        ("ResourceGroupNotFound", "GET", f"{COMPUTE}/virtualMachines".replace("sample", "other")),
        ("SubscriptionNotFound", "GET", OTHER),
        ("SubscriptionNotFound", "GET", WEB_0.replace(SUBSCRIPTION, OTHER)),
        ("SubscriptionNotFound", "POST", f"{WEB_0}/restart".replace(SUBSCRIPTION, OTHER)),
        ("InvalidResourceType", "GET", f"{COMPUTE}/disks"),
        ("InvalidResourceType", "GET", f"{COMPUTE}/cloudServices/FrontEnd"),
        ("InvalidResourceType", "POST", f"{WEB_0}/explode"),
        ("InvalidResourceNamespace", "GET", f"{GROUP}/providers/Microsoft.Network/networks"),
        ("NotFound", "GET", "/"),
        ("NotFound", "GET", "/subscriptions//resourceGroups"),
        ("InvalidResourceType", "POST", f"{COMPUTE}/virtualMachines//restart"),
        (
            "NotFound",
            "GET",
            f"{SUBSCRIPTION}/providers/Microsoft.Compute/locations/local/operations/nothing",
        ),
    ],
)
def test_what_is_not_there(looking, code, method, path):
    """404, with a code that says what it is that is not there."""
    looking.refused(404, code, method, path, {} if method == "PATCH" else None)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (
            f"{WEB_0}/runCommand",
            ("'virtualMachines/runCommand' of 'Microsoft.Compute' is not here",),
        ),
        (f"{COMPUTE}/disks/one", ("'disks' of 'Microsoft.Compute' is not here",)),
        (
            f"{WEB_0}/providers/Microsoft.Insights/metrics",
            ("'Microsoft.Insights/metrics' is not here", "only Microsoft.Compute"),
        ),
        (
            f"{SUBSCRIPTION}/providers/Microsoft.Compute/locations/local/publishers/Canonical",
            ("'locations/publishers'", "VMs are declared in the fleet file"),
        ),
        (
            f"{SUBSCRIPTION}/providers/Microsoft.Compute/virtualMachines/web-0",
            ("'virtualMachines'", "is here, but not at this address"),
        ),
        (f"{SUBSCRIPTION}/resources", ("There is nothing at", "/resources")),
    ],
)
def test_what_is_missing_is_named(looking, path, words):
    """Not that of which it would be a part, and which is here."""
    said = looking.post(path, {}).json["error"]["message"]
    assert all(word in said for word in words), said


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_resource_groups_are_declared(looking, method):
    """Neither made nor deleted, whether there is one of the name."""
    path = f"{SUBSCRIPTION}/resourceGroups/sample"
    said = looking.refused(409, "OperationNotAllowed", method, path, {"location": "local"})
    assert "declared in the fleet file" in said
    assert looking.get(path).status == 200
    if method == "PUT":
        path = path.replace("sample", "new")
        assert looking.refused(409, "OperationNotAllowed", method, path, {}) == said


@pytest.mark.parametrize(
    ("code", "query"),
    [
        ("MissingApiVersionParameter", ""),
        ("MissingApiVersionParameter", "version=2024-11-01"),
        ("InvalidApiVersionParameter", "api-version="),
        ("InvalidApiVersionParameter", "api-version=2018-12-31"),
        ("InvalidApiVersionParameter", "api-version=latest"),
        ("InvalidApiVersionParameter", "api-version=2024-13-01"),
        ("InvalidApiVersionParameter", "api-version=2024-11-01&api-version=2025-01-01"),
        ("InvalidApiVersionParameter", "api-version=2024-11-01%0d%0aX:1"),
    ],
)
def test_an_api_version_is_a_date_from_2019_on(looking, code, query):
    """Older, none, two, or something else: refused before anything is done."""
    looking.refused(400, code, "GET", WEB_0, query=query)


@pytest.mark.parametrize(
    "version", ["2019-01-01", "2026-04-01", "2025-10-01-Preview", "2025-01-01-alpha"]
)
def test_any_later_api_version_is_taken(looking, version):
    """Each tool asks by another, and they change with every release."""
    assert looking.get(WEB_0, query=f"API-Version={version}").status == 200


DEEP = b'{"properties":' + b'{"a":' * 60 + b"1" + b"}" * 61


@pytest.mark.parametrize(
    "body",
    [
        *(b"{", b"[]", b"null", b'"text"', b"\xff\xfe", b"{'a': 1}", b"", b"[" * 5000, DEEP),
        b'{"properties": {"ours": ' + b"7" * 5000 + b"}}",
        *({"properties": 7}, {"sku": []}, {"tags": "x"}, {"tags": {"a": 7}}),
    ],
)
def test_a_malformed_body(looking, body):
    """400, and nothing is changed."""
    for path in (WEB_0, BATCH, f"{COMPUTE}/availabilitySets/web"):
        looking.refused(400, "InvalidRequestContent", "PUT", path, body)


@pytest.mark.parametrize(
    "body",
    [
        *(b"{", {"instanceIds": "0"}, {"instanceIds": [0]}, {"instanceIds": {}}),
        *({"instanceId": ["0"]}, {"properties": {"instanceIds": ["0"]}}, {"value": ["0"]}),
        {"instanceIds": None, "instances": ["0"]},
    ],
)
def test_malformed_instance_ids(looking, body):
    """A list of strings, or nothing; nobody restarts all because of a typing mistake."""
    for word in ("restart", "deallocate", "delete", "performMaintenance", "manualupgrade"):
        looking.refused(400, "InvalidRequestContent", "POST", f"{BATCH}/{word}", body)
    looking.refused(400, "InvalidRequestContent", "POST", f"{BATCH}/delete", b"{}")
    assert not looking.fleet.operations


def test_instances_that_are_not_there(looking):
    """None of them is done, and the one that is not there is named."""
    body = {"instanceIds": ["0", "77"]}
    said = looking.refused(400, "InvalidParameter", "POST", f"{BATCH}/restart", body)
    assert "77" in said
    looking.refused(400, "InvalidParameter", "POST", f"{BATCH}/restart", {"instanceIds": []})
    assert looking.events("batch_0") == []


def test_a_byte_order_mark_is_passed_over(looking):
    """Some tools of Windows begin a body with it."""
    mark = b"\xef\xbb\xbf"
    assert looking.call("PATCH", WEB_0, mark + b'{"location": "local"}').status == 200
    looking.refused(400, "InvalidRequestContent", "PATCH", WEB_0, mark)


def test_a_body_that_is_too_large(looking):
    """Neither is it read to its end, nor kept."""
    large = b'{"tags": {"a": "' + b"a" * 1_100_000 + b'"}}'
    looking.refused(413, "RequestContentTooLarge", "PATCH", WEB_0, large)
    looking.refused(413, "RequestContentTooLarge", "PATCH", WEB_0, {"tags": {"a": "a" * 70_000}})
    # In bytes, however few characters they are.
    wide = {"tags": {"a": "\N{GRINNING FACE}" * 20_000}}
    looking.refused(413, "RequestContentTooLarge", "PATCH", WEB_0, wide)


def test_another_method(looking):
    """405, which says what is taken: in words, and as RFC 9110 wants it."""
    said = looking.refused(405, "HttpMethodNotAllowed", "PUT", f"{WEB_0}/restart", {})
    assert "POST" in said
    for path, taken in (
        (f"{WEB_0}/restart", "POST"),
        (WEB_0, "GET, HEAD, DELETE, PATCH, PUT"),
        (GROUP, "HEAD, GET, PUT, PATCH, DELETE"),
    ):
        assert looking.call("OPTIONS", path).headers["allow"] == taken


def test_what_the_law_refuses(arm):
    """In its own words: evicting a Regular VM, restarting one that is stopped, what is not made."""
    arm.refused(409, "OperationNotAllowed", "POST", f"{WEB_0}/simulateEviction")
    arm.until(arm.post(f"{WEB_0}/powerOff"), "Succeeded")
    said = arm.refused(409, "OperationNotAllowed", "POST", f"{WEB_0}/restart")
    assert "Start it first." in said
    arm.refused(409, "OperationNotAllowed", "POST", f"{WEB_0}/performMaintenance")


def test_all_of_a_scale_set_or_none(arm):
    """One of them is stopped: whoever names none, or that one, restarts none."""
    arm.until(arm.post(f"{BATCH}/powerOff", {"instanceIds": ["2"]}), "Succeeded")
    for body in (None, {"instanceIds": ["0", "2"]}, {"instanceIds": ["*"]}):
        said = arm.refused(409, "OperationNotAllowed", "POST", f"{BATCH}/restart", body)
        assert "batch_2" in said
    assert arm.events("batch_0") == []


@pytest.mark.parametrize(
    "path",
    [
        *(
            f"{WEB_0}/{word}"
            for word in ("reimage", "generalize", "capture", "convertToManagedDisks")
        ),
        *(f"{of}/{word}" for of in (BATCH, BATCH_0) for word in ("reimage", "reimageall")),
    ],
)
def test_what_needs_disks(looking, path):
    """409, which says so; of a VM or a set that is not there, 404."""
    assert "disks" in looking.refused(409, "OperationNotAllowed", "POST", path)
    nobody = path.replace("web-0", "nobody").replace("batch", "nobody")
    looking.refused(404, "ResourceNotFound", "POST", nobody)


@pytest.mark.parametrize("what", ["virtualMachines", "virtualMachineScaleSets", "availabilitySets"])
def test_what_is_declared_is_neither_made_nor_deleted(looking, what):
    """One answer, whether nobody has the name, or something elsewhere or of another kind has it."""
    path = f"{COMPUTE}/{what}"
    for name in ("new", "batch_0"):
        said = looking.refused(409, "OperationNotAllowed", "PUT", f"{path}/{name}", {})
        assert "fleet file" in said
    known = {"virtualMachines": "db", "virtualMachineScaleSets": "batch", "availabilitySets": "web"}
    elsewhere = f"{path}/{known[what]}".replace("/sample/", "/other/")
    assert looking.refused(409, "OperationNotAllowed", "PUT", elsewhere, {}) == said
    if what != "virtualMachines":
        said = looking.refused(409, "OperationNotAllowed", "DELETE", f"{path}/{known[what]}")
        assert "delete what is in it" in said
        assert looking.get(f"{path}/{known[what]}").status == 200


@pytest.mark.parametrize("of", [WEB_0, BATCH, f"{BATCH}/virtualMachines/0"])
def test_what_is_not_understood_is_not_done(looking, of):
    """A body that is none, and hibernating: nothing is deallocated instead."""
    looking.refused(400, "InvalidRequestContent", "POST", f"{of}/restart", b"{")
    query = "api-version=2024-11-01&hibernate=true"
    looking.refused(409, "OperationNotAllowed", "POST", f"{of}/deallocate", query=query)
    assert all(vm.running for vm in looking.fleet.vms.values())
    assert looking.events("web-0") == looking.events("batch_0") == []


def test_a_page_of_another_site_is_kept_out(looking):
    """As on the control port: neither by another name, nor with another Origin."""
    for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
        looking.refused(403, "AuthorizationFailed", "GET", WEB_0, **headers)
    assert looking.get(WEB_0, Host="localhost:8643").status == 200


def test_a_shown_token_must_be_one(looking):
    """Where nobody has to say who he is, too: forged, malformed, or of somebody else."""
    for text in ("x", "a.b.c", "fairnotice_0123456789abcdef_" + "a" * 43):
        looking.refused(
            401, "InvalidAuthenticationToken", "GET", WEB_0, Authorization=f"Bearer {text}"
        )
