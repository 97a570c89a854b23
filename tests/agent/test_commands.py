"""`fairnotice agent …`: what people type inside a VM; and what an agent shows of itself."""

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from fairnotice.agent import journal, status
from fairnotice.agent.metrics import FAMILIES, Numbers, Page
from fairnotice.agent.records import Phase
from fairnotice.errors import Unavailable
from fairnotice.testing import Cloud
from tests.agent.agents import Home, process, thread, watching

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def home(tmp_path):
    """A VM's disk."""
    return Home(tmp_path / "vm")


@pytest.fixture(scope="module")
def cloud():
    """The sample fleet; each test takes a VM of its own."""
    with Cloud() as made:
        yield made


def typed(cloud, vm, *words, answers="", code=0, group=("agent",)):
    """What is printed; both streams where it does not end well."""
    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "fairnotice", *group, *words],
        env=cloud.environment(vm) if cloud else os.environ,
        input=answers,
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout if code == 0 else ran.stdout + ran.stderr


def test_check_says_what_would_be_done(home, cloud):
    """The rule, the time there is, the handlers: for each event of the live document."""
    event = cloud.vm("web-0").restart()
    said = typed(cloud, "web-0", "check", "--config", str(home.config))
    assert "The configuration is right. Rules: 1 and the built-in one; handlers: 2." in said
    [line] = [line for line in said.splitlines() if line.startswith(event.id)]
    assert line.split()[1:4] == ["Reboot", "Scheduled", "drain"]
    assert "one, two" in line
    told = json.loads(typed(cloud, "web-1", "check", "--config", str(home.config), "--json"))
    [row] = told["events"]
    assert (row["rule"], row["acknowledge"]) == (None, "never")
    assert 850 < row["seconds"] < 900
    assert home.wrote == []
    event.cancel()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[handler.x]\nkind = "comand"\n', r"[handler.x]: there is no kind 'comand'"),
        ('[handler.x]\nkind = "command"\nprepair = ["x"]\n', "[handler.x]"),
        ("marign_seconds = 2\n", "Did you mean margin_seconds?"),
    ],
)
def test_check_refuses_what_cannot_be(tmp_path, text, said):
    """Exit code 2, without asking anybody."""
    (tmp_path / "agent.toml").write_text(text)
    words = ("check", "--offline", "--config", str(tmp_path / "agent.toml"))
    assert said in typed(None, "", *words, code=2)
    assert "cannot be read" in typed(None, "", "check", "--config", str(tmp_path), code=2)


def test_check_without_a_service(home, monkeypatch):
    """Exit code 4 where nobody answers; the file alone can be checked."""
    monkeypatch.setenv("FAIRNOTICE_METADATA_URL", "http://127.0.0.1:1")
    said = typed(None, "", "check", "--config", str(home.config), code=4)
    assert "The configuration is right." in said
    assert "cannot be reached" in said
    assert "--offline" in said
    typed(None, "", "check", "--offline", "--config", str(home.config))


def test_status_tells_what_is_prepared_and_why(home, cloud):
    """While the agent runs, when it has ended, and before there ever was one."""
    words = ("status", "--config", str(home.config))
    assert "No agent has run here" in typed(cloud, "db", *words)
    with process(home, cloud, "db"):
        watching(home, cloud)
        event = cloud.vm("db").restart()
        cloud.wait_until(lambda: any(one.by == "db" for one in cloud.approvals))
        cloud.wait_until(lambda: "acknowledged" in home.journal)
        said = typed(cloud, "db", *words)
    assert "An agent runs (process" in said
    assert f"{event.id}  Reboot  prepared" in said
    for line in ("why         rule drain; ", "go-ahead    given", "prepare     one: done"):
        assert line in said
    told = json.loads(typed(cloud, "db", *words, "--json"))
    assert told["runs"] is False
    assert [step["outcome"] for step in told["plans"][0]["steps"]] == ["done", "done"]
    cloud.run_until(event, "Completed")
    with thread(home, cloud.url_for("db")):
        cloud.wait_until(lambda: home.over)
    assert "Nothing is prepared." in typed(cloud, "db", *words)
    assert "over" in typed(cloud, "db", *words, "--all")
    # As after kill -9, when the number of the process is another's by now.
    (home.state / "status.json").write_text(json.dumps({"pid": os.getpid(), "doing": "watches"}))
    assert "No agent runs now" in typed(cloud, "db", *words)


