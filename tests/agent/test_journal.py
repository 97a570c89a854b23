"""The journal: torn anywhere it is read, damaged anywhere it says so, and only one agent has it."""

import os
from dataclasses import replace
from datetime import timedelta
from errno import EIO
from io import FileIO
from pathlib import Path

import pytest

from fairnotice.agent import journal, records
from fairnotice.agent.handlers.marks import Marks
from fairnotice.agent.journal import FILE, KEPT, Journal
from fairnotice.agent.records import Outcome, Phase, Step
from fairnotice.clock import SystemClock
from fairnotice.errors import AgentRuns, JournalDamaged, Unavailable
from fairnotice.testing.manual_clock import ManualClock
from tests.agent.events import NOW, VM, course, event

STARTED = event(description="draußen\n\x01", status="Started", seconds=None)
LINES = (
    records.planned(event(description="draußen\n\x01"), VM, course("a", "b")),
    records.begun("E1", Phase.PREPARE, "a"),
    records.ended("E1", Step(Phase.PREPARE, "a", Outcome.FAILED, "it said no")),
    records.ended("E1", Step(Phase.PREPARE, "b", Outcome.SKIPPED, "no time was left")),
    records.prepared("E1"),
    records.acknowledged("E1", "given"),
    records.shown(STARTED),
    records.gone("E1", records.Ending.OVER),
    records.begun("E1", Phase.RECOVER, "a"),
    records.ended("E1", Step(Phase.RECOVER, "a", Outcome.DONE)),
    records.over("E1"),
)


@pytest.fixture
def folder(tmp_path):
    """Where a journal of a whole plan is."""
    written = Journal(tmp_path, ManualClock(NOW))
    for line in LINES:
        written.append(line)
    written.close()
    return tmp_path


def test_what_was_written_is_read_again(folder):
    """All of it, each step with what came of it."""
    [one] = journal.read(folder).values()
    assert one.over
    assert one.acknowledgement == "given"
    assert (one.event, one.ended) == (STARTED, "over")
    assert [(step.handler, step.outcome) for step in one.steps.values()] == [
        ("a", Outcome.FAILED),
        ("b", Outcome.SKIPPED),
        ("a", Outcome.DONE),
    ]


def test_torn_at_every_byte_it_is_read_up_to_there(folder):
    """Whole lines count, the rest is cut off, and what is appended then is whole, too."""
    whole = (folder / FILE).read_bytes()
    for size in range(len(whole)):
        (folder / FILE).write_bytes(whole[:size])
        lines = whole[:size].count(b"\n")
        before = journal.read(folder)
        assert len(before) == min(lines, 1)
        # Writing takes its time, and differs only by where in a line it is torn.
        if size % 7:
            continue
        again = Journal(folder, ManualClock(NOW))
        again.append(records.planned(event("E2"), VM, course()))
        again.close()
        assert len(journal.read(folder)) == len(before) + 1
        assert (folder / FILE).read_bytes().startswith(whole[: whole[:size].rfind(b"\n") + 1])


def test_zeros_at_the_end_are_torn_too(folder):
    """As a disk leaves them that lost its power."""
    whole = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(whole + b"\0" * 100 + b"\n" + b"\0" * 50)
    Journal(folder, ManualClock(NOW)).close()
    assert (folder / FILE).read_bytes() == whole


def test_damage_in_the_middle_is_said_in_words(folder):
    """Any bit of a line that others follow: nobody can know what was prepared."""
    whole = (folder / FILE).read_bytes()
    inside = whole.index(b"\n") + 30
    (folder / FILE).write_bytes(whole[:inside] + b"~" + whole[inside + 1 :])
    with pytest.raises(JournalDamaged, match=r"Line 2 of the journal .* recover that by hand"):
        Journal(folder, ManualClock(NOW))
    (folder / FILE).write_bytes(journal.encoded(records.gone("E9")))
    with pytest.raises(JournalDamaged, match="Line 1"):
        Journal(folder, ManualClock(NOW))


def test_what_was_begun_and_not_ended_is_found_by_the_next_life(tmp_path):
    """Until it says what became of it; what was never begun is as if it had not been written."""
    first = Journal(tmp_path, ManualClock(NOW))
    for line in LINES[:2]:
        first.append(line)
    first.close()
    second = Journal(tmp_path, ManualClock(NOW))
    step = second.records["E1"].cut_off
    assert step == Step(Phase.PREPARE, "a", Outcome.BEGUN)
    second.append(records.ended("E1", replace(step, outcome=Outcome.NOT_BEGUN)))
    second.close()
    assert journal.read(tmp_path)["E1"].steps == {}


