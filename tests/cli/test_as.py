"""`fairnotice as NAME -- COMMAND…`: unmodified programs, at 169.254.169.254, as a VM."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.request import urlopen
from uuid import uuid4

import psutil
import pytest

from fairnotice.testing.as_vm import namespace
from tests.cli.typed import (
    PATIENCE_SECONDS,
    PROGRAM,
    Ended,
    Terminal,
    environment,
    served,
    typed,
)
from tests.waiting import until

HERE = Path(__file__).parent
FORBIDDEN = str(HERE / "forbidden.py")
EVENTS = "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
WHO = "http://169.254.169.254/metadata/instance/compute/name?api-version=2019-02-01&format=text"
ASK = ("curl", "-sS", "--max-time", "10", "-H", "Metadata:true")
# An ordinary user; who may, though, read this checkout, which may be private.
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
NOBODY += ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
ROOT = os.geteuid() == 0
# Nobody inside may make user namespaces, nor do without.
NONE_LEFT = ("unshare", "--user", "--map-root-user", "sh", "-c")
NONE_LEFT += (
    'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-sys_admin "$@"',
    "sh",
)


def allowed():
    """Whether this machine lets us make network namespaces, and has what the tests run in one."""
    if not all(map(shutil.which, ("curl", "unshare", "setpriv"))):
        return False
    line = ["unshare", "--net", *([] if ROOT else ["--map-root-user"]), "true"]
    return subprocess.run(line, check=False, capture_output=True).returncode == 0  # noqa: S603


pytestmark = pytest.mark.skipif(
    not os.environ.get("CI") and not allowed(),
    reason="needs curl, and root or user namespaces",
)


@pytest.fixture
def around(service):
    """The environment of a person here: where the service is, and a proxy that leads nowhere."""
    return {"FAIRNOTICE_METADATA_URL": service.metadata, "http_proxy": "http://127.0.0.1:1"}


@pytest.fixture
def as_vm(fairnotice, around):
    """Type `fairnotice as …`."""
    return partial(fairnotice, "as", env=around)


@pytest.fixture
def begun(service, around):
    """Type it, and go on while it runs: it has said `ready`."""

    @contextmanager
    def begin(*words):
        process = subprocess.Popen(  # noqa: S603 - our own program
            [*PROGRAM, "as", *words],
            env=environment(service.url, around),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                assert process.stdout.readline() == "ready\n"
                yield process
            finally:
                process.kill()

    return begin


def ran(*line, service, around):
    """Run this line, whatever it begins with."""
    done = subprocess.run(  # noqa: S603 - our own lines
        line,
        env=environment(service.url, around),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


# ---- What is there ----


def test_a_client_with_the_address_built_in(as_vm, fairnotice):
    """It reads its own document there, and approves what that announces."""
    (announced,) = fairnotice("vm", "restart", "db", "--json").json["events"]
    (event,) = as_vm("db", "--", *ASK, EVENTS).json["Events"]
    assert (event["EventId"], event["EventStatus"]) == (announced["id"], "Scheduled")

    start = json.dumps({"StartRequests": [{"EventId": event["EventId"]}]})
    assert as_vm("db", "--", *ASK, "--fail", "-d", start, EVENTS) == (0, "", "")

    after = fairnotice("event", "show", event["EventId"], "--json").json
    assert [one["by"] for one in after["approvals"]] == ["db"]
    assert after["status"] == "Started"


def test_the_guide_says_what_happens(service, around):
    """What is copied from it prints what stands below it."""
    text = (HERE.parents[1] / "docs" / "guides" / "any-client.md").read_text("utf-8")
    pairs = re.findall(r"```sh\n(fairnotice as .*?)```.*?```\w*\n(.*?)```", text, re.DOTALL)
    assert len(pairs) == 2
    program = f'fairnotice() {{ {" ".join(PROGRAM)} "$@"; }}\n'
    for line, printed in pairs:
        done = ran("sh", "-c", program + line, service=service, around=around)
        assert (done.code, done.out.strip()) == (0, printed.strip())


def test_the_control_plane_says_where_the_endpoint_is(fairnotice):
    """It need not be said where that is, at whichever port."""
    assert fairnotice("as", "web-0", "--", *ASK, WHO) == (0, "web-0", "")


@pytest.mark.parametrize(("vm", "name"), [("web-1", "web-1"), ("batch_3", "batch000003")])
def test_the_host_name_is_the_vms(as_vm, vm, name):
    """As Azure gives it: to the kernel, in /etc, and to whoever resolves it."""
    look = "uname -n; cat /etc/hostname; getent hosts $(uname -n) | tr -s ' '"
    assert as_vm(vm, "--", "sh", "-c", look).out == f"{name}\n{name}\n127.0.1.1 {name}\n"
    assert Path("/etc/hostname").read_text("utf-8").strip() == os.uname().nodename


def test_nothing_else_is_there_but_the_control_plane(as_vm, service):
    """`fairnotice` works inside; what else listens on this machine is out of reach."""
    again = as_vm("web-0", "--", *PROGRAM, "vm", "show", "web-0", "--json")
    assert again.json["name"] == "web-0"
    outside = as_vm("web-0", "--", *ASK, f"{service.metadata}/metadata/instance")
    assert (outside.code, outside.out) == (7, "")


def test_two_vms_at_the_same_time_are_two(begun):
    """Each is itself, and sees nothing of the other."""
    wait = 'echo ready; read go; exec "$@"'
    with begun("web-2", "--", "sh", "-c", wait, "sh", *ASK, WHO) as web:
        with begun("spot_1", "--", "sh", "-c", wait, "sh", *ASK, WHO) as spot:
            assert spot.communicate("go\n")[0] == "spot_1"
        assert web.communicate("go\n")[0] == "web-2"


def test_an_answer_is_held_until_there_is_news(begun, service, fairnotice):
    """`Prefer: wait` reaches the endpoint, and its answer comes back when it is given."""
    read = f"{' '.join(ASK)} '{EVENTS}'"
    script = f"""
        etag=$({read} -D - -o /dev/null | tr -d '\\r' | sed -n 's/^etag: //Ip')
        echo ready
        exec {read} -H "If-None-Match: $etag" -H 'Prefer: wait=60'
    """
    with begun("FrontEnd_IN_1", "--", "sh", "-c", script) as process:
        until(lambda: "_held_waits 1\n" in metrics(service))
        (announced,) = fairnotice("vm", "restart", "FrontEnd_IN_1", "--json").json["events"]
        (event,) = json.loads(process.communicate()[0])["Events"]
    assert event["EventId"] == announced["id"]


def metrics(service):
    """What the service says of itself."""
    with urlopen(f"{service.url}/metrics") as answer:  # noqa: S310 - our own service
        return answer.read().decode()


# ---- The command is the process ----


def test_what_is_behind_is_the_commands(as_vm, around):
    """Its own flags, and its own `--`; ours may stand behind the name."""
    flag = ("--metadata-url", around["FAIRNOTICE_METADATA_URL"])
    words = ("--url", "x", "--", "--", "-h", "vm")
    done = as_vm("web-1", *flag, "--", "printf", "%s.", *words)
    assert (done.out, done.err) == ("--url.x.--.--.-h.vm.", "")


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 7", 7), ("kill -TERM $$", -signal.SIGTERM), ("kill -PIPE $$", -signal.SIGPIPE)],
)
def test_the_end_is_the_commands(as_vm, script, code):
    """Its exit code, or the signal that ended it."""
    assert as_vm("web-0", "--", "sh", "-c", script).code == code


def test_a_signal_is_for_the_command(begun):
    """It may catch it, and takes its time."""
    script = 'trap "echo caught; exit 5" INT; echo ready; while :; do sleep 0.05; done'
    with begun("web-0", "--", "sh", "-c", script) as process:
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("caught\n", None)
        assert process.returncode == 5


def test_a_terminal_is_a_terminal(service, around):
    """A shell inside talks to whoever sits there."""
    shell = Terminal("as", "web-0", "--", "sh", "-i", url=service.url, env=around)
    shell.type("test -t 0 && echo it-is-$(uname -n)\n")
    shell.wait_for("it-is-web-0")
    shell.type("exit 3\n")
    assert shell.end() == 3


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_behind(begun, how):
    """The relay ends with the command, however that ends."""
    mark = str(uuid4())
    with begun("web-0", "--", "sh", "-c", "echo ready; read go", mark) as process:
        assert len(marked(mark)) == 2
        process.send_signal(how)
        assert process.wait() == -how
        until(lambda: not marked(mark))


def marked(mark):
    """The processes that were started with this word."""
    lines = ((one.pid, one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"]))
    return [pid for pid, line in lines if mark in line]


# ---- Who may ----


def test_it_needs_no_root(service, around):
    """Somebody without any privilege stays who he is, gains nothing, and is the VM."""
    look = 'id -u; grep CapEff /proc/self/status; exec "$@"'
    before = NOBODY if ROOT else ()
    line = (*before, *PROGRAM, "as", "batch_1", "--", "sh", "-c", look, "sh", *ASK, WHO)
    done = ran(*line, service=service, around=around)
    user = 65534 if ROOT else os.geteuid()
    assert done == (0, f"{user}\nCapEff:\t{0:016x}\nbatch_1", "")


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ((sys.executable, FORBIDDEN), "a seccomp filter is on, as containers have one (start the"),
        (NONE_LEFT, "user.max_user_namespaces is 0. Allow some (sudo sysctl -w user.max_user_"),
    ],
    ids=["seccomp", "limit"],
)
def test_where_it_may_not_be_it_says_why(service, around, before, why):
    """Which of the many things that forbid it, and what to do."""
    line = (*before, *PROGRAM, "as", "web-0", "--", "echo", "here")
    done = ran(*line, service=service, around=around)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"A network namespace cannot be made here: {why}")


@pytest.mark.parametrize(
    ("name", "forbids", "advice"),
    [
        ("kernel.unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        (
            "kernel.apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ],
)
def test_a_switch_of_the_system_is_named(tmp_path, monkeypatch, name, forbids, advice):
    """Debian's and Ubuntu's, read where the kernel shows them."""
    shown = tmp_path / name.replace(".", "/")
    shown.parent.mkdir()
    shown.write_text(f"{forbids}\n")
    monkeypatch.setattr(namespace, "_SYSCTL", tmp_path)
    assert advice in namespace._why(PermissionError(1, "Operation not permitted"))


# ---- Mistakes ----


def test_mistakes_are_said_before_anything_is_run(as_vm, tmp_path):
    """Each with its exit code, as for other commands; those of the command as a shell has them."""
    there = ("--", "echo", "here")
    text = tmp_path / "text"
    text.write_text("no program")
    mistakes = [
        (as_vm("web-9", *there), 3, "There is no VM web-9. Did you mean web-0 or"),
        (as_vm("web-0", "--", "no-such-command"), 127, "There is no command no-such-command."),
        (as_vm("web-0", "--", str(text)), 126, f"{text} is no program that may be run."),
        (as_vm("web-0", "echo", "here"), 2, "Write -- and, behind that, the command that is to"),
        (as_vm("web-0", "--"), 2, "Write -- and, behind that, the command"),
        (as_vm(*there), 2, "The following arguments are required: NAME."),
        (typed("as", "web-0", *there, url="http://127.0.0.1:1"), 4, "No control plane answers at"),
        (as_vm("--metadata-url", "http://127.0.0.1:1", "web-0", *there), 1, "Nothing serves meta"),
        (as_vm("--metadata-url", "https://localhost", "web-0", *there), 2, "Clients ask 169.254"),
    ]
    for done, code, begins in mistakes:
        assert (done.code, done.out) == (code, ""), begins
        assert done.err.startswith(begins)


def test_a_vm_that_is_nobody_here_is_refused(fairnotice, as_vm, tmp_path):
    """Without an address, with one of another machine, and with one of another endpoint."""
    fleet = fairnotice("fleet", "export").out
    more = {"bare": "", "far": 'address = "192.0.2.9"', "new": 'address = "127.69.9.9"'}
    rows = [
        f'\n[[vm]]\nname = "{name}"\nnode = "node-5"\n{address}\n' for name, address in more.items()
    ]
    path = tmp_path / "fleet.toml"
    path.write_text(fleet + "".join(rows), "utf-8")
    assert fairnotice("fleet", "apply", str(path), "--yes").code == 0

    for name, why in (("bare", "has no address: nothing"), ("far", "has 192.0.2.9: nothing")):
        done = as_vm(name, "--", "echo", "here")
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith(f"{name} {why}")
        assert 'address = "127.69.1.1"' in done.err
    with served(()) as other:
        done = as_vm("--metadata-url", other.metadata, "new", "--", "echo", "here")
    assert (done.code, done.out) == (1, "")
    assert "does not know 127.69.9.9 as new." in done.err
    assert as_vm("new", "--", "echo", "here").out == "here\n"
