"""Rules: which events they are for; and the configuration, read and refused in words."""

import re
from dataclasses import replace

import pytest

from fairnotice.agent import config
from fairnotice.agent.daemon import made_handlers
from fairnotice.agent.rules import BUILT_IN, Course, Leader, Match, Reach, Rule, choose
from fairnotice.errors import UsageError
from tests.agent.events import VM, course, event

FREEZE = event(kind="Freeze", duration_seconds=9, source="Platform")


@pytest.mark.parametrize(
    ("match", "of", "fits"),
    [
        (Match(), event(), True),
        (Match(), event(resources=("web-1",)), False),
        (Match(), event(resources=("web-01", "web")), False),
        (Match(), event(resources=("WEB-0",)), True),
        (Match(scope=Reach.SCOPE), event(resources=("web-1",)), True),
        (Match(types=frozenset({"Redeploy"})), event(), False),
        (Match(sources=frozenset({"Platform"})), FREEZE, False),
        # Short freezes and live migrations are not drained, unless a rule says how long.
        (Match(types=frozenset({"Freeze"})), FREEZE, False),
        (Match(types=frozenset({"Freeze"})), replace(FREEZE, duration_seconds=10), False),
        (Match(types=frozenset({"Freeze"})), replace(FREEZE, duration_seconds=11), True),
        (Match(types=frozenset({"Freeze"})), replace(FREEZE, duration_seconds=-1), True),
        (Match(types=frozenset({"Freeze"})), replace(FREEZE, duration_seconds=None), True),
        (Match(duration_at_least=0), FREEZE, True),
        (Match(duration_at_least=9, duration_at_most=9), FREEZE, True),
        (Match(duration_at_most=8), FREEZE, False),
        (Match(duration_at_most=60), event(duration_seconds=-1), False),
        (Match(duration_at_least=60), event(duration_seconds=-1), True),
        (Match(duration_at_least=60), event(duration_seconds=59), False),
        (Match(description=re.compile("(?i)live migration")), FREEZE, False),
        (
            Match(description=re.compile("(?i)live migration")),
            event(description="paused: a memory-preserving Live Migration operation"),
            True,
        ),
    ],
)
def test_what_a_rule_is_for(match, of, fits):
    """By type, source, length, description, and whom it names."""
    assert match.fits(of, VM) is fits


def test_the_first_rule_decides_and_the_built_in_one_is_last():
    """It logs, and acknowledges nothing; of others it says nothing."""
    first = Rule(Match(types=frozenset({"Reboot"})), Course("first"))
    second = Rule(Match(), Course("second"))
    assert choose((first, second), event(), VM) is first
    assert choose((first, second), event(kind="Redeploy"), VM) is second
    assert choose((first, second), FREEZE, VM) is BUILT_IN
    assert choose((first, second), event(kind="Quake"), VM) is second
    assert choose((first,), event(kind="Quake"), VM) is BUILT_IN
    assert choose((first, second), event(resources=("web-1",)), VM) is None
    assert BUILT_IN.course.acknowledge == "never"
    assert not BUILT_IN.course.prepare


def test_a_course_is_kept_as_it_is():
    """Through the journal, and with keys of a later fairnotice."""
    one = course("a", "b", leader=Leader.RENDEZVOUS, recover_again=("b",))
    assert Course.from_row({**one.to_row(), "of_later": 1}) == one


# ---- The file ----

WHOLE = """
vm = "web-0"
url = "http://127.0.0.1:8169"
state = "/somewhere"
margin_seconds = 2.5
heartbeat_seconds = 3
metrics = "127.0.0.1:9169"
ready_file = "/run/ready"

[[rule]]
name = "drain"
types = ["Reboot", "Redeploy"]
sources = ["Platform"]
duration_at_least = 10
duration_at_most = 60
description = "maint"
scope = "scope"
prepare = ["gate", "app"]
recover = []
acknowledge = "at-once"
on_failure = "stop"
when_short = "run"
leader = "rendezvous"
recover_again = false

[[rule]]
prepare = ["gate", "app"]

[rendezvous]
directory = "/shared"
takeover_seconds = 2

[handler.gate]
kind = "health-gate"
listen = "127.0.0.1:0"
seconds = 8

[handler.app]
kind = "command"
prepare = ["true"]
"""


