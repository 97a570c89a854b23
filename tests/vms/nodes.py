"""Two nodes on one machine: a libvirtd each, on one bridge in a network namespace of their own.

Each has a host name, an id and directories of its own, so that libvirt takes them for two hosts and
lets VMs migrate between them. Nothing of the machine's own libvirt is touched.
"""

import fcntl
import os
import secrets
import signal
import subprocess
import sys
import uuid
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from threading import Event
from typing import Self

from fairnotice.clock import SystemClock
from tests.vms import guest, reaper

CLOCK = SystemClock()

# A libvirtd with its VMs takes less than one second to end.
END_SECONDS_MAX = 30
BRIDGE = "vms"
GATEWAY, ENDPOINT = "10.77.0.1", "169.254.169.254"
TOOLS = Path(__file__).parents[2] / "scripts" / "vm-tools"
PRIVATE = (
    "/etc/libvirt",
    "/run/libvirt",
    "/var/lib/libvirt",
    "/var/log/libvirt",
    "/var/cache/libvirt",
)
_QEMU_CONF = """user = "root"
group = "root"
cgroup_controllers = []
stdio_handler = "file"
security_driver = "none"
remember_owner = 0
namespaces = []
seccomp_sandbox = 0
"""
_START = """set -e
mount --make-rprivate /
for place in {private}; do
    mkdir -p $place {folder}$place
    mount --bind {folder}$place $place
done
mount --bind {folder}/passwd /etc/passwd
mount --bind {folder}/group /etc/group
hostname {name}
exec libvirtd --pid-file /run/libvirt/libvirtd.pid {more}
"""
# What is done here first, and what root needs for it, which a container keeps from him.
_TRIALS = (
    ("network namespaces", "CAP_SYS_ADMIN", "unshare --net --mount --uts true"),
    ("bridges", "CAP_NET_ADMIN", "unshare --net ip link add vms type bridge"),
)


@cache
def missing() -> str:
    """What has to be installed, or be otherwise, before VMs can run here; empty if nothing."""
    if os.geteuid() != 0:
        return (
            "VMs need root here (sudo make demo-vms): network namespaces, bridges, and a libvirtd "
            "of one's own."
        )
    refused = _refused()
    if refused:
        return refused
    if os.uname().machine != "x86_64":
        return f"The guest is for x86-64, and this machine is {os.uname().machine}."
    if not Path("/dev/net/tun").exists():
        return "VMs need /dev/net/tun, which is not here: modprobe tun, or a container with it."
    lacking = run(str(TOOLS), "--missing", sys.executable).strip()
    if lacking:
        return f"{lacking[:1].upper()}{lacking[1:]}."
    try:
        import libvirt  # noqa: F401, PLC0415
    except ImportError:
        return "VMs need libvirt-python in this environment: scripts/vm-tools installs it."
    return ""


def _refused() -> str:
    """What root may not do here, as far as there are programs to try it with."""
    for what, capability, command in _TRIALS:
        try:
            done = subprocess.run(command.split(), capture_output=True, text=True, check=False)  # noqa: S603 - our own
        except FileNotFoundError:
            continue
        if done.returncode != 0:
            return (
                f"VMs need {what}, which root may not make here ({done.stderr.strip()}): "
                f"{capability} is missing, as in a container that is not --privileged."
            )
    return ""


class Network:
    """A network namespace with a bridge, and the metadata endpoint's address on it."""

    def __init__(self) -> None:
        self.name = f"fn-{secrets.token_hex(3)}"

    def __enter__(self) -> Self:
        run("ip", "netns", "add", self.name)
        for words in (
            f"link add {BRIDGE} type bridge",
            f"address add {GATEWAY}/24 dev {BRIDGE}",
            f"address add {ENDPOINT}/32 dev {BRIDGE}",
            f"link set {BRIDGE} up",
            "link set lo up",
        ):
            run("ip", "-n", self.name, *words.split())
        return self

    def __exit__(self, *_: object) -> None:
        run("ip", "netns", "delete", self.name)

    def inside(self, *command: str) -> list[str]:
        """The command, run inside."""
        return ["ip", "netns", "exec", self.name, *command]


