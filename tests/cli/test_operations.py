"""Operations as a person looks at them, and who was not told of one."""

from functools import partial

import pytest

from tests.cli.typed import Terminal, served, typed
from tests.waiting import until


@pytest.fixture(scope="module")
def silent():
    """A service in which nobody listens."""
    with served(listeners=()) as there:
        yield there


def test_an_operation_is_shown_with_what_it_did_to_each_vm(service, fairnotice):
    """The impact, and when it began; what is over says nothing of taking it back."""
    stopped = fairnotice("vm", "stop", "db", "--json").json["operations"][0]
    name = stopped[:8]
    until(lambda: fairnotice("operation", "show", name, "--json").json["ended_at"])
    terminal = Terminal("operation", "show", name, url=service.url)

    assert terminal.end() == 0
    headings, row = [
        line.split() for line in terminal.text.splitlines() if "IMPACT" in line or "db  " in line
    ][-2:]
    assert headings == ["VM", "IMPACT", "STATUS", "BEGUN", "ENDED", "WHY"]
    assert row[:3] == ["db", "stop", "done"]
    assert "Take it back" not in terminal.text


def test_what_waits_can_be_taken_back_as_it_says(service, fairnotice):
    """The line to copy is on a terminal only, and it works."""
    asked = fairnotice("vm", "restart", "web-0", "--not-before", "+1h", "--json").json
    name = asked["operations"][0][:8]
    terminal = Terminal("operation", "show", name, url=service.url)
    assert terminal.end() == 0
    line = next(one for one in terminal.text.splitlines() if "Take it back" in one)
    assert fairnotice(*line.split("fairnotice ")[1].split()).code == 0
    listed = Terminal("operation", "list", url=service.url)

    assert listed.end() == 0
    assert "of the last day, over: fairnotice operation list --all" in listed.text
    assert "Take it back" not in fairnotice("operation", "show", name).out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("restart", "db"), ["db: no VM of its scope (vm:db) has asked within a day"]),
        (("delete", "batch_3"), ["batch_3: no VM of its scope (scale-set:batch:0) has asked"]),
        # Nobody is ever told of these.
        (("delete", "spot_1"), []),
        (("stop", "web-2"), []),
    ],
)
def test_why_nobody_was_told(silent, words, told):
    """Where somebody would have been, had anybody listened."""
    ended = partial(typed, url=silent.url)("vm", *words)

    assert ended.code == 0
    assert "no event announces it" in ended.out
    assert len(ended.err.splitlines()) == len(told)
    for sentence in told:
        assert ended.err.startswith(sentence)
        assert ended.err.endswith("so nobody was told.\n")
