"""What each property of a body is called, and of which kind it is, as Azure itself describes it.

kinds.json has what the models of azure-mgmt-compute 39 have: `text`, `truth`, `whole` and `number`
are scalars, `any` is anything, `["text"]` a list, `{"*": "text"}` an object with names of any kind,
and every other word another of these objects. What is passed over here, and what is looked at where
it is used, is `any`. What Azure has no word for may be anything: no tool reads it. What is of
another kind would break every tool that lists the resource, for everybody.

Azure reads names without regard to case. So does whoever asks `properly_named` first, once for a
whole body: behind it, each property has the name that Azure gives it.
"""

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import msgspec

from fairnotice.arm.failures import malformed

Kind = str | list[Any] | dict[str, Any]

# As Azure's SDKs for other languages read them: those of known properties, and any.
INTEGERS_32 = range(-(2**31), 2**31)
INTEGERS_64 = range(-(2**63), 2**63)

_OBJECTS: dict[str, dict[str, Kind]] = msgspec.json.decode(
    files("fairnotice.arm").joinpath("kinds.json").read_bytes()
)
_SCALARS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "any": ("anything", lambda _: True),
    "text": ("text", lambda value: isinstance(value, str)),
    "truth": ("true or false", lambda value: isinstance(value, bool)),
    "whole": (
        "a whole number of 32 bits",
        lambda value: type(value) is int and value in INTEGERS_32,
    ),
    "number": ("a number", lambda value: type(value) in (int, float)),
}


def properly_named(body: Any, kind: Kind, *path: str) -> Any:  # noqa: ANN401, whatever was sent
    """The same body with Azure's names for what Azure has, whatever their case was.

    Two names that differ by it alone are refused: PowerShell reads no document that has such.
    """
    if isinstance(body, list):
        inside = kind[0] if isinstance(kind, list) else "any"
        return [properly_named(part, inside, *path, str(at)) for at, part in enumerate(body)]
    if not isinstance(body, dict):
        return body
    known = _known(kind)
    proper = {name.lower(): name for name in known}
    found: dict[str, Any] = {}
    spellings: dict[str, str] = {}
    for name, part in body.items():
        other = spellings.setdefault(name.lower(), name)
        if other != name:
            where = f" in {'.'.join(path)}" if path else ""
            raise malformed(f"'{other}' and '{name}'{where} differ by case alone")
        called: str = proper.get(name.lower()) or name
        inside = known.get(called, known.get("*", "any"))
        found[called] = properly_named(part, inside, *path, called)
    return found


def must_fit(body: object, kind: Kind, *path: str) -> None:
    """Refused where something in it is of another kind than Azure has it; null takes it away."""
    if isinstance(kind, str) and kind in _SCALARS:
        words, fits = _SCALARS[kind]
        if not fits(body):
            raise malformed(f"{'.'.join(path)} is not {words}")
    elif isinstance(kind, list):
        if not isinstance(body, list):
            raise malformed(f"{'.'.join(path)} is no list")
        for number, part in enumerate(body):
            must_fit(part, kind[0], *path, str(number))
    else:
        _must_fit_object(body, kind, *path)


def _must_fit_object(body: object, kind: str | dict[str, Any], *path: str) -> None:
    if not isinstance(body, dict):
        raise malformed(f"{'.'.join(path)} is no object")
    known = _known(kind)
    for name, part in body.items():
        inside = known.get(name, known.get("*"))
        if inside is not None and part is not None:
            must_fit(part, inside, *path, name)


def _known(kind: Kind) -> dict[str, Kind]:
    """The properties of an object of this kind; none of what Azure has no word for."""
    if isinstance(kind, dict):
        return kind
    return _OBJECTS.get(kind, {}) if isinstance(kind, str) else {}
