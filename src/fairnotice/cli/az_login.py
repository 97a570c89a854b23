"""`fairnotice az-login`: lets Azure's `az` ask fairnotice in this terminal, and nowhere else."""

import contextlib
import json
import os
import shlex
import shutil
import ssl
import subprocess
import sys
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from fairnotice.arm.signing import TENANT
from fairnotice.cli import exits, settings, shown
from fairnotice.cli.azure_files import az_directory, service_directory
from fairnotice.cli.exits import CommandFailed
from fairnotice.cli.parsing import Subparsers, leaf
from fairnotice.cli.remote import Unreachable, trusting
from fairnotice.cli.session import Session
from fairnotice.control import private_files

LINES = (
    'eval "$(fairnotice az-login)" && az vm list -o table',
    'eval "$(fairnotice az-login --no-login --directory ~/az-of-vm)"',
    "FAIRNOTICE_TOKEN=$(cat ann.token) fairnotice az-login --arm https://cloud.example:8643",
)
# As whom one signs in where nobody is asked who he is (arm/issuing.py).
OPERATOR = "operator"
# What he says where a secret must be given, and any will do.
NO_SECRET = "none"  # noqa: S105 - it is none
TOKEN_PARTS = 3
OWN_HOSTS = ("localhost", "127.0.0.1", "169.254.169.254")
TIMEOUT_SECONDS = 5.0
FORM = "application/x-www-form-urlencoded"
BUNDLE = "REQUESTS_CA_BUNDLE"
# By which a directory of ours is known again.
MARK = "made-by-fairnotice-az-login"
# By which it is known that some az has been at home in a directory; each az writes the last one.
AZ_FILES = ("config", "clouds.config", "azureProfile.json")
# What az was given before: asked for the same again, it would not ask whether that still counts.
CACHES = ("msal_token_cache.json", "msal_token_cache.bin", "msal_http_cache.bin")
# By which it knows who is logged in, and signs him in again.
LOGINS = ("azureProfile.json", "service_principal_entries.json", "service_principal_entries.bin")


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    summary = (
        "let az ask fairnotice: logs in, and prints lines for the shell, which fail if it does"
    )
    parser = leaf(subparsers, "az-login", run, summary, LINES)
    what = "Resource Manager (default: that of the control plane)"
    # Not named as the setting is, which is a place and no URL.
    parser.add_argument("--arm", dest="resource_manager", metavar="HOST:PORT|URL", help=what)
    parser.add_argument(
        "--authority",
        metavar="FILE",
        help="CA certificate of Resource Manager, PEM (default: --ca)",
    )
    parser.add_argument("--directory", metavar="DIR", help="what becomes AZURE_CONFIG_DIR")
    what = "log nobody in there, and log out whoever was: for az login --identity in a VM"
    parser.add_argument("--no-login", action="store_true", help=what)


def run(session: Session) -> int:
    """Write what az reads, log in where az is there, and print what the shell is to have."""
    options = session.options
    url = _resource_manager(session)
    store = session.settings["store"].value
    directory = Path(options.directory or az_directory(store)).absolute()
    if options.directory:
        _must_be_ours(directory)
    # `serve` has one certificate for both: who knows its control plane knows this too.
    given = options.authority or session.settings["ca"].value
    trusted = _trusted(given, service_directory(store))
    # Before anything is written: a login that works is not given up for one that cannot.
    context = _context(trusted, alone=bool(given))
    if options.no_login:
        _must_be_there(url, context)
    client = "" if options.no_login else _signed_in(url, context, session.token)
    private_files.make_directory(directory)
    private_files.write(directory / MARK, b"")
    private_files.write(directory / "clouds.config", _clouds(url).encode())
    private_files.write(directory / "config", _config().encode())
    bundle = None if trusted is None else directory / "ca-bundle.pem"
    if trusted is not None and bundle is not None:
        private_files.write(bundle, _bundled(trusted))
    exports = _exports(directory, trusted, bundle)
    if options.no_login:
        _log_out(directory)
    else:
        _log_in(session, url, directory, client, exports)
    for name, value in exports.items():
        print(f"export {name}={shlex.quote(value)}")
    if sys.stdout.isatty():
        # Whoever reads "is logged in" would go on with the az of his own account.
        line = shlex.join(["fairnotice", *sys.argv[1:]])
        by = ", with FAIRNOTICE_TOKEN as it was here" if session.token else ""
        shown.note(f'This terminal is as it was. To have its az ask there: eval "$({line})"{by}')
    return exits.DONE


def _must_be_ours(directory: Path) -> None:
    """Whoever has an az of his own keeps its configuration, though he names its directory."""
    if (directory / MARK).exists():
        return
    found = next((one for one in AZ_FILES if (directory / one).exists()), None)
    if found is not None:
        raise CommandFailed(
            f"{directory} is an az's that az-login has not set up: it has {found}, which would be "
            "overwritten. Give --directory one that is new, or leave it out.",
            exits.WRONG_USAGE,
        )


