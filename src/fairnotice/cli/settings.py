"""Every setting in one table: by flag, then `FAIRNOTICE_*`, then file, then its default.

The file is `~/.config/fairnotice/config.toml` (or in `$XDG_CONFIG_HOME`), or what `--config` or
`FAIRNOTICE_CONFIG` names: a key per setting, `timing = "azure"`. Values are text here; whoever
uses one reads more out of it.
"""

import argparse
import os
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from fairnotice.errors import UsageError

PREFIX = "FAIRNOTICE_"
# Variables that are no settings of the file: where it is, and a secret.
OTHER_VARIABLES = ("FAIRNOTICE_CONFIG", "FAIRNOTICE_TOKEN")
# What the command driver hands to its commands, which may ask `fairnotice` themselves.
DRIVER_VARIABLES = (
    "FAIRNOTICE_DURATION_SECONDS",
    "FAIRNOTICE_EPOCH",
    "FAIRNOTICE_EVENT",
    "FAIRNOTICE_KEY",
    "FAIRNOTICE_KIND",
    "FAIRNOTICE_NODE",
    "FAIRNOTICE_TARGET",
    "FAIRNOTICE_VM",
)
# The same of the agent, to the commands of its handlers.
HANDLER_VARIABLES = (
    "FAIRNOTICE_DESCRIPTION",
    "FAIRNOTICE_ENDED",
    "FAIRNOTICE_EVENT_ID",
    "FAIRNOTICE_EVENT_SOURCE",
    "FAIRNOTICE_EVENT_STATUS",
    "FAIRNOTICE_EVENT_TYPE",
    "FAIRNOTICE_NOT_BEFORE",
    "FAIRNOTICE_PHASE",
    "FAIRNOTICE_REMAINING_SECONDS",
    "FAIRNOTICE_RESOURCES",
)
DEFAULT = "default"
_PORT_MAX = 65_535
_PASSWORD = re.compile(r"(://[^:/@]*:).*@")


class Setting(NamedTuple):
    """One setting: how the file calls it, what it takes, and what it means."""

    name: str
    takes: str
    default: Callable[[], str]
    meaning: str
    fits: Callable[[str], bool]

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        """Its flag, where a command takes it."""
        return "--" + self.name.replace("_", "-")


class Known(NamedTuple):
    """A setting's value, and where it comes from: a flag, a variable, a file, or `default`."""

    value: str
    origin: str


# ---- The table ----


def place(text: str) -> tuple[str, int] | None:
    """The host and port of `HOST:PORT`; None where it is no such text."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > _PORT_MAX:
        return None
    return host.strip("[]"), int(port)


def first_line(file: str) -> str:
    """The first line of a file; UsageError where it cannot be read."""
    try:
        return Path(file).read_text("utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8"
        raise UsageError(f"{file} cannot be read: {reason}") from error


def _is_place(text: str) -> bool:
    return place(text) is not None


def _is_rate(text: str) -> bool:
    try:
        return text == "off" or 0 < float(text) < float("inf")
    except ValueError:
        return False


def is_store(text: str) -> bool:
    """Whether this names a store."""
    if text.startswith("sqlite:"):
        return bool(text.removeprefix("sqlite:").removeprefix("//"))
    return text == "memory:" or text.startswith(("postgresql://", "postgres://"))


def is_url(text: str) -> bool:
    """Whether this is an http or https URL that somebody can be asked at."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
        # What no resolver can be asked for is found here, and not in the middle of a command.
        host.encode("idna")
    except ValueError:
        return False
    known = parts.scheme in ("http", "https") and bool(host) and port != 0
    return known and not any(letter.isspace() for letter in text)


def _default_store() -> str:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return f"sqlite:{Path(home) / 'fairnotice' / 'up.db'}"


def _always(text: str) -> Callable[[], str]:
    return lambda: text


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "url",
        "http://HOST:PORT",
        _always("http://127.0.0.1:8600"),
        "the control plane that commands ask",
        is_url,
    ),
    Setting(
        "ca",
        "FILE",
        _always(""),
        "the CA certificates (PEM) by which a control plane is known; empty: those of the system",
        lambda _: True,
    ),
    Setting(
        "metadata_url",
        "http://HOST:PORT",
        _always("http://127.0.0.1:8169"),
        "the metadata endpoint that doctor and as ask; left out, that of the control plane",
        is_url,
    ),
    Setting(
        "fleet",
        "FILE",
        _always(""),
        "the fleet that up declares at its start; empty: the sample fleet, where there is none",
        lambda _: True,
    ),
    Setting(
        "store",
        "memory:, sqlite:PATH or postgresql://…",
        _default_store,
        "where up keeps what it knows",
        is_store,
    ),
    Setting(
        "timing",
        "azure or dev",
        _always("dev"),
        "how long notice is: minutes as on Azure, or seconds to try things out",
        lambda text: text in ("azure", "dev"),
    ),
    Setting(
        "metadata",
        "HOST:PORT",
        _always("127.0.0.1:8169"),
        "where up serves metadata to VMs",
        _is_place,
    ),
    Setting(
        "control",
        "HOST:PORT",
        _always("127.0.0.1:8600"),
        "where up serves the portal and the API",
        _is_place,
    ),
    Setting(
        "arm",
        "HOST:PORT or off",
        _always("127.0.0.1:8643"),
        "where up serves Azure's own tools, and az-login finds them",
        lambda text: text == "off" or _is_place(text),
    ),
    Setting(
        "rate_limit",
        "a number or off",
        _always("5"),
        "requests a second that up takes from one VM",
        _is_rate,
    ),
    Setting(
        "log_format",
        "text or json",
        _always("text"),
        "how up writes its log: lines for people, or an object a line for programs",
        lambda text: text in ("text", "json"),
    ),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}


