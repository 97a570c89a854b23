"""`fairnotice doctor`: what is wrong with this installation, in sentences."""

import errno
import json
import os
import socket
import sqlite3
import ssl
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fairnotice
from fairnotice.cli import exits, settings
from fairnotice.cli.doctor_cloud import cloud
from fairnotice.cli.extras import EXTRAS
from fairnotice.cli.findings import Finding, fine, noted, wrong
from fairnotice.cli.parsing import Subparsers, leaf
from fairnotice.cli.remote import metadata_elsewhere
from fairnotice.cli.session import Session
from fairnotice.control.holders import is_loopback
from fairnotice.errors import FairnoticeError, UsageError

OLDEST_PYTHON = (3, 11)
TIMEOUT_SECONDS = 3.0
# Answers are dated to the second, and travel.
SKEW_SECONDS_MAX = 2.0
# What the endpoint says to one who is no VM, to a VM, and to either while it cannot.
METADATA_STATUSES = (200, 403, 410, 429, 503)
# A read-only look waits no longer for whoever writes.
BUSY_SECONDS = 1.0
OUR_TABLES = frozenset({"service", "fleet", "journal"})
PORTS = {"control": "the control plane", "metadata": "metadata"}


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    lines = ("fairnotice doctor", "fairnotice doctor --json", "fairnotice doctor || echo not well")
    parser = leaf(subparsers, "doctor", run, "say what is wrong with this installation", lines)
    setting = settings.BY_NAME["metadata_url"]
    parser.add_argument(setting.flag, metavar="URL", help=setting.meaning)


def run(session: Session) -> int:
    """Look at everything; 1 where something is wrong."""
    found = list(findings(session))
    session.show([finding._asdict() for finding in found], partial(_picture, found))
    return exits.REFUSED if any(one.state == "wrong" for one in found) else exits.DONE


def findings(session: Session) -> Iterator[Finding]:
    """All that is looked at, in order."""
    yield _python()
    yield from _extras()
    mistyped = settings.unknown_variables(session.environ)
    yield from (wrong("settings", sentence) for sentence in mistyped.values())
    # Other commands refuse to go on with those; here there is more to be looked at.
    kept = {name: value for name, value in session.environ.items() if name not in mistyped}
    session = Session(session.options, session.clock, kept)
    try:
        known = session.settings
    except UsageError as error:
        yield wrong("settings", str(error))
        return
    path, _ = settings.config_file(session.options, session.environ)
    if not mistyped:
        yield fine("settings", f"Read from {path}." if path.exists() else "No file; all is well.")
    health = yield from _control_plane(session)
    yield from _metadata(session, known, health)
    if not _may_be_ups(session):
        # Of what `up` would meet here it says nothing that helps.
        return
    store = _store(known["store"].value)
    yield _whose_store(store, known["store"].value, session.remote.url, health or {})
    if health is None:
        for name in PORTS:
            yield _port(name, known[name].value)


def _may_be_ups(session: Session) -> bool:
    """Whether what is asked is an `up` on this machine: it wants no token and has no TLS."""
    url = urlsplit(session.remote.url)
    local = url.scheme == "http" and is_loopback(url.hostname or "")
    return local and not session.environ.get("FAIRNOTICE_TOKEN")


# ---- What is installed ----


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info[:2] < OLDEST_PYTHON:
        return wrong("Python", f"This is Python {version}; fairnotice needs 3.11 or later.")
    return fine("Python", f"Python {version}, fairnotice {fairnotice.__version__}.")


def _extras() -> Iterator[Finding]:
    for extra, modules in EXTRAS.items():
        missing = [name for name in modules if find_spec(name) is None]
        if not missing:
            yield fine("extras", f"The extra {extra} is installed.")
            continue
        sentence = f"{', '.join(missing)} missing: pip install 'fairnotice[{extra}]'"
        # Only who keeps the fleet in PostgreSQL, or has such hypervisors, needs the others.
        yield (wrong if extra == "server" else noted)("extras", sentence)


# ---- What runs ----


