"""Tables of a TOML file as shapes: what does not fit is said with the file's name, in its words."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec

from fairnotice.control.misfits import (
    EXPECTED,
    MISSING,
    NO_CHOICE,
    UNKNOWN,
    choices_of,
    limit_in_words,
    names_of,
    parted,
    shape_at,
)
from fairnotice.errors import UsageError

Shape = TypeVar("Shape", bound=msgspec.Struct)

# tomllib's messages end with this; the line is what helps a person to find the place.
_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")

_TYPES_IN_WORDS = {
    "int": "a whole number",
    "float": "a number with a point",
    "str": "text",
    "bool": "true or false",
    "date": "a date",
    "time": "a time",
    "datetime": "an instant",
    "array": "a list",
    "object": "a table",
}


def parsed(text: str, where: str, what: str) -> dict[str, Any]:
    """The tables of a file; UsageError in one sentence where it is no TOML, or no `what`."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        sentence = str(error)
        place = _PLACE.search(sentence)
        line = (place and place[1]) or max(1, len(text.splitlines()))
        wrong = _PLACE.sub("", sentence)
        raise UsageError(f"{where}, line {line}: this is no TOML: {wrong}") from error
    except (RecursionError, ValueError) as error:
        # Lists in lists without end; a number with more digits than Python reads.
        raise UsageError(f"{where}: this is no {what}: {error}") from error


def converted(table: Mapping[str, Any], shape: type[Shape], where: str) -> Shape:
    """The table in its shape; UsageError in one sentence where it does not fit."""
    unknown = [key for key in table if key not in names_of(shape)]
    if unknown:
        raise UsageError(f"{where}: {_unknown(unknown[0], shape)}")
    try:
        return msgspec.convert(table, shape)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {_in_words(str(error), shape)}") from error


def meant(word: str, known: Iterable[str]) -> str:
    """The nearest known word, to be put after what is wrong; empty where none is near."""
    # Capitals are the most frequent mistake in Azure's words, and no mistake to difflib.
    by_small = {name.lower(): name for name in known}
    near = get_close_matches(word.lower(), by_small, 1)
    return f"; did you mean `{by_small[near[0]]}`?" if near else ""


def _unknown(key: str, shape: Any, path: str = "") -> str:  # noqa: ANN401, whatever stands there
    name = f"{path}.{key}" if path else key
    return f"unknown key `{name}`{meant(key, names_of(shape))}"


def _in_words(sentence: str, shape: type[msgspec.Struct]) -> str:
    """What msgspec says of one table, in words of the file."""
    what, path = parted(sentence)
    found = shape_at(shape, path)
    if unknown := UNKNOWN.fullmatch(what):
        return _unknown(unknown["name"], found, path)
    if missing := MISSING.fullmatch(what):
        name = missing["name"]
        return f"`{path}.{name}` is missing" if path else f"`{name}` is missing"
    if limit := limit_in_words(what):
        return f"`{path}` must be {limit}"
    if wrong := EXPECTED.fullmatch(what):
        types = wrong["wanted"].removesuffix(" | null").split(" | ")
        wanted = " or ".join(map(_type_in_words, types))
        return f"`{path}` must be {wanted}, not {_type_in_words(wrong['given'])}"
    if no_choice := NO_CHOICE.fullmatch(what):
        choices = choices_of(found)
        near = meant(no_choice["given"], choices) or f"; choose among {', '.join(choices)}"
        return f"`{path}` cannot be `{no_choice['given']}`{near}"
    return f"`{path}`: {what}" if path else what


def _type_in_words(name: str) -> str:
    return _TYPES_IN_WORDS.get(name, name)