class Node:
    """A libvirtd of its own."""

    def __init__(self, network: Network, folder: Path, name: str, more: str = "") -> None:
        self.name = name
        self._network = network
        self._folder = folder
        self.more = more
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        """Where it is reached, from outside the namespace too."""
        return f"qemu+unix:///system?socket={self.socket}"

    @property
    def socket(self) -> Path:
        """Where libvirtd is by default, as seen from outside of the node."""
        return self._folder / "sock" / "libvirt-sock"

    def path(self, path: str) -> Path:
        """Where a file of this node, which has its own /var/lib/libvirt, is for everybody else."""
        return Path(f"{self._folder}{path}")

    def write(self, listen: str = "") -> None:
        """Its configuration."""
        for place in PRIVATE:
            self.path(place).mkdir(parents=True, exist_ok=True)
        # A shorter way there: no path of a socket may be longer than 107 letters.
        if not self.socket.parent.is_symlink():
            self.socket.parent.symlink_to("run/libvirt")
        configuration = self.path("/etc/libvirt")
        (configuration / "qemu.conf").write_text(_QEMU_CONF)
        (configuration / "libvirtd.conf").write_text(
            f'auth_unix_rw = "none"\n'
            f'host_uuid = "{uuid.uuid5(uuid.NAMESPACE_DNS, self.name)}"\n{listen}'
        )
        for file, line in (("passwd", "x:64055:64055::/:/bin/false"), ("group", "x:64055:")):
            text = Path("/etc", file).read_text("utf-8")
            if "libvirt-qemu:" not in text:
                text += f"libvirt-qemu:{line}\n"
            (self._folder / file).write_text(text)

    def start(self) -> None:
        """Start it; it is there when this returns."""
        script = _START.format(
            private=" ".join(PRIVATE), folder=self._folder, name=self.name, more=self.more
        )
        command = [
            sys.executable,
            reaper.__file__,
            "unshare",
            "--mount",
            "--uts",
            "bash",
            "-c",
            script,
        ]
        environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603
                self._network.inside(*command), stdout=log, stderr=log, env=environment
            )
        deadline = CLOCK.monotonic() + 60
        while not self.socket.exists():
            assert CLOCK.monotonic() < deadline, (self._folder / "log").read_text()
            assert self.process.poll() is None, (self._folder / "log").read_text()
            Event().wait(0.05)

    def inside(self, *command: str) -> list[str]:
        """The command, run where this node has its own files and not the machine's."""
        libvirtd = self.path("/run/libvirt/libvirtd.pid").read_text("ascii").strip()
        return ["nsenter", "--target", libvirtd, "--mount", "--net", *command]

    def stop(self) -> None:
        """End it and its VMs."""
        if self.process is not None:
            process, self.process = self.process, None
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(END_SECONDS_MAX)
            finally:
                # Of one that has ended, that is nothing.
                process.kill()


class Nodes:
    """Two nodes, and the folder that all of it is in.

    On one machine only one pair at a time: emulated VMs side by side are too slow for any clock.
    """

    def __init__(self, folder: Path, names: tuple[str, ...] = ("n1", "n2")) -> None:
        self.folder = folder
        self.network = Network()
        guest.CACHE.mkdir(parents=True, exist_ok=True)
        self._turn = (guest.CACHE / "nodes.lock").open("ab")
        self.nodes = {name: Node(self.network, folder / name, name) for name in names}

    def take_turn(self) -> None:
        """Return when no other pair is there; said, where that is waited for."""
        try:
            fcntl.flock(self._turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stdout.write("Another one is running: waiting for its end.\n")
            sys.stdout.flush()
            fcntl.flock(self._turn, fcntl.LOCK_EX)

    def __enter__(self) -> Self:
        # Whoever has had it since before has it still.
        self.take_turn()
        self.network.__enter__()
        try:
            for node in self.nodes.values():
                node.write()
                node.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # Whichever of them does not end: nothing of the others is left.
        with ExitStack() as ending:
            ending.callback(self._turn.close)
            ending.callback(self.network.__exit__)
            for node in self.nodes.values():
                ending.callback(node.stop)

    def console(self, vm: str) -> Path:
        """Where a VM speaks."""
        return self.folder / f"{vm}.console"

    def domain_xml(self, vm: str, address: str, manner: str = "", more: str = "") -> str:
        """A VM for one of the nodes."""
        return guest.domain_xml(vm, address, self.console(vm), BRIDGE, manner=manner, more=more)


def run(*words: str) -> str:
    """What a command printed; it must succeed."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout
