"""What somebody sent does not fit: which field it is, why, and what was probably meant."""

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from enum import Enum
from typing import Any, Literal, NamedTuple, get_args, get_origin

import msgspec

# How msgspec says it: the sentence, and where it stumbled: "... - at `$.vm[3].node`".
_AT = re.compile(r" - at `(?:key` in `)?\$(?P<field>[^`]*)`$")
UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
MISSING = re.compile(r"Object missing required field `(?P<name>.*)`")
EXPECTED = re.compile(r"Expected `(?P<wanted>[^`]*)`, got `(?P<given>[^`]*)`")
# A word stands in quotes, and a number without.
NO_CHOICE = re.compile(
    r"Invalid enum value (?P<shown>(?P<quote>['\"]?)(?P<given>.*)(?P=quote))", re.DOTALL
)
_LIMIT = re.compile(r"Expected `(?:int|float)` (?P<sign>[<>]=?) (?P<limit>-?[\d.]+)")
_NO_MATCH = re.compile(r"Expected `str` matching regex .*", re.DOTALL)
_LIMITS_IN_WORDS = {
    ">=": "{} or more",
    "<=": "{} or less",
    ">": "more than {}",
    "<": "less than {}",
}
_NO_PART = re.compile(r"[^.\[\]]+")
OFFERED_MAX = 3
LIKENESS_MIN = 0.6


class Misfit(NamedTuple):
    """What does not fit, for people and for programs."""

    sentence: str
    field: str | None
    nearest: tuple[str, ...] = ()


def misfit(error: msgspec.ValidationError, shape: type | None) -> Misfit:
    """What does not fit into this shape."""
    what, path = parted(str(error))
    found = shape_at(shape, path)
    if unknown := UNKNOWN.fullmatch(what):
        return unknown_field(unknown["name"], names_of(found), path)
    if missing := MISSING.fullmatch(what):
        return Misfit(f"`{missing['name']}` is missing.", _joined(path, missing["name"]))
    if (no_choice := NO_CHOICE.fullmatch(what)) and (choices := choices_of(found)):
        near = nearest(choices, no_choice["given"])
        sentence = f"{no_choice['shown']} is none of {', '.join(choices)}."
        return Misfit(sentence, path or None, near)
    if wanted := limit_in_words(what) or (_NO_MATCH.fullmatch(what) and _described(found)):
        return Misfit(f"It must be {wanted}.", path or None)
    return Misfit(f"{what}.", path or None)


def parted(sentence: str) -> tuple[str, str]:
    """What msgspec says, and the path of what it says that of."""
    path = ""
    # What a shape itself refuses says where within the shape, and then msgspec where that is.
    while at := _AT.search(sentence):
        sentence, path = sentence[: at.start()], path + at["field"]
    return sentence, path.lstrip(".")


def limit_in_words(what: str) -> str:
    """What a number has to be, where msgspec says that it is not; empty where it says else."""
    found = _LIMIT.search(what)
    if found is None:
        return ""
    return _LIMITS_IN_WORDS[found["sign"]].format(found["limit"].removesuffix(".0"))


def unknown_field(name: str, known: Iterable[str], path: str = "") -> Misfit:
    """A field that nobody knows: a typing mistake, most probably."""
    near = nearest(known, name)
    meant = f" Did you mean {' or '.join(near)}?" if near else ""
    return Misfit(f"Nobody knows `{name}`.{meant}", _joined(path, name), near)


def nearest(names: Iterable[str], name: str) -> tuple[str, ...]:
    """Names that may have been meant, the likeliest first; of those alike, the first."""
    # Capitals are the most frequent mistake in Azure's words, and no mistake to difflib.
    matcher = SequenceMatcher(b=name.lower())
    scored = ((_likeness(matcher, one.lower()), one) for one in names)
    near = [pair for pair in scored if pair[0] >= LIKENESS_MIN]
    return tuple(one for _, one in sorted(near, key=lambda pair: -pair[0])[:OFFERED_MAX])


def _likeness(matcher: "SequenceMatcher[str]", name: str) -> float:
    matcher.set_seq1(name)
    # The bounds are cheap, and most names are not alike at all.
    bounds = (matcher.real_quick_ratio, matcher.quick_ratio)
    return matcher.ratio() if all(bound() >= LIKENESS_MIN for bound in bounds) else 0.0


# ---- Types ----


def names_of(shape: Any) -> tuple[str, ...]:  # noqa: ANN401, any type a field can have
    """The fields of a struct as they are sent; nothing of any other type."""
    if isinstance(shape, type) and issubclass(shape, msgspec.Struct):
        return tuple(field.encode_name for field in msgspec.structs.fields(shape))
    return ()


def choices_of(shape: Any) -> list[str]:  # noqa: ANN401, any type a field can have
    """The values of the enum in a type such as `list[EventType]` or `Priority | None`."""
    if isinstance(shape, type) and issubclass(shape, Enum):
        return [str(choice.value) for choice in shape]
    if get_origin(shape) is Literal:
        return [str(choice) for choice in get_args(shape)]
    return [choice for inner in get_args(shape) for choice in choices_of(inner)]


def shape_at(shape: Any, path: str) -> Any:  # noqa: ANN401, any type a field can have
    """The type of what stands at a path such as `vm[3].network`."""
    for part in _NO_PART.findall(path):
        if part.isdigit() or part == "...":
            continue
        shape = _struct_in(shape)
        fields = () if shape is None else msgspec.structs.fields(shape)
        shape = next((field.type for field in fields if field.encode_name == part), None)
    return _struct_in(shape) or shape


def _struct_in(shape: Any) -> type[msgspec.Struct] | None:  # noqa: ANN401, any type of a field
    if isinstance(shape, type) and issubclass(shape, msgspec.Struct):
        return shape
    return next((found for inner in get_args(shape) if (found := _struct_in(inner))), None)


def _described(shape: Any) -> str:  # noqa: ANN401, any type a field can have
    """What a field says of itself in words; empty where it says nothing."""
    notes = getattr(shape, "__metadata__", ())
    found = (one.description for one in notes if isinstance(one, msgspec.Meta))
    return next(filter(None, found), "")


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
