"""A VM signs in wherever it is answered: by the service itself, and by the endpoint of its node."""

import http.client
import json

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
        connection = http.client.HTTPConnection(*served.run.metadata, timeout=10)
        connection.request("GET", f"/vm/web-0{PATH}", headers={"Metadata": "true"})
        status = connection.getresponse().status
        connection.close()
        audits = served.run.auth.audits
        lines = served.inside(audits.read(10, before=None, who=None, since=None))

    assert status == 200
    noted = [(one.audited.name, one.audited.source) for one in lines]
    assert noted == [("id", "vm web-0")]
