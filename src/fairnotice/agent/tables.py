"""Reading a table of agent.toml: each key is asked for once, and what nobody asked for is refused.

Every sentence names the table and the key, and says what would have been right.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar, cast

from fairnotice.errors import HandlerFailed, UsageError

Kind = TypeVar("Kind")
Made = TypeVar("Made")
# What stands at the top of the file. In TOML whatever follows a table belongs to it.
TOP_KEYS = ("vm", "url", "state", "margin_seconds", "heartbeat_seconds", "metrics", "ready_file")
_PORT_MAX = 65535
_REQUIRED = object()


class Table:
    """One table, and how it is called: `[handler.gate]`.

    `notes` is the file in which its owner may remember what it did; None: nowhere but in memory.
    """

    def __init__(self, where: str, values: Mapping[str, object], notes: Path | None = None) -> None:
        self.where = where
        self.notes = notes
        self._values = dict(values)
        self._asked: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def peek(self, key: str) -> object:
        """What is there, whatever it is, and asked for by it; None where nothing is."""
        return self._value(key, None)

    def refuse(self, sentence: str) -> UsageError:
        """The error that says so of this table; to be raised."""
        return UsageError(f"{self.where}: {sentence}")

    def done(self) -> None:
        """Refuse the keys that nobody has asked for, each with the nearest one that there is."""
        unknown = [key for key in self._values if key not in self._asked]
        if unknown:
            key = unknown[0]
            top = "It stands at the top of the file, above the first table."
            hint = top if key in TOP_KEYS else nearest(key, self._asked)
            raise self.refuse(f"there is no key {key}. {hint}")

    def text(self, key: str, default: object = _REQUIRED) -> str:
        """A text that is not empty; the default may be."""
        value = self._typed(key, str, "a text", default)
        if key in self and (not value or "\0" in value):
            raise self.refuse(f"{key} is {value!r}: give a text that says something.")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """Either true or false."""
        return self._typed(key, bool, "true or false", default)

    def seconds(self, key: str, default: float, *, zero: bool = False) -> float:
        """A length of time, greater than 0 unless 0 is allowed."""
        value = self._value(key, default)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        length = float(cast("float", value)) if number else math.nan
        # Not a number is neither more nor less than 0.
        if math.isfinite(length) and (length > 0 or (zero and length == 0)):
            return length
        least = "0 or more" if zero else "more than 0"
        raise self.refuse(f"{key} is {value!r}: give a number of seconds, {least}.")

    def count(self, key: str, default: int, least: int, most: int) -> int:
        """A whole number between the two, both included."""
        value = self._typed(key, int, "a whole number", default)
        if isinstance(value, bool) or not least <= value <= most:
            raise self.refuse(f"{key} is {value!r}: give a whole number from {least} to {most}.")
        return value

    def choice(self, key: str, choices: Iterable[str], default: object = _REQUIRED) -> str:
        """One of the words."""
        words = list(choices)
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self.refuse(f"{key} is {toml(value)}: give one of {', '.join(sorted(words))}.")
        if value not in words:
            raise self.refuse(f"{key} is {value!r}. {nearest(value, words)}")
        return value

    def words(self, key: str, default: object = _REQUIRED) -> tuple[str, ...]:
        """A list of texts, none of them empty, at least one; the default may have none."""
        value = self._value(key, default)
        if isinstance(value, tuple):
            return value
        if not isinstance(value, list) or not value:
            raise self.refuse(f"{key} is {value!r}: give a list of texts, such as {key} = ['…'].")
        for word in value:
            if not isinstance(word, str) or not word or "\0" in word:
                raise self.refuse(f"{key} has {word!r} in it: each is a text that says something.")
        return tuple(value)

    def command(self, key: str, default: object = _REQUIRED) -> tuple[str, ...]:
        """A command line: the program and its arguments, which no shell reads."""
        if isinstance(self._values.get(key), str):
            self._asked.add(key)
            raise self.refuse(
                f"{key} is a text: give a list of words, the program first; no shell reads it. "
                "For a shell: ['sh', '-c', '…']."
            )
        return self.words(key, default)

    def texts(self, key: str) -> dict[str, str]:
        """A table of texts by name; empty where it is left out."""
        value = self._typed(key, dict, "a table of texts", {})
        for name, text in value.items():
            if not isinstance(text, str) or "\0" in text:
                raise self.refuse(f"{key}.{name} is {text!r}: give a text.")
        return value

    def address(self, key: str, such_as: str = "127.0.0.1:8088") -> tuple[str, int]:
        """A `HOST:PORT`; `[::1]:80` for IPv6."""
        value = self._value(key, _REQUIRED)
        where, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
        if not where or not port.isascii() or not port.isdigit() or int(port) > _PORT_MAX:
            raise self.refuse(f'{key} is {toml(value)}: give HOST:PORT, such as "{such_as}".')
        return where.removeprefix("[").removesuffix("]"), int(port)

    def secret(self, key: str, *, or_plain: bool = False) -> "Secret | None":
        """What `KEY_file` or `KEY_env` name, read when it is needed; None where neither is given.

        There is no plain KEY, unless it may be no secret at all: what stands in agent.toml ends in
        backups and tickets.
        """
        file, variable = self.text(f"{key}_file", ""), self.text(f"{key}_env", "")
        if key in self and not or_plain:
            self._asked.add(key)
            raise self.refuse(
                f"{key} is a secret, which has no place here: give {key}_file or {key}_env."
            )
        if file and variable:
            raise self.refuse(f"{key}_file and {key}_env are both given: which one is it?")
        if not (file or variable):
            return None
        return Secret(f"{self.where}: {key}", Path(file) if file else None, variable)

    def _value(self, key: str, default: object) -> object:
        self._asked.add(key)
        value = self._values.get(key, default)
        if value is _REQUIRED:
            near = _near(key, [other for other in self._values if other not in self._asked])
            raise self.refuse(f"{key} is missing{f': is it {near}?' if near else '.'}")
        return value

    def _typed(self, key: str, kind: type[Kind], called: str, default: object) -> Kind:
        value = self._value(key, default)
        if not isinstance(value, kind):
            raise self.refuse(f"{key} is {toml(value)}: give {called}.")
        return value


class Secret:
    """A secret that is read anew each time: a file that was replaced is believed at once.

    It shows itself as where it comes from, so that no log and no sentence can hold it.
    """

    def __init__(self, called: str, file: Path | None, variable: str) -> None:
        self._called = called
        self._file = file
        self._variable = variable

    def __repr__(self) -> str:
        return f"<secret of {self._file or self._variable}>"

    def read(self) -> str:
        """The secret; HandlerFailed, without it, where it cannot be had."""
        if self._file is None:
            value = os.environ.get(self._variable, "")
        else:
            try:
                value = self._file.read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise HandlerFailed(f"{self._called} cannot be read: {error}.") from error
        value = value.strip()
        # What no header can carry would come back in the error of whoever tried.
        if not (value and value.isascii() and value.isprintable()):
            raise HandlerFailed(f"{self._called} must be one line of ASCII, which {self!r} is not.")
        return value


def toml(value: object) -> str:
    """A value as the file has it, where Python would write it otherwise."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def every(makes: Mapping[str, Callable[[], Made]]) -> dict[str, Made]:
    """What each of these makes; what all of them refuse is one UsageError, a line for each."""
    made, refused = {}, []
    for name, make in makes.items():
        try:
            made[name] = make()
        except UsageError as error:
            refused.append(str(error))
    if refused:
        raise UsageError("\n".join(refused))
    return made


def nearest(word: str, known: Iterable[str]) -> str:
    """`Did you mean …?`, or, where no word is near, those that there are."""
    words = sorted(known)
    near = _near(word, words)
    return f"Did you mean {near}?" if near else f"There are {', '.join(words)}."


def _near(word: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only whoever mistyped pays for it

    by_bare = {_bare(one): one for one in known}
    near = get_close_matches(_bare(word), by_bare, 1)
    return by_bare[near[0]] if near else ""


def _bare(word: str) -> str:
    """A word as it is compared: capitals, and which line joins two words, make no difference."""
    return word.lower().replace("-", "_")
