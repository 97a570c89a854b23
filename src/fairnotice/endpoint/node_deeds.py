"""What is done to a node: each deed can be printed, done, looked for and taken back.

What is printed is what is done: a deed hands out its lines, and the same lines are carried out.
"""

import base64
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fairnotice.errors import UsageError

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PACKAGES = {"ip": "iproute2", "nft": "nftables", "unshare": "util-linux"}
COMMAND_SECONDS_MAX = 30.0
CONF = Path("/proc/sys/net/ipv4/conf")
# Files of others are kept as they are, also where they are no text: in the record, and back again.
UTF8, AS_IT_IS = "utf-8", "surrogateescape"
# What `ip route` shows of how a route is doing, and takes from nobody.
DEAD = "dead"
HOW_IT_DOES = frozenset({DEAD, "linkdown", "notify", "offload", "trap", "unresolved"})


@dataclass(frozen=True, slots=True)
class Line:
    """A command and what it reads; or, without a command, a file and what is written there."""

    command: tuple[str, ...] = ()
    text: str = ""
    file: Path | None = None
    mode: int = 0o644

    def __str__(self) -> str:
        """As a shell takes it."""
        if self.file is None:
            line = shlex.join(self.command)
            return f"{line} <<'END'\n{self.text}END" if self.text else line
        where = shlex.quote(str(self.file))
        if self._is_the_kernels():
            return f"echo {shlex.quote(self.text.strip())} > {where}"
        install = f"install -D -m {self.mode:04o} /dev/stdin {where}"
        if self.text.endswith("\n") and self.text.isascii() and "\r" not in self.text:
            return f"{install} <<'END'\n{self.text}END"
        return f"base64 -d <<'END' | {install}\n{base64.b64encode(self._bytes()).decode()}\nEND"

    def _bytes(self) -> bytes:
        return self.text.encode(UTF8, AS_IT_IS)

    def do(self) -> None:
        """Do it; UsageError with what the system says where it cannot be done."""
        if self.file is None:
            run(self.command, self.text)
            return
        try:
            if self._is_the_kernels():
                self.file.write_text(self.text, "utf-8")
                return
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_bytes(self._bytes())
            self.file.chmod(self.mode)
        except OSError as error:
            raise UsageError(f"{self.file} cannot be written: {error.strerror}.") from error

    def _is_the_kernels(self) -> bool:
        return self.file is not None and self.file.parts[1] in {"proc", "sys"}


def run(
    command: tuple[str, ...],
    text: str = "",
    *,
    may_fail: bool = False,
    failure: type[UsageError] = UsageError,
) -> str:
    """What a command printed; empty where it failed and may; `failure` where it must not."""
    program = shutil.which(command[0], path=PATH)
    if program is None:
        package = PACKAGES.get(command[0], command[0])
        raise UsageError(f"{command[0]} is not installed: it is in the package {package}.")
    done = subprocess.run(  # noqa: S603 - our own lines
        (program, *command[1:]),
        input=text,
        check=False,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
    )
    if done.returncode and not may_fail:
        raise failure(f"{shlex.join(command)} failed: {done.stderr.strip()}")
    return "" if done.returncode else done.stdout


class Deed(Protocol):
    """One thing that a node needs.

    What each method is for stands here alone; below is only what sets a deed apart.
    """

    @property
    def key(self) -> str:
        """By which it is kept in the record."""

    @property
    def why(self) -> str:
        """What for, in a line."""

    def lines(self) -> list[Line]:
        """What is to be done for it."""

    def is_done(self, ours: Any) -> bool:  # noqa: ANN401 - whatever mark() made
        """Whether it is as it should be; `ours` is the mark of an earlier time, or None."""

    def before(self) -> Any:  # noqa: ANN401 - JSON
        """What is there now, in whose place it will be: kept, so that it can be put back."""

    def mark(self) -> Any:  # noqa: ANN401 - JSON
        """By which it is known later whether somebody else has changed it."""

    def undoing(self, before: Any, ours: Any) -> list[Line]:  # noqa: ANN401 - JSON
        """What takes it back; nothing where somebody else has changed or removed it."""


