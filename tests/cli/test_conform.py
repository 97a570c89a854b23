"""`fairnotice conform` as a person, a program and CI read it."""

import json
import os
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from fairnotice.testing.conform import SITUATIONS, Declared, Report, Result, Verdict, junit
from tests.cli.test_as import allowed
from tests.cli.typed import Terminal, typed
from tests.house import ROOT
from tests.waiting import until

FAST = ("--poll-seconds", "0.15", "--stall-seconds", "4")
PACE = ("--interval", "0.15", "--timeout", "2")
CORRECT = ("--", sys.executable, str(ROOT / "examples" / "client.py"), *PACE)
BROKEN = ("--", sys.executable, str(ROOT / "tests" / "testing" / "broken_clients.py"))
FOR_OTHERS = (*BROKEN, "AcknowledgesForOthers", *PACE)


def test_whoever_survives_all_ends_with_0():
    """A line for each situation, and the sum."""
    ended = typed("conform", *FAST, "--situation", "reboot", "quiet", *CORRECT)

    assert ended.code == 0
    assert [line.split() for line in ended.out.splitlines()[:3]] == [
        ["SITUATION", "VERDICT", "WHY"],
        ["quiet", "survived", "-"],
        ["reboot", "survived", "-"],
    ]
    assert "\n2 survived; it asks every 0.15 s;" in ended.out
    assert "preparing for" not in ended.out


def test_whoever_does_not_ends_with_1_and_is_told_why(tmp_path):
    """What it did wrong, what is right, what it printed; and the same for CI."""
    path = tmp_path / "conform.xml"
    words = (*FAST, "--junit", str(path), "--situation", "quiet", "of-another")
    ended = typed("conform", *words, *FOR_OTHERS)

    told = "It acknowledged the Reboot of web-1, which does not name it. Acknowledge only events"
    assert ended.code == 1
    assert told in ended.out
    assert "of-another  ·  what it printed\n  preparing for Reboot" in ended.out
    assert ended.out.index("what it printed") < ended.out.index("SITUATION")
    assert "\n1 survived, 1 failed;" in ended.out
    assert ended.err == f"JUnit XML: {path}\n"

    [suite] = ET.parse(path).getroot()  # noqa: S314 - our own file
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "1", "0")
    assert [child.tag for child in cases["quiet"]] == []
    assert told in cases["of-another"].find("failure").get("message")
    assert cases["of-another"].find("system-out").text.startswith("preparing for Reboot")


TALKING = "print(*map('line {}'.format, range(9)), sep=chr(10)); "
TALKING += "import urllib.request; urllib.request.urlopen('{url}')"


def test_the_end_of_what_it_printed_is_shown_once():
    """However many situations it was printed in; all of it to whoever asks."""
    words = (*FAST, "--situation", "quiet", "reboot", "--", sys.executable, "-c", TALKING)
    ended = typed("conform", *words)
    asked = typed("conform", "--verbose", *words)

    printed = ended.out.partition("SITUATION")[0].splitlines()
    assert printed[0] == "quiet, reboot  ·  what it printed"
    assert printed[1].startswith("  … (")
    assert printed[6].startswith("  urllib.error.HTTPError: HTTP Error 4")
    assert printed[7:] == [""]
    assert "\n  line 0\n  line 1\n" in asked.out


def test_programs_read_json():
    """Of a client that only watches: what it is not asked is no failure."""
    words = (*FAST, "--json", "--no-acknowledge", "--situation", "reboot", "quiet")
    ended = typed("conform", *words, *BROKEN, "AcknowledgesNothing", *PACE)
    told = json.loads(ended.out)

    assert ended.code == 0
    assert (told["survived"], told["failed"], told["not_asked"]) == (1, 0, 1)
    assert told["poll_seconds"] == 0.15
    assert [(one["situation"], one["verdict"]) for one in told["situations"]] == [
        ("quiet", "survived"),
        ("reboot", "not asked"),
    ]


