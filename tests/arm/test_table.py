"""The table of Azure's tools in docs/compatibility.md: what a row names, its tests ask for."""

import ast
import re
from pathlib import Path

import pytest

from tests.arm.tools import LANES

ROOT = Path(__file__).parents[2]
COLUMNS = 3
HOW = ("works", "kept without effect", "refuses", "not there")
# What these run stands in a file of its own.
ELSEWHERE = {
    "test_the_sdks_of_python": "tests/arm/sdk.py",
    "test_the_sdk_of_javascript": "tests/arm/sdk.mjs",
    "test_what_is_listed_as_not_there_is_not": "docs/compatibility.md",
}


def rows():
    """What each row says, how, and by which tests."""
    page = (ROOT / "docs" / "compatibility.md").read_text("utf-8")
    section = page.partition("\n## Azure's own tools\n")[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:1] == "|"]
    told = [line for line in lines if line[-1].startswith("`")]
    return [(what(line), line[-2], spans(line[-1])) for line in told]


def what(line):
    """What a row names; of an address (the other table there), the methods, and what is behind."""
    if len(line) == COLUMNS:
        return line[0]
    return re.sub(r"\b([A-Z]{3,})\b", r"`\1`", line[1])


def spans(text):
    """What stands there as code."""
    return re.findall(r"`([^`]+)`", text)


def asked_for(what):
    """The commands of az that a row names, each in full, and its other words."""
    group, commands, words = "", [], []
    for span in spans(what):
        if span.startswith("az "):
            first, *rest = span.split()[1:]
            group = first if rest else ""
            commands.append(span.removeprefix("az "))
        elif group and re.fullmatch(r"[a-z][a-z-]*( -[a-z])?", span):
            commands.append(f"{group} {span}")
        else:
            words.append(span)
    return commands, words


def is_run(command):
    """Whether az is run so, in one of its lanes."""
    wanted = command.split()
    plain = [word for word in wanted if not word.startswith("-")]
    lines = [line.split() for lane in LANES for line in lane]
    return any(line[: len(plain)] == plain and set(wanted) <= set(line) for line in lines)


def source(test):
    """What a test is made of, with what it is told by its parameters; and what it runs."""
    path, _, name = test.partition("::")
    text = (ROOT / path).read_text("utf-8")
    (found,) = [
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    first = min([found.lineno, *(one.lineno for one in found.decorator_list)])
    parts = text.splitlines()[first - 1 : found.end_lineno]
    parts += [line for lane in LANES for line in lane] if path.endswith("/test_tools.py") else []
    if name in ELSEWHERE:
        parts.append((ROOT / ELSEWHERE[name]).read_text("utf-8"))
    return "\n".join(parts)


def missing(what, tests):
    """What a row names and its tests do not ask for."""
    commands, words = asked_for(what)
    by_az = any("/test_tools.py" in test for test in tests)
    lost = [f"az {one}" for one in commands if not (by_az and is_run(one))]
    text = "\n".join(map(source, tests)).lower().replace("_", "-")
    # Of an address, what is fixed in it; of a method or a property, its name.
    return lost + [word for word in words if not stands_in(word.rpartition("/")[2].lower(), text)]


def stands_in(word, text):
    """Whether it is there as a word of its own, and not as a part of another."""
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


@pytest.mark.parametrize(("what", "how", "tests"), rows())
def test_what_a_row_names_is_asked_for(what, how, tests):
    """Every command of az is run, and every other name is in one of the tests."""
    assert how in HOW
    assert tests
    assert missing(what, tests) == []


def test_a_row_that_promises_more_than_is_run_is_found():
    """A command that nobody runs, one that is run by another test, and a word that nobody sends."""
    az = "tests/arm/test_tools.py::test_what_az_shows"
    plain = "tests/arm/test_long_running.py::test_reapplying_changes_nothing"
    assert missing("`az vm list`, `show`, `resize`; `--no-wait`", [az]) == ["az vm resize"]
    assert missing("`az vmss update --no-such-option`", [az]) == ["az vmss update --no-such-option"]
    assert missing("`az vm list`", [plain]) == ["az vm list"]
    assert missing("`reapply`, `powerOff`", [plain]) == ["powerOff"]
    assert missing("`reapply`, `apply`", [plain]) == ["apply"]
    address = what(["`/virtualMachines/{vm}`", "POST `reapply`, DELETE", "works", f"`{plain}`"])
    assert missing(address, [plain]) == ["DELETE"]