def test_events_and_approve_ask_for_each(cloud):
    """No to the one, yes to the other; then none is left that waits."""
    assert "No event is announced." in typed(cloud, "batch_1", "events")
    first, second = cloud.vm("batch_0").restart(), cloud.vm("batch_1").restart()
    said = typed(cloud, "batch_1", "events")
    assert first.id in said
    assert "in 14 min" in said or "in 15 min" in said
    [row, _] = json.loads(typed(cloud, "batch_1", "events", "--json"))
    assert row["id"] in (first.id, second.id)
    typed(cloud, "batch_1", "approve", first.id[:8], "--yes", code=3)
    said = typed(cloud, "batch_1", "approve", "--all", answers="n\nyes\n")
    assert said.count("approve? [y/N]") == 2
    assert sorted([str(first.approved_by), str(second.approved_by)]) == ["None", "batch_1"]
    left = first if first.approved_by is None else second
    words = ("approve", left.id[:8], "--all")
    assert "Nobody answers" in typed(cloud, "batch_1", *words, code=1)
    assert "begins with ZZ" in typed(cloud, "batch_1", "approve", "ZZ", "--yes", code=3)
    typed(cloud, "batch_1", "approve", left.id[:8].lower(), "--yes", "--all")
    assert left.approved_by == "batch_1"
    assert "No event waits" in typed(cloud, "batch_1", "approve")


def test_approve_is_for_events_of_this_vm(cloud, tmp_path, monkeypatch):
    """--yes too; and where the service is may be said in the configuration alone."""
    other, own = cloud.vm("web-1").restart(), cloud.vm("web-2").restart()
    file = tmp_path / "agent.toml"
    file.write_text(f'url = "{cloud.url_for("web-2")}"\n')
    monkeypatch.setenv("FAIRNOTICE_METADATA_URL", "http://127.0.0.1:1")
    assert own.id in typed(None, "", "events", "--config", str(file))
    assert typed(None, "", "approve", "--yes", "--config", str(file)).count("may begin") == 1
    assert (other.approved_by, own.approved_by) == (None, "web-2")
    said = typed(None, "", "approve", "--yes", "--config", str(file))
    assert "Of other VMs 1 do: see --all." in said
    other.cancel()


# ---- What is hardly meant ----

DOUBTFUL = """
state = "/proc/x"
metrics = "127.0.0.1:{port}"
[[rule]]
name = "all"
prepare = ["gate"]
[[rule]]
name = "short"
duration_at_least = 0
prepare = ["typed", "slow"]
[[rule]]
name = "never"
types = ["Reboot"]
prepare = ["gone"]
[[rule]]
types = ["Freeze"]
duration_at_most = 5
[rendezvous]
directory = "/tmp"
[handler.gate]
kind = "health-gate"
listen = "127.0.0.1:{port}"
wait_seconds = 60
seconds = 5
[handler.typed]
kind = "command"
prepare = ["systemctl stop x"]
[handler.slow]
kind = "command"
prepare = ["true"]
seconds = 40
[handler.gone]
kind = "command"
prepare = ["/no/such/thing"]
[handler.unused]
kind = "webhook"
url = "http://127.0.0.1:1/"
secret_file = "/no/such/file"
"""
DOUBTS = (
    "rule never is for nothing",
    "rule 4 is for nothing",
    "rule 4 prepares nothing and acknowledges nothing",
    "[handler.unused]: no rule names it",
    "[rendezvous]: no rule says leader",
    "rule short: a Preempt gives 30 s, 25 s without the margin, and slow takes 40 s",
    "[handler.gate]: wait_seconds is 60 and seconds 5",
    "[handler.typed]: prepare is one word, 'systemctl stop x', which is no program: did you mean [",
    "[handler.gone]: prepare: there is no program '/no/such/thing'",
    "[handler.unused]: secret_file is /no/such/file, which cannot be read",
    "metrics: nobody can listen at 127.0.0.1:",
    "[handler.gate]: listen: nobody can listen at 127.0.0.1:",
    "state is /proc/x, where you cannot write",
)


