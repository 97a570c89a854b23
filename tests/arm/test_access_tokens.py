"""Access tokens at the port itself, by TLS: what counts no longer, never counted, or may not."""

import base64
import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from threading import Barrier

import pytest

from fairnotice.arm.managed_identity import PATH
from fairnotice.arm.signing import TENANT, Claims, KeyFile, make_key_file
from fairnotice.clock import SystemClock
from fairnotice.control import audits
from fairnotice.control.fleet_files import sample_fleet, specification
from fairnotice.stores.memory import MemoryStore
from fairnotice.stores.opening import open_store
from tests.arm.calling import COMPUTE, WEB_0, asked_by_ssl
from tests.control.bearers import kept
from tests.waiting import until

HOUR = timedelta(hours=1)


class Scene:
    """A service, an operator of it who has signed in, and what somebody makes of his token."""

    def __init__(self, arm, store, other_keys):
        self.arm = arm
        self.store = store
        self.good = arm.sign_in("ann", kept(store, "ann"))
        self._keys = KeyFile(arm.directory / "signing.pem").keys
        self.others = KeyFile(other_keys).keys

    @property
    def parts(self):
        """Header, claims and signature, as they are sent."""
        return self.good.split(".")

    def signed(self, keys=None, at=timedelta(0), **more):
        """What we would have signed so long ago, or later, of the same principal."""
        said = decoded(self.parts[1])
        now = int((SystemClock().wall() + at).timestamp())
        claims = {**said, "iat": now, "nbf": now, "exp": now + 3600, **more}
        return (keys or self._keys).sign(Claims(**claims))

    def changed(self, part, **more):
        """The good one with another header (0) or other claims (1), and the signature it had."""
        parts = self.parts
        parts[part] = encoded({**decoded(parts[part]), **more})
        return ".".join(parts)

    def revoked(self):
        """One that counted a moment ago."""
        text = self.arm.sign_in("eve", kept(self.store, "eve"))
        assert self.ask(text, "GET", WEB_0).status == 200
        self.revoke("eve")
        return text

    def revoke(self, name):
        """Its token counts no longer."""
        (token,) = [one for one in self.store.tokens().tokens if one.name == name]
        self.arm.served.inside(self.arm.served.run.auth.tokens.revoke(token.id))
        return token

    def audited(self, name):
        """What is written down of this name, the newest first."""
        self.arm.served.inside(self.arm.served.run.auth.audits.flush())
        return [line.audited for line in self.store.audit(100, who=name)]

    def ask(self, text, method, path, body=None, **headers):
        """One request with this bearer token."""
        return self.arm.call(method, path, body, Authorization=f"Bearer {text}", **headers)


def encoded(value):
    """A part of a token."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def decoded(part):
    """What a part of a token says."""
    return json.loads(base64.urlsafe_b64decode(part + "=="))


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """One for all tests that leave its fleet as it was."""
    directory = tmp_path_factory.mktemp("authority")
    others = directory / "others.pem"
    make_key_file(others)
    store = MemoryStore()
    with asked_by_ssl(directory / "ours", store) as arm:
        yield Scene(arm, store, others)


# What must count for nothing, and how somebody comes by it.
BAD = {
    "expired": lambda scene: scene.signed(at=-2 * HOUR),
    "not yet valid": lambda scene: scene.signed(at=HOUR),
    "another key, our kid": lambda scene: ".".join(
        (scene.parts[0], *scene.signed(scene.others).split(".")[1:])
    ),
    "unknown kid": lambda scene: scene.signed(scene.others),
    "changed claims": lambda scene: scene.changed(1, sub="operator"),
    "longer life": lambda scene: scene.changed(1, exp=2**40),
    "alg none": lambda scene: scene.changed(0, alg="none").rpartition(".")[0] + ".",
    "alg none, signed": lambda scene: scene.changed(0, alg="none"),
    "another audience": lambda scene: scene.signed(aud="https://vault.azure.net"),
    "another tenant": lambda scene: scene.signed(tid=TENANT[::-1]),
    "nobody": lambda scene: scene.signed(sub="0123456789abcdef"),
    "operator": lambda scene: scene.signed(sub="operator"),
    "revoked": lambda scene: scene.revoked(),
}


@pytest.mark.parametrize("how", BAD)
def test_a_signed_token_that_does_not_count(scene, how):
    """401 in Azure's shape, alike whatever is wrong; nothing is done."""
    assert scene.ask(scene.signed(), "GET", WEB_0).status == 200
    text = BAD[how](scene)
    told = set()
    for method, path in (("GET", WEB_0), ("POST", f"{WEB_0}/restart"), ("DELETE", WEB_0)):
        answer = scene.ask(text, method, path)
        assert answer.status == 401
        assert answer.headers["www-authenticate"].startswith("Bearer ")
        assert answer.headers["content-type"] == "application/json"
        told.add(answer.body)
    (body,) = told
    error = json.loads(body)["error"]
    assert (error["code"], sorted(error)) == ("InvalidAuthenticationToken", ["code", "message"])
    assert text not in error["message"]
    assert error["message"].endswith("Sign in anew: fairnotice az-login.")
    assert scene.arm.events("web-0") == []
    assert "web-0" in scene.arm.fleet.vms