def _resource_manager(session: Session) -> str:
    """Its URL: as was typed, or as is known of the control plane."""
    typed = session.options.resource_manager
    if typed is None:
        known = session.settings
        asks = known["arm"].origin == settings.DEFAULT
        url = settings.arm_url(known, _health(session) if asks else {})
        if not url:
            raise CommandFailed("arm is off here: give --arm https://HOST:PORT.", exits.WRONG_USAGE)
        return url
    url = settings.https_url(typed)
    if not settings.is_url(url) or not url.startswith("https://"):
        raise CommandFailed(
            f"--arm is {typed}: give HOST:PORT or https://HOST:PORT.", exits.WRONG_USAGE
        )
    return url


def _health(session: Session) -> Mapping[str, Any]:
    """What the control plane says; nothing where nobody answers and nobody has named one."""
    try:
        health = session.remote.health()
    except Unreachable:
        # Who has named one means its Resource Manager, and not whichever is at the usual place.
        if session.settings["url"].origin != settings.DEFAULT:
            raise
        # It may be that only Resource Manager is reached from here.
        return {}
    if not health.get("arm"):
        # Nor does who was told of none mean another.
        raise CommandFailed(_not_told(session.remote.url, health))
    return health


def _not_told(url: str, health: Mapping[str, Any]) -> str:
    """Why a control plane names no Resource Manager, and what to do."""
    remedy = "--arm https://HOST:PORT"
    if not health["ready"]:
        return f"The control plane at {url} is not ready. Try again, or give {remedy}."
    if "arm" not in health:
        return (
            f"The control plane at {url} tells only whom it knows where Azure's tools ask. "
            "Give a token of it in FAIRNOTICE_TOKEN."
        )
    return (
        f"The control plane at {url} does not serve Azure's tools. Give {remedy}, or have it "
        "serve them: fairnotice up --arm HOST:PORT, or a table [arm] in the file of serve."
    )


def _client(token: str) -> str:
    """The id of a token, as whom one signs in with it; without one, whoever needs none."""
    parts = token.split("_", TOKEN_PARTS - 1)
    if token and len(parts) != TOKEN_PARTS:
        sentence = "FAIRNOTICE_TOKEN is no token: it is one word, fairnotice_… Take it anew."
        raise CommandFailed(sentence, exits.WRONG_USAGE)
    return parts[1] if token else OPERATOR


def _signed_in(url: str, context: ssl.SSLContext, token: str) -> str:
    """As whom one is signed in there: a token's name, which az shows, and not its id."""
    client = _client(token)
    form = {"client_id": client, "client_secret": token or NO_SECRET}
    body = urlencode({"grant_type": "client_credentials", **form})
    answer = _asked(url, context, "POST", "/adfs/oauth2/token", body)
    if "access_token" in answer:
        try:
            return _named(answer["access_token"]) or client
        except ValueError:
            raise CommandFailed(_somebody_else(url)) from None
    if "error_description" not in answer:
        raise CommandFailed(_somebody_else(url))
    why = f"{url} does not sign you in: {answer['error_description']}"
    if not token:
        why += " Give a token of fairnotice in FAIRNOTICE_TOKEN."
    raise CommandFailed(why)


def _must_be_there(url: str, context: ssl.SSLContext) -> None:
    """Before whoever is logged in is logged out: somebody else answers, too."""
    if "token_endpoint" not in _asked(
        url, context, "GET", "/adfs/.well-known/openid-configuration"
    ):
        raise CommandFailed(_somebody_else(url))


def _asked(
    url: str, context: ssl.SSLContext, method: str, path: str, body: str | None = None
) -> dict[str, Any]:
    """What Resource Manager answers: it is there, and is who it says.

    Asked before az is, which would end in a traceback.
    """
    parts = urlsplit(url)
    connection = HTTPSConnection(
        parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS, context=context
    )
    try:
        with contextlib.closing(connection):
            headers = {} if body is None else {"Content-Type": FORM}
            connection.request(method, f"{parts.path}{path}", body, headers)
            return dict(json.loads(connection.getresponse().read()))
    except ssl.SSLCertVerificationError as error:
        why = f"Nobody whom you trust vouches for {url} ({error.verify_message}). See --authority."
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        why = f"Resource Manager is not at {url} ({said}). Is the service up? {_remedy(url)}"
    except (HTTPException, ValueError, TypeError):
        why = _somebody_else(url)
    raise CommandFailed(why)


def _remedy(url: str) -> str:
    here = urlsplit(url).hostname in OWN_HOSTS
    return "Start one with: fairnotice up; or see --arm." if here else "See --arm."


def _somebody_else(url: str) -> str:
    return f"What answers at {url} is no Resource Manager of fairnotice. See --arm."


