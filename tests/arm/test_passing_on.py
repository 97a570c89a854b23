"""One control plane of several: what Azure's tools ask of it, whichever leads."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager, closing
from urllib.parse import urlsplit

from fairnotice.arm.serving import Port, opened, signing_with
from fairnotice.arm.signing import KeyFile, make_key_file
from fairnotice.clock import SystemClock
from fairnotice.control.auth import ASKED_AT, PASSED_ON
from fairnotice.control.peers import Peer
from fairnotice.control.running import LOOPBACK, Entrance, Place
from fairnotice.stores.opening import open_lease, open_store
from tests.arm.calling import SUBSCRIPTION, VERSION
from tests.control.bearers import kept
from tests.control.test_passing_on import ANYWHERE, FLEET, LONG_SECONDS, control_plane, deaf
from tests.ports import own_port
from tests.waiting import soon

COMPUTE = f"{SUBSCRIPTION}/resourceGroups/default/providers/Microsoft.Compute"
VM = f"{COMPUTE}/virtualMachines/vm-0"


class Member:
    """One of several, asked at its control plane and where Azure's tools ask."""

    def __init__(self, run, control, tools):
        self.run = run
        self.control = control
        self.tools = tools

    async def ask(self, method, path, body=None, *headers, peer=None):
        """One request of a tool: the answer, and what is said."""
        data = b"" if body is None else json.dumps(body).encode()
        path = path if "?" in path else f"{path}?{VERSION}"
        answer = await (peer or self.tools).ask(method, path, headers=headers, body=data)
        return answer, json.loads(answer.body or b"null")

    async def sign_in(self, name, secret):
        """The header of an access token that this one has signed, for its own URL."""
        form = "grant_type=client_credentials"
        form += f"&client_id={name}&client_secret={secret}&scope={self.tools.url}/.default"
        headers = [("Content-Type", "application/x-www-form-urlencoded")]
        path = "/adfs/oauth2/token"
        answer = await self.tools.ask("POST", path, headers=headers, body=form.encode())
        assert answer.status == 200, answer
        return "Authorization", f"Bearer {json.loads(answer.body)['access_token']}"


@asynccontextmanager
async def member(url, keys, address=None, *, arm=True):
    """One of several that wants tokens, each with a URL of its own for Azure's tools."""
    place, tools = (Place(LOOPBACK, own_port()) for _ in range(2))
    signing = signing_with(KeyFile(keys), SystemClock(), f"http://{tools}")
    beside = opened(Port(tools, Entrance(), signing)) if arm else None
    address = address or f"http://{place}"
    async with control_plane(url, address, place, auth=True, beside=beside) as (run, control):
        peer = Peer(f"http://{tools}")
        try:
            yield Member(run, control, peer)
        finally:
            await peer.close()


@asynccontextmanager
async def two(url, tmp_path, **leader):
    """The one that leads and the one that follows, and a token of each role."""
    keys = tmp_path / "keys.pem"
    make_key_file(keys)
    with closing(open_store(url)) as store:
        secrets = {role: kept(store, f"{role}-1", role) for role in ("reader", "operator", "admin")}
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(member(url, keys, **leader))
        await soon(lambda: first.run.conductor.leading)
        second = await stack.enter_async_context(member(url, keys))
        await soon(lambda: second.run.conductor.leader is not None)
        headers = [("Authorization", f"Bearer {secrets['admin']}")]
        body = json.dumps(FLEET).encode()
        assert (
            await second.control.ask("PUT", "/v1/fleet", headers=headers, body=body)
        ).status == 200
        yield first, second, secrets


async def followed(one, url, token):
    """What a long-running operation says of itself at this control plane."""
    parts = urlsplit(url)
    answer, said = await one.ask("GET", f"{parts.path}?{parts.query}", None, token)
    assert answer.status == 200, said
    return said["status"]