@dataclass(frozen=True, slots=True)
class Address:
    """An address on an interface."""

    interface: str
    address: str

    @property
    def key(self) -> str:
        return f"address {self.address} {self.interface}"

    @property
    def why(self) -> str:
        return f"{self.address}, at which VMs ask, is on {self.interface}"

    def lines(self) -> list[Line]:
        """Of the link, so that nothing else is sent from there by the node's choice."""
        return [Line(("ip", "address", "add", *self._words(), "scope", "link"))]

    def is_done(self, _: object) -> bool:
        shown = run(("ip", "-o", "-4", "address", "show", "dev", self.interface), may_fail=True)
        return f" {self.address}/32 " in shown

    def before(self) -> None:
        """Nothing: it was not there."""

    def mark(self) -> None:
        """It is there or not."""

    def undoing(self, _: object, __: object) -> list[Line]:
        return [Line(("ip", "address", "delete", *self._words()))] if self.is_done(None) else []

    def _words(self) -> tuple[str, ...]:
        return (f"{self.address}/32", "dev", self.interface)


@dataclass(frozen=True, slots=True)
class Routes:
    """Routes of others on an interface, which go with its last IPv4 address, whoever's that is.

    They are kept while an address is taken away, and put back at once; or, where that was killed,
    by whoever comes next.
    """

    interface: str
    routes: tuple[str, ...]

    @classmethod
    def beside(cls, address: Address) -> "Routes":
        """All but those that are the kernel's, or need this very address: as `ip` takes them."""
        needs_it = f" src {address.address} "
        return cls(
            address.interface,
            tuple(
                route
                for route in _routes()
                if f" dev {address.interface} " in f"{route} "
                and " proto kernel " not in f"{route} "
                and needs_it not in f"{route} "
            ),
        )

    @property
    def key(self) -> str:
        return f"routes {self.interface}"

    @property
    def why(self) -> str:
        return f"routes of others on {self.interface} are there as before"

    def lines(self) -> list[Line]:
        """All of them: for whoever takes the address away himself."""
        return [self._line("replace", route) for route in self.routes]

    def is_done(self, _: object) -> bool:
        return not self.undoing(None, None)

    def before(self) -> None:
        """Nothing: they are others'."""

    def mark(self) -> None:
        """They are there or not."""

    def undoing(self, _: object, __: object) -> list[Line]:
        """What puts back those that are gone; a gateway is known only by the route to it.

        Of one that has other ways, too, only ours is gone: the kernel calls that dead, also in what
        replaces it.
        """
        there, alive = set(_routes()), set(_routes(alive=True))
        return [
            self._line(how, route)
            for route in self.routes
            if route not in alive
            for how in (("del", "add") if route in there else ("add",))
        ]

    def _line(self, how: str, route: str) -> Line:
        return Line(("ip", "route", how, *route.split()))


def _routes(*, alive: bool = False) -> list[str]:
    """Every route of IPv4, in whichever table, or all of whose ways count; no gateway first."""
    shown = run(("ip", "-o", "-4", "route", "show", "table", "all")).replace("\\", " ")
    routes = [
        " ".join(word for word in line.split() if word not in HOW_IT_DOES)
        for line in shown.splitlines()
        if not (alive and DEAD in line.split())
    ]
    return sorted(routes, key=lambda route: " via " in route)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of the kernel's, of one interface."""

    interface: str
    name: str
    value: str
    reason: str

    @property
    def key(self) -> str:
        return f"setting {self._file}"

    @property
    def why(self) -> str:
        return self.reason

    @property
    def _file(self) -> Path:
        return CONF / self.interface / self.name

    def overruled(self) -> str:
        """Which setting of all interfaces makes this one void; empty where none does."""
        # Of all that are set here the kernel takes the larger of the two (ip-sysctl.txt).
        file = CONF / "all" / self.name
        value = file.read_text("ascii").strip() if file.exists() else self.value
        if int(value) <= int(self.value):
            return ""
        return f"{file} is {value}, which counts for {self.interface} as well: set it to 0"

    def lines(self) -> list[Line]:
        return [Line(file=self._file, text=f"{self.value}\n")]

    def is_done(self, _: object) -> bool:
        return self.before() == self.value

    def before(self) -> str:
        try:
            return self._file.read_text("ascii").strip()
        except OSError:
            return ""

    def mark(self) -> str:
        return self.value

    def undoing(self, before: str, ours: str) -> list[Line]:
        is_ours = self.before() == ours
        return [Line(file=self._file, text=f"{before}\n")] if is_ours and before else []


@dataclass(frozen=True, slots=True)
class BridgeSetting(Setting):
    """A setting of a bridge itself."""

    @property
    def _file(self) -> Path:
        return Path("/sys/class/net") / self.interface / "bridge" / self.name

    def overruled(self) -> str:
        """Empty: no setting counts for all bridges."""
        return ""