def test_check_doubts_what_is_hardly_meant(tmp_path):
    """A sentence for each, and none for what is right; --config may stand before `agent`."""
    file = tmp_path / "agent.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        file.write_text(DOUBTFUL.format(port=taken.getsockname()[1]))
        words = ("--config", str(file), "agent", "check", "--offline", "--json")
        told = json.loads(typed(None, "", *words, group=()))
        said = typed(None, "", "check", "--offline", "--config", str(file))
    assert [one for one in DOUBTS if not any(one in doubt for doubt in told["doubts"])] == []
    assert len(told["doubts"]) == len(DOUBTS)
    assert "can be read, but look at this" in said
    file.write_text("")
    assert "there is no [[rule]]" in typed(None, "", "check", "--offline", "--config", str(file))


def test_check_knows_where_the_others_cannot_be_met(tmp_path):
    """A share that is not mounted is refused; to make it would be to meet nobody."""
    file, share = tmp_path / "agent.toml", tmp_path / "share"
    file.write_text(
        f'[[rule]]\nleader = "rendezvous"\nprepare = ["x"]\n[rendezvous]\ndirectory = "{share}"\n'
        '[handler.x]\nkind = "command"\nprepare = ["true"]\n'
    )
    words = ("check", "--offline", "--config", str(file))
    assert "is no folder here" in typed(None, "", *words, code=1)
    assert not share.exists()


def test_check_compares_the_name_and_tells_what_is_skipped(tmp_path, cloud):
    """An event that has started leaves no time: nothing of it is promised."""
    home = Home(tmp_path / "vm", more='vm = "web1"')
    event = cloud.vm("web-1").restart()
    words = ("check", "--config", str(home.config))
    assert "calls this VM 'web-1'" in typed(cloud, "web-1", *words)
    home.config.write_text(home.config.read_text().replace('"web1"', '"WEB-1"'))
    event.approve()
    said = typed(cloud, "web-1", *words)
    assert "The configuration is right." in said
    assert "one (the event had started), two (the event had started)" in said
    assert "never (not done: one, two)" in said
    cloud.run_until(event, "Completed")


def test_an_agent_says_of_its_name_and_its_rendezvous_what_is_wrong(tmp_path, cloud, caplog):
    """And watches all the same: a VM that prepares is better than one that does not."""
    share = tmp_path / "share"
    home = Home(
        tmp_path / "vm",
        more=f'vm = "web1"\n[rendezvous]\ndirectory = "{share}"\n',
    )
    with thread(home, cloud.url_for("web-1")):
        watching(home, cloud)
        cloud.wait_until(lambda: "calls this VM 'web-1'" in caplog.text)
    assert {one.levelname for one in caplog.records} == {"ERROR"}
    assert f"directory is {share}, which is no folder here" in caplog.text
    assert not share.exists()


# ---- What could not be recovered ----


def test_what_is_not_recovered_is_said_until_somebody_has_seen_to_it(tmp_path, cloud, caplog):
    """Not ready, not over, an error in the log; after a restart too; then the gate opens."""
    gate = '[handler.gate]\nkind = "health-gate"\nlisten = "127.0.0.1:0"\nwait_seconds = 0\n'
    home = Home(
        tmp_path / "vm",
        rule='prepare = ["gate", "one", "two"]\nrecover_tries = 1',
        more=f"heartbeat_seconds = 1\n{gate}",
        slow="; test $FAIRNOTICE_PHASE = prepare",
    )
    words = ("--config", str(home.config))
    caplog.set_level("INFO", "fairnotice.agent")
    with thread(home, cloud.url_for("web-2")):
        watching(home, cloud)
        event = cloud.vm("web-2").restart()
        cloud.wait_until(lambda: "acknowledged" in home.journal)
        cloud.run_until(event, "Completed")
        cloud.wait_until(lambda: record(home, event).unrecovered == ("two", "one"))
        assert "NOT recovered: two, one" in typed(cloud, "web-2", "status", *words)
    [bad] = [one for one in caplog.records if "recover one: failed" in one.getMessage()]
    assert bad.levelname == "ERROR"
    assert "ending; it stays prepared: gate, one, two" in caplog.text
    assert not home.ready.exists()
    caplog.clear()
    with thread(home, cloud.url_for("web-2")) as agent:
        cloud.wait_until(lambda: "NOT recovered" in caplog.text)
        cloud.wait_until(lambda: agent.shop.document is not None)
        assert record(home, event).step(Phase.RECOVER, "gate") is None
        assert "two, one for recovered" in typed(cloud, "web-2", "recovered", *words)
        cloud.wait_until(lambda: record(home, event).over)
        cloud.wait_until(home.ready.exists)
    assert "recover one: done (by hand)" in caplog.text
    assert home.count() == {f"{phase} {x}": 1 for phase in Phase for x in ("one", "two")}
    assert "has recovered all" in typed(cloud, "web-2", "recovered", *words)


