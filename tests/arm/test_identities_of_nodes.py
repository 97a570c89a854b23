"""A VM signs in wherever it is answered: by the service itself, and by the endpoint of its node."""

import http.client
import json
from base64 import urlsafe_b64decode
from contextlib import closing

import pytest

from fairnotice.arm.serving import Port, opened, signing_with
from fairnotice.arm.signing import KeyFile, make_key_file
from fairnotice.clock import SystemClock
from fairnotice.control.running import Entrance
from fairnotice.control.tokens import Wanted
from fairnotice.stores.memory import MemoryStore
from fairnotice.words import TokenRole
from tests.control.calling import ANYWHERE, serving
from tests.endpoint.noding import endpoint, relay
from tests.waiting import until

NODE, WEB = "node-0", "127.69.0.10"
PATH = (
    "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https://management.azure.com/"
)


@pytest.fixture
def signing(tmp_path):
    """The port of Azure Resource Manager, with a key of its own."""
    keys = tmp_path / "signing.pem"
    make_key_file(keys)
    port = Port(ANYWHERE, Entrance(), signing_with(KeyFile(keys), SystemClock()))
    return opened(port)


def asked_by_web_0(served, more=""):
    """What a VM is answered that asks for an access token: status and JSON."""
    connection = http.client.HTTPConnection(*served.run.metadata, timeout=10)
    with closing(connection):
        connection.request("GET", f"/vm/web-0{PATH}{more}", headers={"Metadata": "true"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


@pytest.mark.parametrize("workers", [1, 2], ids=["alone", "two workers"])
def test_an_endpoint_passes_on_and_says_503_while_it_is_cut_off(tmp_path, signing, workers):
    """Nothing is kept at the node that a VM could sign in with."""
    with (
        serving(beside=signing) as served,
        relay(served) as link,
        endpoint(tmp_path / "e", NODE, link.url, workers=workers) as node,
    ):
        none = node.ask(WEB, path=PATH)
        made = served.post("/v1/tokens", {"name": "id", "role": "reader", "vm": "web-0"})
        given = node.ask(WEB, path=PATH)
        link.cut()
        until(lambda: not node.connected(), "the cut")
        away = node.ask(WEB, path=PATH)

    assert made.status == 200, made
    assert (none.status, json.loads(none.body)["error_description"]) == (400, "Identity not found")
    assert (given.status, json.loads(given.body)["token_type"]) == (200, "Bearer")
    assert away.status == 503


def test_a_vm_of_this_process_signs_in_and_is_in_the_audit(signing):
    """As the port of Azure Resource Manager has it set up, and nobody else."""
    with serving(MemoryStore(), beside=signing, auth=True) as served:
        declared = served.run.service.fleet.vms["web-0"].declared_revision
        wanted = Wanted("id", TokenRole.READER, vm="web-0", vm_revision=declared)
        served.inside(served.run.auth.tokens.add(wanted, "test"))
        status, _ = asked_by_web_0(served)
        audits = served.run.auth.audits
        lines = served.inside(audits.read(10, before=None, who=None, since=None))

    assert status == 200
    noted = [(one.audited.name, one.audited.source) for one in lines]
    assert noted == [("id", "vm web-0")]


def test_a_vm_that_was_given_two_says_which_one_it_means(signing):
    """Neither is chosen for it: one of them may be allowed less than the other, or more."""
    with serving(beside=signing) as served:
        for name in ("one", "two"):
            given = {"name": name, "role": "reader", "vm": "web-0"}
            assert served.post("/v1/tokens", given).status == 200
        status, said = asked_by_web_0(served)
        assert (status, "specify the clientId" in said["error_description"]) == (400, True)
        for name in ("one", "two"):
            status, said = asked_by_web_0(served, f"&client_id={name}")
            payload = said["access_token"].split(".")[1]
            named = json.loads(urlsafe_b64decode(payload + "=="))
            assert (status, named["app_displayname"]) == (200, name)
