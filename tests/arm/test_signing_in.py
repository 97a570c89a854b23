"""Azure's tools sign in, and only what we have signed, and still stands for somebody, counts."""

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
import stat
import subprocess
from datetime import timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from starlette.applications import Starlette

from fairnotice.arm.authority import authority_routes
from fairnotice.arm.bearers import Bearers
from fairnotice.arm.issuing import Issuer
from fairnotice.arm.managed_identity import ManagedIdentities
from fairnotice.arm.signing import TENANT, KeyFile, make_key_file, pem
from fairnotice.control.admission import Auth
from fairnotice.control.certificates import load
from fairnotice.control.own_authority import OwnAuthority
from fairnotice.control.tokens import Wanted
from fairnotice.errors import UsageError
from fairnotice.stores.memory import MemoryStore
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import TokenRole
from tests.control.bearers import kept
from tests.control.calling import serving

URL = "https://localhost:8643"
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def key_file(tmp_path_factory):
    """A file with one key."""
    path = tmp_path_factory.mktemp("keys") / "signing.pem"
    make_key_file(path)
    return path


def asked(store):
    """How a store is asked, in a loop of this test's own."""

    def ask(question):
        answer = asyncio.get_running_loop().create_future()
        answer.set_result(question(store))
        return answer

    return ask


class Scene:
    """An authority, a store with tokens, and a clock."""

    def __init__(self, key_file, *, required=True):
        self.store, self.clock = MemoryStore(), ManualClock()
        self.auth = Auth(asked(self.store), self.clock)
        self.auth.required = required
        self.issuer = Issuer(KeyFile(key_file), self.auth, self.clock, URL)
        self.bearers = Bearers(self.issuer)
        self.app = Starlette(routes=authority_routes(self.issuer))

    def token(self, name="ann", role="reader", **more):
        return kept(self.store, name, role, self.clock.wall(), **more)

    async def ask(self, method, path, body=b"", **headers):
        """One request to the application: status and JSON."""
        sent = []

        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message):
            sent.append(message)

        given = [(name.replace("_", "-").encode(), v.encode()) for name, v in headers.items()]
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": given,
        }
        await self.app(scope, receive, send)
        return sent[0]["status"], json.loads(sent[1]["body"] or b"null")

    async def sign_in(self, **fields):
        form = {"grant_type": "client_credentials", "scope": f"{URL}//.default", **fields}
        body = "&".join(f"{name}={value}" for name, value in form.items()).encode()
        return await self.ask("POST", "/adfs/oauth2/token", body, content_type=FORM)


