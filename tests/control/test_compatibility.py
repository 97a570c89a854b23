"""The promise of docs/guides/upgrading.md: what a client of an earlier release relies on stays.

tests/fixtures/openapi-v1.json is the API as it was promised: whoever adds to the API adds to it
too, by `python -m tests.control.test_compatibility`, which refuses to write what breaks it.
"""

import copy
import json

import pytest

from fairnotice.control.openapi import openapi
from fairnotice.control.routes import ROUTES
from tests.house import ROOT

PROMISED = ROOT / "tests" / "fixtures" / "openapi-v1.json"
NOW = json.loads(openapi(ROUTES))


# ---- What is broken ----


def breaches(promised, now):
    """Each thing that was promised and is gone or another, in a sentence."""
    for path, methods in promised["paths"].items():
        for method, before in methods.items():
            after = now["paths"].get(path, {}).get(method)
            where = f"{method.upper()} {path}"
            if after is None:
                yield f"{where} is gone"
            else:
                yield from _of_address(where, before, after, promised, now)


def _of_address(where, before, after, promised, now):
    yield from _of_parameters(where, before, after, promised, now)
    for status, answer in before["responses"].items():
        if status not in after["responses"]:
            # What was refused may be accepted now.
            if status < "400":
                yield f"{where} does not answer {status} any more"
            continue
        for kind, content in answer["content"].items():
            found = after["responses"][status]["content"].get(kind)
            if found is None:
                yield f"{where} does not answer {status} with {kind} any more"
            else:
                shapes = Shapes(promised, now, answered=True)
                yield from shapes.differ(f"{where} {status}", content["schema"], found["schema"])
    yield from _of_body(where, before.get("requestBody"), after.get("requestBody"), promised, now)


def _of_parameters(where, before, after, promised, now):
    known = {one["name"]: one for one in after["parameters"]}
    for one in before["parameters"]:
        found = known.pop(one["name"], None)
        if found is None:
            yield f"{where} does not take {one['name']} any more"
        else:
            shapes = Shapes(promised, now, answered=False)
            yield from shapes.differ(f"{where} {one['name']}", one["schema"], found["schema"])
    for name, one in known.items():
        if one["required"]:
            yield f"{where} requires {name} now"


def _of_body(where, before, after, promised, now):
    if before is None:
        if after is not None and after["required"]:
            yield f"{where} requires a body now"
        return
    if after is None:
        yield f"{where} takes no body any more"
        return
    if after["required"] and not before["required"]:
        yield f"{where} requires a body now"
    shapes = Shapes(promised, now, answered=False)
    (was,), (is_now,) = before["content"].values(), after["content"].values()
    yield from shapes.differ(f"{where} body", was["schema"], is_now["schema"])


