"""One JSON object laid over another: names are the same whatever their case, as Azure has them.

What Azure has a name for has it already (kinds.py); anything else, and tags, is called as it was
called first. So no document ever has two names that differ by case alone.
"""

from collections.abc import Mapping
from typing import Any, cast


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Objects part by part; whatever else stands in `over` takes the place of what was there.

    What is null in `over` is taken away, as in RFC 7396.
    """
    found = dict(under)
    for name, value in as_called_in(under, over).items():
        if value is None:
            found.pop(name, None)
        elif isinstance(value, Mapping):
            before = found.get(name)
            found[name] = merged(before if isinstance(before, Mapping) else {}, value)
        else:
            found[name] = value
    return found


def replacing(before: object, after: object) -> Any:  # noqa: ANN401, whatever was sent
    """What laid over `before` makes it `after`: null for what is in it no longer."""
    if not (isinstance(before, Mapping) and isinstance(after, Mapping)):
        return after
    after = as_called_in(before, after)
    gone = dict.fromkeys(name for name in before if name not in after)
    return {**gone, **{name: replacing(before.get(name), part) for name, part in after.items()}}


def as_called_in(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The same as `after`, with the names that `before` has for what is in both."""
    called = {name.lower(): name for name in before}
    return {called.setdefault(name.lower(), name): part for name, part in after.items()}


def found_at(body: Mapping[str, Any], *path: str) -> Any:  # noqa: ANN401, whatever was sent
    """What stands there; None where nothing does, or something else on the way."""
    value: Any = body
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def standing_at(value: object, *path: str) -> dict[str, Any]:
    """An object in which this stands there, and nothing else."""
    for name in reversed(path):
        value = {name: value}
    return cast("dict[str, Any]", value)


def without(body: Mapping[str, Any], *path: str) -> dict[str, Any]:
    """The same object without what stands there, and without what is empty for it."""
    name, *rest = path
    copied = dict(body)
    if not rest:
        copied.pop(name, None)
    elif isinstance(copied.get(name), Mapping):
        copied[name] = without(copied[name], *rest)
        if not copied[name]:
            del copied[name]
    return copied
