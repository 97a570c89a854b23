"""Handlers that run commands: what they are told, how they end, and that they end in time."""

import os
import sys
import threading

import pytest

from fairnotice.errors import HandlerFailed
from tests.agent.handlers.calls import CLOCK, FREEZE, REBOOT, after, call, gone, made


def sh(key, script):
    """A line of TOML: this key is this shell script."""
    return f"{key} = ['sh', '-c', '''{script}''']\n"


def test_a_command_is_told_what_it_is_about(tmp_path):
    """By variables; in its directory; with an environment of its own."""
    command = made(
        "kind = 'command'\nenvironment = {COLOR = 'red'}\n"
        f"directory = '{tmp_path}'\n" + sh("prepare", "env > told; echo $COLOR > color")
    )

    command.prepare(call(30.2))

    told = dict(line.split("=", 1) for line in (tmp_path / "told").read_text().splitlines())
    assert (tmp_path / "color").read_text() == "red\n"
    assert {name: text for name, text in told.items() if name.startswith("FAIRNOTICE_")} == {
        "FAIRNOTICE_EVENT_ID": REBOOT.id,
        "FAIRNOTICE_EVENT_TYPE": "Reboot",
        "FAIRNOTICE_EVENT_STATUS": "Scheduled",
        "FAIRNOTICE_EVENT_SOURCE": "Platform",
        "FAIRNOTICE_NOT_BEFORE": "2026-03-01T12:00:00Z",
        "FAIRNOTICE_DURATION_SECONDS": "-1",
        "FAIRNOTICE_DESCRIPTION": "Host server is undergoing maintenance.",
        "FAIRNOTICE_RESOURCES": "web-0 web-1",
        "FAIRNOTICE_VM": "web-0",
        "FAIRNOTICE_PHASE": "prepare",
        "FAIRNOTICE_ENDED": "",
        # Until it gets TERM: 30.2 less the grace and what KILL takes.
        "FAIRNOTICE_REMAINING_SECONDS": "27",
    }


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("echo disk full >&2; exit 3", "sh ended with 3: disk full."),
        ("kill -9 $$", "sh was killed by signal 9."),
        ("printf 'a\\033[0m\\nb'; exit 1", r"sh ended with 1: a \[0m b\."),
        ("yes | head -c 100000; exit 1", "sh ended with 1: y y "),
    ],
)
def test_a_command_that_fails_says_why(script, sentence):
    """The end of what it printed is in the sentence, and nothing that spoils a terminal."""
    with pytest.raises(HandlerFailed, match=sentence):
        made("kind = 'command'\n" + sh("prepare", script)).prepare(call())


def test_a_command_that_is_not_there_is_said():
    """Without a trace of Python's."""
    with pytest.raises(HandlerFailed, match="no-such-program cannot be run: No such file"):
        made("kind = 'command'\nrecover = ['no-such-program']").recover(after())


def test_a_command_that_ignores_term_is_killed_with_all_it_started(tmp_path):
    """TERM first, for the whole group; KILL for whoever is left, before the deadline."""
    script = (
        f"trap 'echo term > {tmp_path}/term' TERM; (trap '' TERM; echo $$; "
        f"sh -c 'trap \"\" TERM; echo $$ > {tmp_path}/child; sleep 60' ) & "
        "while :; do sleep 0.1; done"
    )
    told = call(2)

    with pytest.raises(HandlerFailed, match="sh was ended: its time was over"):
        made("kind = 'command'\n" + sh("prepare", script)).prepare(told)

    assert (tmp_path / "term").exists()
    assert gone(int((tmp_path / "child").read_text()))


def test_a_command_ends_when_it_is_told_to():
    """An event that is gone is not prepared for any longer; the command may tidy up."""
    stopping = threading.Event()
    threading.Timer(0.2, stopping.set).start()
    with pytest.raises(HandlerFailed, match="sh was ended: it was told to end: tidied"):
        made(
            "kind = 'command'\n" + sh("prepare", "trap 'echo tidied; exit' TERM; sleep 60 & wait")
        ).prepare(call(60, stopping=stopping))


@pytest.mark.parametrize(("first", "then", "ends"), [(60.0, 0.5, False), (0.5, 60.0, True)])
def test_the_deadline_of_a_command_may_be_moved(tmp_path, first, then, ends):
    """It is ended by the new one, earlier or later than it was told."""
    told = call(first)
    script = f"touch {tmp_path}/up; until test -e {tmp_path}/go; do sleep 0.02; done"
    command = made("kind = 'command'\n" + sh("prepare", script))

    def move():
        while not (tmp_path / "up").exists():
            told.wait(0.01)
        told.deadline = CLOCK.monotonic() + then
        if ends:
            # Longer than it was to have at first.
            threading.Event().wait(1.0)
            (tmp_path / "go").touch()

    mover = threading.Thread(target=move)
    mover.start()
    if ends:
        command.prepare(told)
    else:
        with pytest.raises(HandlerFailed, match="its time was over"):
            command.prepare(told)
    mover.join()


