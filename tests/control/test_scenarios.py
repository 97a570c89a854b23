"""Scenarios: the platform keeps its promise in all of them, and where it does not that is found."""

import argparse
import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest

from fairnotice.cli import scenario as cli
from fairnotice.clock import SystemClock
from fairnotice.control.scenario_play import Play, Stalled
from fairnotice.control.scenario_sites import BRIEF, exchange, place_of, running_site, throw_away
from fairnotice.control.scenarios import SCENARIOS, play, play_side_by_side
from fairnotice.drivers.simulated.driver import SimulatedDriver
from fairnotice.engine import DEV
from fairnotice.errors import Unavailable, UsageError
from fairnotice.stores.memory import MemoryStore
from fairnotice.words import EventType, Risk
from tests.control.bearers import kept
from tests.control.calling import serving

CLOCK = SystemClock()
# As `dev`, and quicker still.
QUICK = replace(
    DEV,
    notice_seconds={
        EventType.FREEZE: 4,
        EventType.REBOOT: 4,
        EventType.REDEPLOY: 4,
        EventType.PREEMPT: 2,
    },
    risk_seconds={Risk.LOW: 6, Risk.MEDIUM: 5, Risk.HIGH: 4},
    recovery_seconds=2,
)
HASTY = replace(QUICK, notice_seconds=dict.fromkeys(EventType, 1))


# ---- As it is ----


@pytest.fixture(scope="module")
def played():
    """Every scenario, side by side, by its name."""
    opening = partial(throw_away, CLOCK, QUICK)
    all_of_them = asyncio.run(play_side_by_side(SCENARIOS.values(), opening, CLOCK))
    return {one.name: one for one in all_of_them}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_promise_is_kept(played, name):
    """Nothing is found fault with, and the timeline says what a VM saw."""
    one = played[name]

    assert one.broken == ()
    assert any(" Scheduled of " in line.text or " Started of " in line.text for line in one.lines)
    assert [line.at_seconds for line in one.lines] == sorted(line.at_seconds for line in one.lines)


def test_there_are_the_twelve():
    """The list that is promised."""
    assert len(SCENARIOS) == 12


async def in_a_running_one(names):
    """Play these, one after another, in a service that is not thrown away; its fleet then."""
    async with throw_away(CLOCK, QUICK) as own:
        site = running_site(f"http://{own.control}", f"http://{own.metadata}", QUICK)
        results = [await play(SCENARIOS[name], site, CLOCK) for name in names]
        nodes = json.loads((await exchange(own.control, "GET", "/v1/nodes")).body)["items"]
        vms = json.loads((await exchange(own.control, "GET", "/v1/vms")).body)["items"]
        return results, {node["name"]: node for node in nodes}, {vm["name"]: vm for vm in vms}


def test_a_running_service_is_put_back_afterwards():
    """A node that failed is back in service, and a deleted VM is there again."""
    results, nodes, vms = asyncio.run(in_a_running_one(["sudden-failure", "scale-in"]))

    assert [one.broken for one in results] == [(), ()]
    assert {node["state"] for node in nodes.values()} == {"in service"}
    assert "batch_3" in vms


def test_events_of_others_are_not_disturbed():
    """A scenario does not begin while something is announced."""

    async def story():
        async with throw_away(CLOCK, QUICK) as site:
            one = Play(site, CLOCK)
            await one.begin()
            await one.listen("web-0")
            await one.ask("a user", "restarts web-0", "/v1/vms/web-0/restart")
            with pytest.raises(UsageError, match=r"Reboot of web-0. Wait"):
                await play(SCENARIOS["user-reboot"], site, CLOCK)
            await one.close()

    asyncio.run(story())


def test_another_fleet_is_said_to_be_another():
    """A VM that a scenario needs and that is not there."""
    one = Play(running_site("http://127.0.0.1:1", "http://127.0.0.1:1"), CLOCK)

    with pytest.raises(UsageError, match="need the sample fleet"):
        one.node_of("web-0")


@pytest.mark.parametrize("url", ["127.0.0.1:8600", "https://127.0.0.1", "http://x:y", "http://"])
def test_what_is_no_address_is_refused(url):
    """With what to give instead."""
    with pytest.raises(UsageError, match="Give http://HOST:PORT"):
        place_of(url)


# ---- Planted in a service ----


class Twice(SimulatedDriver):
    """Strikes every VM twice, and says nothing of it."""

    async def impact(self, order, epoch):
        await super().impact(order, epoch)
        return await super().impact(order._replace(key=f"{order.key} again"), epoch)


def broken_in(name, **planted):
    """What is found broken when this scenario is played with a planted fault."""

    async def story():
        async with throw_away(CLOCK, QUICK, **planted) as site:
            return await play(SCENARIOS[name], site, CLOCK)

    return " ".join(asyncio.run(story()).broken)


def test_too_little_notice_is_found():
    """The service gives one second where four were promised."""
    assert "Too little notice: web-0 had at most" in broken_in("user-reboot", kept=HASTY)


# ---- The command ----


