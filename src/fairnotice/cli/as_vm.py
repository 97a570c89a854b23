"""`fairnotice as NAME -- COMMAND…`: a command where 169.254.169.254 is a VM's endpoint."""

import socket
import sys
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from fairnotice.cli import exits, settings
from fairnotice.cli.exits import CommandFailed
from fairnotice.cli.parsing import RUNS_ANOTHER, Subparsers, examples, global_options, names
from fairnotice.cli.session import Session

TIMEOUT_SECONDS = 5.0
HTTP_PORT = 80
HTTPS_PORT = 443
# Whoever asks it is told his own name, in a version that every endpoint has.
WHO_AM_I = "/metadata/instance/compute/name?api-version=2019-02-01&format=text"

DESCRIPTION = """Run a command as a VM sees the world, for clients with the address built in:
http://169.254.169.254/metadata/… is the VM's endpoint, and the host name is the VM's.

The command is in a network namespace of its own (Linux). It reaches that endpoint and, where they
are on loopback, the control plane at --url and what it serves Azure's tools; nothing else: no other
port of this machine, no other network, no DNS. Files, user and terminal stay what they are; exit
code and signals are the command's. It needs no root where users may make namespaces, and says so
where they may not."""
EXAMPLES = (
    "fairnotice as web-0 -- curl -sH Metadata:true \\",
    "  'http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01'",
    "fairnotice as batch_0 -- ./my-agent --verbose",
    "fairnotice as web-0 -- bash            # look around",
)


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "as",
        description=DESCRIPTION,
        epilog=examples(EXAMPLES),
        parents=[global_options()],
        usage="fairnotice as [OPTIONS] NAME -- COMMAND…",
    )
    names(parser, "vms", many=False, what="the VM's name")
    setattr(parser, RUNS_ANOTHER, True)
    setting = settings.BY_NAME["metadata_url"]
    parser.add_argument(setting.flag, metavar="URL", help=setting.meaning)
    parser.set_defaults(run=lambda options: run(Session(options)))


def run(session: Session) -> int:
    """Become the command; there is no way back from that."""
    if sys.platform != "linux":
        raise CommandFailed("as needs Linux: other systems have no network namespaces.")
    # Imported when called: other systems have not all that it is made of.
    from fairnotice.testing.as_vm.run_as import CannotRun, Guest, become  # noqa: PLC0415

    vm = session.remote.get("v1", "vms", session.options.name)
    health = session.remote.ask("GET", ("readyz",)).body
    metadata = _metadata(settings.metadata_url(session.settings, health))
    address = _address(vm)
    _check_who(vm["name"], address, metadata)
    url = session.remote.url
    services = tuple(
        _service(one) for one in (url, settings.arm_url(session.settings, health)) if one
    )
    guest = Guest(vm["computer_name"], address, metadata, services)
    try:
        become(guest, session.options.behind, {**session.environ, "FAIRNOTICE_URL": url})
    except CannotRun as error:
        raise CommandFailed(str(error), error.code) from error


# ---- Places outside ----


def _metadata(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    if parts.scheme != "http":
        sentence = f"Clients ask 169.254.169.254 by http, and {url} is not that. See --metadata-url"
        raise CommandFailed(sentence, exits.WRONG_USAGE)
    return parts.hostname or "", parts.port or HTTP_PORT


def _service(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (
        HTTPS_PORT if parts.scheme == "https" else HTTP_PORT
    )


# ---- Who the VM is ----


def _address(vm: dict[str, Any]) -> str:
    """The address from which this machine can speak as the VM."""
    for address in vm["addresses"]:
        if _is_of_this_machine(address):
            return str(address)
    has = f"has {' and '.join(vm['addresses'])}" if vm["addresses"] else "has no address"
    raise CommandFailed(
        f"{vm['name']} {has}: nothing that is sent from this machine is known to be from it. "
        'Give it an address of loopback in the fleet, such as address = "127.69.1.1".'
    )


def _is_of_this_machine(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        try:
            trial.bind((address, 0))
        except OSError:
            return False
    return True


def _check_who(name: str, address: str, metadata: tuple[str, int]) -> None:
    """Ask the endpoint from this address who that is: two services may run side by side."""
    where = f"{metadata[0]}:{metadata[1]}"
    elsewhere = "Is it elsewhere? Give --metadata-url, or set FAIRNOTICE_METADATA_URL."
    connection = HTTPConnection(*metadata, timeout=TIMEOUT_SECONDS, source_address=(address, 0))
    with closing(connection):
        try:
            connection.connect()
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            sentence = f"Nothing serves metadata at {where} to {address} ({why}). {elsewhere}"
            raise CommandFailed(sentence) from error
        try:
            connection.request("GET", WHO_AM_I, headers={"Metadata": "true"})
            answer = connection.getresponse()
            said = answer.read().decode("utf-8", "replace")
        except (OSError, HTTPException):
            # It may be told to be slow or broken: that is for the command to see.
            return
    if answer.status == HTTPStatus.FORBIDDEN or (answer.status == HTTPStatus.OK and said != name):
        sentence = f"What answers at {where} does not know {address} as {name}."
        raise CommandFailed(f"{sentence} {elsewhere}")
