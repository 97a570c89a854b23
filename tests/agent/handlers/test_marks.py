"""Marks: what a later life of the agent knows of a command that an earlier one has begun."""

import os
import subprocess
import threading

import pytest

from fairnotice.agent.handlers.marks import Marks, Trace, boot
from fairnotice.errors import HandlerFailed
from tests.agent.handlers.calls import after, call, gone, made


@pytest.fixture
def lives(tmp_path):
    """The same marks as each life of an agent has them."""
    return lambda: Marks(tmp_path / "state").of("E1", "prepare", "it")


def promised(mark):
    """As an agent does it before its journal says that a step is begun."""
    mark.promise()
    return mark


def command(script):
    """A handler that runs this script."""
    return made(f"kind = 'command'\nprepare = ['sh', '-c', '''{script}''']\n")


def test_nothing_is_known_of_what_was_not_promised(lives):
    """No file at all: somebody could not write, or swept them away."""
    assert lives().trace() is Trace.UNKNOWN


def test_what_was_promised_and_not_begun(lives, tmp_path):
    """It is known for this boot of the machine, and for no other."""
    promised(lives()).close()
    assert command("true").outcome(call(mark=lives())) is Trace.NOT_BEGUN
    lock = tmp_path / "state/marks/E1/it.prepare.lock"
    assert lock.read_text() == boot() != ""
    lock.write_text("another boot")
    assert lives().trace() is Trace.UNKNOWN


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("exit 0", None),
        ("echo disk full >&2; exit 3", "sh ended with 3: disk full."),
        ("kill -9 $$", "sh was killed by signal 9."),
    ],
)
def test_what_has_ended_is_told_again_and_not_run_again(lives, tmp_path, script, sentence):
    """With the same sentence, by a life that has no time left for it."""
    handler = command(f"echo run >> {tmp_path}/runs; {script}")
    for mark, seconds in ((promised(lives()), 10), (lives(), 0)):
        told = call(seconds, mark=mark)
        if sentence is None:
            handler.prepare(told)
        else:
            with pytest.raises(HandlerFailed, match=sentence):
                handler.prepare(told)
        mark.close()
        assert handler.outcome(call(mark=lives())) is Trace.KNOWN
    assert (tmp_path / "runs").read_text() == "run\n"


def started(mark, script):
    """A command whose agent is gone: nobody is its parent who would wait for it."""
    words = mark.wrapped(["sh", "-c", script])
    shell = subprocess.Popen(words, stdin=mark.lock, start_new_session=True)  # noqa: S603 - ours
    mark.close()
    while mark.leader() is None:
        threading.Event().wait(0.01)
    return shell


def test_what_goes_on_is_waited_for(lives, tmp_path):
    """Started by an agent that is gone, it has its end in the next one's hands."""
    shell = started(promised(lives()), f"until [ -e {tmp_path}/go ]; do sleep 0.01; done; exit 3")
    handler = command("exit 0")
    assert handler.outcome(call(mark=lives())) is Trace.KNOWN
    threading.Timer(0.2, (tmp_path / "go").touch).start()
    with pytest.raises(HandlerFailed, match="sh ended with 3"):
        handler.prepare(call(mark=lives()))
    assert shell.wait() == 3


def test_what_goes_on_is_ended_in_time_with_all_it_started(lives, tmp_path):
    """TERM, for it to tidy up; what heeds no TERM is killed."""
    heeds_none = f"(trap '' TERM; exec sleep 60) & echo $! > {tmp_path}/child"
    shell = started(promised(lives()), f"trap : TERM; {heeds_none}; wait; wait")
    while not (tmp_path / "child").exists():
        threading.Event().wait(0.01)
    with pytest.raises(HandlerFailed, match="sh was ended: its time was over"):
        command("true").prepare(call(0.5, mark=lives()))
    assert shell.wait() == -9
    assert gone(int((tmp_path / "child").read_text()))
    # It was killed with the shell that would have told.
    assert lives().trace() is Trace.UNKNOWN
    with pytest.raises(HandlerFailed, match="nobody saw how it ended"):
        command("true").prepare(call(mark=lives()))
    # A rule may have it run once more: it begins with no marks.
    promised(lives()).close()
    assert lives().trace() is Trace.NOT_BEGUN