def encoded(value):
    """A part of a token: bytes, or what is written as JSON."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(part):
    """What a part of a token says."""
    return json.loads(base64.urlsafe_b64decode(part + "=="))


def test_a_principal_signs_in_and_is_whom_its_token_says(key_file):
    """The same role and limits as with the token itself; revoked, it ends at once."""

    async def story():
        scene = Scene(key_file)
        secret = scene.token(role="operator", resource_groups=("shop",))
        status, answer = await scene.sign_in(client_id="ann", client_secret=secret)
        assert (status, answer["token_type"], answer["expires_in"]) == (200, "Bearer", 3600)
        assert decoded(answer["access_token"].split(".")[1])["tid"] == TENANT
        caller = await scene.bearers.caller(answer["access_token"])
        assert caller == await scene.bearers.caller(secret)
        assert caller.limits.resource_groups == {"shop"}
        await scene.auth.tokens.revoke(caller.token.id)
        assert caller.ended.is_set()
        assert await scene.bearers.caller(answer["access_token"]) is None
        status, answer = await scene.sign_in(client_id="ann", client_secret=secret)
        assert (status, answer["error"]) == (401, "invalid_client")

    asyncio.run(story())


def test_a_person_is_told_how_to_sign_in(key_file):
    """A tool opens a browser or asks for a code: neither leads anywhere, and both say what does."""

    async def story():
        scene = Scene(key_file)
        _, known = await scene.ask("GET", "/adfs/.well-known/openid-configuration")
        path = known["device_authorization_endpoint"].removeprefix(URL)
        status, flow = await scene.ask("POST", path, b"client_id=az", content_type=FORM)
        assert status == 200
        grant = "urn:ietf:params:oauth:grant-type:device_code"
        status, refused = await scene.sign_in(grant_type=grant, device_code=flow["device_code"])
        assert (status, refused["error"]) == (400, "unsupported_grant_type")
        path = known["authorization_endpoint"].removeprefix(URL)
        status, page = await scene.ask("GET", f"{path}?client_id=az")
        assert status == 400
        for said in (flow["message"], refused["error_description"], page["error_description"]):
            assert "sign in by fairnotice az-login" in said

    asyncio.run(story())


def test_an_access_token_is_over_after_an_hour_and_never_outlives_its_token(key_file):
    """Whatever is signed says until when."""

    async def story():
        scene = Scene(key_file)
        text = scene.token()
        short = scene.token("bob", expires_days=0.01)
        _, answer = await scene.sign_in(client_id="ann", client_secret=text)
        _, soon = await scene.sign_in(client_id="bob", client_secret=short)
        assert soon["expires_in"] == 864
        scene.clock.advance(seconds=3599)
        assert await scene.bearers.caller(answer["access_token"])
        assert await scene.bearers.caller(soon["access_token"]) is None
        scene.clock.advance(seconds=1)
        assert await scene.bearers.caller(answer["access_token"]) is None

    asyncio.run(story())


def test_what_we_have_not_signed_counts_for_nothing(key_file, tmp_path):
    """Forged, unsigned, signed with a public key for a secret, another's, for another audience."""

    async def story():
        scene = Scene(key_file)
        _, answer = await scene.sign_in(client_id="ann", client_secret=scene.token(role="admin"))
        good = answer["access_token"]
        head, claims, signature = good.split(".")
        header, said = decoded(head), decoded(claims)
        key = serialization.load_pem_private_key(key_file.read_bytes(), None).public_key()
        public = key.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        hs256 = f"{encoded({**header, 'alg': 'HS256'})}.{claims}"
        other = Scene(_other_key(tmp_path))
        their = other.issuer.issue(scene.store.tokens().tokens[0], f"{URL}/").text
        elsewhere = scene.issuer.issue(scene.store.tokens().tokens[0], "https://vault.azure.net")
        assert await scene.bearers.caller(good)
        for bad in (
            f"{head}.{encoded({**said, 'sub': 'operator'})}.{signature}",
            f"{encoded({**header, 'alg': 'none'})}.{claims}.",
            f"{encoded({**header, 'alg': 'none'})}.{claims}.{signature}",
            f"{hs256}.{encoded(hmac.digest(public, hs256.encode(), hashlib.sha256))}",
            f"{encoded({**header, 'crit': ['exp']})}.{claims}.{signature}",
            f"{encoded({**header, 'kid': 'x'})}.{claims}.{signature}",
            their,
            elsewhere.text,
            good + "A",
            good[:-4],
            good + "=",
            good + ".",
            f"{head}.{claims}.",
            "..",
            "a.b.c",
            "ü.ü.ü",
            "x." * 9000,
            "",
        ):
            assert await scene.bearers.caller(bad) is None, bad

    asyncio.run(story())


def _other_key(tmp_path):
    path = tmp_path / "other.pem"
    make_key_file(path)
    return path


@pytest.mark.parametrize(
    ("fields", "status", "error"),
    [
        ({"client_secret": "wrong"}, 401, "invalid_client"),
        ({"client_id": "nobody"}, 401, "invalid_client"),
        ({"client_id": "operator"}, 401, "invalid_client"),
        ({"client_id": ""}, 400, "invalid_request"),
        ({"client_secret": ""}, 400, "invalid_request"),
        ({"grant_type": "password"}, 400, "unsupported_grant_type"),
        ({"scope": "https://vault.azure.net/.default"}, 400, "invalid_resource"),
        ({"x": "a&x=b"}, 400, "invalid_request"),
        ({"x": "%ff"}, 400, "invalid_request"),
        ({"x": "a" * 20_000}, 413, "invalid_request"),
    ],
)
def test_who_does_not_say_who_he_is_gets_nothing(key_file, fields, status, error):
    """And is told alike whether it is his name or his secret."""

    async def story():
        scene = Scene(key_file)
        given = {"client_id": "ann", "client_secret": scene.token(), **fields}
        found, answer = await scene.sign_in(**given)
        assert (found, answer["error"]) == (status, error)
        assert "access_token" not in answer
        assert answer["error_description"].startswith("AADSTS")

    asyncio.run(story())


def test_an_endpoint_does_not_sign_in(key_file):
    """It speaks for the VMs of its node, with its own key, and asks nothing of Azure's."""

    async def story():
        scene = Scene(key_file)
        secret = scene.token("node", "endpoint", node="node-0")
        found, answer = await scene.sign_in(client_id="node", client_secret=secret)
        assert (found, answer["error"]) == (401, "invalid_client")

    asyncio.run(story())


def test_a_page_another_type_and_another_tenant_are_refused(key_file):
    """A browser that is made to sign in has an Origin."""

    async def story():
        scene = Scene(key_file)
        path = "/adfs/oauth2/token"
        status, _ = await scene.ask("POST", path, content_type=FORM, origin="https://evil")
        assert status == 403
        assert (await scene.ask("POST", path, b"{}", content_type="application/json"))[0] == 400
        assert (await scene.ask("GET", "/other/v2.0/.well-known/openid-configuration"))[0] == 400

    asyncio.run(story())


