"""Fleet files: read with errors that name what is wrong, written so that people can read them."""

import json
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, get_args

import msgspec

from fairnotice.control.fleet_body import FleetBody, exported, specification
from fairnotice.control.fleet_differences import Difference, difference
from fairnotice.control.toml_tables import converted, meant, parsed
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


def read_toml(text: str, where: str) -> FleetBody:
    """The fleet of a file; UsageError in one sentence where it is none. `where` is its name."""
    tables = parsed(text, where, "fleet file")
    if not tables:
        # As a shell leaves it behind `>` when the command that was to fill it fails.
        raise UsageError(
            f"{where} declares nothing, which would remove the whole fleet: was it to be made, and "
            "that failed? If it is meant, write: vm = []"
        )
    return read_tables(tables, where)


def read_tables(tables: Mapping[str, Any], where: str) -> FleetBody:
    """The fleet of a file that is parsed already."""
    for table, entries in tables.items():
        if table not in _TABLES:
            raise UsageError(f"{where}: unknown table `{table}`{meant(table, _TABLES)}")
        if not _is_list_of_tables(entries):
            raise UsageError(f"{where}: `{table}` is no list of tables; write [[{table}]]")
    read: dict[str, list[Any]] = {
        table: [_entry(entry, table, number, where) for number, entry in enumerate(entries, 1)]
        for table, entries in tables.items()
    }
    return FleetBody(**read)


def _is_list_of_tables(entries: object) -> bool:
    return isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)


def _entry(entry: dict[str, Any], table: str, number: int, where: str) -> msgspec.Struct:
    name = entry.get("name")
    who = f"{where}: {table} {name if isinstance(name, str) and name else f'number {number}'}"
    return converted(entry, _TABLES[table], who)


# ---- Writing ----

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(body: FleetBody) -> str:
    """The file that is read as this fleet: without what is left to its default."""
    entries = ((table, entry) for table in _TABLES for entry in getattr(body, table))
    # A file without anything is taken for a mistake.
    return "\n".join(_table(table, entry) for table, entry in entries) or "vm = []\n"


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
