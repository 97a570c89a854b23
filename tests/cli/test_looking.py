"""Looking: lists, single things, JSON, pipes and names that nobody has."""

import pytest

from fairnotice.testing.manual_clock import ManualClock
from tests.cli.typed import Terminal, typed
from tests.control.calling import serving
from tests.waiting import until

LISTS = ("vm", "node", "scale-set", "rollout", "operation", "event")


@pytest.mark.parametrize("group", LISTS)
def test_a_list_is_json_where_that_is_asked_for(fairnotice, group):
    """Every list prints what the API answers, from the first part to the last."""
    ended = fairnotice(group, "list", "--json")

    assert (ended.code, ended.err) == (0, "")
    assert sorted(ended.json) == ["items", "next"]
    assert ended.json["next"] is None


def test_vms_are_listed_plainly_in_a_pipe(fairnotice):
    """A line for each VM under a heading; no colours, no frames, nothing cut."""
    ended = fairnotice("vm", "list")
    heading, *rows = ended.out.splitlines()

    assert ended.code == 0
    assert heading.split()[:4] == ["VM", "POWER", "SCOPE", "NODE"]
    assert len(rows) == 13
    assert rows[0].split()[:4] == ["web-0", "running", "availability-set:web", "node-0"]
    assert "\x1b" not in ended.out
    assert ended.out.isascii()


def test_nodes_are_listed_with_their_vms(fairnotice):
    """Which VMs are on a node is seen at a glance."""
    assert "batch_2, FrontEnd_IN_0, BackEnd_IN_0" in fairnotice("node", "list").out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("vm", "show", "db"), "vm:db"),
        (("node", "show", "node-1"), "web-1, batch_1, db"),
        (("scale-set", "show", "batch"), "5 min"),
        (("fleet", "show"), "availability-set:web"),
    ],
)
def test_one_thing_is_shown_for_people_and_for_programs(fairnotice, words, told):
    """The same command, read by a person, and with --json by a program."""
    assert told in fairnotice(*words).out
    assert fairnotice(*words, "--json").json


def test_a_node_shows_who_does_not_run_there_any_more():
    """Whoever empties a node to reboot it waits for that."""
    with serving(clock=ManualClock()) as served:
        url = f"http://{served.run.control}"
        assert typed("vm", "stop", "db", url=url).code == 0
        until(lambda: "batch_1, db (stopped)" in typed("node", "show", "node-1", url=url).out)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("vm", "show", "web-9"), "web-0"),
        (("vm", "restart", "wbe-0"), "web-0"),
        (("node", "cordon", "node0"), "node-0"),
        (("scale-set", "show", "bach"), "batch"),
        (("event", "show", "4711"), "no event 4711. One that is over for more than a day"),
        (("operation", "show", "nothing"), "no operation nothing"),
        (("rollout", "show", "nothing"), "no rollout nothing"),
        (("event", "watch", "--vm", "dbb"), "db"),
    ],
)
def test_what_is_not_there_ends_with_3_and_the_nearest_names(fairnotice, words, meant):
    """A sentence on stderr, nothing on stdout."""
    ended = fairnotice(*words)

    assert (ended.code, ended.out) == (3, "")
    assert meant in ended.err
    assert len(ended.err.splitlines()) == 1


def test_colours_are_for_terminals(service):
    """On a terminal there are colours, unless NO_COLOR says that there shall be none."""
    coloured = Terminal("node", "list", url=service.url)
    plain = Terminal("node", "list", url=service.url, env={"NO_COLOR": "1"})

    assert (coloured.end(), plain.end()) == (0, 0)
    assert "\x1b[32m" in coloured.raw
    assert "\x1b[32m" not in plain.raw
    assert "in service" in plain.text


def test_the_url_may_be_typed(service):
    """Before the command or behind it, and it wins over FAIRNOTICE_URL."""
    nowhere = "http://127.0.0.1:1"

    assert typed("--url", service.url, "vm", "list", url=nowhere).code == 0
    assert typed("vm", "list", "--url", service.url, url=nowhere).code == 0


def test_an_export_is_a_fleet_file(fairnotice):
    """TOML for a file, JSON for a program."""
    assert fairnotice("fleet", "export").out.startswith('[[node]]\nname = "node-0"\n')
    assert len(fairnotice("fleet", "export", "--json").json["vm"]) == 13
