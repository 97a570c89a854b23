"""Doing: VMs, events, scale sets, nodes and rollouts, from the announcement to the refusal."""

import re
from functools import partial

from tests.cli.typed import Terminal, served, typed
from tests.waiting import until


def announced(ended) -> str:
    """The id of the one event that announces it."""
    assert ended.code == 0, ended.err
    (event,) = ended.json["events"]
    return event["id"]


# ---- VMs and their events ----


def test_a_restart_is_announced_seen_and_approved(service, fairnotice):
    """The story of a reboot, as its history tells it."""
    event = announced(fairnotice("vm", "restart", "web-0", "--json"))
    service.look("web-0")
    until(lambda: fairnotice("event", "show", event, "--json").json["seen"])
    approved = fairnotice("event", "approve", event[:6].lower())
    shown = fairnotice("event", "show", event)
    history = fairnotice("event", "history", event[:6])

    assert "Reboot of web-0" in approved.out
    assert "operator" in shown.out
    for word in ("announced", "first seen by web-0", "approved by operator", "started"):
        assert word in history.out
    assert "given" in history.out
    steps = fairnotice("event", "history", event, "--json").json["steps"]
    assert [step["what"] for step in steps][:4] == [
        "EventAnnounced",
        "EventSeen",
        "EventApproved",
        "EventStarted",
    ]


def test_a_command_says_which_events_announce_it(fairnotice):
    """A table of the events, in a pipe with their ids in full."""
    ended = fairnotice("vm", "restart", "web-1")

    assert ended.out.startswith("web-1: restart")
    assert "announced by 1 event" in ended.out
    assert len(ended.out.splitlines()[-1].split()[0]) == 36


def test_several_vms_are_one_request(fairnotice):
    """One answer with an operation and an event for each VM, all of the same request."""
    ended = fairnotice("vm", "redeploy", "FrontEnd_IN_1", "batch_1", "--json")

    assert ended.code == 0
    vms = [event["resources"] for event in ended.json["events"]]
    assert vms == [["FrontEnd_IN_1"], ["batch_1"]]
    request = ended.json["id"]
    assert ended.json["operations"] == [f"{request}.0", f"{request}.1"]


def test_a_wrong_name_among_several_stops_all_of_them(fairnotice):
    """Nothing is done when a name is mistyped."""
    ended = fairnotice("vm", "restart", "web-2", "nobody")

    assert (ended.code, ended.out) == (3, "")
    assert fairnotice("vm", "show", "web-2", "--json").json["events"] == []


def test_what_the_law_refuses_ends_with_1(fairnotice):
    """The reason is said, and what to do instead."""
    ended = fairnotice("vm", "evict", "db")

    assert (ended.code, ended.out) == (1, "")
    assert (
        ended.err == "db is a Regular VM and is never evicted. Evict Spot VMs only, or delete it.\n"
    )


def test_one_refusal_among_several_vms_refuses_all(fairnotice):
    """It says which VM is the reason, and that the others are left alone."""
    ended = fairnotice("vm", "evict", "spot_1", "batch_2")

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("batch_2 is a Regular VM and is never evicted.")
    assert ended.err.endswith("So nothing is done to any of the 2 VMs.\n")
    assert fairnotice("vm", "show", "spot_1", "--json").json["events"] == []


def test_an_event_is_postponed_and_canceled(fairnotice):
    """By a length of time, then to an instant, then not at all."""
    event = announced(fairnotice("vm", "restart", "db", "--not-before", "+1h", "--json"))
    first = fairnotice("event", "show", event, "--json").json["not_before"]
    later = fairnotice("event", "postpone", event[:8], "--by", "30m")
    second = fairnotice("event", "show", event, "--json").json["not_before"]
    fixed = fairnotice("event", "postpone", event, "--to", "+3h")
    canceled = fairnotice("event", "cancel", event)

    assert (later.code, fixed.code, canceled.code) == (0, 0, 0)
    assert "in 1 h 29 min" in later.out or "in 1 h 30 min" in later.out
    assert first < second
    assert "Canceled" in canceled.out
    listed = fairnotice("event", "list", "--all", "--json").json["items"]
    assert event in [one["id"] for one in listed]
    assert event not in fairnotice("event", "list").out


