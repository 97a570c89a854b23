"""Commands that an operator might write, for tests: each notes in a ledger that it was run."""

from pathlib import Path

from fairnotice.clock import SystemClock
from fairnotice.drivers.command.driver import CommandDriver
from fairnotice.drivers.command.settings import CommandSettings
from fairnotice.drivers.driver import Order
from fairnotice.words import ImpactKind

REBOOT = Order("op-1/web_0", "web_0", ImpactKind.REBOOT, node="node-a", event="event-1")
NOTE = 'printf "%s\\n" "$FAIRNOTICE_KEY" >>"$LEDGER"; '
# An operator's own memory: epochs and keys, so that it answers without a state directory.
FENCE = (
    'exec 9>>"$LEDGER.lock"; flock 9; highest=$(cat "$LEDGER.epoch" 2>/dev/null || echo 0); '
    '[ "$FAIRNOTICE_EPOCH" -lt "$highest" ] && exit 76; echo "$FAIRNOTICE_EPOCH" >"$LEDGER.epoch"; '
)
OUTCOME = (
    FENCE + 'if grep -qxF "$FAIRNOTICE_KEY" "$LEDGER" 2>/dev/null; '
    "then echo done; else echo not begun; fi"
)


class Bench:
    """A directory with a ledger, and drivers whose commands write into it."""

    def __init__(self, directory: Path) -> None:
        self.ledger = directory / "ledger"
        self.state = directory / "state"

    def shell(self, script: str) -> tuple[str, ...]:
        """The command line that runs this script, with the ledger known to it."""
        return ("sh", "-c", f"LEDGER='{self.ledger}'; {script}")

    def driver(self, script: str = "", *, note: str = NOTE, durable: bool = True, **settings):
        """A driver whose every kind notes its key and runs this script."""
        if durable:
            settings.setdefault("state_directory", self.state)
        commands = dict.fromkeys(ImpactKind, self.shell(note + script))
        given = {"commands": commands, **settings}
        return CommandDriver(CommandSettings(**given), SystemClock())

    def count(self, key: str) -> int:
        """How often the ledger has this key."""
        if not self.ledger.exists():
            return 0
        return self.ledger.read_text("utf-8").splitlines().count(key)


def begun(bench, key=REBOOT.key):
    """Whether the command of this key has noted that it runs."""
    return lambda: bench.count(key) == 1


def number_in(path):
    """The number in a file; 0 while it is not written."""
    written = Path(path).read_text("ascii") if Path(path).exists() else ""
    return int(written) if written.endswith("\n") else 0


def is_running(process):
    """Whether there is such a process, not yet a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def parent_of(process):
    """The process that started it."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
