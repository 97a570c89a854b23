"""How a command ends: the exit codes that scripts rely on, and the error that carries one."""

from fairnotice.errors import FairnoticeError

DONE = 0
# Refused by the law or by the control plane, or failed on the way.
REFUSED = 1
WRONG_USAGE = 2
NOT_FOUND = 3
UNREACHABLE = 4
# What a shell says of a program that was ended by Ctrl-C, or whose reader went away.
INTERRUPTED = 130
NOBODY_READS = 141


class CommandFailed(FairnoticeError):
    """The command ends here: a sentence or two for the person who typed it, and the exit code."""

    def __init__(self, sentence: str, code: int = REFUSED) -> None:
        super().__init__(sentence)
        self.code = code