def record(home, event):
    """What was done about an event."""
    return journal.read(home.state)[event.id]


def test_a_handler_that_was_renamed_is_missed_aloud(tmp_path, cloud, caplog):
    """At the start and by `check`; once it is there again it is recovered."""
    home = Home(tmp_path / "vm", rule='prepare = ["one"]')
    text = home.config.read_text()
    with thread(home, cloud.url_for("batch_0")):
        watching(home, cloud)
        event = cloud.vm("batch_0").restart()
        cloud.wait_until(lambda: "acknowledged" in home.journal)
    home.config.write_text(text.replace("handler.one", "handler.app").replace('["one"]', '["app"]'))
    with thread(home, cloud.url_for("batch_0")):
        cloud.wait_until(lambda: "by one, which agent.toml has no more" in caplog.text)
        said = typed(cloud, "batch_0", "check", "--config", str(home.config))
        assert "by one, which agent.toml has no more" in said
        cloud.run_until(event, "Completed")
        cloud.wait_until(lambda: record(home, event).unrecovered)
        # It is written down before it is said.
        cloud.wait_until(lambda: not home.ready.exists())
    home.config.write_text(text)
    with thread(home, cloud.url_for("batch_0")):
        cloud.wait_until(lambda: home.over)
    assert home.wrote == ["prepare one", "recover one"]


def test_the_log_tells_what_was_not_done_and_why_nothing_is_acknowledged(tmp_path, cloud, caplog):
    """By its level, too; and status shows that the event has started, and what is waited for."""
    home = Home(
        tmp_path / "vm",
        rule='prepare = ["one"]',
        more='vm = "db"',
        slow="; test $FAIRNOTICE_PHASE = recover",
    )
    with thread(home, cloud.url_for("db")), caplog.at_level("INFO", "fairnotice.agent"):
        watching(home, cloud)
        event = cloud.vm("db").restart()
        cloud.wait_until(lambda: "no go-ahead (not done: one)" in caplog.text)
        words = ("status", "--config", str(home.config))
        assert "go-ahead    not given (not done: one)" in typed(cloud, "db", *words)
        cloud.advance_to(event.not_before)
        cloud.wait_until(lambda: "it has started" in caplog.text)
        cloud.wait_until(lambda: "status      Started" in typed(cloud, "db", *words))
        cloud.run_until(event, "Completed")
        cloud.wait_until(lambda: "all is recovered" in caplog.text)
    levels = {one.getMessage().partition(": ")[2]: one.levelname for one in caplog.records}
    assert levels["the preparation is over; no go-ahead (not done: one)"] == "WARNING"
    assert levels["prepare one: failed (sh ended with 1.)"] == "WARNING"
    assert levels["all is recovered"] == "INFO"


def test_the_readiness_file_is_as_new_as_the_last_answer(tmp_path):
    """So one that an agent left behind which was killed can be told by its age."""
    file = status.ReadyFile(tmp_path / "ready")
    file.set(ready=True)
    os.utime(tmp_path / "ready", (1, 1))
    file.set(ready=True)
    assert (tmp_path / "ready").stat().st_mtime > 1
    (tmp_path / "ready").unlink()
    file.set(ready=True)
    assert (tmp_path / "ready").exists()