def test_a_service_that_is_left_running_is_not_waited_for(lives):
    """It has not the lock."""
    mark = promised(lives())
    handler = command("exec 3<&0; sleep 60 <&3 & echo $!")
    handler.prepare(call(mark=mark))
    mark.close()
    assert not lives().under_way()
    assert lives().code() == 0
    os.kill(int(lives().said(100)), 9)


def test_a_disk_that_takes_no_marks(lives, tmp_path, caplog):
    """The command is run all the same, and it is said; of its end nobody is going to know."""
    mark = promised(lives())
    (tmp_path / "state/marks/E1/it.prepare.begun").mkdir()
    command(f"echo run >> {tmp_path}/runs").prepare(call(mark=mark))
    assert (tmp_path / "runs").read_text() == "run\n"
    assert "sh leaves no marks" in caplog.text
    assert lives().trace() is Trace.UNKNOWN


def test_a_checkpoint_that_ended_while_nobody_was_there(lives, tmp_path):
    """It is noted as saved by the next life, and restored."""
    toml = (
        f"kind = 'checkpoint'\nsave = ['sh', '-c', 'echo saved >> {tmp_path}/job']\n"
        f"restore = ['sh', '-c', 'echo restored >> {tmp_path}/job; exit 3']\n"
    )
    started(promised(lives()), f"echo saved >> {tmp_path}/job").wait()
    checkpoint = made(toml, tmp_path)
    assert checkpoint.outcome(call(mark=lives())) is Trace.KNOWN
    checkpoint.prepare(call(mark=lives()))
    again = Marks(tmp_path / "state").of("E1", "recover", "it")
    again.promise()
    # It dies before its journal says how that ended; the note is gone by then.
    for _ in range(2):
        with pytest.raises(HandlerFailed, match="sh ended with 3"):
            checkpoint.recover(after(mark=again))
        again.close()
    assert (tmp_path / "job").read_text() == "saved\nrestored\n"


def test_a_failover_goes_on_where_it_was(lives, tmp_path):
    """What was noted and not begun is begun; what was begun is not, though the check says no."""
    toml = (
        "kind = 'failover'\npoll_seconds = 0.05\n"
        f"command = ['sh', '-c', 'echo handed >> {tmp_path}/log; echo b > {tmp_path}/primary']\n"
        f"check = ['grep', '-q', 'b', '{tmp_path}/primary']\n"
    )
    (tmp_path / "primary").write_text("a")
    failover = made(toml, tmp_path)
    promised(lives()).close()
    assert failover.outcome(call(mark=lives())) is Trace.NOT_BEGUN
    failover._notes.hold(call().event.id, "primary", "here")
    assert failover.outcome(call(mark=lives())) is Trace.KNOWN
    mark = lives()
    failover.prepare(call(mark=mark))
    mark.close()
    (tmp_path / "primary").write_text("a")
    threading.Timer(0.2, (tmp_path / "primary").write_text, ("b",)).start()
    failover.prepare(call(mark=lives()))
    assert (tmp_path / "log").read_text() == "handed\n"


def test_a_failover_that_goes_on_is_waited_for_whatever_the_check_says(lives, tmp_path):
    """It may have more to do after that, and may fail."""
    toml = "kind = 'failover'\ncommand = ['sh']\ncheck = ['true']\n"
    shell = started(promised(lives()), "sleep 0.1; exit 3")
    with pytest.raises(HandlerFailed, match="sh ended with 3"):
        made(toml, tmp_path).prepare(call(mark=lives()))
    shell.wait()
