"""`fairnotice serve` with a table [arm]: Azure's tools, at the real process."""

import http.client
import json
import os
import socket
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from urllib.parse import urlsplit

import pytest

from fairnotice.arm.signing import make_key_file
from fairnotice.clock import SystemClock
from fairnotice.control.certificates import Pair
from fairnotice.control.own_authority import OwnAuthority
from fairnotice.stores.opening import open_store
from tests.arm.calling import SUBSCRIPTION, VERSION
from tests.arm.tools import BIN
from tests.cli.serves import FLEET, PATIENCE_SECONDS, Answer, certificate, serves
from tests.cli.typed import typed
from tests.control.bearers import kept
from tests.ports import own_port
from tests.waiting import until

WHOLE = """
[store]
url = "{store}"
[control]
listen = "127.0.0.1:{control}"
[tls]
certificate = "{certificate}"
key = "{key}"
[arm]
listen = "127.0.0.1:{arm}"
url = "https://localhost:{arm}"
keys = "{keys}"
"""
METADATA = '[metadata]\nlisten = "127.0.0.1:0"\n'
CLUSTER = """
[cluster]
address = "https://127.0.0.1:{control}"
trust = "{certificate}"
[driver]
kind = "command"
state_directory = "{impacts}"
[driver.commands]
reboot = {reboot}
"""
VMS = f"{SUBSCRIPTION}/resourceGroups/default/providers/Microsoft.Compute/virtualMachines"
IDENTITY = "/metadata/identity/oauth2/token?api-version=2018-02-01&resource="


class Tools:
    """Somebody who asks at the port of Azure's tools, and trusts whom he was told to."""

    def __init__(self, port, trusted):
        self.url = f"https://localhost:{port}"
        self.trust = ssl.create_default_context(cafile=trusted)

    def ask(self, method, path, token=None, body=None, **headers):
        """One request: the answer, and its headers."""
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        place = urlsplit(self.url)
        connection = http.client.HTTPSConnection(
            place.hostname, place.port, timeout=PATIENCE_SECONDS, context=self.trust
        )
        with closing(connection):
            connection.request(method, path, body, headers)
            found = connection.getresponse()
            return Answer(found.status, found.read()), found.headers

    def sign_in(self, name, secret):
        """An access token for a service principal."""
        body = f"grant_type=client_credentials&client_id={name}&client_secret={secret}"
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        body += f"&scope={self.url}//.default"
        answer, _ = self.ask("POST", "/adfs/oauth2/token", None, body, **form)
        assert answer.status == 200, answer
        return answer.json["access_token"]


