"""A token counts from when it is made until it is revoked or over, and tells nobody its secret."""

import asyncio
import json

import pytest

from fairnotice.control.tokens import Tokens, Wanted, make
from fairnotice.errors import Unavailable, UsageError
from fairnotice.stores.memory import MemoryStore
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import TokenRole
from tests.control.bearers import NOW, SCOPE, Bearers, kept
from tests.control.calling import serving


def test_a_token_is_made_shown_once_and_revoked(asking):
    """It counts at once, and from its revocation on no more; its secret is nowhere."""
    body = {"name": "Ann", "role": "reader", "expires_days": 1}
    made = asking.ask("admin", "post", "/v1/tokens", body).json
    asking.texts["ann"] = made["secret"]
    assert asking.ask("ann", "get", "/v1/vms").status == 200
    assert (made["token"]["created_by"], made["token"]["name"]) == ("admin-1", "Ann")
    listed = asking.ask("admin", "get", "/v1/tokens").body.decode()
    assert "Ann" in listed
    assert made["secret"] not in listed
    assert made["secret"].split("_", 2)[2] not in str(asking.store.tokens())
    again = asking.ask("admin", "post", "/v1/tokens", {**body, "name": "ann"})
    assert (again.status, again.problem["type"][-7:]) == (422, "invalid")
    assert asking.ask("admin", "post", "/v1/tokens/Ann/revoke").json["revoked_at"]
    assert asking.ask("ann", "get", "/v1/vms").status == 401
    assert asking.ask("admin", "post", "/v1/tokens", body).status == 422
    assert asking.ask("admin", "post", "/v1/tokens/Bob/revoke").status == 404


@pytest.mark.parametrize(
    "more",
    [
        {"role": "endpoint"},
        {"role": "reader", "node": "node-0"},
        {"role": "endpoint", "node": "node-77"},
        {"role": "reader", "scopes": ["availability-set:wed"]},
        {"role": "admin", "scopes": [SCOPE]},
        {"role": "endpoint", "node": "node-0", "resource_groups": ["sample"]},
        {"role": "owner"},
        {"role": "reader", "name": "operator"},
        {"role": "reader", "name": "a b"},
        {"role": "reader", "expires_days": 0},
    ],
)
def test_a_token_that_means_nothing_is_not_made(asking, more):
    """A mistyped scope or node is said, and not found out later."""
    before = asking.store.tokens()
    answer = asking.ask("admin", "post", "/v1/tokens", {"name": "new", **more})
    assert answer.status in (404, 422)
    assert answer.problem
    assert asking.store.tokens() == before


def test_a_name_with_a_new_line_is_none():
    """Names stand in logs."""
    for name in ("a\n", "a\nb", "", "-a", "a" * 65):
        with pytest.raises(UsageError):
            make(Wanted(name, TokenRole.READER), "test", NOW)


def test_a_token_that_counts_for_ages_is_none():
    """Whoever makes it straight in a store is told so, as the API does."""
    for days in (-1, 0, 36_501, 1e12, float("inf"), float("nan")):
        with pytest.raises(UsageError, match="up to 36,500 days"):
            make(Wanted("a", TokenRole.READER, expires_days=days), "test", NOW)


def test_a_stream_ends_with_its_token():
    """Whoever follows the feed is not told more than he may know."""
    store = MemoryStore()
    with serving(store, auth=True) as served:
        asking = Bearers(served, store)
        connection = served.connection()
        headers = {"Authorization": f"Bearer {asking.texts['reader']}"}
        connection.request("GET", "/v1/feed", headers=headers)
        feed = connection.getresponse()
        assert json.loads(feed.readline())["revision"] == 1
        assert asking.ask("admin", "post", "/v1/tokens/reader-1/revoke").status == 200
        # To its end, which there would not be otherwise.
        assert feed.read()
        connection.close()


def asked(store):
    """How Tokens asks a store, in a loop of this test's own."""

    def ask(question):
        answer = asyncio.get_running_loop().create_future()
        try:
            answer.set_result(question(store))
        except Unavailable as error:
            answer.set_exception(error)
        return answer

    return ask


class Away(MemoryStore):
    away = False

    def tokens_changed(self):
        if self.away:
            raise Unavailable("away")
        return super().tokens_changed()


def test_tokens_go_on_without_their_store():
    """Those that are known count until they expire, and end what goes on then."""

    async def story():
        store, clock = Away(), ManualClock()
        text = kept(store, "a", now=clock.wall(), expires_days=1)
        tokens = Tokens(asked(store), clock)
        await tokens.look()
        store.away = True
        following = asyncio.ensure_future(tokens.follow())
        await asyncio.sleep(0)
        bearer = await tokens.find(text)
        unknown = make(Wanted("b", TokenRole.READER), "test", clock.wall()).text
        clock.advance(seconds=10)
        assert await tokens.find(text) is bearer
        with pytest.raises(Unavailable):
            await tokens.find(unknown)
        assert not bearer.ended.is_set()
        clock.advance(days=1)
        assert await tokens.find(text) is None
        await bearer.ended.wait()
        following.cancel()

    asyncio.run(story())


def test_another_control_plane_learns_of_a_revocation_within_two_seconds():
    """It asks nobody but the store."""

    async def story():
        store, clock = MemoryStore(), ManualClock()
        text = kept(store, "a", now=clock.wall())
        here, there = (Tokens(asked(store), clock) for _ in range(2))
        bearer = await there.find(text)
        following = asyncio.ensure_future(there.follow())
        await asyncio.sleep(0)
        await here.revoke(bearer.token.id)
        assert await here.find(text) is None
        clock.advance(seconds=2)
        await bearer.ended.wait()
        assert await there.find(text) is None
        following.cancel()

    asyncio.run(story())


def test_how_long_it_takes_does_not_tell_which_ids_there_are():
    """A wrong secret waits as an unknown id does; the right one does not."""

    async def story():
        store, clock = MemoryStore(), ManualClock()
        text = kept(store, "a", now=clock.wall())
        unknown = make(Wanted("b", TokenRole.READER), "test", clock.wall()).text
        id_, _, secret = unknown.partition("_")[2].partition("_")
        tokens = Tokens(asked(store), clock)
        await tokens.look()
        assert await tokens.find(text) is not None
        wrong = "_".join((*text.split("_", 2)[:2], secret))
        assert id_ not in wrong
        tries = [asyncio.ensure_future(tokens.find(one)) for one in (unknown, wrong)]
        await asyncio.sleep(0.01)
        assert [one.done() for one in tries] == [False, False]
        clock.advance(seconds=1)
        assert await asyncio.gather(*tries) == [None, None]

    asyncio.run(story())


class Counts(MemoryStore):
    looks = 0

    def tokens_changed(self):
        self.looks += 1
        return super().tokens_changed()


def test_unknown_tokens_do_not_flood_the_store():
    """However many come at once, it is looked once for all of them; and not again too soon."""

    async def story():
        store, clock = Counts(), ManualClock()
        tokens = Tokens(asked(store), clock)
        await tokens.look()

        async def try_many():
            unknown = [make(Wanted("b", TokenRole.ADMIN), "test", NOW).text for _ in range(100)]
            tries = [asyncio.ensure_future(tokens.find(text)) for text in unknown]
            await asyncio.sleep(0.01)
            clock.advance(seconds=1)
            assert await asyncio.gather(*tries) == [None] * 100

        await try_many()
        assert store.looks == 2
        await try_many()
        assert store.looks == 3
        # One that is there now is found at once.
        clock.advance(seconds=1)
        assert await tokens.find(kept(store, "new", now=clock.wall())) is not None

    asyncio.run(story())
