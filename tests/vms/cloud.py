"""A control plane for VMs of two nodes, in their namespace; and what proves what became of a VM."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Self

import libvirt

from tests.vms import guest
from tests.vms.nodes import CLOCK, Nodes, run

FAIRNOTICE = str(Path(sys.executable).with_name("fairnotice"))
PATIENCE_SECONDS = 60.0
_SERVE = """timing = "dev"
[store]
url = "sqlite:{folder}/fairnotice.db"
[auth]
required = false
[metadata]
rate_limit = "off"
[driver]
kind = "libvirt"
look_every_seconds = 1
unreachable_after_seconds = 1
reboot_limit_seconds = {limit}
shutdown_limit_seconds = {limit}
{nodes}
"""


class Cloud:
    """`fairnotice serve` in the namespace of two nodes."""

    def __init__(self, nodes: Nodes, limit_seconds: float = 20.0) -> None:
        self.nodes = nodes
        self._file = nodes.folder / "serve.toml"
        tables = "\n".join(
            f'[driver.nodes.{one.name}]\nuri = "{one.uri}"\nmigrate_uri = "tcp:127.0.0.1"'
            for one in nodes.nodes.values()
        )
        self._file.write_text(_SERVE.format(folder=nodes.folder, nodes=tables, limit=limit_seconds))
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)

    # ---- The control plane ----

    def start(self) -> None:
        """Serve; it is ready when this returns."""
        command = self.nodes.network.inside(FAIRNOTICE, "serve", "--config", str(self._file))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603
        wait_until("the control plane serves", lambda: self._asks("fleet", "show"))

    @property
    def log(self) -> Path:
        """What it says."""
        return self.nodes.folder / "serve.log"

    def kill(self) -> None:
        """As if its machine had lost power."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)
        self.process = None

    def _asks(self, *words: str) -> bool:
        command = self.nodes.network.inside(FAIRNOTICE, *words)
        done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603
        return done.returncode == 0

    def ask(self, *words: str) -> dict:
        """What the control plane answers to a command."""
        return json.loads(run(*self.nodes.network.inside(FAIRNOTICE, *words, "--json")))

    def declare(self) -> None:
        """Make the fleet what the labels of the domains say."""
        inside = self.nodes.network.inside
        text = run(*inside(FAIRNOTICE, "libvirt", "fleet", "--config", str(self._file)))
        file = self.nodes.folder / "fleet.toml"
        file.write_text(
            text.replace("[[scale_set]]", "[[scale_set]]\nterminate_notice_minutes = 5")
        )
        run(*inside(FAIRNOTICE, "fleet", "apply", str(file), "--yes"))

    def operations(self) -> list[dict]:
        """All of the last day, the newest last."""
        return sorted(
            self.ask("operation", "list", "--all")["items"], key=lambda one: one["asked_at"]
        )

    def wait_for_end(self, seconds: float = PATIENCE_SECONDS) -> dict:
        """How the newest operation has ended."""
        wait_until(
            "it is over",
            lambda: self.operations()[-1]["status"] not in ("Pending", "Started"),
            seconds,
        )
        return self.operations()[-1]

    def vm(self, name: str) -> dict:
        """A VM as the fleet has it."""
        return self.ask("vm", "show", name)

    # ---- The machines ----

    def run_vm(
        self,
        name: str,
        address: str,
        node: str = "n1",
        *,
        manner: str = "",
        labels: tuple[str, ...] = ("scale_set=batch",),
        more: str = "",
    ) -> None:
        """A labeled VM that runs; its guest has booted when this returns."""
        connection = libvirt.open(self.nodes.nodes[node].uri)
        domain = connection.defineXML(self.nodes.domain_xml(name, address, manner, more))
        words = (name, *labels, f"addresses={address}")
        uri = self.nodes.nodes[node].uri
        run(FAIRNOTICE, "libvirt", "label", *words, "--connect", uri)
        domain.create()
        wait_until("the guest boots", lambda: self.boots(name))

    def said(self, vm: str, word: str) -> list[list[str]]:
        """The lines of the VM's console that begin with this word, without it."""
        console = self.nodes.console(vm)
        text = console.read_text(errors="replace") if console.exists() else ""
        lines = [line.split() for line in text.replace("\r", "\n").splitlines()]
        return [words[1:] for words in lines if words[:1] == [word]]

    def boots(self, vm: str) -> list[str]:
        """The id of every boot, in order."""
        return [words[0] for words in self.said(vm, guest.BOOTED)]

    def ticks(self, vm: str) -> int:
        """How often it was answered."""
        return len(self.said(vm, guest.TICK))

    def domains(self, vm: str) -> dict[str, libvirt.virDomain]:
        """The VM's domain on each node that runs and has one."""
        return {
            node.name: domain
            for node in self.nodes.nodes.values()
            if node.process is not None
            for domain in libvirt.open(node.uri).listAllDomains(0)
            if domain.name() == vm
        }

    def states(self, vm: str) -> dict[str, int]:
        """Their states."""
        return {node: domain.state()[0] for node, domain in self.domains(vm).items()}


def wait_until(what: str, is_so: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for something that must become true."""
    deadline = CLOCK.monotonic() + seconds
    while not is_so():
        assert CLOCK.monotonic() < deadline, f"{seconds:g} s have passed, and not: {what}"
        Event().wait(0.1)