def test_an_instant_in_the_past_is_said_once(fairnotice):
    """The field is not named twice."""
    ended = fairnotice("vm", "restart", "db", "--not-before", "2020-01-01T00:00Z")

    assert ended.err == "not_before lies in the past. Give a later instant.\n"


def test_nothing_is_called_approved_that_is_not():
    """An approval that comes too late is taken, and nothing comes of it: exit code 1."""
    with served() as there:
        fairnotice = partial(typed, url=there.url)
        canceled = announced(fairnotice("vm", "restart", "web-2", "--json"))
        fairnotice("event", "cancel", canceled)
        started = announced(fairnotice("node", "fail", "node-5", "--json"))
        waiting = announced(fairnotice("vm", "restart", "FrontEnd_IN_1", "--json"))
        late = fairnotice("event", "approve", canceled)
        mixed = fairnotice("event", "approve", canceled, started, waiting)
        approvals = fairnotice("event", "show", canceled, "--json").json["approvals"]

    assert (late.code, late.out) == (1, "")
    assert late.err == f"{canceled} is canceled: there is nothing to approve.\n"
    assert mixed.code == 1
    assert f"{started} has started: there is nothing to approve." in mixed.err
    assert [line.split()[0] for line in mixed.out.splitlines()] == [waiting]
    assert approvals == []


def test_what_is_promised_grows_with_a_postponement(fairnotice):
    """The history says what was promised in the end, not at first."""
    event = announced(fairnotice("vm", "restart", "batch_3", "--not-before", "+1h", "--json"))
    before = fairnotice("event", "history", event).out
    fairnotice("event", "postpone", event, "--by", "1h")
    after = fairnotice("event", "history", event).out
    fairnotice("event", "cancel", event)

    assert "Notice: 1 h promised." in before
    assert "Notice: 2 h promised." in after


def test_a_beginning_that_several_ids_share_is_not_enough(fairnotice):
    """More of the id is asked for."""
    fairnotice("vm", "restart", "db", "--not-before", "+1h")
    ids = [one["id"] for one in fairnotice("event", "list", "--all", "--json").json["items"]]
    first = [one[0] for one in ids]
    shared = next((letter for letter in first if first.count(letter) > 1), None)
    if shared is not None:
        assert fairnotice("event", "show", shared).code == 2
    assert fairnotice("event", "show", ids[0][:20]).code == 0


# ---- Power and scale sets ----


def test_a_vm_is_stopped_without_an_event(fairnotice):
    """Nobody is told of what was asked for at once."""
    ended = fairnotice("vm", "stop", "BackEnd_IN_0")

    assert ended.code == 0
    assert "no event announces it" in ended.out


def test_a_scale_set_is_scaled_in_after_its_notice(fairnotice):
    """The terminate notice is set; then the newest instance is told that it goes."""
    changed = fairnotice("scale-set", "set-terminate-notice", "batch", "7")
    shrunk = fairnotice("scale-set", "scale-in", "batch", "--count", "1", "--json")

    assert changed.code == 0
    # The timing is dev, where as many seconds are given.
    assert "terminate notice 7 s (for 7 min)" in changed.out
    assert "7 s (for 7 min)" in fairnotice("scale-set", "show", "batch").out
    assert shrunk.json["events"][0]["type"] == "Terminate"
    spot = fairnotice("scale-set", "set-terminate-notice", "spot", "7")
    assert (spot.code, "spot is Spot: its Spot instances are deleted" in spot.err) == (0, True)
    assert fairnotice("scale-set", "set-terminate-notice", "batch", "99").code == 2
    for minutes in ("4", "16", "soon"):
        refused = fairnotice("scale-set", "set-terminate-notice", "batch", minutes)
        assert refused.code == 2
        assert "5 to 15 minutes" in refused.err


# ---- Nodes and rollouts ----