def test_a_whole_file():
    """Every key means what it says, and what is left out has its default."""
    read = config.read(WHOLE)
    first, second = read.rules
    assert (read.vm, read.url, str(read.state)) == ("web-0", "http://127.0.0.1:8169", "/somewhere")
    assert read.metrics == ("127.0.0.1", 9169)
    assert (read.margin_seconds, read.takeover_seconds) == (2.5, 2.0)
    assert read.heartbeat_seconds == 3
    assert read.limits == {"gate": 8.0}
    assert first.match.description.pattern == "maint"
    assert first.match.scope is Reach.SCOPE
    assert first.course == Course(
        "drain",
        ("gate", "app"),
        (),
        first.course.acknowledge.AT_ONCE,
        first.course.on_failure.STOP,
        first.course.when_short.RUN,
        Leader.RENDEZVOUS,
    )
    # What says how a thing has to be may be said twice; of a command nobody knows.
    assert second.course == Course(
        "rule 2", ("gate", "app"), ("app", "gate"), recover_again=("gate",), gates=("gate",)
    )
    again = config.read(
        WHOLE.replace("recover = []\n", "").replace("again = false", "again = true")
    )
    assert again.rules[0].course.recover_again == ("app", "gate")
    assert second.match == Match()


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("margin_seconds = 2.5", "margin_secnods = 2.5", "no key margin_secnods. Did you mean mar"),
        ("[[rule]]\nprepare", "[[rules]]\nprepare", "no key rules. Did you mean rule?"),
        ("on_failure", "onfailure", r"\[\[rule\]\] 'drain': there is no key onfailure. Did you me"),
        ('"Reboot"', '"Rebot"', "types has 'Rebot' in it. Did you mean Reboot"),
        ('"stop"', '"halt"', "on_failure is 'halt'"),
        ('"stop"', "true", "on_failure is true: give one of acknowledge, go-on, stop."),
        (
            "on_failure =",
            'vm = "a"\non_failure =',
            "'drain': there is no key vm. It stands at the t",
        ),
        ('prepare = ["gate", "app"]', 'prepare = ["gat"]', "names 'gat', which is no handler. Did"),
        ('prepare = ["gate", "app"]', 'prepare = ["app", "app"]', "names 'app' twice"),
        ("duration_at_most = 60", "duration_at_most = 6", "nothing can fit"),
        ('"maint"', '"(maint"', "no regular expression"),
        ('[rendezvous]\ndirectory = "/shared"\ntakeover_seconds = 2', "", "say where, in"),
        ('metrics = "127.0.0.1:9169"', 'metrics = "9169"', "give HOST:PORT"),
        ("seconds = 8", "seconds = 0", r"\[handler.gate\]: seconds is 0"),
        ('kind = "command"', "", r"\[handler.app\]: kind is missing"),
        ('vm = "web-0"', "vm = web-0", "this is no TOML"),
        ('[[rule]]\nname = "drain"', '[rule]\nname = "drain"', "TOML|two brackets"),
        ("[[rule]]\nprepare", '[[rule]]\nname = "drain"\nprepare', "two rules are called 'drain'"),
    ],
)
def test_a_wrong_file_is_refused_in_words(tmp_path, before, after, said):
    """The sentence names the file, the table and the key."""
    assert before in WHOLE
    path = tmp_path / "agent.toml"
    path.write_text(WHOLE.replace(before, after, 1))
    with pytest.raises(UsageError, match=said) as refused:
        config.load(path)
    assert str(refused.value).startswith(f"{path}: ")


def test_a_rule_that_prepares_nothing_acknowledges_nothing():
    """A forgotten line does not give the whole notice away; whoever wants that says so."""
    silent, told = config.read(
        '[[rule]]\ntypes = ["Reboot"]\n[[rule]]\nacknowledge = "when-prepared"\n'
    ).rules
    assert (silent.course.acknowledge, told.course.acknowledge) == ("never", "when-prepared")
    assert (silent.course.called, BUILT_IN.course.called) == ("rule 1", "rule built-in")


def test_everything_that_is_wrong_is_said_at_once(tmp_path):
    """A line for each rule, and for each handler, with the file in front of every one."""
    path = tmp_path / "agent.toml"
    path.write_text("[[rule]]\ntypes = ['Rebot']\n[[rule]]\nprepare = ['a']\n")
    with pytest.raises(UsageError) as refused:
        config.load(path)
    first, second = str(refused.value).splitlines()
    assert first.startswith(f"{path}: [[rule]] number 1: types has 'Rebot'")
    assert second.startswith(f"{path}: [[rule]] number 2: prepare names 'a'")

    path.write_text("[handler.a]\nkind = 'log'\n[handler.b]\nkind = 'comand'\n")
    with pytest.raises(UsageError) as refused:
        made_handlers(config.load(path))
    first, second = str(refused.value).splitlines()
    assert first.startswith(f"{path}: [handler.a]: to is missing")
    assert second.startswith(f"{path}: [handler.b]: there is no kind 'comand'")


def test_where_the_journal_is(monkeypatch):
    """The folder of systemd, the user's, or the system's."""
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/one:/var/lib/two")
    assert str(config.default_state()) == "/var/lib/one"
    monkeypatch.delenv("STATE_DIRECTORY")
    monkeypatch.setenv("XDG_STATE_HOME", "/home/own/.state")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    # Not that of `fairnotice up`, which people remove to begin all over.
    assert str(config.default_state()) == "/home/own/.state/fairnotice-agent"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert str(config.default_state()) == "/var/lib/fairnotice"
