"""`make demo-vms` proves each impact, leaves the machine as it was, and says what is missing."""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Event

import pytest

from tests.house import ROOT
from tests.vms import guest
from tests.vms.nodes import CLOCK, PRIVATE, TOOLS, missing
from tests.vms.tidy import NAMESPACE
from tests.waiting import until

# What is said of each impact. The proofs know each other: no boot comes and goes unseen.
IMPACT = r""" *{}: event [0-9A-F-]{{36}},
 +approved from inside, done (?P<{}>[0-9.]+) s after it was asked for:
 +{}
"""
PROOFS = {
    "Freeze": "the same boot (?P=first), paused for [0-9.]+ s "
    r"\(announced: (?P<announced>[0-9]+) s\), and silent meanwhile",
    "Reboot": "boot (?P=first) became (?P<second>[0-9a-f]{8}), once",
    "live migration": "the same boot (?P=second), now on n2",
    "Redeploy": "boot (?P=second) became (?P<third>[0-9a-f]{8}), on n1",
    "Terminate": "no node has a domain of it any more",
}
WALKED = re.compile(
    "vm0 has booted on n1, by boot id (?P<first>[0-9a-f]{8})\n.*\n"
    + "".join(IMPACT.format(what, what.replace(" ", "_"), proof) for what, proof in PROOFS.items())
    + "All of it in (?P<seconds>[0-9]+) s"
)
WAITS, WAITED_SECONDS = "Another one is running: waiting for its end.\n", 4
# Makes what the demo makes: a network namespace, a process in it that heeds nothing, files.
UNTIDY = """
import subprocess, sys, time
from pathlib import Path
from tests.vms.tidy import NAMESPACE, tidily
def act(folder):
    (folder / NAMESPACE).write_text(sys.argv[1])
    subprocess.run(["ip", "netns", "add", sys.argv[1]], check=True)
    stays = "trap '' INT TERM HUP; echo $$; while :; do sleep 0.1; done"
    line = ["ip", "netns", "exec", sys.argv[1], "sh", "-c", stays]
    left = subprocess.Popen(line, stdout=subprocess.PIPE, start_new_session=True, text=True)
    print(folder, left.stdout.readline().strip(), flush=True)
    time.sleep(60)
    return 0
sys.exit(tidily(act))
"""
# Hears a signal before there is anybody who could clear up.
UNTIMELY = """
import os, signal, sys
from tests.vms.tidy import tidily
fork = os.fork
def forked():
    os.kill(os.getpid(), int(sys.argv[1]))
    return fork()
os.fork = forked
sys.exit(tidily(lambda folder: signal.pause()))
"""