def test_what_tools_look_up(key_file):
    """Where to sign in, and with which keys it is signed."""

    async def story():
        scene = Scene(key_file)
        _, cloud = await scene.ask("GET", "/metadata/endpoints?api-version=2022-09-01")
        assert cloud["authentication"]["loginEndpoint"] == f"{URL}/adfs"
        _, clouds = await scene.ask("GET", "/metadata/endpoints?api-version=2019-05-01")
        assert clouds == [cloud]
        _, openid = await scene.ask("GET", "/adfs/.well-known/openid-configuration")
        assert openid["token_endpoint"] == f"{URL}/adfs/oauth2/token"
        _, keys = await scene.ask("GET", openid["jwks_uri"].removeprefix(URL))
        _, answer = await scene.sign_in(client_id="ann", client_secret=scene.token())
        assert keys["keys"][0]["kid"] == decoded(answer["access_token"].split(".")[0])["kid"]
        _, openid = await scene.ask("GET", f"/{TENANT}/v2.0/.well-known/openid-configuration")
        assert openid["token_endpoint"] == f"{URL}/{TENANT}/oauth2/v2.0/token"

    asyncio.run(story())


def test_where_nobody_is_asked_who_he_is_the_operator_needs_no_secret(key_file):
    """And what was signed there is worth nothing where people are asked."""

    async def story():
        scene = Scene(key_file, required=False)
        _, answer = await scene.sign_in(client_id="operator", client_secret="x" * 4)
        caller = await scene.bearers.caller(answer["access_token"])
        assert (caller.token, caller.requester.name) == (None, "operator")
        scene.auth.required = True
        assert await scene.bearers.caller(answer["access_token"]) is None

    asyncio.run(story())