def shown(port):
    """The certificate that whoever connects there is shown."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as sock,
        trusting.wrap_socket(sock, server_hostname="localhost") as connection,
    ):
        return ssl.DER_cert_to_PEM_cert(connection.getpeercert(binary_form=True))


def given(folder):
    """A certificate that vouches for itself, and what to trust."""
    pair = Pair(*certificate(folder))
    return pair, pair.certificate


def vouched_for(folder):
    """A certificate of an authority of our own, in one file with its key, and what to trust."""
    own = OwnAuthority(folder / "authority", SystemClock())
    return own.pair, own.ca


@pytest.mark.parametrize("of", [given, vouched_for])
def test_a_principal_and_a_vm_sign_in_and_the_certificate_is_renewed(tmp_path, of):
    """With the certificate that it was given; and by a reload with the next, if that is one."""
    keys, port = tmp_path / "keys.pem", own_port()
    make_key_file(keys)
    store = f"sqlite:{tmp_path}/it.db"
    with closing(open_store(store)) as opened:
        admin = kept(opened, "admin-1", "admin")
    pair, trusted = of(tmp_path)
    files = {"certificate": pair.certificate, "key": pair.key, "keys": keys}
    text = WHOLE.format(store=store, control=0, arm=port, **files) + METADATA
    with serves(tmp_path, text) as it:
        assert f"Azure's tools at https://127.0.0.1:{port}" in it.said
        tools = Tools(port, trusted)
        cloud, _ = tools.ask("GET", "/metadata/endpoints?api-version=2022-09-01")
        assert cloud.json["resourceManager"] == tools.url
        principal = tools.sign_in("admin-1", admin)
        bearer = f"Bearer {admin}"
        assert it.call("PUT", "/v1/fleet", FLEET, tools.trust, Authorization=bearer).status == 200
        trust, url = {"FAIRNOTICE_CA": str(trusted)}, f"https://localhost:{it.control[1]}"
        nobody = typed("az-login", "--directory", str(tmp_path / "az"), url=url, env=trust)
        assert "tells only whom it knows where Azure's tools ask" in nobody.err
        listed, _ = tools.ask("GET", f"{VMS}?{VERSION}", principal)
        assert [vm["name"] for vm in listed.json["value"]] == ["db", "web"]
        given_one = {"name": "web-id", "role": "reader", "vm": "web"}
        made = it.call("POST", "/v1/tokens", given_one, tools.trust, Authorization=bearer)
        assert made.status == 200
        identity = vm_token(it, tools.url)
        assert tools.ask("GET", f"{VMS}?{VERSION}", identity)[0] == listed
        refused, _ = tools.ask("POST", f"{VMS}/db/restart?{VERSION}", identity)
        assert (refused.status, refused.json["error"]["code"]) == (403, "AuthorizationFailed")
        for nobody in (None, principal[:-4] + "AAAA", "x"):
            answer, _ = tools.ask("GET", f"{VMS}?{VERSION}", nobody)
            assert answer.json["error"]["code"] == "InvalidAuthenticationToken"

        before, newer = shown(port), Pair(*certificate(tmp_path, "newer"))
        assert before in pair.certificate.read_text()
        half = text.replace(f'certificate = "{pair.certificate}"', f'certificate = "{newer[0]}"')
        it.hang_up(half)
        assert shown(port) == before
        it.hang_up(half.replace(f'key = "{pair.key}"', f'key = "{newer.key}"'))
        assert shown(port) == newer.certificate.read_text()
        # What was signed has nothing to do with the certificate.
        again = Tools(port, newer.certificate)
        assert again.ask("GET", f"{VMS}?{VERSION}", principal)[0].status == 200
        assert it.end() == 0


def vm_token(it, url):
    """The access token that the VM of this machine is given."""
    with closing(http.client.HTTPConnection(*it.metadata, timeout=PATIENCE_SECONDS)) as connection:
        connection.request("GET", f"{IDENTITY}{url}/", headers={"Metadata": "true"})
        return json.loads(connection.getresponse().read())["access_token"]


@contextmanager
def two(folder, url, reboot):
    """The one that leads and the one that follows, who asks each, and the text of a token."""
    keys = folder / "keys.pem"
    make_key_file(keys)
    with closing(open_store(url)) as opened:
        admin = kept(opened, "admin-1", "admin")
    made, key = certificate(folder / "certificates")
    shared = {"store": url, "impacts": folder / "impacts", "keys": keys, "reboot": reboot}
    with ExitStack() as stack:
        members, tools = [], []
        for name in ("one", "two"):
            (folder / name).mkdir()
            ports = {"control": own_port(), "arm": own_port()}
            text = (WHOLE + CLUSTER).format(certificate=made, key=key, **shared, **ports)
            members.append(stack.enter_context(serves(folder / name, text)))
            tools.append(Tools(ports["arm"], made))
            until(lambda: told(members[0], tools[0], admin, "/readyz")["leading"])
        until(lambda: told(members[1], tools[1], admin, "/readyz")["leader"])
        bearer = f"Bearer {admin}"
        fleet = members[1].call("PUT", "/v1/fleet", FLEET, tools[1].trust, Authorization=bearer)
        assert fleet.status == 200
        yield members, tools, admin


def told(it, tools, token, path):
    """What the API of this one tells."""
    return it.call("GET", path, None, tools.trust, Authorization=f"Bearer {token}").json


def test_two_with_one_file_of_keys_are_one_cloud_to_azures_tools(tmp_path, postgres_url):
    """Each believes what the other has signed, and tells of what was asked of the other."""
    with two(tmp_path, postgres_url, ["true"]) as (members, tools, admin):
        tokens = [one.sign_in("admin-1", admin) for one in tools]
        answer, headers = tools[1].ask("POST", f"{VMS}/db/restart?{VERSION}", tokens[0])
        assert answer.status == 202, answer
        place = urlsplit(headers["Azure-AsyncOperation"])
        assert f"{place.scheme}://{place.netloc}" == tools[1].url
        for one in tools:
            for token in tokens:
                said, _ = one.ask("GET", f"{place.path}?{place.query}", token)
                assert said.json["status"] in ("InProgress", "Succeeded"), said
        assert [it.end() for it in reversed(members)] == [0, 0]


def test_az_waits_through_a_takeover(tmp_path, postgres_url):
    """The leader is killed while one az waits, and while another asks: both have it done once."""
    if "CI" not in os.environ and not (BIN / "az").exists():
        pytest.skip("Azure's tools are not installed: run scripts/test-tools")
    with two(tmp_path, postgres_url, ["sleep", "2"]) as (members, tools, admin):
        (leader, follower), (_, asked) = members, tools
        env = {"HOME": str(tmp_path), "PATH": f"{BIN}:{os.environ['PATH']}"}
        # Whatever asks elsewhere than on this machine is stopped.
        env |= {"HTTPS_PROXY": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1"}
        words = ("az-login", "--arm", asked.url, "--authority", tmp_path / "certificates/tls.pem")
        login = typed(*map(str, words), env={**env, "FAIRNOTICE_TOKEN": admin})
        assert login.code == 0, login
        lines = f"{login.out}\nexec az vm restart -g default -n $0"

        def restart(vm):
            """What az says in the end."""
            line = ["bash", "-ec", lines, vm]
            ran = subprocess.run(line, env=env, capture_output=True, text=True, check=False)  # noqa: S603
            return ran.stderr or json.loads(ran.stdout)["status"]

        def operations():
            found = told(follower, asked, admin, "/v1/operations")["items"]
            return [vm for operation in found for vm in operation["vms"]]

        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(restart, "db")
            until(operations)
            leader.process.kill()
            asking = pool.submit(restart, "web")
            assert (waiting.result(), asking.result()) == ("Succeeded", "Succeeded")
        assert sorted(operations()) == ["db", "web"]