# ---- Where values come from ----


def of_options(
    options: argparse.Namespace, environ: Mapping[str, str] | None = None
) -> dict[str, Known]:
    """Every setting for what was typed; UsageError that names what does not fit."""
    environ = os.environ if environ is None else environ
    flags = {name: getattr(options, name, None) for name in BY_NAME}
    return effective(flags, environ, config_file(options, environ))


def metadata_url(known: Mapping[str, Known], health: Mapping[str, Any]) -> str:
    """Where metadata is: as was said; left out, where the control plane says that it serves it.

    Where that says nothing of the kind, where `up` would serve it.
    """
    url = known["metadata_url"]
    if url.origin != DEFAULT:
        return url.value
    own = str(health.get("metadata", ""))
    return f"http://{known['metadata'].value if place(own) is None else own}"


def arm_url(known: Mapping[str, Known], health: Mapping[str, Any]) -> str:
    """Where Azure's tools ask: as was said; left out, where the control plane serves them.

    Where that says nothing of the kind, where `up` would. Empty where they are off.
    """
    arm = known["arm"]
    own = str(health.get("arm", "")) if arm.origin == DEFAULT else ""
    return https_url(own or arm.value) if arm.value != "off" else ""


def https_url(text: str) -> str:
    """The URL of Azure's tools where somebody gives that, or only a place.

    The certificate and the tokens of `up` are for localhost, however its address is written.
    """
    url = text if "://" in text else f"https://{text}"
    parts = urlsplit(url.rstrip("/").lower())
    if parts.hostname in ("127.0.0.1", "::1"):
        return f"{parts.scheme}://localhost" + (f":{parts.port}" if parts.port else "")
    return parts.geturl()


def fill(options: argparse.Namespace) -> None:
    """Give a command that takes settings as flags those that were not typed."""
    empty = [name for name in BY_NAME if getattr(options, name, "") is None]
    if not empty:
        return
    known = of_options(options)
    for name in empty:
        if known[name].origin != DEFAULT:
            setattr(options, name, known[name].value)


def config_file(options: argparse.Namespace, environ: Mapping[str, str]) -> tuple[Path, bool]:
    """Where the file is, and whether it must be there because somebody named it."""
    named = getattr(options, "config", None) or environ.get("FAIRNOTICE_CONFIG")
    if named:
        return Path(named), True
    home = environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "fairnotice" / "config.toml", False


def effective(
    flags: Mapping[str, str | None], environ: Mapping[str, str], file: tuple[Path, bool]
) -> dict[str, Known]:
    """Every setting with its value and origin; UsageError for a variable that nobody knows."""
    mistyped = unknown_variables(environ)
    if mistyped:
        raise UsageError(" ".join(mistyped.values()))
    written = read_file(*file)
    return {setting.name: _known(setting, flags, environ, written, file[0]) for setting in SETTINGS}


def hidden(value: str) -> str:
    """The value as it may be shown: a password in a URL is not."""
    return _PASSWORD.sub(r"\1…@", value)


def _known(
    setting: Setting,
    flags: Mapping[str, str | None],
    environ: Mapping[str, str],
    written: Mapping[str, str],
    path: Path,
) -> Known:
    found = (
        (flags.get(setting.name), setting.flag),
        (environ.get(setting.variable) or None, setting.variable),
        (written.get(setting.name), str(path)),
    )
    for value, origin in found:
        if value is not None:
            if not setting.fits(value):
                where = f"{setting.name} in {origin}" if origin == str(path) else origin
                raise UsageError(f"{where} is {hidden(value)!r}. Give {setting.takes}.")
            return Known(value, origin)
    return Known(setting.default(), DEFAULT)


def read_file(path: Path, must_be_there: bool) -> dict[str, str]:  # noqa: FBT001, from one tuple
    """What the file says, as text by name; UsageError for a key that nobody knows."""
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if must_be_there:
            raise UsageError(f"{path} is not there. Make it, or leave out --config.") from None
        return {}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise UsageError(f"{path} is no TOML: {error}.") from error
    return {name: _text(path, name, value) for name, value in tables.items()}


def _text(path: Path, name: str, value: object) -> str:
    if name not in BY_NAME:
        meant = suggestion(name, BY_NAME) or f"Settings are {', '.join(BY_NAME)}."
        raise UsageError(f"{path}: there is no setting {name!r}. {meant}")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(f"{name} in {path} must be text: give {BY_NAME[name].takes}.")
    return str(value)


def suggestion(word: str, known: Collection[str]) -> str:
    """`Did you mean …?`, or nothing where no word is near."""
    alike = {_bare(one): one for one in known}
    near = get_close_matches(_bare(word), alike, 1)
    if not near:
        # Whoever begins a long word and mistypes it is far from all of it.
        alike = {_bare(one).partition("_")[0]: one for one in known}
        near = get_close_matches(_bare(word), alike, 1)
    return f"Did you mean {alike[near[0]]}?" if near else ""


def _bare(word: str) -> str:
    """A word as it is compared: what all flags or all variables share makes none of them near."""
    # Capitals, and which line joins two words, are the most frequent mistakes.
    return word.removeprefix(PREFIX).lower().replace("-", "_").lstrip("_")


def unknown_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """A sentence for each FAIRNOTICE_* that is no setting: a typing mistake, most likely."""
    known = [*(setting.variable for setting in SETTINGS), *OTHER_VARIABLES]
    handed_on = (*known, *DRIVER_VARIABLES, *HANDLER_VARIABLES)
    return {
        name: f"{name} is no setting. {suggestion(name, known) or 'Take it away.'}"
        for name in sorted(environ)
        if name.startswith(PREFIX) and name not in handed_on
    }
