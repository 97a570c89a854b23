"""Runs a command as a VM sees the world: 169.254.169.254 is its endpoint, the host name is its.

    subprocess.run(command_line(guest, ["curl", …]), env={**os.environ, …})

`become` does it to this process, which must have no threads; `command_line` in one of its own.
Either way the command is that process: its exit code, signals and terminal are the command's.
Nothing else of the outside is reached from inside, but for the services that are named.
"""

import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import NamedTuple, NoReturn

from fairnotice.errors import FairnoticeError, UsageError
from fairnotice.testing.as_vm import relay
from fairnotice.testing.as_vm.namespace import NoNamespace, enter
from fairnotice.testing.as_vm.relay import Opening

METADATA = ("169.254.169.254", 80)
METADATA_URL = f"http://{METADATA[0]}"
# What a shell, and `env`, say of a command that is not there, and of one that is no program.
NOT_THERE = 127
NO_PROGRAM = 126

_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy")
_BACKLOG = 1_024


class Guest(NamedTuple):
    """The VM to be.

    host_name  what the system is called inside: `compute.osProfile.computerName`.
    address    an address of this machine by which the endpoint knows the VM: 127.69.x.y.
    metadata   host and port of the endpoint, outside.
    services   hosts and ports of services on loopback, which are to be the same inside.
    """

    host_name: str
    address: str
    metadata: tuple[str, int]
    services: tuple[tuple[str, int], ...] = ()


class CannotRun(UsageError):
    """There is no such command, or it is no program; with the exit code that says so."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


def become(guest: Guest, command: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Be this command, as the VM; CannotRun or NoNamespace where that cannot be."""
    if shutil.which(command[0], path=environ.get("PATH")) is None:
        there = os.path.exists(command[0])  # noqa: PTH110 - whatever was typed, with its slashes
        if "/" in command[0] and there:
            raise CannotRun(f"{command[0]} is no program that may be run.", NO_PROGRAM)
        raise CannotRun(f"There is no command {command[0]}.", NOT_THERE)
    try:
        _move(guest)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise NoNamespace(f"The way out of a network namespace is not there: {reason}.") from error
    sys.stdout.flush()
    # Python ignores it, and the command would, too.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), inside(environ))  # noqa: S606 - it is what is asked for
    except OSError as error:
        sentence = f"{command[0]} cannot be run: {(error.strerror or '').lower()}."
        raise CannotRun(sentence, NO_PROGRAM) from error


def _move(guest: Guest) -> None:
    """Go into a network namespace with the VM's openings, behind which a relay stands outside."""
    openings = _openings(guest)
    with relay.start(openings) as channel:
        enter(guest.host_name, [METADATA[0]])
        listeners = [_listen(opening.inside) for opening in openings]
        socket.send_fds(channel, [relay.READY], [listener.fileno() for listener in listeners])
        if channel.recv(1) != relay.READY:
            raise NoNamespace("The relay out of the network namespace did not start.")


def command_line(guest: Guest, command: Sequence[str]) -> list[str]:
    """What to start so that it becomes this command, as the VM."""
    return [sys.executable, "-m", __name__, json.dumps(guest), *command]


def inside(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command inside: no proxy is reached from there."""
    kept = {name: value for name, value in environ.items() if name.lower() not in _PROXIES}
    return kept | {"FAIRNOTICE_METADATA_URL": METADATA_URL}


def _openings(guest: Guest) -> tuple[Opening, ...]:
    services = (
        Opening((one, service[1]), service)
        for service in guest.services
        for one in _loopback(service[0])
    )
    return (Opening(METADATA, guest.metadata, guest.address), *services)


def _loopback(host: str) -> list[str]:
    """The addresses of loopback that a name stands for; none for any other host."""
    if host == "localhost":
        return ["127.0.0.1"]
    try:
        return [host] if ip_address(host).is_loopback else []
    except ValueError:
        return []


def _listen(place: tuple[str, int]) -> socket.socket:
    family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(place)
    listener.listen(_BACKLOG)
    return listener


def _main() -> NoReturn:
    host_name, address, metadata, services = json.loads(sys.argv[1])
    outside = tuple(tuple(one) for one in services)
    guest = Guest(host_name, address, tuple(metadata), outside)
    try:
        become(guest, sys.argv[2:], os.environ)
    except FairnoticeError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.code if isinstance(error, CannotRun) else 1)


if __name__ == "__main__":
    _main()