def test_what_a_command_leaves_running_lives_on(tmp_path):
    """A service that it starts is nobody's business here, though it holds the output."""
    script = f"sleep 60 & echo $! > {tmp_path}/service"
    made("kind = 'command'\n" + sh("prepare", script)).prepare(call(30))
    service = int((tmp_path / "service").read_text())
    os.kill(service, 0)
    os.kill(service, 9)


def test_a_checkpoint_is_told_its_seconds_and_restored_once_saved(tmp_path):
    """In a word of the command line; a new life of the agent knows that it was saved."""
    toml = (
        "kind = 'checkpoint'\n"
        f"save = ['sh', '-c', 'echo $1 >> {tmp_path}/job', 'save', 'in {{remaining_seconds}} s']\n"
        f"restore = ['sh', '-c', 'echo restored >> {tmp_path}/job']\n"
    )
    made(toml, tmp_path).prepare(call(30.2))
    made(toml, tmp_path).recover(after())
    assert (tmp_path / "job").read_text() == "in 27 s\nrestored\n"

    made(toml, tmp_path).recover(after())
    assert (tmp_path / "job").read_text() == "in 27 s\nrestored\n"


def test_half_a_checkpoint_is_not_restored(tmp_path):
    """What failed to save has nothing to go on from."""
    checkpoint = made(
        "kind = 'checkpoint'\nsave = ['false']\n" + sh("restore", f"touch {tmp_path}/restored")
    )
    with pytest.raises(HandlerFailed):
        checkpoint.prepare(call())
    checkpoint.recover(after())
    assert not (tmp_path / "restored").exists()


def test_a_restore_that_failed_may_be_tried_again(tmp_path):
    """For its own event; after another one, the newer checkpoint alone is restored."""
    toml = (
        "kind = 'checkpoint'\nsave = ['true']\n"
        f"restore = ['sh', '-c', 'echo restored >> {tmp_path}/job; test -e {tmp_path}/up']\n"
    )
    made(toml, tmp_path).prepare(call())
    with pytest.raises(HandlerFailed):
        made(toml, tmp_path).recover(after())
    (tmp_path / "up").touch()
    made(toml, tmp_path).recover(after())
    made(toml, tmp_path).recover(after())
    assert (tmp_path / "job").read_text() == "restored\n" * 2
    made(toml, tmp_path).prepare(call())
    made(toml, tmp_path).prepare(call(event=FREEZE))
    made(toml, tmp_path).recover(after(event=FREEZE))
    assert (tmp_path / "job").read_text() == "restored\n" * 3
    made(toml, tmp_path).recover(after())
    assert (tmp_path / "job").read_text() == "restored\n" * 3


def replica(directory):
    """A failover of a database whose primary is written in a file; it takes a moment."""
    return made(
        "kind = 'failover'\npoll_seconds = 0.05\n"
        + sh(
            "command",
            f"echo handed >> {directory}/log; (sleep 0.3; echo b > {directory}/primary) &",
        )
        + sh("check", f"test $(cat {directory}/primary) != a")
        + sh("back", f"echo back >> {directory}/log; echo a > {directory}/primary"),
        directory,
    )


def test_a_failover_has_taken_effect_when_it_is_done(tmp_path):
    """Not when the command ends: when the check says so. It is taken back afterwards."""
    (tmp_path / "primary").write_text("a\n")

    replica(tmp_path).prepare(call())
    assert (tmp_path / "primary").read_text() == "b\n"
    replica(tmp_path).recover(after())
    assert (tmp_path / "primary").read_text() == "a\n"
    assert (tmp_path / "log").read_text() == "handed\nback\n"


def test_a_vm_that_is_not_the_primary_hands_nothing_over_and_takes_nothing_back(tmp_path):
    """Whose turn it was before stays so."""
    (tmp_path / "primary").write_text("c\n")

    replica(tmp_path).prepare(call())
    replica(tmp_path).recover(after())

    assert not (tmp_path / "log").exists()
    assert (tmp_path / "primary").read_text() == "c\n"


def test_a_failover_held_by_two_events_is_taken_back_after_the_last(tmp_path):
    """The one that is over first does not bring the primary back under the other."""
    (tmp_path / "primary").write_text("a\n")
    failover = replica(tmp_path)
    failover.prepare(call())
    failover.prepare(call(event=FREEZE))

    failover.recover(after())
    assert (tmp_path / "primary").read_text() == "b\n"
    failover.recover(after(event=FREEZE))
    assert (tmp_path / "primary").read_text() == "a\n"


