"""The client under test, as a process: started as a VM, watched, and ended with all it started."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from threading import Event, Thread
from typing import NamedTuple

from fairnotice.errors import UsageError
from fairnotice.testing.conform.declared import Declared

# How long it may take to end when it is told to.
END_SECONDS = 2.0
# Of what it printed, the end is kept.
OUTPUT_BYTES_MAX = 20_000
DIRECT = "127.0.0.1,localhost,169.254.169.254"


class Guest(NamedTuple):
    """As whom it is run: the VM, what its system is called, and where its endpoint is."""

    vm: str
    host_name: str
    place: tuple[str, int]


class ClientProcess:
    """One life of a client; with `once` a row of short ones."""

    def __init__(self, declared: Declared, guest: Guest) -> None:
        self._declared = declared
        self._words, self._environment = _started_with(declared, guest)
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = Event()
        self._runner: Thread | None = None
        self._output = ""

    def start(self) -> None:
        """Run it; UsageError where it cannot be started."""
        self._process = self._run()
        if self._declared.once:
            self._runner = Thread(target=self._run_again, daemon=True)
            self._runner.start()

    def _run(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(  # noqa: S603 - it is what was asked for
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=self._printed,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise UsageError(f"{self._words[0]} cannot be started: {why}.") from error

    def _run_again(self) -> None:
        """As cron would: the next one when its time has come and the one before has ended."""
        while not self._ending.wait(self._declared.interval_seconds):
            if self._process is not None and self._process.poll() is not None:
                self._process = self._run()

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it lives, or where it is its way to end."""
        if self._declared.once or self._process is None:
            return None
        return self._process.poll()

    @property
    def output(self) -> str:
        """The end of what it has printed."""
        if not self._printed.closed:
            printed = self._printed.fileno()
            begin = max(0, os.fstat(printed).st_size - OUTPUT_BYTES_MAX)
            self._output = os.pread(printed, OUTPUT_BYTES_MAX, begin).decode("utf-8", "replace")
        return self._output

    def end(self) -> None:
        """End it, and whatever it has started: first asked, then made to."""
        self._ending.set()
        if self._runner is not None:
            self._runner.join()
        if self._process is not None:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
            # Also where it has ended: its children may not have.
            self._signal(signal.SIGKILL)
            self._process.wait()
        self._output = self.output
        self._printed.close()

    def _signal(self, number: int) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def check_command(command: Sequence[str]) -> None:
    """UsageError where there is no such command."""
    if shutil.which(command[0]) is None:
        raise UsageError(f"There is no command {command[0]} that may be run.")


def _started_with(declared: Declared, guest: Guest) -> tuple[list[str], dict[str, str]]:
    """The words and the environment to start it with."""
    host, port = guest.place
    url = f"http://{host}:{port}"
    environment = {**os.environ, "NO_PROXY": DIRECT, "no_proxy": DIRECT}
    if not declared.namespace:
        environment["FAIRNOTICE_METADATA_URL"] = url
        return _filled_in(declared.command, url, guest.vm), environment
    # Imported when called: other systems have not all that it is made of.
    from fairnotice.testing.as_vm import run_as  # noqa: PLC0415

    inside = run_as.Guest(guest.host_name, host, guest.place)
    words = _filled_in(declared.command, run_as.METADATA_URL, guest.vm)
    return run_as.command_line(inside, words), environment


def _filled_in(command: Sequence[str], url: str, vm: str) -> list[str]:
    return [word.replace("{url}", url).replace("{vm}", vm) for word in command]