def test_a_damaged_journal_is_nothing_to_start_again_for(tmp_path, cloud):
    """A code of its own, which the unit knows."""
    home = Home(tmp_path / "vm")
    home.state.mkdir()
    good = journal.encoded({"kind": "gone", "event": "E"})
    (home.state / journal.FILE).write_bytes(b"damaged\n" + good)
    said = typed(cloud, "web-0", "run", "--config", str(home.config), code=5)
    assert "is damaged" in said
    unit = (ROOT / "deploy" / "fairnotice-agent.service").read_text("utf-8")
    assert "RestartPreventExitStatus=2 5\n" in unit


# ---- Numbers ----


def test_the_numbers_of_an_agent(tmp_path):
    """Every family is on the page, and what happened is counted."""
    home = Home(tmp_path / "vm", more='metrics = "127.0.0.1:0"')
    with Cloud() as cloud, thread(home, cloud.url_for("web-0")) as agent:
        watching(home, cloud)
        cloud.vm("web-0").restart()
        cloud.wait_until(lambda: "acknowledged" in home.journal)
        page = agent._page()
    for family, (kind, _) in FAMILIES.items():
        assert f"# TYPE {family} {kind}\n" in page
    assert "fairnotice_agent_ready 0\n" in page
    assert "fairnotice_agent_prepared_handlers 2\n" in page
    steps = 'fairnotice_agent_steps_total{phase="prepare",handler="one",outcome="done"} 1\n'
    assert steps in page
    assert 'fairnotice_agent_go_aheads_total{outcome="given"} 1\n' in page


def test_the_page_is_served():
    """At /metrics and nowhere else; whoever says nothing holds up nobody for long."""
    numbers = Numbers()
    numbers.count("fairnotice_agent_steps_total", handler='a"b\\c\n')
    page = Page(("127.0.0.1", 0), lambda: numbers.text({}))
    try:
        base = f"http://127.0.0.1:{page.port}"
        with urllib.request.urlopen(f"{base}/metrics") as answer:  # noqa: S310 - our own page
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert 'handler="a\\"b\\\\c\\n"} 1' in answer.read().decode()
        for path, data, status in (("/", None, 404), ("/metrics", b"x", 405)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"{base}{path}", data)  # noqa: S310 - our own page
            assert refused.value.code == status
            refused.value.close()
        with pytest.raises(Unavailable, match="cannot listen"):
            Page(("127.0.0.1", page.port), str)
    finally:
        page.close()


# ---- systemd ----


def test_systemd_is_told(tmp_path, monkeypatch, home, cloud):
    """READY=1 when the first document was read, STOPPING=1 at the end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with thread(home, cloud.url_for("web-2")):
            assert systemd.recv(100) == b"READY=1"
        assert systemd.recv(100) == b"STOPPING=1"


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None and "CI" not in os.environ,
    reason="systemd-analyze is not installed",
)
def test_the_unit_is_one(tmp_path):
    """`systemd-analyze verify` finds no fault with it, and does with one that has a wrong key."""
    unit = (ROOT / "deploy" / "fairnotice-agent.service").read_text("utf-8")
    there = unit.replace("/usr/local/bin/fairnotice ", f"{sys.executable} -m fairnotice ")
    for text, faults in ((there, False), (there.replace("OOMScore", "OOOMScore"), True)):
        path = tmp_path / "fairnotice-agent.service"
        path.write_text(text)
        ran = subprocess.run(  # noqa: S603 - our own unit
            ["systemd-analyze", "verify", str(path)],  # noqa: S607 - whichever there is
            capture_output=True,
            text=True,
            check=False,
        )
        assert bool(ran.returncode or ran.stderr.strip()) is faults, ran.stderr


def test_a_handler_may_ask_fairnotice_itself(cloud, home):
    """What it is told by variables is no mistake of whoever typed the command."""
    asks = f"{sys.executable} -m fairnotice vm list --json > {home.folder}/asked"
    with home.config.open("a") as file:
        file.write(f'[handler.asks]\nkind = "command"\nprepare = ["sh", "-c", "{asks}"]\n')
    home.config.write_text(home.config.read_text().replace('["one", "two"]', '["asks"]'))
    with process(home, cloud, "spot_0"):
        watching(home, cloud)
        event = cloud.vm("spot_0").restart()
        cloud.wait_until(lambda: "acknowledged" in home.journal)
    assert event.approved_by == "spot_0"
    assert "spot_0" in (home.folder / "asked").read_text()