class Shapes:
    """Compares schemas: of what is `answered`, or of what is taken."""

    def __init__(self, promised, now, *, answered):
        self._components = promised["components"]["schemas"], now["components"]["schemas"]
        self._answered = answered
        self._compared = set()

    def differ(self, where, before, after):
        """Each way in which a client that knew the one cannot do with the other."""
        names = before.get("$ref"), after.get("$ref")
        if any(names):
            if names in self._compared:
                return
            self._compared.add(names)
        before, after = (
            components[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
            for components, schema in zip(self._components, (before, after), strict=True)
        )
        yield from self._of_types(where, before, after)
        yield from self._of_words(where, before, after)
        yield from self._of_bounds(where, before, after)
        yield from self._of_fields(where, before, after)
        for part in ("items", "additionalProperties"):
            if isinstance(before.get(part), dict) and isinstance(after.get(part), dict):
                yield from self.differ(f"{where}[]", before[part], after[part])

    def _of_types(self, where, before, after):
        was, is_now = (set(self._types(one)) for one in (before, after))
        # An answer may say less than before, and a question may be asked in more ways.
        wider, narrower = is_now - was, was - is_now
        if (wider if self._answered else narrower) or bool(was) != bool(is_now):
            yield f"{where} was {_listed(was)} and is {_listed(is_now)}"
        if "anyOf" in before and "anyOf" in after:
            for one, other in zip(before["anyOf"], after["anyOf"], strict=False):
                yield from self.differ(where, one, other)

    def _types(self, schema):
        if "anyOf" in schema:
            for one in schema["anyOf"]:
                yield from self._types(one)
        elif "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        else:
            found = schema.get("type", [])
            yield from [found] if isinstance(found, str) else found
            if "enum" in schema:
                yield "string"

    def _of_words(self, where, before, after):
        if "enum" in before:
            gone = set(map(str, before["enum"])) - set(map(str, after.get("enum", ())))
            # What is answered by a word of which clients do not know is an addition, said so in
            # the promise; what was taken stays taken.
            if "enum" in after and gone and not self._answered:
                yield f"{where} does not take {_listed(gone)} any more"
        elif "enum" in after and not self._answered:
            yield f"{where} takes only {_listed(map(str, after['enum']))} now"

    def _of_bounds(self, where, before, after):
        if self._answered:
            return
        for name, narrower in (
            ("minimum", lambda was, is_now: is_now > was),
            ("minLength", lambda was, is_now: is_now > was),
            ("maximum", lambda was, is_now: is_now < was),
            ("maxLength", lambda was, is_now: is_now < was),
        ):
            if name in after and (name not in before or narrower(before[name], after[name])):
                yield f"{where} takes {name} {after[name]} now"

    def _of_fields(self, where, before, after):
        known = after.get("properties", {})
        for name, field in before.get("properties", {}).items():
            if name in known:
                yield from self.differ(f"{where}.{name}", field, known[name])
            else:
                yield f"{where}.{name} is gone"
        was, is_now = (set(one.get("required", ())) for one in (before, after))
        if self._answered and (gone := was & set(known) - is_now):
            yield f"{where} may come without {_listed(gone)} now"
        if not self._answered and is_now - was:
            yield f"{where} requires {_listed(is_now - was)} now"


def _listed(words):
    return ", ".join(sorted(words)) or "anything"


# ---- The promise ----


def test_what_was_promised_is_kept():
    """Routes, fields of answers, and what is taken: nothing is gone, nothing is another."""
    assert list(breaches(json.loads(PROMISED.read_text("utf-8")), NOW)) == []


def test_what_is_new_is_promised_too():
    """Whatever there is now is in the fixture, so that the next change is held to it."""
    missing = list(breaches(NOW, json.loads(PROMISED.read_text("utf-8"))))
    assert missing == [], "run: python -m tests.control.test_compatibility"


def vms(document):
    """The address of the list of VMs."""
    return document["paths"]["/v1/vms"]["get"]


def shape(document, name):
    """What is shown or taken under this name."""
    return document["components"]["schemas"][name]


BREAKS = {
    "a route": lambda now: now["paths"].pop("/v1/vms/{name}/restart"),
    "a method": lambda now: now["paths"]["/v1/fleet"].pop("put"),
    "a field of an answer": lambda now: shape(now, "Vm")["properties"].pop("power"),
    "a field that may be missing": lambda now: shape(now, "Vm")["required"].remove("name"),
    "the type of a field": lambda now: shape(now, "Vm")["properties"].update(
        name={"type": "integer"}
    ),
    "a field that may be null": lambda now: shape(now, "Event")["properties"].update(
        id={"anyOf": [{"type": "string"}, {"type": "null"}]}
    ),
    "an accepted field": lambda now: shape(now, "OnVm")["properties"].pop("not_before"),
    "a required field": lambda now: shape(now, "OnVm").update(required=["not_before"]),
    "a word that was taken": lambda now: shape(now, "Priority")["enum"].pop(),
    "a narrower bound": lambda now: vms(now)["parameters"][0]["schema"].update(maximum=10),
    "a query": lambda now: vms(now)["parameters"].pop(),
    "a status": lambda now: vms(now)["responses"].pop("200"),
    "a required body": lambda now: now["paths"]["/v1/vms/{name}/restart"]["post"][
        "requestBody"
    ].update(required=True),
    "a media type": lambda now: now["paths"]["/v1/backup"]["get"]["responses"]["200"].update(
        content={}
    ),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_a_broken_promise_is_found_out(broken):
    """One change that an earlier client would not survive, and a sentence that says where."""
    now = copy.deepcopy(NOW)
    BREAKS[broken](now)
    assert list(breaches(NOW, now)), broken


def test_additions_are_fine():
    """A route, a field of an answer, something more that may be asked, a wider bound."""
    now = copy.deepcopy(NOW)
    now["paths"]["/v1/new"] = {"get": vms(now)}
    shape(now, "Vm")["properties"]["new"] = {"type": "string"}
    shape(now, "Vm")["required"].append("new")
    shape(now, "OnVm")["properties"]["new"] = {"type": "string", "default": ""}
    vms(now)["parameters"].append(
        {"name": "new", "in": "query", "required": False, "schema": {"type": "string"}}
    )
    vms(now)["parameters"][0]["schema"]["maximum"] += 1
    assert list(breaches(NOW, now)) == []


if __name__ == "__main__":
    broken_now = list(breaches(json.loads(PROMISED.read_text("utf-8")), NOW))
    if broken_now:
        raise SystemExit("\n".join(broken_now))
    PROMISED.write_text(json.dumps(NOW, indent=1, ensure_ascii=False) + "\n", "utf-8")
