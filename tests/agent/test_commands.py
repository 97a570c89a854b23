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

from fairnotice.agent.metrics import FAMILIES, Numbers, Page
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


def typed(cloud, vm, *words, answers="", code=0):
    """What is printed; both streams where it does not end well."""
    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "fairnotice", "agent", *words],
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
    assert "cannot be reached" in typed(None, "", "check", "--config", str(home.config), code=4)
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
    said = typed(cloud, "batch_1", "approve", answers="n\nyes\n")
    assert said.count("approve? [y/N]") == 2
    assert sorted([str(first.approved_by), str(second.approved_by)]) == ["None", "batch_1"]
    left = first if first.approved_by is None else second
    assert "Nobody answers" in typed(cloud, "batch_1", "approve", left.id[:8], code=1)
    assert "begins with ZZ" in typed(cloud, "batch_1", "approve", "ZZ", "--yes", code=3)
    typed(cloud, "batch_1", "approve", left.id[:8].lower(), "--yes")
    assert left.approved_by == "batch_1"
    assert "No event waits" in typed(cloud, "batch_1", "approve")


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


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_the_unit_is_one(tmp_path):
    """`systemd-analyze verify` finds no fault with it, and does with one that has a wrong key."""
    unit = (ROOT / "deploy" / "fairnotice-agent.service").read_text("utf-8")
    there = unit.replace("/usr/local/bin/fairnotice ", f"{sys.executable} -m fairnotice ")
    for text, faults in ((there, False), (there.replace("OOMScore", "OOOMScore"), True)):
        path = tmp_path / "fairnotice-agent.service"
        path.write_text(text)
        ran = subprocess.run(  # noqa: S603 - our own unit
            [shutil.which("systemd-analyze"), "verify", str(path)],
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