def command(*words):
    """The exit code of this command line."""
    parser = argparse.ArgumentParser()
    cli.add(parser.add_subparsers())
    arguments = parser.parse_args(["scenario", *words])
    return arguments.run(arguments)


def test_the_list_names_them_all(capsys):
    """In words, and as JSON."""
    assert command("list") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(SCENARIOS)
    assert command("list", "--json") == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == list(SCENARIOS)


def test_run_prints_what_a_vm_saw(capsys):
    """A timeline, and that the promise was kept."""
    assert command("run", "sudden-failure") == 0
    printed = capsys.readouterr().out
    assert "db sees Redeploy Started of db (document 2)" in printed
    assert "The promise was kept" in printed


def test_run_several_as_json(capsys, monkeypatch):
    """What each was, whether it kept the promise, and its timeline."""
    monkeypatch.setattr(cli, "throw_away", planted_timing())
    assert command("run", "sudden-failure", "user-redeploy", "--json") == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["name"], second["name"]) == ("sudden-failure", "user-redeploy")
    assert first["kept"]
    assert second["timeline"][0]["who"] == "db"


def planted_timing(**planted):
    """A service to throw away that is quick, or worse."""

    @asynccontextmanager
    async def opening(clock, _timing):
        async with throw_away(clock, QUICK, **planted) as site:
            yield site

    return opening


def test_a_broken_promise_ends_in_failure(capsys, monkeypatch):
    """Exit code 1, and the sentence on the error stream."""
    monkeypatch.setattr(cli, "throw_away", planted_timing(driving=partial(Twice, durations=BRIEF)))
    assert command("run", "user-redeploy") == 1
    said = capsys.readouterr()
    assert "user-redeploy: db should have been struck once, and was struck 2 times." in said.err
    assert "The promise was kept" not in said.out


def test_an_unknown_scenario_is_said_with_the_nearest(capsys):
    """Exit code 3."""
    assert command("run", "user-rebot") == 3
    assert "Did you mean user-reboot?" in capsys.readouterr().err


def test_nobody_there_is_said(capsys):
    """Exit code 4, and what to do."""
    assert command("run", "all", "--url", "http://127.0.0.1:9") == 4
    assert "No control plane answers at http://127.0.0.1:9" in capsys.readouterr().err


def site_of(*words):
    """Where a scenario would be played by these flags."""
    parser = argparse.ArgumentParser()
    cli.add(parser.add_subparsers())
    return cli._site(parser.parse_args(["scenario", "run", "rollout", *words]))


def test_a_running_service_says_itself_where_its_metadata_is(capsys, monkeypatch):
    """Another's endpoint is refused before anything is done there, and the right one is named."""
    with serving() as served, serving() as another:
        url, metadata = f"http://{served.run.control}", f"http://{served.run.metadata}"
        assert site_of("--url", url).metadata == served.run.metadata
        assert site_of("--url", url, "--metadata-url", metadata).metadata == served.run.metadata
        wrong = f"http://{another.run.metadata}"
        revision = served.run.conductor.fleet.revision
        assert command("run", "rollout", "--url", url, "--metadata-url", wrong) == 2
        monkeypatch.setenv("FAIRNOTICE_METADATA_URL", wrong)
        assert command("run", "rollout", "--url", url) == 2
        assert served.run.conductor.fleet.revision == revision
    assert f"{wrong} is another's: {url} serves metadata at {metadata}" in capsys.readouterr().err


def test_a_service_that_wants_a_token_is_asked_with_it(monkeypatch):
    """FAIRNOTICE_TOKEN goes along, as with every other command; without it nothing is begun."""

    async def begun(site):
        play = Play(site, CLOCK)
        await play.begin()
        return set(play.vms)

    store = MemoryStore()
    with serving(store, auth=True) as served:
        url, metadata = f"http://{served.run.control}", f"http://{served.run.metadata}"
        monkeypatch.setenv("FAIRNOTICE_TOKEN", kept(store, "player"))
        assert asyncio.run(begun(site_of("--url", url))) == set(served.run.service.fleet.vms)
        with pytest.raises(Stalled, match="needs a token"):
            asyncio.run(begun(running_site(url, metadata)))


def test_where_nobody_serves_metadata_nothing_is_played():
    """That is no broken promise: nobody has promised anything there."""
    with serving() as served:
        site = running_site(f"http://{served.run.control}", "http://127.0.0.1:1")
        revision = served.run.conductor.fleet.revision
        with pytest.raises(Unavailable, match=r"Nobody answers at http://127\.0\.0\.1:1:"):
            asyncio.run(play(SCENARIOS["rollout"], site, CLOCK))
        assert served.run.conductor.fleet.revision == revision


def test_a_wrong_url_is_said(capsys):
    """Exit code 2, with what to give instead."""
    assert command("run", "all", "--url", "nonsense") == 2
    assert "Give http://HOST:PORT" in capsys.readouterr().err


def test_what_speaks_no_http_is_unavailable():
    """A port on which something else listens."""

    async def story():
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(Unavailable, match=r"does not speak HTTP|Nobody answers"):
                await exchange(place_of(f"http://127.0.0.1:{port}"), "GET", "/")

    asyncio.run(story())