def test_what_is_asked_of_one_that_follows_the_leader_does(postgres_url, tmp_path):
    """And its long-running operation is told of by both, at the address that was asked."""

    async def story():
        async with two(postgres_url, tmp_path) as (leader, follower, secrets):
            token = await follower.sign_in("operator-1", secrets["operator"])
            once = ("x-ms-client-request-id", "e5c6a1f0-8f4c-4f9e-9a3e-000000000001")
            answer, _ = await follower.ask("POST", f"{VM}/restart", None, token, once)
            assert (answer.status, answer.headers["retry-after"]) == (202, "1")
            assert answer.headers[once[0]] == once[1]
            url = answer.headers["azure-asyncoperation"]
            assert url.startswith(f"{follower.tools.url}/subscriptions/")
            assert answer.headers["location"] == f"{url}&monitor=true"
            # The tools' own repeat, through whichever.
            for one in (follower, leader):
                again, _ = await one.ask("POST", f"{VM}/restart", None, token, once)
                assert urlsplit(again.headers["azure-asyncoperation"]).path == urlsplit(url).path
            assert len(leader.run.service.fleet.operations) == 1
            for one in (follower, leader):
                while (said := await followed(one, url, token)) != "Succeeded":
                    assert said == "InProgress"
                    await asyncio.sleep(0.05)
            assert not follower.run.conductor.leading
            audits = leader.run.auth.audits
            lines = await audits.read(10, before=None, who="operator-1", since=None)
            noted = [one.audited for one in lines if one.audited.path.endswith("/restart")]
            assert [one.source for one in noted] == [
                "127.0.0.1",
                "127.0.0.1 through 127.0.0.1",
                "127.0.0.1 through 127.0.0.1",
            ]
            assert noted[0].operations == noted[2].operations != ()

    asyncio.run(story())


def test_what_two_have_read_only_one_writes_whichever_he_asks(postgres_url, tmp_path):
    """If-Match and the new ETag go through; so does what the leader refuses, as it says it."""

    async def story():
        async with two(postgres_url, tmp_path) as (leader, follower, secrets):
            token = await leader.sign_in("operator-1", secrets["operator"])
            read, said = await follower.ask("GET", VM, None, token)
            match = ("If-Match", read.headers["etag"])
            tagged = {"location": said["location"], "tags": {"a": "b"}}
            answer, said = await follower.ask("PUT", VM, tagged, token, match)
            assert (answer.status, said.get("tags")) == (200, {"a": "b"}), said
            # What was written is to be seen where it was asked, by the time it is answered.
            now, said = await follower.ask("GET", VM, None, token)
            assert (now.headers["etag"], said["tags"]) == (answer.headers["etag"], {"a": "b"})
            answer, said = await follower.ask("PUT", VM, tagged, token, match)
            assert (answer.status, said["error"]["code"]) == (412, "PreconditionFailed")
            answer, said = await follower.ask(
                "POST", f"{COMPUTE}/virtualMachines/no/start", None, token
            )
            assert (answer.status, said["error"]["code"]) == (404, "ResourceNotFound")

    asyncio.run(story())