def test_keys_are_rotated_without_a_restart(tmp_path):
    """A new one in front signs; the old one is believed until it is taken out."""

    async def story():
        path = _other_key(tmp_path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        scene = Scene(path)
        text = scene.token()
        _, before = await scene.sign_in(client_id="ann", client_secret=text)
        old = path.read_bytes()
        new = pem(rsa.generate_private_key(public_exponent=65_537, key_size=2048))
        path.write_bytes(new + old)
        _, after = await scene.sign_in(client_id="ann", client_secret=text)
        assert await scene.bearers.caller(before["access_token"])
        assert await scene.bearers.caller(after["access_token"])
        path.write_bytes(b"broken")
        assert await scene.bearers.caller(after["access_token"])
        path.write_bytes(new)
        assert await scene.bearers.caller(before["access_token"]) is None
        assert await scene.bearers.caller(after["access_token"])

    asyncio.run(story())


def test_a_file_that_holds_no_key_is_said(tmp_path):
    """At the start, and not when somebody signs in."""
    path = tmp_path / "key.pem"
    with pytest.raises(UsageError, match="cannot be read"):
        KeyFile(path)
    path.write_text("nothing")
    with pytest.raises(UsageError, match="no key"):
        KeyFile(path)


def test_the_authority_of_this_machine_is_kept_and_its_server_renewed(tmp_path):
    """Nobody has to trust another one; private files are their owner's."""
    clock = ManualClock()
    own = OwnAuthority(tmp_path / "authority", clock)
    ca, server = own.ca.read_bytes(), own.pair.certificate.read_bytes()
    assert {stat.S_IMODE(path.stat().st_mode) for path in own.directory.iterdir()} == {0o600}
    assert OwnAuthority(own.directory, clock).pair.certificate.read_bytes() == server
    left = load(own.pair).expires_at - clock.wall()
    assert timedelta(days=89) < left <= timedelta(days=90)
    clock.advance(days=61)
    own.renew()
    assert own.ca.read_bytes() == ca
    assert own.pair.certificate.read_bytes() != server
    assert load(own.pair).expires_at - clock.wall() > timedelta(days=89)
    ssl.create_default_context(cafile=own.ca)
    own.ca.write_text("broken")
    with pytest.raises(UsageError, match="no certificate"):
        own.renew()


def test_a_key_that_is_not_of_its_authority_is_said_and_signs_nothing(tmp_path):
    """At the start, with what to do; after either remedy the server is one that is believed."""
    clock = ManualClock()
    own, other = (OwnAuthority(tmp_path / name, clock) for name in ("own", "other"))
    key, right = own.directory / "ca.key", (own.directory / "ca.key").read_bytes()
    server = own.pair.certificate.read_bytes()
    for wrong, said in (
        ((other.directory / "ca.key").read_bytes(), "is not the key of .* or remove both"),
        (pem(rsa.generate_private_key(public_exponent=65_537, key_size=2048)), "no key of ours"),
        (b"broken", "no key of ours"),
    ):
        key.write_bytes(wrong)
        with pytest.raises(UsageError, match=said):
            OwnAuthority(own.directory, clock)
        assert own.pair.certificate.read_bytes() == server
    own.pair.certificate.write_bytes(_signed_by_another(own))
    key.write_bytes(right)
    OwnAuthority(own.directory, clock)
    _must_be_believed(own)
    key.unlink()
    own.ca.unlink()
    OwnAuthority(own.directory, clock)
    _must_be_believed(own)


def _certificate(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def _must_be_believed(own):
    _certificate(own.pair.certificate).verify_directly_issued_by(_certificate(own.ca))


def _signed_by_another(own):
    """A server's certificate in the name of this authority, by a key that it does not have."""
    made = _signed(own, ec.generate_private_key(ec.SECP256R1()), x509.DNSName("localhost"))
    return made + own.pair.key.read_bytes()


def _signed(own, key, name):
    """A certificate in the name of this authority: for the key of its server, and this name."""
    server = _certificate(own.pair.certificate)
    made = (
        x509.CertificateBuilder(server.issuer, server.subject, server.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(server.not_valid_before_utc)
        .not_valid_after(server.not_valid_after_utc)
        .add_extension(x509.SubjectAlternativeName([name]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize(
    ("name", "is_believed"),
    [
        (x509.DNSName("localhost"), True),
        (x509.IPAddress(ip_address("127.69.0.10")), True),
        (x509.IPAddress(ip_address("::1")), True),
        (x509.DNSName("management.azure.com"), False),
        (x509.IPAddress(ip_address("203.0.113.4")), False),
    ],
)
def test_whoever_steals_the_authority_vouches_for_this_machine_alone(tmp_path, name, is_believed):
    """A terminal that trusts it goes on to pip and to the rest of the web."""
    own = OwnAuthority(tmp_path / "authority", ManualClock())
    stolen = serialization.load_pem_private_key((own.directory / "ca.key").read_bytes(), None)
    made = tmp_path / "made.pem"
    made.write_bytes(_signed(own, stolen, name))
    command = ["openssl", "verify", "-no_check_time", "-CAfile", own.ca, made]
    found = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert (found.returncode == 0) == is_believed
    assert is_believed or "permitted subtree violation" in found.stderr


def test_a_vm_has_no_identity_until_it_is_given_one_and_never_anothers(key_file):
    """It asks by its address; the token it gets is that of what an operator has made for it."""
    with serving(MemoryStore(), auth=False) as served:
        run = served.run
        issuer = Issuer(KeyFile(key_file), run.auth, run.auth.clock, URL)
        run.worker.identify = ManagedIdentities(issuer, run.service).answer
        first = _identity(run, "web-0")
        assert first == (
            400,
            {"error": "invalid_request", "error_description": "Identity not found"},
        )
        body = {"name": "web-0-id", "role": "reader", "vm": "web-0"}
        made = served.post("/v1/tokens", body).json
        assert made["secret"] == ""
        status, answer = _identity(run, "web-0", slash="/")
        assert (status, answer["token_type"]) == (200, "Bearer")
        caller = served.inside(Bearers(issuer).caller(answer["access_token"]))
        assert (caller.token.name, caller.token.role) == ("web-0-id", TokenRole.READER)
        for more in ("", "&client_id=web-0-id"):
            assert _identity(run, "web-1", more)[0] == 400
        assert _identity(run, "web-0", "&client_id=" + answer["client_id"])[0] == 200
        assert _identity(run, "web-0", resource="https://vault.azure.net")[0] == 400
        assert _identity(run, "web-0", resource="")[0] == 400
        assert _identity(run, "web-0", headers={})[0] == 400
        forwarded = {"Metadata": "true", "X-Forwarded-For": "10.0.0.1"}
        assert _identity(run, "web-0", headers=forwarded)[0] == 400
        assert served.post("/v1/tokens/web-0-id/revoke").status == 200
        assert _identity(run, "web-0")[0] == 400
        assert served.inside(Bearers(issuer).caller(answer["access_token"])) is None


def _identity(run, vm, more="", *, resource=f"{URL}/", headers=None, slash=""):
    from http.client import HTTPConnection  # noqa: PLC0415

    connection = HTTPConnection(*run.metadata, timeout=10)
    path = f"/vm/{vm}/metadata/identity/oauth2/token{slash}?api-version=2018-02-01"
    given = {"Metadata": "true"} if headers is None else headers
    connection.request("GET", f"{path}&resource={resource}{more}", headers=given)
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def test_a_vm_is_no_admin():
    """Whoever is in it could make himself another token."""
    from fairnotice.control.tokens import make  # noqa: PLC0415

    with pytest.raises(UsageError, match="reader or operator"):
        make(Wanted("a", TokenRole.ADMIN, vm="web-0"), "test", ManualClock().wall())