def test_a_node_is_maintained_with_notice(fairnotice):
    """What lives on the node is told."""
    ended = fairnotice("node", "maintain", "node-5", "--impact", "reboot", "--json")

    assert ended.code == 0
    assert [event["node"] for event in ended.json["events"]] in (["node-5"], [])


def test_it_is_said_which_vms_of_a_node_are_not_told():
    """Its VMs are of three scopes, and one of them listens."""
    untold = "{}: no VM of {} scope ({}) has asked within a day, so nobody {}.\n"
    with served(listeners=("web-0",)) as there:
        fairnotice = partial(typed, url=there.url)
        frozen = fairnotice("node", "maintain", "node-1")
        failed = fairnotice("node", "fail", "node-3", "node-4")
        cordoned = fairnotice("node", "cordon", "node-2")
        rolled_out = fairnotice("rollout", "start", "node-2", "node-5")

    assert "announced by 1 event" in frozen.out
    assert frozen.err == untold.format(
        "batch_1", "its", "scale-set:batch:0", "was told"
    ) + untold.format("db", "its", "vm:db", "was told")
    assert untold.format("batch_2, batch_3", "their", "scale-set:batch:0", "was told") in failed.err
    assert cordoned.err == ""
    assert untold.format("spot_0, spot_1", "their", "scale-set:spot:0", "is told") in rolled_out.err


def test_a_node_is_cordoned_and_returned(fairnotice):
    """The list shows it at once."""
    assert fairnotice("node", "cordon", "node-4").code == 0
    assert fairnotice("node", "show", "node-4", "--json").json["cordoned"]
    assert fairnotice("node", "uncordon", "node-4").code == 0
    assert not fairnotice("node", "show", "node-4", "--json").json["cordoned"]


def test_several_nodes_are_a_rollout(fairnotice):
    """It is shown with a bar, paused, resumed and canceled."""
    begun = fairnotice("node", "maintain", "node-2", "node-4", "--duration", "5", "--json")
    name = begun.json["id"]
    shown = fairnotice("rollout", "show", name[:8])

    assert begun.code == 0
    assert shown.out.startswith("host-update of 2 nodes")
    assert "%" in shown.out
    assert fairnotice("rollout", "pause", name).code == 0
    assert "paused" in fairnotice("rollout", "list").out
    assert fairnotice("rollout", "resume", name).code == 0
    assert fairnotice("rollout", "cancel", name).code == 0
    shown = fairnotice("rollout", "show", name)
    assert " 0%   2 canceled" in shown.out
    assert "skipped" not in shown.out


def test_the_windows_of_a_rollout_are_shown(fairnotice):
    """As they were typed."""
    typed_so = ("--window", "Sat,Sun 22:00-04:00", "--window", "Mon 01:30-02:00")
    begun = fairnotice("rollout", "start", "node-0", *typed_so)
    name = fairnotice("rollout", "list", "--json").json["items"][-1]["id"]
    fairnotice("rollout", "cancel", name)

    assert "only Sat,Sun 22:00-04:00 or Mon 01:30-02:00 UTC" in begun.out


def test_a_rollout_has_no_instant_of_its_own(fairnotice):
    """--not-before is for one node, and windows are for rollouts."""
    ended = fairnotice("node", "migrate", "node-0", "node-1", "--not-before", "+1h")

    assert ended.code == 2
    assert "fairnotice rollout start" in ended.err


def test_a_dry_run_says_what_would_happen(fairnotice):
    """In which order, when it is over; and nothing has changed."""
    before = len(fairnotice("rollout", "list", "--json").json["items"])
    words = ("rollout", "start", "--all", "--impact", "freeze", "--dry-run")
    shown = fairnotice(*words, "--window", "Mon-Sun 00:00-00:00")

    assert shown.code == 0, shown.err
    assert "ANNOUNCED" in shown.out
    assert len(fairnotice(*words, "--json").json["order"]) == 6
    assert len(fairnotice("rollout", "list", "--json").json["items"]) == before