def test_who_leads_can_be_said():
    """Then whoever looks only at the first of Resources is right."""
    words = (*FAST, "--first-leads", "--situation", "shared-not-first")
    ended = typed("conform", *words, *BROKEN, "LooksAtTheFirstName", *PACE)

    assert ended.code == 0, ended.out


def test_the_list_has_every_situation_with_a_sentence():
    """And needs no client."""
    lines = typed("conform", "--list").out.splitlines()[1:]
    shown = dict(line.split(maxsplit=1) for line in lines)

    assert shown == {one.name: one.shows for one in SITUATIONS.values()}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "Write -- and, behind that, the command"),
        (("--types", "Rebot", *CORRECT), "'Rebot' is no type of event"),
        (("--poll-seconds", "0", *CORRECT), "--poll-seconds is 0; give more than 0"),
        (("--junit", "/proc/none/x.xml", *CORRECT), "/proc/none/x.xml cannot be written"),
        (("--junit", "-", *CORRECT), "Argument --junit: the table goes to standard output"),
        (("--", "no-such-client"), "There is no command no-such-client"),
        (("--", "sleep"), "The client never asked, and ended with exit code 1."),
    ],
)
def test_wrong_usage_ends_with_2(words, told):
    """Said once, before anything is played."""
    ended = typed("conform", *words)

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith((told, f"Argument --types: {told}"))


def test_ctrl_c_leaves_no_client_behind(tmp_path):
    """While one is played with: it ends, and so does whatever it has started."""
    path = tmp_path / "started"
    script = f'sleep 60 & echo $! >> {path}; exec "$@"'
    client = ("--", "sh", "-c", script, "sh", *CORRECT[1:])
    terminal = Terminal("conform", "--poll-seconds", "0.15", "--situation", "stalled", *client)
    # One to see that it asks at all, and one to play with.
    until(lambda: path.exists() and len(path.read_text("ascii").splitlines()) == 2)
    terminal.interrupt()

    assert terminal.end() == 130
    for pid in path.read_text("ascii").split():
        until(lambda name=pid: not Path("/proc", name).exists())


@pytest.mark.skipif(
    not os.environ.get("CI") and not allowed(), reason="needs root or user namespaces"
)
def test_a_client_with_the_address_built_in():
    """It finds its endpoint at 169.254.169.254, and need not be told."""
    chosen = ("--situation", "quiet", "in-a-scale-set")
    words = (*FAST, "--namespace", "--verbose", *chosen, *CORRECT)
    ended = typed("conform", *words, "--url", "http://169.254.169.254")

    assert ended.code == 0, ended.out
    assert "in-a-scale-set  ·  what it printed\n  preparing for Reboot" in ended.out


def test_a_person_sees_how_far_it_is():
    """Also while it is measured; and verdicts in their colours."""
    terminal = Terminal("conform", "--situation", "quiet", *CORRECT)

    terminal.wait_for("looking whether, and how often, it asks")
    terminal.wait_for("0 of 1 situations")
    terminal.wait_for("1 of 1 situations")
    assert terminal.end() == 0
    assert "\x1b[32msurvived" in terminal.raw


def test_junit_holds_whatever_a_client_prints():
    """XML cannot say control characters, not even escaped."""
    result = Result(
        "quiet", Verdict.FAILED, "ended \x1b[1m]]> <now>", 1.5, "\x00\x1b[31mred\ud800 é\n"
    )
    report = Report(Declared(("client", "a b")), (result,), 2.0)
    [suite] = ET.fromstring(junit(report))  # noqa: S314 - our own

    assert suite.find("properties/property").get("value") == "client 'a b'"
    case = suite.find("testcase")
    assert case.get("time") == "1.500"
    assert case.find("failure").text == "ended \ufffd[1m]]> <now>"
    assert case.find("system-out").text == "\ufffd\ufffd[31mred\ufffd é\n"
