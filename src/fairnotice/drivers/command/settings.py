"""What an operator configures: which command line does what.

A command line is a list of words, run as it is, without a shell. It finds the VARIABLES below in
its environment. docs/reference/driver-commands.md, which is made of what is here, has the rest:
what the exit codes mean, and what the `outcome` and `discover` commands print.
"""

import math
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairnotice.errors import UsageError
from fairnotice.words import ImpactKind

CommandLine = Sequence[str]
# EX_PROTOCOL of sysexits.h, which nothing that an operator runs is likely to end with.
OLDER_EPOCH_CODE = 76

# What the command of an impact finds in its environment.
VARIABLES: Mapping[str, str] = {
    "FAIRNOTICE_KIND": "the kind of impact",
    "FAIRNOTICE_VM": "the VM",
    "FAIRNOTICE_NODE": "the node it is on; empty if none",
    "FAIRNOTICE_TARGET": "the node it goes to; empty if it stays",
    "FAIRNOTICE_DURATION_SECONDS": "how long a pause was announced to take; -1 if nobody knows",
    "FAIRNOTICE_EVENT": "the EventId that announced it; empty if none did",
    "FAIRNOTICE_KEY": "what makes the impact happen once: OPERATION/VM",
    "FAIRNOTICE_EPOCH": "the number of the control plane's leadership; it only grows",
}
# What the outcome command finds; discover, which is about all VMs, finds an empty key.
QUESTION_VARIABLES = ("FAIRNOTICE_KEY", "FAIRNOTICE_EPOCH")

# What is true of the VM when the command of a kind has ended with 0.
DONE: Mapping[ImpactKind, str] = {
    ImpactKind.FREEZE: "it was paused for a moment, its node was updated, and it goes on",
    ImpactKind.REBOOT: "it has been rebooted on the same node",
    ImpactKind.REDEPLOY: "it is off NODE, which may have failed, and was started anew on TARGET",
    ImpactKind.MIGRATE: "it runs on TARGET, without having been restarted",
    ImpactKind.DELETE: "it is gone for good",
    ImpactKind.STOP: "it does not run, and keeps its place on NODE",
    ImpactKind.START: "it runs on TARGET",
    ImpactKind.DEALLOCATE: "it does not run, and its place on NODE is free",
}


@dataclass(frozen=True, slots=True)
class CommandSettings:
    """The commands, and their limits; UsageError names the field that cannot be."""

    # By kind; an impact of a kind without one fails.
    commands: Mapping[ImpactKind, CommandLine] = field(default_factory=dict)
    outcome: CommandLine = ()
    discover: CommandLine = ()
    # Where it is written down what has begun and how it ended. Without it nobody knows after the
    # process has died, unless the outcome command does.
    state_directory: Path | None = None
    # No impact runs for longer, whatever the law grants it; then its process group is ended,
    # politely first, and so many seconds later not.
    limit_seconds: float = 3600.0
    kill_after_seconds: float = 10.0
    # The outcome and discover commands.
    question_limit_seconds: float = 30.0
    output_bytes_max: int = 4096
    # What has ended is forgotten after so many days.
    kept_days: float = 7.0

    def __post_init__(self) -> None:
        for kind, command in self.commands.items():
            if kind not in set(ImpactKind):
                known = ", ".join(ImpactKind)
                raise UsageError(f"commands.{kind} is no impact: there are {known}.")
            _check_command(f"commands.{kind}", command)
        for name in ("outcome", "discover"):
            command = getattr(self, name)
            if command:
                _check_command(name, command)
        for name in ("limit_seconds", "kill_after_seconds", "question_limit_seconds", "kept_days"):
            _check_length(name, getattr(self, name))
        if self.output_bytes_max < 0:
            raise UsageError(f"output_bytes_max is {self.output_bytes_max}: give 0 or more.")
        if self.state_directory is not None and not self.state_directory.is_absolute():
            raise UsageError(f"state_directory is {self.state_directory}: give an absolute path.")


def _check_command(name: str, command: object) -> None:
    if isinstance(command, str) or not isinstance(command, Sequence):
        raise UsageError(f"{name} is {command!r}: give a list of words; no shell reads it.")
    if not command or not command[0]:
        raise UsageError(f"{name} is empty: give the program and its arguments.")
    for word in command:
        if not isinstance(word, str) or "\0" in word:
            raise UsageError(f"{name} has {word!r} in it: each word is a text without NUL.")


def _check_length(name: str, length: float) -> None:
    if not (math.isfinite(length) and length > 0):
        raise UsageError(f"{name} is {length}: give a number greater than 0.")


def readable(output: bytes, bytes_max: int) -> str:
    """The end of what a command printed, as text that may be shown and stored anywhere."""
    kept = output[-bytes_max:] if bytes_max else b""
    text = kept.decode("utf-8", errors="replace").replace("\r\n", "\n")
    shown = "".join(letter for letter in text if letter.isprintable() or letter in "\n\t")
    shown = shown.strip(string.whitespace)
    return f"… {shown}" if shown and len(output) > len(kept) else shown