def _named(access_token: str) -> str:
    """The name in it; it comes from whom we trust, so nobody asks who has signed it."""
    said = urlsafe_b64decode(access_token.partition(".")[2].partition(".")[0] + "==")
    return str(json.loads(said or "{}").get("app_displayname", ""))


def _trusted(given: str, made: Path) -> Path | None:
    """Who vouches for Resource Manager: as said, or as `up` has made it; else only the system."""
    path = Path(given) if given else made / "ca.pem"
    if path.is_file():
        return path.absolute()
    if given:
        raise CommandFailed(f"{given} is not there.", exits.NOT_FOUND)
    return None


def _context(trusted: Path | None, *, alone: bool) -> ssl.SSLContext:
    """Who vouches for Resource Manager here: whoever was said alone, or the system's as well.

    That `up` has run on this machine once is no reason to believe only what it made.
    """
    remedy = "Check --authority, or --ca." if alone else "Put it back, or see --authority."
    return trusting(trusted or "", remedy, alone=alone)


def _bundled(trusted: Path) -> bytes:
    """It, and whoever else is trusted here: pip and others in the same terminal heed it too."""
    context = ssl.create_default_context()
    # What is in a directory, OpenSSL looks up when it is asked for, and does not list.
    places = (ssl.get_default_verify_paths().capath, os.environ.get(BUNDLE))
    for place in (Path(one) for one in places if one):
        for file in sorted(place.iterdir()) if place.is_dir() else (place,):
            # Whatever else lies there is none.
            with contextlib.suppress(OSError):
                context.load_verify_locations(cafile=file)
    others = map(ssl.DER_cert_to_PEM_cert, context.get_ca_certs(binary_form=True))
    return "".join(others).encode("ascii") + trusted.read_bytes()


def _clouds(url: str) -> str:
    return (
        "[fairnotice]\n"
        f"endpoint_resource_manager = {url}\n"
        f"endpoint_management = {url}/\n"
        f"endpoint_active_directory = {url}/adfs\n"
        f"endpoint_active_directory_resource_id = {url}/\n"
    )


def _config() -> str:
    return (
        "[cloud]\nname = fairnotice\n"
        "[core]\ncollect_telemetry = no\nlogin_experience_v2 = off\n"
        "[extension]\nuse_dynamic_install = no\n"
    )


def _exports(directory: Path, trusted: Path | None, bundle: Path | None) -> dict[str, str]:
    exports = {
        "AZURE_CONFIG_DIR": str(directory),
        "AZURE_CORE_COLLECT_TELEMETRY": "0",
        "AZURE_CORE_LOGIN_EXPERIENCE_V2": "off",
        "AZURE_EXTENSION_USE_DYNAMIC_INSTALL": "no",
    }
    # Either may be the one that is heeded, and either the one that was set.
    spellings = ("NO_PROXY", "no_proxy")
    hosts = [one for name in spellings for one in os.environ.get(name, "").split(",") if one]
    exports |= dict.fromkeys(spellings, ",".join(dict.fromkeys((*hosts, *OWN_HOSTS))))
    if trusted is not None:
        # The only one that all parts of az heed; Node adds its own to those it knows.
        exports |= {BUNDLE: str(bundle), "NODE_EXTRA_CA_CERTS": str(trusted)}
    return exports


def _log_in(
    session: Session, url: str, directory: Path, client: str, exports: dict[str, str]
) -> None:
    az = shutil.which("az")
    # In a file: whatever stands in a command line, every user of the machine may read.
    secret = directory / "secret"
    where = "@-" if az is None else f"@{secret}"
    login = ["az", "login", "--service-principal", "-u", client, "-p", where]
    login += ["--tenant", TENANT, "--output", "none"]
    if az is None:
        # By hand, too: printf is the shell's own, and no process.
        by_hand = f'printf %s "${{FAIRNOTICE_TOKEN:-{NO_SECRET}}}" | {shlex.join(login)}'
        shown.note(
            "There is no az here. Put it into the PATH and type this again. "
            f"Or, where it is, log in: {by_hand}"
        )
        return
    _remove(directory, CACHES)
    private_files.write(secret, (session.token or NO_SECRET).encode())
    try:
        # Its own words go to people: standard output is for the shell.
        done = subprocess.run(  # noqa: S603 - the az of this user
            [az, *login[1:]], env={**os.environ, **exports}, stdout=2, check=False
        )
    finally:
        secret.unlink(missing_ok=True)
    if done.returncode:
        raise CommandFailed("az could not log in: its own words are above.")
    shown.note(f"az is logged in as {client} at {url}, for whoever has AZURE_CONFIG_DIR set so.")


def _log_out(directory: Path) -> None:
    """Whoever fails to log in there by another way is not, unseen, whoever was there before."""
    _remove(directory, (*CACHES, *LOGINS))
    shown.note(f"Nobody is logged in in {directory}. Inside a VM: az login --identity")


def _remove(directory: Path, names: Iterable[str]) -> None:
    for name in names:
        (directory / name).unlink(missing_ok=True)
