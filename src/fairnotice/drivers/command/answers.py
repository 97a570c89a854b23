"""What the operator's outcome and discover commands print, understood."""

from fairnotice.drivers.command.settings import readable
from fairnotice.drivers.driver import Found, Report
from fairnotice.errors import Unavailable
from fairnotice.words import Outcome, Power

_FIELDS = 3


def read_outcome(output: str, bytes_max: int) -> Report:
    """The word on the first line, and the reason after it."""
    word, _, rest = output.strip().partition("\n")
    try:
        outcome = Outcome(word.strip().lower().replace("-", " ").replace("_", " "))
    except ValueError as error:
        words = ", ".join(Outcome)
        raise Unavailable(f"The outcome command said {word!r}: it may say {words}.") from error
    return Report(outcome, readable(rest.encode(), bytes_max))


def read_found(output: str) -> tuple[Found, ...]:
    """One VM per line: name, node or -, power."""
    return tuple(_read_vm(line) for line in output.splitlines() if line.strip())


def _read_vm(line: str) -> Found:
    fields = line.split()
    if len(fields) != _FIELDS or fields[2] not in set(Power):
        raise Unavailable(f"The discover command said {line!r}: a line is VM NODE POWER.")
    vm, node, power = fields
    return Found(vm, None if node == "-" else node, Power(power))