def test_a_reader_who_has_signed_in_may_look_and_not_restart(scene):
    """403 AuthorizationFailed, whatever he asks for that changes something."""
    text = scene.arm.sign_in("reader", kept(scene.store, "reader", "reader"))
    assert scene.ask(text, "GET", WEB_0).json["name"] == "web-0"
    for method, path in (("POST", f"{WEB_0}/restart"), ("DELETE", WEB_0), ("PATCH", WEB_0)):
        answer = scene.ask(text, method, path, {"tags": {"a": "b"}})
        assert (answer.status, answer.json["error"]["code"]) == (403, "AuthorizationFailed")
        assert "www-authenticate" not in answer.headers
    assert scene.arm.events("web-0") == []
    assert scene.ask(scene.good, "GET", WEB_0).json["tags"] == {}


def test_of_two_principals_who_write_what_both_have_read_one_is_told(scene):
    """By If-Match: one is 200, the other 412 and has overwritten nothing."""
    path = f"{COMPUTE}/virtualMachines/db"
    second = scene.arm.sign_in("second", kept(scene.store, "second"))
    etag = scene.ask(scene.good, "GET", path).headers["etag"]
    together = Barrier(2)

    def write(named):
        name, text = named
        together.wait()
        return scene.ask(text, "PUT", path, {"tags": {"by": name}}, If_Match=etag)

    with ThreadPoolExecutor(2) as writers:
        answers = dict(
            zip("ab", writers.map(write, (("a", scene.good), ("b", second))), strict=True)
        )
    assert sorted(one.status for one in answers.values()) == [200, 412]
    (winner,) = [name for name, one in answers.items() if one.status == 200]
    (loser,) = [one for one in answers.values() if one.status == 412]
    assert loser.json["error"]["code"] == "PreconditionFailed"
    found = scene.ask(scene.good, "GET", path)
    assert found.json["tags"] == {"by": winner}
    assert found.headers["etag"] == answers[winner].headers["etag"] != etag


def test_signing_in_again_and_again_fills_nothing(scene, monkeypatch):
    """By a secret or as a VM; what the same token is refused is written down all the same."""
    monkeypatch.setattr(audits, "AT_ONCE_MAX", 2)
    monkeypatch.setattr(audits, "A_SECOND", 0.0)
    arm, secret = scene.arm, kept(scene.store, "often", "reader")
    body = {"name": "db-often", "role": "reader", "vm": "db"}
    root = kept(scene.store, "often-admin", "admin")
    arm.served.post("/v1/tokens", body, Authorization=f"Bearer {root}")
    for _ in range(5):
        text = arm.sign_in("often", secret)
        assert identity(arm, "db")[0] == 200
    scene.ask(text, "POST", f"{WEB_0}/restart")
    arm.served.post("/v1/tokens/db-often/revoke", Authorization=f"Bearer {root}")
    told = {name: [one.status for one in scene.audited(name)] for name in ("often", "db-often")}
    assert told == {"often": [403, 200, 200], "db-often": [200, 200]}


