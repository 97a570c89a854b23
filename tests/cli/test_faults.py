"""`fairnotice fault`: set, list and clear, as people and programs type it."""

import shlex

from fairnotice.cli import completion, main
from fairnotice.metadata.faults import FaultKind
from tests.house import ROOT


def test_a_fault_is_set_listed_and_cleared(fairnotice, service):
    """Seen by people in a table, by doctor, and on the wire by the VM it is for."""
    done = fairnotice(
        "fault", "set", "two-events", "--vm", "web-0", "--seconds", "60", "--for", "5m"
    )
    listed = fairnotice("fault", "list")
    doctor = fairnotice("doctor")
    cleared = fairnotice("fault", "clear", "two-events@web-0")

    assert done.code == 0
    assert done.out.split("  ·  ") == [
        "two-events@web-0",
        "how much later the twin's is: 60 s",
        "towards web-0",
        "on for 5 min\n",
    ]
    heading, row = listed.out.splitlines()
    assert heading.split() == ["FAULT", "VM", "SECONDS", "ENDS", "WHAT", "IT", "DOES"]
    assert row.startswith("two-events@web-0   web-0   60        ")
    assert "misbehaves on purpose: two-events@web-0. End it: fairnotice fault clear" in doctor.out
    assert doctor.code == 0
    assert doctor.out.endswith("\nNothing is wrong; what is good to know is marked with ·\n")
    assert f"✓ metadata       {service.metadata} answers" in doctor.out
    assert cleared.out == "Cleared: two-events@web-0\n"
    assert fairnotice("fault", "list").out.startswith("No fault is on.")
    assert "✓ faults         None is on." in fairnotice("doctor").out


def test_programs_read_what_the_api_answers(fairnotice):
    """--json of each."""
    assert fairnotice("fault", "set", "slow", "--seconds", "0.5", "--json").json["seconds"] == 0.5
    assert [one["id"] for one in fairnotice("fault", "list", "--json").json["items"]] == ["slow"]
    kinds = fairnotice("fault", "list", "--kinds", "--json").json
    assert [kind["fault"] for kind in kinds] == list(FaultKind)
    assert fairnotice("fault", "clear", "--json").json == {"cleared": ["slow"]}
    assert fairnotice("fault", "clear").out == "Nothing was on.\n"


def test_what_there_is_is_shown_to_people(fairnotice):
    """A line for each kind."""
    lines = fairnotice("fault", "list", "--kinds").out.splitlines()

    assert [line.split()[0] for line in lines[1:]] == list(FaultKind)
    assert lines[2].endswith("Every request is answered late.")


def test_mistakes_are_said_with_what_was_meant(fairnotice):
    """A kind that there is not, a VM that there is not, seconds that are none."""
    for words, code, said in (
        (("set", "slwo"), 2, "Did you mean slow?"),
        (("set", "slow", "--vm", "web-9"), 3, "There is no VM web-9. Did you mean web-"),
        (("set", "slow", "--seconds", "soon"), 2, "90s"),
        (("set", "slow", "--seconds", "-1"), 2, "--seconds"),
        (("set", "emty"), 2, "Did you mean empty-body?"),
        (("set", "slow", "--seconds", "nan"), 2, "'nan' is no length of time"),
        (("set", "error", "--seconds", "5"), 2, "means nothing to error; how long it is to be on"),
    ):
        ended = fairnotice("fault", *words)
        assert (ended.code, ended.out) == (code, "")
        assert said in ended.err
    assert fairnotice("fault", "list", "--json").json["items"] == []


def test_of_several_each_is_cleared_that_is_on(fairnotice):
    """One that is not keeps none of the others from it, and is the exit code."""
    for fault in ("slow", "gone"):
        fairnotice("fault", "set", fault, "--vm", "db")
    ended = fairnotice("fault", "clear", "gone@db", "error", "slow@db")

    assert (ended.code, ended.out) == (3, "Cleared: gone@db, slow@db\n")
    assert "The fault error is not on" in ended.err


def test_what_is_not_on_is_said_once(fairnotice):
    """And not that nothing was on, where something is; --seconds and --for take the same words."""
    said = fairnotice("fault", "set", "gone", "--for", "90").out
    ended = fairnotice("fault", "clear", "slow@web-0")
    fairnotice("fault", "clear")

    assert said == "gone  ·  towards every VM  ·  on for 1 min 30 s\n"
    assert (ended.code, ended.out) == (3, "")
    assert ended.err == "The fault slow@web-0 is not on; on are: gone.\n"


def test_kinds_and_ids_are_completed(fairnotice):
    """The kinds by themselves, the ids by asking what is on."""
    places = {place.words: place for place in completion.places(main.all_commands())}
    assert set(FaultKind) <= set(places["fault", "set"].choices)
    assert places["fault", "clear"].names_of == "faults"
    fairnotice("fault", "set", "error", "--vm", "db")

    assert fairnotice("completion", "--names", "faults").out == "error@db\n"
    fairnotice("fault", "clear")


def test_the_commands_of_the_guide_work_as_they_are_written(fairnotice):
    """In their order, each with exit code 0; nothing is on when they are done."""
    page = (ROOT / "docs" / "guides" / "faults.md").read_text("utf-8")
    lines = page.partition("```sh\n")[2].partition("```")[0].splitlines()
    commands = [shlex.split(line, comments=True)[1:] for line in lines]

    assert len(commands) == 6
    for words in commands:
        assert fairnotice(*words).code == 0, words
    assert fairnotice("fault", "list", "--json").json["items"] == []