@dataclass(frozen=True, slots=True)
class Rules:
    """Tables of the packet filter."""

    tables: tuple[tuple[str, str], ...]
    text: str

    @property
    def key(self) -> str:
        return f"rules {self.tables[0][1]}"

    @property
    def why(self) -> str:
        return "no VM claims what is another's, nor the address at which it asks"

    def lines(self) -> list[Line]:
        return [Line(("nft", "-f", "-"), self.text)]

    def is_done(self, ours: Any) -> bool:  # noqa: ANN401 - JSON
        """Whether what is made of this very text is there, recorded or typed by hand."""
        there = self.shown()
        is_as_recorded = ours == {"text": self.text, "shown": there}
        return bool(there) and (is_as_recorded or there == self._made_elsewhere())

    def before(self) -> str:
        """Tables of that name, whoever's they are."""
        return "".join(self._listed(*table, terse=False) for table in self.tables)

    def mark(self) -> dict[str, str]:
        return {"text": self.text, "shown": self.shown()}

    def undoing(self, before: str, _: object) -> list[Line]:
        there = [table for table in self.tables if self._listed(*table, terse=True)]
        lines = [Line(("nft", "delete", "table", *table)) for table in there]
        return [*lines, Line(("nft", "-f", "-"), before)] if before else lines

    def shown(self) -> str:
        """As they are now, but for what is counted and who is where; empty where none is there."""
        return _uncounted("".join(self._listed(*table, terse=True) for table in self.tables))

    def _made_elsewhere(self) -> str:
        """How this nft and this kernel show the same text: in a network that is gone at once.

        What is shown is not what was read: words, sets and numbers are put otherwise.
        """
        listed = " && ".join(
            shlex.join(("nft", "--terse", "list", "table", *table)) for table in self.tables
        )
        words = ("unshare", "--net", "sh", "-c", f"PATH={PATH} && nft -f - && {listed}")
        return _uncounted(run(words, self.text, may_fail=True))

    def _listed(self, family: str, name: str, *, terse: bool) -> str:
        more = ("--terse",) if terse else ("--stateless",)
        return run(("nft", *more, "list", "table", family, name), may_fail=True)


def _uncounted(shown: str) -> str:
    """Tables as nft shows them, without what it has counted."""
    words = shown.split()
    numbers = {
        place + 1
        for place, word in enumerate(words[:-1])
        if word in {"packets", "bytes"} and words[place + 1].isdigit()
    }
    return " ".join(word for place, word in enumerate(words) if place not in numbers)


@dataclass(frozen=True, slots=True)
class File:
    """A file with this in it."""

    file: Path
    text: str
    reason: str
    mode: int = 0o644

    @property
    def key(self) -> str:
        return f"file {self.file}"

    @property
    def why(self) -> str:
        return self.reason

    def lines(self) -> list[Line]:
        return [Line(file=self.file, text=self.text, mode=self.mode)]

    def is_done(self, _: object) -> bool:
        return self._read() == self.text

    def before(self) -> dict[str, Any] | None:
        """What is there now, and the folders that are made for it."""
        text = self._read()
        made = [str(folder) for folder in self.file.parents if not folder.exists()]
        mode = self.mode if text is None else self.file.stat().st_mode & 0o7777
        return {"text": text, "mode": mode, "folders": made}

    def mark(self) -> str:
        return self.text

    def undoing(self, before: dict[str, Any], ours: str) -> list[Line]:
        if not self._holds(ours):
            return []
        if before["text"] is not None:
            return [Line(file=self.file, text=before["text"], mode=before["mode"])]
        keeps = "--ignore-fail-on-non-empty"
        folders = [Line(("rmdir", keeps, folder)) for folder in before["folders"]]
        return [Line(("rm", str(self.file))), *folders]

    def _holds(self, text: str) -> bool:
        try:
            return self._read() == text
        except UsageError:
            # Somebody has put something else there.
            return False

    def _read(self) -> str | None:
        try:
            return self.file.read_bytes().decode(UTF8, AS_IT_IS)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise UsageError(f"{self.file} cannot be read: {error.strerror}.") from error


@dataclass(frozen=True, slots=True)
class Kept(File):
    """A file that is written again and again: whatever is in it is ours, until it is taken back."""

    def is_done(self, _: object) -> bool:
        return self._read() is not None

    def undoing(self, before: dict[str, Any], _: object) -> list[Line]:
        there = self._read()
        return [] if there is None else File.undoing(self, before, there)