def _control_plane(session: Session) -> Generator[Finding, None, dict[str, Any] | None]:
    """Whether there is one, whether it is ready, and whose clock is wrong; what it says of itself.

    None where there is none.
    """
    remote = session.remote
    before = session.clock.wall()
    try:
        answer = remote.ask("GET", ("readyz",), timeout_seconds=TIMEOUT_SECONDS)
    except FairnoticeError as error:
        yield wrong("control plane", str(error))
        return None
    health = answer.body if isinstance(answer.body, dict) else {}
    if "ready" not in health:
        yield wrong("control plane", f"What answers at {remote.url} is no control plane.")
        return None
    if health["ready"]:
        yield fine("control plane", f"{remote.url} is ready.")
    else:
        why = health.get("why") or "why, it tells only who may see all of the cloud"
        yield wrong("control plane", f"{remote.url} is not ready: {why}")
    yield from _clock(answer.date, before, session.clock.wall())
    yield from cloud(remote, health, session.clock.wall())
    return health


def _clock(date: str | None, before: datetime, after: datetime) -> Iterator[Finding]:
    if date is None:
        return
    there = parsedate_to_datetime(date)
    skew = max((before - there).total_seconds() - 1, (there - after).total_seconds(), 0.0)
    if skew > SKEW_SECONDS_MAX:
        sentence = f"The clocks here and there are {skew:.0f} s apart: countdowns are wrong by it."
        yield wrong("clock", f"{sentence} Let NTP set both.")
    else:
        yield fine("clock", "The clock here and the one of the control plane agree.")


def _metadata(
    session: Session, known: Mapping[str, settings.Known], health: dict[str, Any] | None
) -> Iterator[Finding]:
    """Who answers VMs: looked at where it was said where, or the control plane says so."""
    said = known["metadata_url"].origin != settings.DEFAULT
    told = None if health is None else health.get("metadata")
    if not said and told == "":
        yield fine("metadata", "VMs are answered by the endpoints of their nodes.")
        return
    if not said and not _may_be_ups(session):
        if told:
            yield noted("metadata", f"It answers VMs at {told}: not looked at from here.")
        return
    url = settings.metadata_url(known, health or {})
    found = _answers(url, reachable=health is not None)
    yield _whose_metadata(found, url, session.remote.url, health or {})


def _answers(url: str, *, reachable: bool) -> Finding:
    try:
        status, body = _asked_for_metadata(url)
    except (OSError, HTTPException) as error:
        why = str(getattr(error, "strerror", None) or error).lower()
        # Without a control plane that is one fault, not two.
        verdict = wrong if reachable else noted
        sentence = f"Nothing serves metadata at {url} ({why})."
        return verdict("metadata", f"{sentence} Is it elsewhere? Set FAIRNOTICE_METADATA_URL.")
    if status not in METADATA_STATUSES or not _is_ours(body):
        sentence = f"What answers at {url} ({status}) is no metadata endpoint of fairnotice."
        return wrong("metadata", f"{sentence} Check --metadata-url or FAIRNOTICE_METADATA_URL.")
    whom = " to one who is no VM" if status == HTTPStatus.FORBIDDEN else ""
    return fine("metadata", f"{url} answers ({status}{whom}).")


def _whose_metadata(found: Finding, url: str, control: str, health: dict[str, Any]) -> Finding:
    """The finding; or that another control plane's endpoint was looked at."""
    right = metadata_elsewhere(url, control, health)
    if right is None:
        return found
    sentence = f"{control} serves metadata at port {urlsplit(right).port}"
    right = f"so {url} is not its endpoint. Set FAIRNOTICE_METADATA_URL={right}"
    return wrong("metadata", f"{sentence}, {right}")


def _whose_store(found: Finding, url: str, control: str, health: dict[str, Any]) -> Finding:
    """The finding; or that the store is not that of the control plane that was asked."""
    own = str(health.get("store", ""))
    if not own or found.state == "wrong" or _same_store(own, settings.hidden(url)):
        return found
    sentence = f"{control} keeps its state in {own}"
    return noted("store", f"{sentence}; one that you start here would in {settings.hidden(url)}.")