def test_nobody_gets_in_by_saying_that_he_was_passed_on(postgres_url, tmp_path):
    """Who asks is looked at where it is carried out; nor does it lead anybody astray elsewhere."""

    async def story():
        async with two(postgres_url, tmp_path) as (leader, follower, secrets):
            claims = [(PASSED_ON, "127.0.0.1"), (ASKED_AT, "https://evil.example")]
            reader = await leader.sign_in("reader-1", secrets["reader"])
            operator = await leader.sign_in("operator-1", secrets["operator"])
            forged = (operator[0], operator[1][:-4] + "AAAA")
            for peer in (leader.control, leader.tools):
                for shown, status, code in (
                    ([], 401, "InvalidAuthenticationToken"),
                    ([forged], 401, "InvalidAuthenticationToken"),
                    ([reader], 403, "AuthorizationFailed"),
                ):
                    answer, said = await leader.ask(
                        "POST", f"{VM}/restart", None, *shown, *claims, peer=peer
                    )
                    assert (answer.status, said["error"]["code"]) == (status, code)
            # Only one of the two is no reason to be handed over, and an access token none to enter.
            for claim in claims:
                answer, _ = await leader.ask(
                    "POST", f"{VM}/restart", None, operator, claim, peer=leader.control
                )
                assert answer.status == 401
            assert not leader.run.service.fleet.operations
            answer, _ = await leader.ask("POST", f"{VM}/restart", None, operator, *claims)
            assert answer.headers["azure-asyncoperation"].startswith(f"{leader.tools.url}/")
            # A follower refuses a role that is too small itself, and nothing goes in a circle.
            token = await follower.sign_in("reader-1", secrets["reader"])
            answer, said = await follower.ask("POST", f"{VM}/restart", None, token)
            assert (answer.status, said["error"]["code"]) == (403, "AuthorizationFailed")
            answer, said = await follower.ask(
                "POST", f"{VM}/restart", None, operator, *claims, peer=follower.control
            )
            assert (answer.status, said["error"]["code"]) == (503, "ServiceUnavailable")
            assert (
                "passed on to one that does not lead. Nothing was done" in said["error"]["message"]
            )

    asyncio.run(story())


def test_a_poll_waits_for_what_was_told_elsewhere(postgres_url, tmp_path):
    """Whichever is asked next may be behind: then later, and never that it is not there."""

    async def story():
        async with two(postgres_url, tmp_path) as (_, follower, secrets):
            token = await follower.sign_in("operator-1", secrets["operator"])
            answer, _ = await follower.ask("POST", f"{VM}/restart", None, token)
            parts = urlsplit(answer.headers["azure-asyncoperation"])
            ahead = f"{parts.path}?{VERSION}&revision=1000000"
            answer, said = await follower.ask("GET", ahead, None, token)
            assert (answer.status, answer.headers["retry-after"]) == (503, "5")
            assert said["error"]["code"] == "ServiceUnavailable"
            for odd in ("x", "-1", "9" * 40):
                url = f"{parts.path}?{VERSION}&revision={odd}"
                assert (await follower.ask("GET", url, None, token))[0].status == 200

    asyncio.run(story())


def test_what_cannot_be_passed_on_is_said_as_azure_does(postgres_url, tmp_path):
    """The leader is gone, does not answer, or has no such port: 503, and when to ask again."""
    keys = tmp_path / "keys.pem"
    make_key_file(keys)
    with closing(open_store(postgres_url)) as store:
        token = ("Authorization", f"Bearer {kept(store, 'operator-1')}")
    key = ("x-ms-client-request-id", "e5c6a1f0-8f4c-4f9e-9a3e-000000000001")

    async def refused(one, *headers):
        answer, said = await one.ask("POST", f"{VM}/restart", None, token, *headers)
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert answer.headers["content-type"] == "application/json"
        assert said["error"]["code"] == "ServiceUnavailable"
        return said["error"]["message"]

    async def story():
        gone = "http://127.0.0.1:1"
        with closing(open_lease(postgres_url, gone, LONG_SECONDS)) as other:
            assert other.take(other.look()) == 1
            async with member(postgres_url, keys) as one:
                await soon(lambda: one.run.conductor.leader is not None)
                said = await refused(one)
                assert f"{gone} leads and cannot be reached. Nothing was done" in said
                async with deaf() as address:
                    other.address = address
                    assert other.take(other.look()) == 2
                    await soon(lambda: one.run.conductor.leader.address == address)
                    assert "same x-ms-client-request-id, it is not done twice" in await refused(
                        one, key
                    )
                # One that has no such port leads: its control plane says so, and not whose it is.
                async with control_plane(postgres_url, "http://x", ANYWHERE, auth=True) as (run, _):
                    other.address = f"http://{run.control}"
                    assert other.take(other.look()) == 3
                    await soon(lambda: one.run.conductor.leader.address == other.address)
                    said = await refused(one)
                    assert "leads, and says: Azure's tools are not served here" in said

    asyncio.run(story())
