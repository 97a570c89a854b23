"""The programs of docs/reference/driver-commands.md, run by the driver; libvirt is a ledger."""

import asyncio
import shutil
import tomllib
from pathlib import Path

import pytest

from fairnotice.cli.serve_config import DriverTable
from fairnotice.clock import SystemClock
from fairnotice.control.toml_tables import converted
from fairnotice.drivers.command.driver import CommandDriver
from fairnotice.drivers.driver import Found, Order, Report
from fairnotice.words import ImpactKind, Outcome, Power

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "driver-commands.md").read_text("utf-8")
NODE, TARGET = "qemu+ssh://node-0/system", "qemu+ssh://node-1/system"
# Notes what it is asked; `list` says once what runs, and a node called away does not answer.
VIRSH = """#!/bin/sh
shift 2
where=$1
shift
case $where in *away*) exit 1 ;; esac
echo "$where $*" >>"$LEDGER"
if [ "$1" = list ] && [ "$where" = qemu+ssh://node-0/system ] && [ ! -e "$LEDGER.off" ]; then
    echo db
    [ -z "$ONCE" ] || touch "$LEDGER.off"
fi
"""
SHUT_DOWN = [f"{NODE} set-lifecycle-action db poweroff destroy --live", f"{NODE} shutdown db"]
FENCE = '#!/bin/sh\necho "fence $1" >>"$LEDGER"\n'


class Cloud:
    """/opt/cloud and /srv/cloud, and the driver as the page's serve.toml has it."""

    def __init__(self, folder: Path) -> None:
        shutil.copytree(ROOT / "examples" / "libvirt-commands", folder / "opt")
        for path, text in ((folder / "virsh", VIRSH), (folder / "opt" / "fence", FENCE)):
            path.write_text(text)
            path.chmod(0o755)
        for vm in ("db", "web"):
            (folder / f"{vm}.xml").touch()
        self._folder = folder
        table = tomllib.loads(PAGE.partition("```toml\n")[2].partition("```")[0])["driver"]
        here = {"/opt/cloud": f"{folder}/opt", "/var/lib/fairnotice": str(folder)}
        settings = converted(_moved(table, here), DriverTable, "the page").command
        self.driver = CommandDriver(settings, SystemClock())

    @property
    def asked(self) -> list[str]:
        """What libvirt was asked for, but for looks."""
        lines = (self._folder / "ledger").read_text().splitlines()
        return [line for line in lines if " list " not in line]


def _moved(value, here):
    """The same with other paths."""
    if isinstance(value, dict):
        return {key: _moved(one, here) for key, one in value.items()}
    if isinstance(value, list):
        return [_moved(one, here) for one in value]
    for before, after in here.items():
        value = value.replace(before, after)
    return value


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    """All of it, in a directory of its own."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("LEDGER", str(tmp_path / "ledger"))
    monkeypatch.setenv("DEFINITIONS", str(tmp_path))
    monkeypatch.setenv("ONCE", "yes")
    return Cloud(tmp_path)


def order(kind, node="node-0"):
    """An impact on db."""
    return Order("op/db", "db", kind, node, "node-1", "event-1", 0)


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        (ImpactKind.FREEZE, [f"{NODE} suspend db", f"{NODE} resume db"]),
        (ImpactKind.REBOOT, [f"{NODE} reset db"]),
        (ImpactKind.REDEPLOY, [f"{NODE} destroy db", f"{TARGET} create {{0}}/db.xml"]),
        (ImpactKind.MIGRATE, [f"{NODE} migrate --live db {TARGET}"]),
        (ImpactKind.DELETE, [f"{NODE} destroy db"]),
        (ImpactKind.STOP, SHUT_DOWN),
        (ImpactKind.START, [f"{TARGET} create {{0}}/db.xml"]),
        (ImpactKind.DEALLOCATE, SHUT_DOWN),
    ],
)
def test_every_kind_is_done(cloud, tmp_path, kind, asked):
    """And noted, so that whoever is asked afterwards knows."""
    assert asyncio.run(cloud.driver.impact(order(kind), 1)) == Report(Outcome.DONE)
    assert cloud.asked == [line.format(tmp_path) for line in asked]
    # Another control plane, whose notes are elsewhere: the outcome command is asked.
    shutil.rmtree(tmp_path / "impacts")
    (tmp_path / "impacts").mkdir()
    (tmp_path / "impacts" / "op%2Fdb.begun").write_text("1 600.000\n")
    assert asyncio.run(cloud.driver.outcome("op/db", 1)).outcome is Outcome.DONE


def test_a_vm_never_runs_twice(cloud, tmp_path):
    """A node that does not answer is switched off before its VM is started elsewhere."""
    moved = order(ImpactKind.REDEPLOY, node="away")
    assert asyncio.run(cloud.driver.impact(moved, 1)).outcome is Outcome.DONE
    assert cloud.asked == ["fence away", f"{TARGET} create {tmp_path}/db.xml"]
    (tmp_path / "opt" / "fence").write_text("#!/bin/sh\nexit 1\n")
    again = moved._replace(key="op-2/db")
    assert asyncio.run(cloud.driver.impact(again, 1)).outcome is Outcome.FAILED
    assert len(cloud.asked) == 2


def test_what_runs_is_found(cloud):
    """With its node; what runs nowhere has none."""
    found = asyncio.run(cloud.driver.discover(1))
    assert found == (
        Found("db", "node-0", Power.RUNNING),
        Found("web", None, Power.DEALLOCATED),
    )
