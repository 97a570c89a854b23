"""The file of every job's page is right as it stands there, and does what the page says."""

import contextlib
import json
import os
import re
import socket
import tomllib
from datetime import timedelta
from http.client import HTTPConnection

import pytest

from fairnotice.agent import config, plan, records
from fairnotice.agent.handlers import registry
from fairnotice.agent.rules import choose
from fairnotice.agent.tables import Table
from fairnotice.engine import AZURE
from fairnotice.testing import Cloud
from tests.agent.events import NOW, VM, event
from tests.agent.handlers.calls import call
from tests.agent.handlers.mailbox import Mailbox, self_signed, server_context
from tests.agent.handlers.receiver import Receiver
from tests.agent.pages import GUIDES, JOBS, StandIns, agent, blocks, replaced
from tests.cli.typed import typed
from tests.haproxy import balancer, needs_haproxy
from tests.house import ROOT

PAGES = sorted(page for page in JOBS.glob("*.md") if page.name != "README.md")


@pytest.fixture
def stand_ins(tmp_path, monkeypatch):
    """Programs that write down how they were called, first on the PATH."""
    programs = StandIns(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{programs.folder}:{os.environ['PATH']}")
    return programs


def page(name, tmp_path, words=None):
    """The file of this page, with a state of its own and these words replaced."""
    (text,) = blocks(JOBS / f"{name}.md")
    text = text.replace('state = "/var/lib/fairnotice"\n', "")
    return f"state = '{tmp_path}/state'\n{replaced(text, words or {})}"


@contextlib.contextmanager
def restarted(text, stand_ins, *, acknowledged=True):
    """web-0 is restarted under an agent with this file: here it is prepared; then it is over."""
    with Cloud() as cloud, agent(text, cloud.url_for("web-0"), stand_ins) as running:
        event = cloud.vm("web-0").restart()
        record = cloud.wait_until(lambda: running.shop.journal.records.get(event.id))
        cloud.wait_until(lambda: record_of(running, event).prepared, 20)
        if acknowledged:
            cloud.wait_until(lambda: event.status == "Started")
            assert event.approved_by == "web-0"
        else:
            assert event.approved_by is None
            cloud.advance(minutes=15)
        yield running
        cloud.run_until(event, "Completed")
        cloud.wait_until(lambda: record_of(running, event).over, 20)
    steps = record_of(running, event).steps.values()
    assert {(step.outcome.value, step.why) for step in steps} == {("done", "")}
    assert len(steps) == len(record.course.prepare) + len(record.course.recover)


def record_of(running, event):
    """What the journal has of the event."""
    return running.shop.journal.records[event.id]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_file_of_every_page_is_right(path, tmp_path):
    """`agent check` says so of it, as it stands on the page."""
    (text,) = blocks(path)
    file = tmp_path / "agent.toml"
    file.write_text(text)
    done = typed("agent", "check", "--offline", "--config", str(file))
    assert done.code == 0, done.err
    # What the page cannot know of this machine, and what it says of a Preempt itself.
    allowed = re.compile("there is no program|cannot be read|cannot write|a Preempt gives")
    assert [one for one in done.out.splitlines()[1:] if not allowed.search(one)] == []


def test_every_page_is_listed_and_proven_here():
    """A ninth page gets a test of its own, and a line in the index."""
    index = (JOBS / "README.md").read_text("utf-8")
    assert [path.name for path in PAGES if f"({path.name})" not in index] == []
    proofs = [f"test_{path.stem.replace('-', '_')}" for path in PAGES]
    assert [name for name in proofs if name not in globals()] == []


# What the file of each page has run for an eviction with Azure's notice, and when a node fails;
# each handler with its seconds.
PLANS = {
    "checkpoint": ({"computation": 28}, {"computation": 10}),
    "draining": ({"haproxy": 25}, {"haproxy": 120}),
    "failover": ({"replica": 20}, {"replica": 20}),
    "kubernetes": ({"cordon": 10, "drain": 15}, {"cordon": 10, "drain": 10}),
    "load-balancer": ({"gate": 14, "service": 8}, {"gate": 14, "service": 8}),
    "logging": ({"lines": 12.5, "system-log": 12.5}, {"lines": 10, "system-log": 10}),
    # A node that fails comes back, and so do its services: no rule is for it.
    "shutdown": ({"services": 15, "power": 5}, {}),
    "telling": ({"hook": 8, "mail": 12}, {"hook": 8, "mail": 12}),
}


def planned(text, of):
    """Which handlers are run for this event, with which seconds, if each takes all of them."""
    read = config.read(text)
    course = choose(read.rules, of, VM).course
    known, now = {}, NOW
    records.add(known, records.planned(of, VM, course))
    limits = plan.Limits(read.margin_seconds, read.limits)
    ran = {}
    while not isinstance(action := plan.decide(known[of.id], of, now, limits), plan.Prepared):
        assert isinstance(action, plan.Run), f"{action} is nothing that a page should have"
        ran[action.handler] = action.seconds
        now += timedelta(seconds=action.seconds)
        step = records.Step(action.phase, action.handler, records.Outcome.DONE)
        records.add(known, records.ended(of.id, step))
    return ran


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_page_has_a_plan_for_an_eviction_and_for_a_node_that_fails(path):
    """Within 30 s less the margin, and without any notice: nothing on the page is skipped."""
    (text,) = blocks(path)
    evicted = event(kind="Preempt", seconds=AZURE.notice_seconds["Preempt"])
    failed = event(kind="Redeploy", seconds=None, status="Started", source="Platform")
    assert (planned(text, evicted), planned(text, failed)) == PLANS[path.stem]


def test_a_freeze_of_a_second_is_logged_too():
    """The page says every event, and means it."""
    (text,) = blocks(JOBS / "logging.md")
    freeze = event(kind="Freeze", duration_seconds=1)
    assert list(planned(text, freeze)) == ["lines", "system-log"]


def test_the_lines_to_try_a_page_with(tmp_path):
    """They go to the top of any file, and name a VM as `fairnotice up` serves it."""
    (more,) = blocks(JOBS / "README.md")
    read = config.read(more + page("failover", tmp_path).partition("\n")[2])
    assert (read.url, str(read.state)) == ("http://127.0.0.1:8169/vm/web-0", "state")
    assert len(read.rules) == 1


def test_a_node_that_fails_is_told_of_and_when_it_is_over(tmp_path, stand_ins):
    """The log's page in a cloud: Started when it is first seen, and over afterwards."""
    words = {"/var/log/fairnotice/": f"{tmp_path}/", '["lines", "system-log"]': '["lines"]'}
    text = page("logging", tmp_path, words)
    with Cloud() as cloud, agent(text, cloud.url_for("web-0"), stand_ins) as running:
        cloud.wait_until(lambda: running.shop.document)
        (failed,) = (one for one in cloud.node("node-0").fail() if "web-0" in one.resources)
        lines = tmp_path / "events.jsonl"
        cloud.wait_until(lambda: lines.exists() and record_of(running, failed).prepared)
        cloud.run_until(failed, "Completed")
        cloud.wait_until(lambda: record_of(running, failed).over)
    mine = map(json.loads, lines.read_text().splitlines())
    told = [
        (one["phase"], one["event_type"], one["event_status"], one["ended"])
        for one in mine
        if one["event_id"] == failed.id
    ]
    assert told == [
        ("prepare", "Redeploy", "Started", None),
        ("recover", "Redeploy", "Started", "over"),
    ]


def test_checkpoint(tmp_path, stand_ins):
    """Saved within the time that there is, restored afterwards."""
    with restarted(page("checkpoint", tmp_path), stand_ins):
        (saved,) = stand_ins.calls()
    assert saved.startswith("save-computation --within 89")
    assert stand_ins.calls()[1:] == ["restore-computation /var/lib/computation"]


@needs_haproxy
def test_draining(tmp_path, stand_ins):
    """A real HAProxy drains, and is ready again."""
    with balancer(tmp_path, {"web-0": 9}, "") as proxy:
        words = {"/run/haproxy/admin.sock": proxy.socket}
        with restarted(page("draining", tmp_path, words), stand_ins):
            assert proxy.ordered("web-0") == 8
        assert proxy.ordered("web-0") == 0


def test_load_balancer(tmp_path, stand_ins):
    """Probes are told no before the service is stopped, and yes when it runs again."""
    words = {"0.0.0.0:8088": "127.0.0.1:0", "wait_seconds = 12": "wait_seconds = 0.5"}
    with restarted(page("load-balancer", tmp_path, words), stand_ins) as running:
        gate = running.shop.handlers["gate"]
        connection = HTTPConnection("127.0.0.1", gate.port, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", "/health")
            assert connection.getresponse().status == 503
    assert [line.split()[3] for line in stand_ins.calls()] == ["show", "stop", "start"]


def test_failover(tmp_path, stand_ins):
    """Asked, handed over, asked again; nothing is taken back."""
    with restarted(page("failover", tmp_path), stand_ins):
        pass
    assert stand_ins.calls() == [
        "is-not-primary ",
        "switch-primary --away-from-here",
        "is-not-primary ",
    ]


def test_logging(tmp_path, stand_ins):
    """A line before and one after, in both places, with the keys of the page's example."""
    words = {
        "/var/log/fairnotice/": f"{tmp_path}/",
        'to = "syslog"': f'to = "syslog"\nsocket = "{tmp_path}/log.sock"',
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"{tmp_path}/log.sock")
        listening.settimeout(10)
        text = page("logging", tmp_path, words)
        with restarted(text, stand_ins, acknowledged=False):
            assert b"prepare web-0: Reboot" in listening.recv(65536)
        assert b"recover web-0: Reboot" in listening.recv(65536)
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    (example,) = map(json.loads, blocks(JOBS / "logging.md", "json"))
    assert [line["phase"] for line in lines] == ["prepare", "recover"]
    assert list(lines[0]) == list(example)


def test_shutdown(tmp_path, stand_ins):
    """Services first, power last, then the go-ahead: the eviction may come."""
    text = page("shutdown", tmp_path)
    with Cloud() as cloud, agent(text, cloud.url_for("spot_0"), stand_ins):
        event = cloud.vm("spot_0").evict()
        cloud.wait_until(lambda: event.status == "Started", 20)
        assert event.approved_by == "spot_0"
    orders = [line for line in stand_ins.calls() if " show " not in line]
    assert [" ".join(order.split()[-3:]) for order in orders] == [
        "stop -- shop.service",
        "stop -- worker.service",
        "systemctl poweroff",
    ]


def test_telling(tmp_path, stand_ins):
    """A hook and a mail before, and after; over HTTP here, and with TLS to the mailbox."""
    certificate, key = self_signed(tmp_path)
    (tmp_path / "hook-token").write_text("Bearer abc\n")
    (tmp_path / "mail-password").write_text("hunter2\n")
    with (
        Receiver((204, b"", {})) as receiver,
        Mailbox(server_context(certificate, key)) as mailbox,
    ):
        words = {
            "https://hooks.example.com/fairnotice": receiver.url,
            "/etc/fairnotice/": f"{tmp_path}/",
            "mail.example.com:587": f"127.0.0.1:{mailbox.port}",
            'kind = "mail"': f'kind = "mail"\nca_file = "{certificate}"',
        }
        with restarted(page("telling", tmp_path, words), stand_ins, acknowledged=False):
            assert len(receiver.taken) == len(mailbox.kept) == 1
    (example,) = map(json.loads, blocks(JOBS / "telling.md", "json"))
    (_, headers, body), (_, _, after) = receiver.taken
    assert headers["Authorization"] == "Bearer abc"
    assert (list(body), list(body["data"])) == (list(example), list(example["data"]))
    assert after["type"] == "fairnotice.event.recover"
    assert (after["data"]["event_status"], after["data"]["ended"]) == ("Started", "over")
    assert len(mailbox.kept) == len(mailbox.logins) == 2


def test_kubernetes(tmp_path, stand_ins, monkeypatch):
    """Cordoned, drained within the time that there is, uncordoned afterwards."""
    monkeypatch.setenv("NODE_NAME", "aks-0")
    with restarted(page("kubernetes", tmp_path), stand_ins):
        _, annotated, cordoned, drained = stand_ins.calls()
    assert annotated.startswith("kubectl annotate --overwrite node aks-0 fairnotice-cordoned=")
    assert cordoned == "kubectl cordon aks-0"
    assert drained.startswith(
        "kubectl drain aks-0 --ignore-daemonsets --delete-emptydir-data --timeout "
    )
    assert 0 < int(drained.split()[6].removesuffix("s")) < 900
    assert stand_ins.calls()[5:] == [
        "kubectl uncordon aks-0",
        "kubectl annotate node aks-0 fairnotice-cordoned-",
    ]


def test_a_node_that_somebody_else_cordoned_stays_so(tmp_path, stand_ins, monkeypatch):
    """It is drained all the same."""
    monkeypatch.setenv("NODE_NAME", "aks-0")
    (stand_ins.folder / "cordoned").touch()
    with restarted(page("kubernetes", tmp_path), stand_ins):
        assert stand_ins.calls()[-1].startswith("kubectl drain")
    assert [line.split()[1] for line in stand_ins.calls()] == ["get", "drain", "get"]
    assert (stand_ins.folder / "cordoned").exists()


# ---- The reference ----

LEAST = {
    "checkpoint": {"save": ["true"]},
    "command": {"prepare": ["true"]},
    "failover": {"command": ["true"], "check": ["true"]},
    "haproxy": {"address": "127.0.0.1:1", "servers": ["web/web-0"]},
    "health-gate": {"listen": "127.0.0.1:0"},
    "log": {"to": "stdout"},
    "mail": {"server": "m:25", "from": "a@b", "to": ["a@b"]},
    "shutdown": {},
    "systemd": {"units": ["web.service"]},
    "webhook": {"url": "http://a"},
}


@pytest.mark.parametrize("kind", registry.kinds())
def test_every_key_of_every_kind_is_documented(kind, monkeypatch):
    """And no other: the table of its kind has what the code asks for."""
    tables = []

    class Noting(Table):
        def __init__(self, *given):
            super().__init__(*given)
            tables.append(self)

    monkeypatch.setattr(registry, "Table", Noting)
    registry.make(kind, LEAST[kind], "it")
    text = (ROOT / "docs" / "reference" / "handlers.md").read_text("utf-8")
    rows = text.partition(f"\n## {kind}\n")[2].partition("\n## ")[0].splitlines()
    cells = [row.split("|")[1] for row in rows if row.startswith("| `")]
    documented = {
        key for cell in cells for key in cell.replace("`", "").replace(" or ", ",").split(",")
    }
    assert {key.strip() for key in documented} == tables[0]._asked


def test_what_a_command_is_told_is_documented():
    """Each variable."""
    text = (ROOT / "docs" / "reference" / "handlers.md").read_text("utf-8")
    assert [name for name in call().environment() if f"`{name}`" not in text] == []


# ---- Own handlers ----


def test_a_handler_of_ones_own(tmp_path, monkeypatch, stand_ins):
    """The package of the page, installed, is found by its entry point and does what it says."""
    package, own = blocks(GUIDES / "own-handlers.md")
    (program,) = blocks(GUIDES / "own-handlers.md", "python")
    site, door = tmp_path / "site", tmp_path / "turnstile"
    installed(site, package, program)
    monkeypatch.syspath_prepend(str(site))
    text = replaced(own, {"/run/turnstile": str(door)})
    door.mkdir()
    (door / "one.inside").touch()

    with (
        Cloud() as cloud,
        agent(f"state = '{tmp_path}'\n{text}", cloud.url_for("web-0"), stand_ins),
    ):
        event = cloud.vm("web-0").restart()
        cloud.wait_until((door / "closed").exists)
        assert event.approved_by is None
        (door / "one.inside").unlink()
        cloud.wait_until(lambda: event.status == "Started")
        cloud.run_until(event, "Completed")
        cloud.wait_until(lambda: not (door / "closed").exists())


def installed(site, package, program):
    """What an installer leaves of a package: the module, and what it offers."""
    project = tomllib.loads(package)["project"]
    (offers,) = project["entry-points"].values()
    about = site / f"{project['name']}-{project['version']}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    lines = "\n".join(f"{name} = {value}" for name, value in offers.items())
    (about / "entry_points.txt").write_text(f"[fairnotice.handlers]\n{lines}\n")
    (site / f"{project['name']}.py").write_text(program)