def _same_store(one: str, other: str) -> bool:
    """Whether two URLs mean the same; a file may be written in several ways."""
    if not (one.startswith("sqlite:") and other.startswith("sqlite:")):
        return one == other
    return _sqlite_path(one).resolve() == _sqlite_path(other).resolve()


def _sqlite_path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:").removeprefix("//"))


def _asked_for_metadata(url: str) -> tuple[int, bytes]:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection = (
        HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=ssl.create_default_context())
        if parts.scheme == "https"
        else HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    )
    target = f"{parts.path.rstrip('/')}/metadata/scheduledevents?api-version=2020-07-01"
    with closing(connection):
        connection.request("GET", target, headers={"Metadata": "true"})
        response = connection.getresponse()
        return response.status, response.read()


def _is_ours(body: bytes) -> bool:
    """Whether it is a document of events, or says what is wrong as the endpoint does."""
    try:
        said = json.loads(body)
    except ValueError:
        return False
    if not isinstance(said, dict):
        return False
    return said.keys() >= {"DocumentIncarnation", "Events"} or isinstance(said.get("error"), str)


# ---- What `up` would meet ----


def _store(url: str) -> Finding:
    if not url.startswith("sqlite:"):
        return fine("store", f"{url.partition(':')[0]}: nothing to look at here.")
    path = _sqlite_path(url)
    folder = next((one for one in path.parents if one.exists()), Path("/"))
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        sentence = f"{folder} cannot be written to ({(error.strerror or '').lower()})"
        return wrong("store", f"{sentence}, so up cannot keep {path}. Choose another with --store.")
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        return wrong("store", f"{path} belongs to somebody else. Choose another with --store.")
    if path.exists() and (sentence := _no_database(path)):
        return wrong("store", f"{path} {sentence}. Choose another with --store.")
    return fine("store", f"{path} can be written.")


def _no_database(path: Path) -> str:
    """Why `up` could not go on with this file; nothing where it could. It is only read."""
    try:
        # Imported when called: it needs an extra, and doctor says so where that is missing.
        from fairnotice.stores.sqlite import schema  # noqa: PLC0415
    except ModuleNotFoundError:
        return ""
    where = f"{path.resolve().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(where, uri=True, timeout=BUSY_SECONDS)) as connection:
            query = "SELECT name FROM sqlite_master WHERE type = 'table'"
            tables = {str(name) for (name,) in connection.execute(query)}
            if tables and not tables >= OUR_TABLES:
                return f"is a database of something else (it holds {', '.join(sorted(tables))})"
            version = schema.schema_version(connection) if tables else 0
    except sqlite3.Error as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            return ""
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            return "is no SQLite database"
        return f"cannot be read as a database ({error})"
    return "is of a later fairnotice" if version > schema.VERSION else ""


def _port(name: str, text: str) -> Finding:
    """Whether `up` could listen there; asked only where no control plane answers."""
    found = settings.place(text)
    assert found is not None
    host, port = found
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                sentence = f"Another program listens at {text}, where up would serve {PORTS[name]}"
                return wrong("ports", f"{sentence}. Choose another with --{name}.")
            return wrong("ports", f"{text} cannot be listened on: {error.strerror}. See --{name}.")
    return fine("ports", f"{text} is free for {PORTS[name]}.")


# ---- Shown ----


def _picture(found: list[Finding], _: object) -> None:
    # Where rich is missing, that is what doctor has to say: so it says it without.
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for one in found:
        mark, number = {"fine": ("✓", 32), "note": ("·", 33), "wrong": ("✗", 31)}[one.state]
        shown = f"\x1b[{number}m{mark}\x1b[0m" if colour else mark
        print(f"{shown} {one.what:<14} {one.sentence}")
    count, notes = (sum(one.state == state for one in found) for state in ("wrong", "note"))
    well = "Nothing is wrong; what is good to know is marked with ·" if notes else "All is well."
    print()
    print(f"{count} to be put right." if count else well)