def test_a_dry_run_says_who_is_in_the_way(fairnotice):
    """On paper with the rest of it, and each node is named once in its line."""
    busy = fairnotice("node", "maintain", "node-3", "--not-before", "+1h", "--json")
    shown = fairnotice("rollout", "start", "node-3", "--dry-run")
    fairnotice("operation", "cancel", busy.json["operations"][0])

    assert (shown.code, shown.err) == (0, "")
    (line,) = [line for line in shown.out.splitlines() if "has an operation" in line]
    assert line.split(maxsplit=1) == ["node-3", "has an operation announced or under way"]


def test_a_dry_run_always_comes_to_a_conclusion():
    """Also where a node has failed, and where nothing is to be done."""
    with served() as there:
        fairnotice = partial(typed, url=there.url)
        all_well = fairnotice("rollout", "start", "node-0", "--dry-run").out
        fairnotice("node", "fail", "node-4")
        nothing = fairnotice("rollout", "start", "node-4", "--dry-run").out
        budget = ("--failure-budget", "1", "--dry-run")
        skipped = fairnotice("rollout", "start", "node-4", *budget).out
        some = fairnotice("rollout", "start", "--all", "--dry-run").out

    assert all_well.splitlines()[-1].startswith("Over at ")
    last = "Nothing would be done, and it would not end by itself: see to node-4."
    assert nothing.splitlines()[-1] == last
    assert "ANNOUNCED" not in nothing
    assert skipped.splitlines()[-1] == "Nothing would be done."
    assert some.splitlines()[-1] == "It would not end by itself: see to node-4."


def test_nodes_of_a_rollout_say_why_they_wait():
    """For their turn, for a scope that is left in peace, or for somebody to resume it."""
    with served() as there:
        fairnotice = partial(typed, url=there.url)
        name = fairnotice("rollout", "start", "node-5", "node-0", "node-2", "--json").json["id"]
        shown = fairnotice("rollout", "show", name).out
        fairnotice("rollout", "pause", name)
        paused = fairnotice("rollout", "show", name).out

    whys = [line.split(maxsplit=2)[2] for line in shown.splitlines()[-2:]]
    assert whys[0] == "waits for its turn: 1 at once"
    assert whys[1] == "host-update on node-5 has another domain of scale-set:spot:0"
    assert "the rollout is paused" in paused


# ---- Operations ----


def test_an_operation_is_listed_shown_and_taken_back(fairnotice):
    """By its id, or how that begins; its events go with it."""
    words = ("vm", "restart", "FrontEnd_IN_0", "FrontEnd_IN_1", "--not-before", "+1h", "--json")
    asked = fairnotice(*words).json
    first, second = asked["operations"]
    listed = fairnotice("operation", "list").out
    shown = fairnotice("operation", "show", first).out
    assert fairnotice("operation", "show", first[:8]).code == 2
    one = fairnotice("operation", "cancel", f"{first[:8]}.0")
    rest = fairnotice("operation", "cancel", asked["id"])

    assert first in listed
    assert shown.startswith("restart of FrontEnd_IN_0")
    assert asked["events"][0]["id"] in shown
    assert one.out == "restart of FrontEnd_IN_0  ·  Canceled\n"
    assert "restart of FrontEnd_IN_1  ·  Canceled" in rest.out
    assert second not in fairnotice("operation", "list").out
    assert second in fairnotice("operation", "list", "--all").out
    assert fairnotice("operation", "show", "nothing").code == 3


def test_what_a_refusal_names_can_be_looked_at(fairnotice):
    """An event where there is one; else the operation, of which nobody was told."""
    event = announced(fairnotice("vm", "restart", "db", "--json"))
    fairnotice("event", "approve", event)
    told = fairnotice("event", "cancel", event)
    stopped = fairnotice("vm", "stop", "batch_0", "--json").json["operations"][0]
    untold = fairnotice("operation", "cancel", stopped)

    rollout = fairnotice("rollout", "start", "node-1", "--json").json["id"]
    fairnotice("rollout", "cancel", rollout)
    over = [fairnotice("rollout", what, rollout) for what in ("pause", "resume")]

    for refused in (told, untold, *over):
        assert refused.code == 1
        _, leads, words = refused.err.rpartition(": fairnotice ")
        assert not leads or fairnotice(*words.split()).code == 0, refused.err
    assert f"fairnotice event show {event[:8]}" in told.err
    assert f"fairnotice operation show {stopped}" in untold.err
    assert [one.err for one in over] == [f"{rollout} is canceled. Start a new one.\n"] * 2


