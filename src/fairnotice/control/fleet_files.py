"""Fleet files: read with errors that name what is wrong, written so that people can read them."""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from enum import Enum
from importlib.resources import files
from typing import Any, get_args

import msgspec

from fairnotice.control.fleet_body import FleetBody, exported, specification
from fairnotice.control.fleet_differences import Difference, difference
from fairnotice.errors import UsageError

__all__ = [
    "Difference",
    "FleetBody",
    "difference",
    "exported",
    "read_tables",
    "read_toml",
    "sample_fleet",
    "specification",
    "to_toml",
]


def sample_fleet() -> FleetBody:
    """The fleet that `up` begins with."""
    text = files("fairnotice.control").joinpath("sample.toml").read_text("utf-8")
    return read_toml(text, "sample.toml")


# ---- Reading ----

# The types of the lists of FleetBody: the kinds of table, each with the struct of its entries.
_TABLES: dict[str, type[msgspec.Struct]] = {
    field.name: get_args(field.type)[0] for field in msgspec.structs.fields(FleetBody)
}

# tomllib's messages end with this; the line is what helps a person to find the place.
_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
# msgspec's messages, as far as we put them into our own words.
_AT = re.compile(r" - at `\$\.?(.*)`$")
_EXPECTED = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_LIMIT = re.compile(r"Expected `int` ([<>]=) (-?\d+)")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_NO_CHOICE = re.compile(r"Invalid enum value (['\"])(.*)\1", re.DOTALL)

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


def read_toml(text: str, where: str) -> FleetBody:
    """The fleet of a file; UsageError in one sentence where it is none. `where` is its name."""
    return read_tables(_parsed(text, where), where)


def read_tables(tables: Mapping[str, Any], where: str) -> FleetBody:
    """The fleet of a file that is parsed already."""
    for table, entries in tables.items():
        if table not in _TABLES:
            raise UsageError(f"{where}: unknown table `{table}`{_meant(table, _TABLES)}")
        if not _is_list_of_tables(entries):
            raise UsageError(f"{where}: `{table}` is no list of tables; write [[{table}]]")
    read: dict[str, list[Any]] = {
        table: [_entry(entry, table, number, where) for number, entry in enumerate(entries, 1)]
        for table, entries in tables.items()
    }
    return FleetBody(**read)


def _parsed(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        sentence = str(error)
        place = _PLACE.search(sentence)
        line = (place and place[1]) or max(1, len(text.splitlines()))
        what = _PLACE.sub("", sentence)
        raise UsageError(f"{where}, line {line}: this is no TOML: {what}") from error
    except (RecursionError, ValueError) as error:
        # Lists in lists without end; a number with more digits than Python reads.
        raise UsageError(f"{where}: this is no fleet file: {error}") from error


def _is_list_of_tables(entries: object) -> bool:
    return isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)


def _entry(entry: dict[str, Any], table: str, number: int, where: str) -> msgspec.Struct:
    struct = _TABLES[table]
    name = entry.get("name")
    who = f"{where}: {table} {name if isinstance(name, str) and name else f'number {number}'}"
    keys = {field.name: field.type for field in msgspec.structs.fields(struct)}
    for key in entry:
        if key not in keys:
            raise UsageError(f"{who}: unknown key `{key}`{_meant(key, keys)}")
    try:
        return msgspec.convert(entry, struct)
    except msgspec.ValidationError as error:
        raise UsageError(f"{who}: {_in_words(str(error), keys)}") from error


def _in_words(sentence: str, keys: dict[str, Any]) -> str:
    """What msgspec says of one entry, in words of the file."""
    at = _AT.search(sentence)
    path = at[1] if at is not None else ""
    what = _AT.sub("", sentence)
    if missing := _MISSING.fullmatch(what):
        return f"`{missing[1]}` is missing"
    if limit := _LIMIT.search(what):
        return f"`{path}` must be {limit[2]} or {'more' if limit[1] == '>=' else 'less'}"
    if wrong := _EXPECTED.fullmatch(what):
        wanted = wrong[1].removesuffix(" | null")
        wanted, given = (_TYPES_IN_WORDS.get(word, word) for word in (wanted, wrong[2]))
        return f"`{path}` must be {wanted}, not {given}"
    if no_choice := _NO_CHOICE.fullmatch(what):
        choices = _choices(keys[re.split(r"\W", path, maxsplit=1)[0]])
        meant = _meant(no_choice[2], choices) or f"; choose among {', '.join(choices)}"
        return f"`{path}` cannot be `{no_choice[2]}`{meant}"
    return f"`{path}`: {what}" if path else what


def _choices(kind: Any) -> list[str]:  # noqa: ANN401, any type a field can have
    """The values of the enum in a type such as `list[EventType]` or `Priority | None`."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(choice.value) for choice in kind]
    return [choice for inner in get_args(kind) for choice in _choices(inner)]


def _meant(word: str, known: Iterable[str]) -> str:
    """The nearest known word, to be put after what is wrong; empty where none is near."""
    # Capitals are the most frequent mistake in Azure's words, and no mistake to difflib.
    by_small = {name.lower(): name for name in known}
    near = get_close_matches(word.lower(), by_small, 1)
    return f"; did you mean `{by_small[near[0]]}`?" if near else ""


# ---- Writing ----

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(body: FleetBody) -> str:
    """The file that is read as this fleet: without what is left to its default."""
    entries = ((table, entry) for table in _TABLES for entry in getattr(body, table))
    return "\n".join(_table(table, entry) for table, entry in entries)


def _table(table: str, entry: msgspec.Struct) -> str:
    return "".join(f"{line}\n" for line in (f"[[{table}]]", *_lines(entry)))


def _lines(entry: msgspec.Struct) -> Iterator[str]:
    for field in msgspec.structs.fields(entry):
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        value = getattr(entry, field.name)
        if value != default:
            yield f"{field.name} = {_value(value)}"


def _value(value: object) -> str:
    if isinstance(value, dict):
        pairs = ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in value.items())
        return f"{{ {pairs} }}"
    if isinstance(value, list):
        return f"[{', '.join(_value(inner) for inner in value)}]"
    return _string(value) if isinstance(value, str) else str(value)


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    """A string of TOML: one of JSON, but that TOML wants DEL escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
