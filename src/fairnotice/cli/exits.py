"""How a command ends: the exit codes that scripts rely on, and the error that carries one."""

from pathlib import Path

from fairnotice.errors import CannotListen, FairnoticeError, Unavailable, UsageError

DONE = 0
# Refused by the law or by the control plane, or failed on the way.
REFUSED = 1
WRONG_USAGE = 2
NOT_FOUND = 3
UNREACHABLE = 4
# Another try comes to the same: a person has to look.
DAMAGED = 5
# What a shell says of a command that is no program, and of one that is not there.
NO_PROGRAM = 126
NOT_THERE = 127
# What a shell says of a program that was ended by Ctrl-C, or whose reader went away.
INTERRUPTED = 130
NOBODY_READS = 141

MEANINGS = {
    DONE: "It was done, or looked at; of `doctor`: nothing is wrong.",
    REFUSED: "Refused by the law or by the control plane, or failed on the way; it says why. Of "
    "`conform`, `doctor`, `endpoint --check`, `scenario run` and `simulate`: something is wrong.",
    WRONG_USAGE: "Wrong usage: a word, a flag, a setting or a file that does not fit. Nothing was "
    "asked for.",
    NOT_FOUND: "Nobody has this name or id; those that are near are named.",
    UNREACHABLE: "No control plane answers there.",
    DAMAGED: "Of `agent`: its journal is damaged. Another start would not mend that.",
    NO_PROGRAM: "Of `as`: the command may not be run.",
    NOT_THERE: "Of `as`: there is no such command. (One that was run ends with its own code.)",
    INTERRUPTED: "Ended by Ctrl-C.",
    NOBODY_READS: "Nobody reads any more what is printed (`head`).",
}


class CommandFailed(FairnoticeError):
    """The command ends here: a sentence or two for the person who typed it, and the exit code."""

    def __init__(self, sentence: str, code: int = REFUSED) -> None:
        super().__init__(sentence)
        self.code = code


def by_its_key(path: Path, error: CannotListen) -> FairnoticeError:
    """By its key in the file; systemd tries again what may be otherwise soon, and not the rest."""
    sentence = f"{path}: {error.what}.listen: {error}"
    return UsageError(sentence) if error.lasts else Unavailable(sentence)