def test_of_a_request_only_what_has_not_started_is_taken_back():
    """What goes on is said, beside what is canceled."""
    with served() as there:
        fairnotice = partial(typed, url=there.url)
        words = ("vm", "restart", "web-0", "web-1", "--not-before", "+1h", "--json")
        asked = fairnotice(*words).json
        started = asked["operations"][0]
        fairnotice("event", "approve", asked["events"][0]["id"])
        ended = fairnotice("operation", "cancel", asked["id"])

    assert ended.code == 0
    assert ended.out.splitlines()[0] == "restart of web-0  ·  Started"
    assert ended.out.splitlines()[1] == "restart of web-1  ·  Canceled"
    assert ended.err == f"{started} has started and goes on: it is not taken back.\n"


def test_ids_are_offered_and_taken_as_they_are_typed(fairnotice):
    """With the number that tells operations of one request apart, and in either case."""
    words = ("vm", "restart", "web-2", "batch_1", "--not-before", "+1h", "--json")
    request = fairnotice(*words).json["id"]
    short = request[:8]
    unknown = fairnotice("operation", "show", f"{short}.9")
    ambiguous = fairnotice("operation", "show", short)
    offered = re.findall(rf"{short}\.\d(?!\d)", unknown.err.partition("Did you mean")[2])

    assert (unknown.code, ambiguous.code) == (3, 2)
    assert sorted(offered) == [f"{short}.0", f"{short}.1"]
    assert f"Add the number: {short}.0." in ambiguous.err
    for name in (*offered, f"{request}.0".upper(), f"{short}.1".upper()):
        assert fairnotice("operation", "show", name).code == 0, name
    assert fairnotice("operation", "cancel", request.upper()).code == 0
    rollout = fairnotice("rollout", "start", "node-1", "--json").json["id"]
    assert fairnotice("rollout", "show", rollout.upper()).code == 0
    assert fairnotice("rollout", "cancel", rollout.upper()).code == 0


def test_a_rollout_wants_nodes(fairnotice):
    """Names or --all, and not both."""
    assert fairnotice("rollout", "start").code == 2
    assert fairnotice("rollout", "start", "node-0", "--all").code == 2


def test_whoever_declares_a_node_failed_that_answers_is_asked():
    """Its VMs would run twice. Not asked: scripts, who says --yes, and of one that has failed."""
    with served() as there:
        fairnotice = partial(typed, url=there.url)
        refusing = Terminal("node", "fail", "node-4", url=there.url)
        refusing.wait_for("node-4 still answers: is it switched off?")
        refusing.wait_for("[y/N]")
        refusing.type("\n")
        refused = refusing.end()
        before = fairnotice("node", "show", "node-4", "--json").json["state"]
        agreeing = Terminal("node", "fail", "node-4", url=there.url)
        agreeing.wait_for("[y/N]")
        agreeing.type("y\n")
        agreed = agreeing.end()
        after = fairnotice("node", "show", "node-4", "--json").json["state"]
        unasked = [
            Terminal("node", "fail", *words, url=there.url)
            for words in (("node-4",), ("node-5", "--yes"))
        ]
        codes = [one.end() for one in unasked]
        script = fairnotice("node", "fail", "node-3").code

    assert refused == 1
    assert "Nothing has changed." in refusing.text
    assert (before, agreed, after) == ("in service", 0, "failed")
    assert codes == [0, 0]
    assert not any("switched off" in one.text for one in unasked)
    assert script == 0


def test_what_is_so_already_is_not_called_done():
    """Whoever starts a VM that runs, as far as is known, is told that nothing was started."""
    with served() as there:
        ended = typed("vm", "start", "db", url=there.url)

    assert ended.code == 0
    assert "nothing to be done" in ended.out
    assert "done\n" not in ended.out.replace("nothing to be done", "")
    assert ended.err == "db is running already, as far as is known: nothing is done.\n"