def test_what_was_stolen_is_known_to_the_audit_when_it_is_tried_again(scene):
    """By whatever says whose it was: an access token, of long ago too, and the secret itself."""
    secret = kept(scene.store, "mallory")
    text = scene.arm.sign_in("mallory", secret)
    token = scene.revoke("mallory")
    old = scene.signed(at=-2 * HOUR, sub=token.id)
    for shown in (text, old, scene.signed(scene.others, sub=token.id), secret):
        assert scene.ask(shown, "GET", WEB_0).status == 401
    for client in ("mallory", "somebody"):
        assert scene.arm.try_to_sign_in(client, secret).status == 401
    assert scene.arm.try_to_sign_in("mallory", secret[:-2] + "zz").status == 401
    told = [(one.status, one.lapsed, one.path) for one in scene.audited("mallory")]
    tried = [(401, "revoked", "/adfs/oauth2/token")] * 2 + [(401, "revoked", WEB_0)] * 3
    assert told == [*tried, (200, "", "/adfs/oauth2/token")]


def test_what_was_stolen_has_no_more_room_in_the_audit_than_strangers(scene, monkeypatch):
    """Whosever it was, whoever shows it is one of them."""
    monkeypatch.setattr(audits, "AT_ONCE_MAX", 2)
    monkeypatch.setattr(audits, "A_SECOND", 0.0)
    secret = kept(scene.store, "trudy")
    text = scene.arm.sign_in("trudy", secret)
    scene.revoke("trudy")
    for _ in range(3):
        assert scene.arm.try_to_sign_in("trudy", secret).status == 401
        assert scene.ask(text, "GET", WEB_0).status == 401
    assert [one.status for one in scene.audited("trudy")] == [401, 401, 200]


# ---- Identities of VMs ----


def identity(arm, vm):
    """What a VM is answered that asks for its access token: status and JSON."""
    path = f"/vm/{vm}{PATH}?api-version=2018-02-01&resource={arm.url}/"
    connection = http.client.HTTPConnection(*arm.served.run.metadata, timeout=10)
    with closing(connection):
        connection.request("GET", path, headers={"Metadata": "true"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def seen(arm, text):
    """How the port answers who shows this."""
    return arm.get(WEB_0, Authorization=f"Bearer {text}").status


def test_an_identity_ends_with_its_vm_and_is_not_that_of_the_next_of_its_name(tmp_path):
    """At once where it is deleted; for good, and after a restart. The next one is given its own."""
    url = f"sqlite:{tmp_path}/it.db"
    store = open_store(url)
    root = f"Bearer {kept(store, 'root', 'admin')}"
    with asked_by_ssl(tmp_path / "own", store) as arm:

        def give(name):
            body = {"name": name, "role": "reader", "vm": "db"}
            answer = arm.served.post("/v1/tokens", body, Authorization=root)
            assert answer.status == 200, answer

        give("first")
        status, answer = identity(arm, "db")
        old = answer["access_token"]
        assert (status, seen(arm, old)) == (200, 200)
        # Described anew it is the same VM.
        arm.served.inside(arm.served.run.service.apply_fleet(specification(sample_fleet())))
        assert (identity(arm, "db")[0], seen(arm, old)) == (200, 200)

        gone = arm.call("DELETE", f"{COMPUTE}/virtualMachines/db", Authorization=root)
        assert gone.status == 202
        until(lambda: "db" not in arm.fleet.vms, "the VM's end")
        assert seen(arm, old) == 401
        lines = arm.served.get("/v1/audit?who=first", Authorization=root).json["items"]
        assert (lines[0]["lapsed"], lines[0]["status"]) == ("VM gone", 401)
        (token,) = [
            one
            for one in arm.served.get("/v1/tokens", Authorization=root).json["items"]
            if one["vm"]
        ]
        assert (token["name"], token["revoked_at"], token["vm_gone"]) == ("first", None, True)
        arm.served.inside(arm.served.run.service.apply_fleet(specification(sample_fleet())))
        assert "db" in arm.fleet.vms
        assert (identity(arm, "db")[0], seen(arm, old)) == (400, 401)
    with asked_by_ssl(tmp_path / "own", open_store(url)) as arm:
        assert (identity(arm, "db")[0], seen(arm, old)) == (400, 401)
        give("second")
        status, answer = identity(arm, "db")
        assert (status, seen(arm, answer["access_token"]), seen(arm, old)) == (200, 200, 401)