def runs(process):
    """Whether a process is there, and not only waits to be buried."""
    try:
        return bool(Path("/proc", process, "cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False


def touched(folder):
    """What runs and has to do with a folder: by its command, its environment or its mounts."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        # Unless it is gone by now.
        with contextlib.suppress(OSError):
            ways = (process / name for name in ("cmdline", "environ", "mountinfo"))
            if any(os.fsencode(folder) in way.read_bytes() for way in ways):
                found.append((process / "comm").read_text().strip())
    return found


@pytest.fixture
def folder():
    """One for temporary files, with a short name: sockets are in there."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def machine():
    """What of this machine has to be as it was."""
    return {
        "interfaces": sorted(Path("/sys/class/net").iterdir()),
        "libvirt's folders": [place for place in PRIVATE if Path(place).exists()],
    }


def waiting_for(another, folder):
    """The demo, begun while another one has its turn."""
    fcntl.flock(another, fcntl.LOCK_EX)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.vms"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
    )


@pytest.mark.skipif(bool(missing()) and "CI" not in os.environ, reason=missing())
def test_a_vm_goes_through_every_impact_and_nothing_of_it_is_left(folder):
    """Each approved from inside, and proven; no namespace, process, mount, file or interface.

    Another one runs when it begins: it says that it waits, and does not count that.
    """
    before, said, ran = machine(), "", []
    guest.CACHE.mkdir(parents=True, exist_ok=True)
    with (
        (guest.CACHE / "nodes.lock").open("ab") as another,
        waiting_for(another, folder) as demo,
    ):
        for line in demo.stdout:
            if not said:
                Event().wait(WAITED_SECONDS)
                another.close()
                began = CLOCK.monotonic()
            said += line
            if "Freeze" in line:
                ran = touched(folder)
                (namespace,) = [path.read_text() for path in folder.glob(f"*/{NAMESPACE}")]
    took_seconds = CLOCK.monotonic() - began
    assert demo.returncode == 0, said
    seen = WALKED.search(said)
    assert seen, said
    assert float(seen["Freeze"]) >= float(seen["announced"])
    assert max(map(len, said.splitlines())) <= 100
    assert said.startswith(f"{WAITS}Two libvirtd")
    assert int(seen["seconds"]) < took_seconds + WAITED_SECONDS / 2

    # All of it was there, and would be seen.
    assert {"qemu-system-x86", "libvirtd", "fairnotice"} <= set(ran)
    assert touched(folder) == []
    assert list(folder.iterdir()) == []
    assert not Path("/run/netns", namespace).exists()
    assert namespace not in Path("/proc/self/mountinfo").read_text()
    assert machine() == before


@pytest.mark.skipif(
    bool(missing()) and "CI" not in os.environ, reason="a network namespace needs root"
)
@pytest.mark.parametrize("end", ["Ctrl-C", "terminated", "killed", "its other half killed"])
def test_nothing_is_left_however_it_ends(end):
    """No namespace, no process, no file."""
    name = f"fn-{secrets.token_hex(4)}"
    demo = subprocess.Popen(  # noqa: S603 - our own
        [sys.executable, "-c", UNTIDY, name],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    folder, process = demo.stdout.readline().split()
    assert Path("/run/netns", name).exists()
    other = int(Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text("ascii").split()[0])
    if end == "Ctrl-C":
        os.killpg(demo.pid, signal.SIGINT)
    elif end == "terminated":
        demo.terminate()
    else:
        os.kill(demo.pid if end == "killed" else other, signal.SIGKILL)
    # Until both halves have let go of it.
    assert demo.stdout.read() == ""
    demo.stdout.close()
    assert demo.wait(30) != 0
    assert [path for path in (Path("/run/netns", name), Path(folder)) if path.exists()] == []
    until(lambda: not runs(process), "the end of what it left")


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_where_it_ends_before_it_has_begun(end, tmp_path):
    """What is told then is heard later, and what is killed then has made nothing."""
    ended = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-c", UNTIMELY, str(int(end))],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=30,
    )
    said = "" if end is signal.SIGKILL else "Ended before its time. The machine is as it was.\n"
    assert (ended.stdout, ended.stderr) == ("", said)
    assert ended.returncode == (-end if end is signal.SIGKILL else 128 + end)
    assert list(tmp_path.iterdir()) == []


def test_who_is_not_root_is_told_so():
    """In a sentence, and nothing is begun."""
    nobody = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    found = subprocess.run(  # noqa: S603 - our own
        [*nobody, sys.executable, "-m", "tests.vms"],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert found.returncode == 1
    assert found.stderr.startswith("This cannot be shown here. VMs need root")


@pytest.mark.skipif(
    bool(missing()) and "CI" not in os.environ, reason="whoever lacks more hears that first"
)
@pytest.mark.parametrize("capability", ["sys_admin", "net_admin"])
def test_root_who_may_not_do_all_is_told_what_he_lacks(capability):
    """As in a container: in a sentence, and nothing is begun."""
    without = ["setpriv", f"--bounding-set=-{capability}", f"--inh-caps=-{capability}"]
    found = subprocess.run(  # noqa: S603 - our own
        [*without, sys.executable, "-m", "tests.vms"],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert found.returncode == 1
    assert found.stderr.startswith("This cannot be shown here. VMs need ")
    assert f"CAP_{capability.upper()} is missing" in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.skipif(
    os.geteuid() != 0 and "CI" not in os.environ, reason="whoever is not root hears that first"
)
def test_what_is_missing_is_the_same_first_and_last(tmp_path):
    """Where there is no apt: what would be installed, with the programs that are meant."""
    for name in ("bash", "env", "dirname", "basename", "id"):
        (tmp_path / name).symlink_to(shutil.which(name))
    said = []
    for command in ([str(TOOLS)], [sys.executable, "-m", "tests.vms"]):
        done = subprocess.run(  # noqa: S603 - our own
            command,
            check=False,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PATH": str(tmp_path)},
        )
        said.append(done.stderr.strip())
    assert said[1] == f"This cannot be shown here. F{said[0][1:]}."
    for package in ("busybox-static (busybox)", "libvirt-clients (virsh)", "apt (apt-get)"):
        assert package in said[0]