def test_a_check_that_cannot_be_run_hands_nothing_over(tmp_path):
    """Whether it took effect would never be known."""
    toml = sh("command", f"touch {tmp_path}/handed") + "check = ['no-such-check']"
    with pytest.raises(HandlerFailed, match="no-such-check cannot be run"):
        made(f"kind = 'failover'\n{toml}").prepare(call())
    assert not (tmp_path / "handed").exists()


@pytest.mark.parametrize("check", ["false", "sleep 60"])
def test_a_failover_without_effect_fails_by_the_deadline(check):
    """A check that says no, or says nothing."""
    failover = made(
        "kind = 'failover'\ncommand = ['true']\ncheck_seconds = 0.3\npoll_seconds = 0.1\n"
        + sh("check", check)
    )
    with pytest.raises(HandlerFailed, match=r"effect|ended"):
        failover.prepare(call(1.5))


def test_a_shutdown_runs_what_is_configured_and_undoes_nothing(tmp_path):
    """Whoever starts the VM again starts the agent."""
    shutdown = made("kind = 'shutdown'\n" + sh("command", f"echo down >> {tmp_path}/log"))
    shutdown.prepare(call())
    shutdown.recover(after())
    assert (tmp_path / "log").read_text() == "down\n"


SYSTEMCTL = f"""#!{sys.executable}
import os, sys
folder = os.environ["UNITS"]
*options, verb = [w for w in sys.argv[1:] if w != "--" and not w.startswith("--property")][:-1]
unit = os.path.join(folder, sys.argv[-1])
with open(os.path.join(folder, "log"), "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
if verb == "show":
    print("LoadState=" + ("loaded" if os.path.exists(unit) else "not-found"))
    print("ActiveState=" + (open(unit).read() if os.path.exists(unit) else "inactive"))
elif os.path.exists(unit + ".broken"):
    sys.exit("Job for " + sys.argv[-1] + " failed.")
else:
    open(unit, "w").write({{"stop": "inactive", "start": "active"}}[verb])
"""


@pytest.fixture
def units(tmp_path, monkeypatch):
    """A stand-in for systemctl on the PATH, whose units are files."""
    (tmp_path / "bin").mkdir()
    stand_in = tmp_path / "bin" / "systemctl"
    stand_in.write_text(SYSTEMCTL)
    stand_in.chmod(0o755)
    folder = tmp_path / "units"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("UNITS", str(folder))
    return folder


def states(units):
    """What runs and what does not."""
    return {path.name: path.read_text() for path in units.glob("*.service")}


WEB = "kind = 'systemd'\nunits = ['web.service', 'cache.service', 'spare.service']"


def test_units_are_stopped_and_what_was_stopped_is_started(units, tmp_path):
    """In the opposite order; one that did not run before does not run afterwards."""
    (units / "web.service").write_text("active")
    (units / "cache.service").write_text("activating")
    (units / "spare.service").write_text("inactive")

    made(WEB, tmp_path).prepare(call())
    assert set(states(units).values()) == {"inactive"}
    made(WEB, tmp_path).recover(after())

    assert states(units) == {
        "web.service": "active",
        "cache.service": "active",
        "spare.service": "inactive",
    }
    orders = [line for line in (units / "log").read_text().splitlines() if "show" not in line]
    assert orders == [
        f"--system --no-ask-password {order}"
        for order in (
            "stop -- web.service",
            "stop -- cache.service",
            "start -- cache.service",
            "start -- web.service",
        )
    ]


def test_a_unit_that_is_not_there_or_does_not_stop_is_said(units):
    """By its name; what was stopped before is started again."""
    (units / "web.service").write_text("active")
    systemd = made(WEB)
    with pytest.raises(HandlerFailed, match=r"There is no unit cache\.service"):
        systemd.prepare(call())
    systemd.recover(after())
    assert states(units) == {"web.service": "active"}

    (units / "web.service.broken").touch()
    with pytest.raises(HandlerFailed, match=r"systemctl ended with 1: Job for web\.service failed"):
        made(f"{WEB}\nof_user = true").prepare(call())
    assert "--user --no-ask-password stop" in (units / "log").read_text()


def test_one_unit_that_does_not_start_keeps_no_other_from_it(units):
    """The rest is started, and the failure told."""
    for name in ("web", "cache", "spare"):
        (units / f"{name}.service").write_text("active")
    systemd = made(WEB)
    systemd.prepare(call())
    (units / "cache.service.broken").touch()

    with pytest.raises(HandlerFailed, match=r"cache\.service"):
        systemd.recover(after())
    assert states(units)["web.service"] == "active"

    (units / "cache.service.broken").unlink()
    systemd.recover(after())
    assert states(units)["cache.service"] == "active"
