"""What is shipped for a node: its unit, and the example of an endpoint's file; one at a time."""

import os
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from fairnotice.endpoint.config import read
from fairnotice.endpoint.node_deeds import File
from fairnotice.endpoint.node_setup import Wanted, alone, by_hand, deeds
from fairnotice.errors import UsageError
from tests.house import ROOT


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None and "CI" not in os.environ,
    reason="systemd-analyze is not installed",
)
def test_a_node_is_set_up_at_each_boot(tmp_path):
    """No fault is found with the units, for a bridge by its name."""
    files = []
    for name in (
        "fairnotice-node@.service",
        "fairnotice-places@.service",
        "fairnotice-places@.path",
    ):
        unit = (ROOT / "deploy" / name).read_text("utf-8")
        here = unit.replace("/usr/local/bin/fairnotice ", f"{sys.executable} -m fairnotice ")
        files.append(tmp_path / name.replace("@", "@br0"))
        files[-1].write_text(here)
    line = ["systemd-analyze", "verify", *map(str, files)]
    found = subprocess.run(line, check=False, capture_output=True, text=True)  # noqa: S603 - ours
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize(
    ("state", "calls"),
    [
        ("running", ["node-setup --bridge br-0 --undo"]),
        ("degraded", ["node-setup --bridge br-0 --undo"]),
        ("stopping", []),
    ],
)
def test_a_unit_that_is_stopped_takes_all_back_and_a_node_that_goes_down_keeps_its_hook(
    tmp_path, state, calls
):
    """Libvirtd looks for hooks when it starts, which at a boot is before the unit does."""
    unit = (ROOT / "deploy/fairnotice-node@.service").read_text("utf-8")
    (line,) = (one for one in unit.splitlines() if one.startswith("ExecStop="))
    called = tmp_path / "called"
    for name, does in (("systemctl", f"echo {state}"), ("fairnotice", f'echo "$@" >> {called}')):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{does}\n")
        program.chmod(0o700)
    # As systemd reads it.
    line = line.removeprefix("ExecStop=").replace("$$", "$").replace("%i", "br-0")
    words = shlex.split(line.replace("/usr/local/bin/", f"{tmp_path}/"))
    subprocess.run(words, check=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})  # noqa: S603 - ours
    assert (called.read_text().splitlines() if called.exists() else []) == calls


def test_a_bridge_with_a_dash_is_called_by_its_name():
    """In %I a dash is a slash."""
    for path in (ROOT / "deploy").glob("fairnotice-*@.*"):
        assert "%i" in path.read_text("utf-8")
        assert "%I" not in path.read_text("utf-8"), path


def test_libvirts_hook_is_one_command_whatever_things_are_called(tmp_path):
    """A folder with signs of the shell's own, and a domain that looks like a flag."""
    folder = tmp_path / """a $(touch made) "b" `touch made` 'c'"""
    calls = tmp_path / "calls"
    records = folder / "records"
    wanted = Wanted("br0", vms=folder / "vms.json", records=records, hooks=folder / "hooks")
    (hook,) = [one for one in deeds(wanted) if isinstance(one, File)]
    for line in hook.lines():
        line.do()
    text = hook.file.read_text().replace(shlex.quote(sys.executable), '"$CALLED"')
    hook.file.write_text(text)
    called = tmp_path / "called"
    called.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {calls}\n')
    called.chmod(0o755)
    for event in ("started", "release", "other"):
        subprocess.run(  # noqa: S603 - our own
            [hook.file, "--undo", event],
            check=True,
            env={**os.environ, "CALLED": called},
            cwd=tmp_path,
        )
    words = ["-m", "fairnotice", "node-setup", "--bridge", "br0", "--vms", str(wanted.vms)]
    words += ["--record", str(records), "--refresh", "--hook", str(hook.file)]
    assert calls.read_text().splitlines() == [*words, *words, "--without=--undo"]
    assert not (tmp_path / "made").exists()


def test_the_example_and_what_is_left_by_hand_are_read(tmp_path):
    """Both say the same about the network."""
    example = read(ROOT / "deploy" / "endpoint.toml")
    path = tmp_path / "endpoint.toml"
    top = 'node = "n"\ncontrol_planes = ["https://cp1.example.net:8600"]\n'
    path.write_text(top + by_hand(Wanted("br0")))
    printed = read(path)
    assert example.manner.network == printed.manner.network
    assert example.classic == printed.classic == ("168.63.129.16", 80)


@pytest.mark.parametrize("through_a_link", [False, True])
def test_who_changes_a_node_is_alone_though_nothing_is_recorded(tmp_path, through_a_link):
    """The folder that all wait for goes with each of them; and nothing of it is left."""
    records, inside, crowds = tmp_path / "records", [], []
    if through_a_link:
        records.symlink_to(tmp_path / "elsewhere")

    def come_and_go(_):
        with alone(Wanted("br0", records=records)):
            inside.append(1)
            crowds.append(len(inside))
            # Time for whoever else may come in.
            Event().wait(0.002)
            inside.pop()

    with ThreadPoolExecutor(4) as hooks:
        list(hooks.map(come_and_go, range(60)))
    assert crowds == [1] * 60
    assert not records.exists()


def test_nobody_else_can_hold_up_who_changes_a_node(tmp_path):
    """Whoever may read the folder may lock it: others may only look at a record that they know."""
    records = tmp_path / "new" / "records"
    with alone(Wanted("br0", records=records)):
        assert records.stat().st_mode & 0o777 in {0o711, 0o700}


def test_records_that_cannot_be_kept_are_said_to_be_so(tmp_path):
    """Something is in the way of their folder: a sentence, and no waiting."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "link")
    for name in ("file", "file/records", "link"):
        records = tmp_path / name
        with pytest.raises(UsageError, match=f"{records} cannot be opened: "):
            alone(Wanted("br0", records=records)).__enter__()