def test_what_is_over_and_old_is_left_out(folder):
    """What is not over stays, however old, and adds up to the same."""
    clock = ManualClock(NOW)
    live = Journal(folder, clock)
    live.append(records.planned(event("E2"), VM, course("a")))
    live.append(records.begun("E2", Phase.PREPARE, "a"))
    live.append(records.ended("E2", Step(Phase.PREPARE, "a", Outcome.DONE)))
    live.close()
    before = journal.read(folder)["E2"]
    size = (folder / FILE).stat().st_size
    for name in ("E1", "E2"):
        mark = Marks(folder).of(name, Phase.PREPARE, "a")
        mark.promise()
        mark.close()
    Journal(folder, ManualClock(NOW + KEPT + timedelta(hours=1))).close()
    assert journal.read(folder) == {"E2": before}
    assert (folder / FILE).stat().st_size < size / 2
    # Nor are the marks kept of what is left out.
    assert [one.name for one in (folder / "marks").iterdir()] == ["E2"]


def test_it_does_not_grow_for_ever(tmp_path, monkeypatch):
    """While an agent lives for months, old events are left out on the way."""
    monkeypatch.setattr(journal, "LINES_MAX", 20)
    clock = ManualClock(NOW)
    live = Journal(tmp_path, clock)
    for number in range(50):
        live.append(records.planned(event(f"E{number}"), VM, course()))
        live.append(records.over(f"E{number}"))
        clock.advance(seconds=KEPT.total_seconds() / 2)
    live.close()
    assert len(journal.read(tmp_path)) < 25
    assert list(journal.read(tmp_path))[-1] == "E49"


def test_a_full_disk_leaves_no_half_line(folder):
    """What could not be written is taken back, said, and may be tried again."""
    live = Journal(folder, ManualClock(NOW))
    good, live._out = live._out, open("/dev/full", "ab", buffering=0)  # noqa: SIM115, PTH123
    with pytest.raises(Unavailable, match="No space left"):
        live.append(records.planned(event("E2"), VM, course()))
    assert "E2" not in live.records
    live._out.close()
    live._out = good
    live.append(records.planned(event("E2"), VM, course()))
    live.close()
    assert set(journal.read(folder)) == {"E1", "E2"}


class Half(FileIO):
    """A file on a disk that takes five bytes more."""

    def write(self, raw):
        return super().write(raw[:5])


def refused(*_):
    """A disk that fails."""
    raise OSError(EIO, "Input/output error")


@pytest.mark.parametrize("trouble", ["a short write", "no sync"])
def test_what_is_not_on_disk_is_taken_back(folder, monkeypatch, trouble):
    """A part of a line, and a whole one of which nobody knows whether it lasts."""
    whole = (folder / FILE).read_bytes()
    live = Journal(folder, ManualClock(NOW))
    with monkeypatch.context() as patched, Half(folder / FILE, "ab") as half:
        if trouble == "no sync":
            patched.setattr(os, "fsync", refused)
        else:
            patched.setattr(live, "_out", half)
        with pytest.raises(Unavailable, match="cannot be written"):
            live.append(records.planned(event("E2"), VM, course()))
    assert (folder / FILE).read_bytes() == whole
    assert "E2" not in live.records
    live.append(records.planned(event("E3"), VM, course()))
    live.close()
    assert set(journal.read(folder)) == {"E1", "E3"}


def test_one_that_cannot_be_written_anew_goes_on_as_it_is(folder, monkeypatch, caplog):
    """It is longer than it need be, and said; every line counts, before and after."""
    monkeypatch.setattr(journal, "LINES_MAX", 0)
    live = Journal(folder, ManualClock(NOW))
    live.append(records.planned(event("E2"), VM, course()))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", refused)
        live.append(records.over("E2"))
    assert "cannot be written anew: Input/output error" in caplog.text
    live.append(records.planned(event("E3"), VM, course()))
    live.append(records.over("E3"))
    live.close()
    assert set(journal.read(folder)) == {"E1", "E2", "E3"}


def test_one_that_cannot_be_opened_says_so(folder):
    """Not as a fault of the agent's own."""
    (folder / FILE).unlink()
    (folder / FILE).symlink_to(folder / "nowhere" / FILE)
    with pytest.raises(Unavailable, match=f"{FILE} cannot be written: No such file"):
        Journal(folder, ManualClock(NOW))


def test_a_line_of_another_fairnotice_is_no_wrong_setting(folder):
    """It names the file; and systemd tries again, since it may be another one by then."""
    line = {**LINES[0], "shown": {**LINES[0]["shown"], "format": 99}}
    (folder / FILE).write_bytes(journal.encoded(line))
    with pytest.raises(JournalDamaged, match=rf"Line 1 of the journal {folder / FILE} .* 99"):
        Journal(folder, ManualClock(NOW))


def test_whether_an_agent_has_it_is_asked_of_the_lock(folder):
    """No number of a process, which may be another's by now, says that."""
    assert journal.is_held(folder / "nowhere") is False
    assert journal.is_held(folder) is False
    first = Journal(folder, SystemClock())
    assert journal.is_held(folder) is True
    first.close()
    assert journal.is_held(folder) is False


def test_two_agents_on_one_vm(folder):
    """The second is told which process the first is; when that has ended there is no lock."""
    first = Journal(folder, SystemClock())
    with pytest.raises(AgentRuns, match=f"process {os.getpid()} holds"):
        Journal(folder, SystemClock())
    first.close()
    Journal(folder, SystemClock()).close()
