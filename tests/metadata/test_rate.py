"""WIRE section 4: 5 requests a second from one VM, sustained, with a burst of 10."""

import pytest

from fairnotice.metadata.rate import DEFAULT, rate_of
from tests.engine.story import WEB
from tests.metadata.wireless import (
    DB_0,
    NEWEST,
    STRANGER,
    WEB_0,
    WEB_1,
    approval,
    get,
    post,
    request,
)


def statuses(world, count, raw=None, address=WEB_0):
    """What so many requests at once are answered."""
    return [world.ask(raw or get(), address).status for _ in range(count)]


def test_ten_at_once_and_no_more(wireless):
    """The eleventh is told to come back."""
    world = wireless(rate_limit=DEFAULT)
    assert statuses(world, 11) == [200] * 10 + [429]
    answer = world.ask(get())

    assert answer.status == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.error
    assert "etag" not in answer.headers


def test_the_connection_of_whoever_asks_too_often_goes_on(wireless):
    """Pipelined or one by one, on one connection or on many: the count is the VM's."""
    world = wireless(rate_limit=DEFAULT)
    vm = world.connect()
    answers = [answer.status for answer in vm.send(get() * 12)]
    assert answers == [200] * 10 + [429] * 2
    assert world.ask(get()).status == 429
    world.advance(seconds=1)

    assert vm.ask(get()).status == 200


@pytest.mark.parametrize("per_second", [1, 4, 5])
def test_five_a_second_go_on_for_ever(wireless, per_second):
    """A VM that keeps to it is never refused."""
    world = wireless(rate_limit=DEFAULT)
    vm = world.connect()
    for _ in range(60 * per_second):
        assert vm.ask(get()).status == 200
        world.stage.clock.advance(seconds=1 / per_second)


def test_ten_a_second_get_five(wireless):
    """Sustained, half of twice as many are refused, after the burst."""
    world = wireless(rate_limit=DEFAULT)
    vm = world.connect()
    served = 0
    for _ in range(600):
        served += vm.ask(get()).status == 200
        world.stage.clock.advance(seconds=0.1)

    assert 300 <= served <= 311


def test_after_retry_after_it_is_served(wireless):
    """Whoever waits as long as he is told is not refused again, at any rate that is set."""
    for rate in (DEFAULT, rate_of(per_second=0.2, burst=1), rate_of(per_second=1, burst=3)):
        world = wireless(rate_limit=rate)
        while (answer := world.ask(get())).status == 200:
            pass
        world.advance(seconds=int(answer.headers["retry-after"]))
        assert world.ask(get()).status == 200


def test_it_is_counted_for_each_vm(wireless):
    """A VM that asks too often costs neither its neighbour nor another scope anything."""
    world = wireless(rate_limit=DEFAULT)
    statuses(world, 50)

    assert world.ask(get(), WEB_1).status == 200
    assert world.ask(get(), DB_0).status == 200
    assert world.ask(get(), WEB_0).status == 429


def test_all_addresses_of_a_vm_count_together(wireless):
    """The VM db has two network cards and one rate."""
    world = wireless(rate_limit=DEFAULT)

    assert statuses(world, 10, address="10.0.4.1") == [200] * 10
    assert world.ask(get(), "10.0.4.2").status == 429


@pytest.mark.parametrize(
    "raw",
    [
        get(),
        get('If-None-Match: "1-1"'),
        get(version="2017-03-01"),
        get(metadata=None),
        get(version="latest"),
        get(version="2024-07-09"),
        post(b"nonsense"),
        request("GET", "/metadata/instance?api-version=2021-02-01"),
        request("GET", "/metadata/versions"),
    ],
    ids=lambda raw: raw[:60].decode(),
)
def test_all_its_requests_count(wireless, raw):
    """Ten of any kind, and a poll is refused."""
    world = wireless(rate_limit=DEFAULT)
    statuses(world, 10, raw)

    assert world.ask(get()).status == 429


@pytest.mark.parametrize(
    "raw",
    [
        request("GET", "/nowhere"),
        request("PUT"),
        get("X-Forwarded-For: x"),
        get("Origin: x"),
    ],
    ids=lambda raw: raw[:60].decode(),
)
def test_also_those_that_an_earlier_check_refuses(wireless, raw):
    """They are answered by that check at any rate, and count."""
    world = wireless(rate_limit=DEFAULT)
    assert 429 not in statuses(world, 30, raw)

    assert world.ask(get()).status == 429


@pytest.mark.parametrize(
    "path", ["/metadata/instance?api-version=2021-02-01", "/metadata/versions"]
)
def test_every_get_is_refused(wireless, path):
    """Not the document alone."""
    world = wireless(rate_limit=DEFAULT)
    statuses(world, 10)

    assert world.ask(request("GET", path)).status == 429
    assert world.ask(get('If-None-Match: "1-1"')).status == 429


def test_an_approval_is_never_refused(wireless):
    """200 far over the rate, on a connection of its own and behind refused polls."""
    world = wireless(rate_limit=DEFAULT)
    world.stage.restart_vm("web-0")
    event = world.stage.only(WEB).id
    statuses(world, 50)
    answers = world.connect().send(get() + approval(event) * 20 + get())

    assert [answer.status for answer in answers] == [429, *[200] * 20, 429]
    assert world.stage.event(event).approval is not None


def test_with_the_control_plane_away_the_rate_holds(wireless):
    """A scope that cannot be enabled now is no way round it, however the poll is sent."""
    world = wireless(listening=(), rate_limit=DEFAULT)
    world.stage.away = True
    assert statuses(world, 11) == [200] * 10 + [429]
    vm = world.connect(WEB_1)

    assert [vm.ask(get()).status for _ in range(11)] == [200] * 10 + [429]


def test_it_can_be_set(wireless):
    """Two a second with a burst of three."""
    world = wireless(rate_limit=rate_of(per_second=2, burst=3))
    assert statuses(world, 4) == [200] * 3 + [429]
    world.advance(seconds=1)

    assert statuses(world, 3) == [200] * 2 + [429]


def test_it_can_be_switched_off(wireless):
    """A thousand at once."""
    world = wireless(rate_limit=None)

    assert {answer.status for answer in world.connect().send(get() * 1_000)} == {200}


def test_a_refused_poll_neither_enables_nor_shows(wireless):
    """429 is not an answer that counts."""
    world = wireless(listening=(), rate_limit=DEFAULT)
    statuses(world, 10, request("GET", "/metadata/versions"))
    assert world.ask(get()).status == 429

    assert not world.stage.scope(WEB).enabled
    assert world.worker.board.take_first_seen() == []


def test_a_stranger_is_told_so_however_often_he_asks(wireless):
    """403, never 429: there is no VM whose rate it could be."""
    world = wireless(rate_limit=DEFAULT)

    assert statuses(world, 20, get(version=NEWEST), STRANGER) == [403] * 20


def test_each_process_counts_by_itself(wireless):
    """A process has a board of its own, and the count is there: one is used up, the other not."""
    one, other = wireless(rate_limit=DEFAULT), wireless(rate_limit=DEFAULT)
    assert statuses(one, 11)[-1] == 429

    assert statuses(other, 10) == [200] * 10
