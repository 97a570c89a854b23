"""The house rules as functions: each takes a source file and names what is wrong with it.

tests/test_house.py runs them over the repository, and shows of each that it can fail.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "fairnotice"

FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 500

PURE_ROOMS = frozenset({"model", "words", "errors", "engine", "wire"})

# Reading a clock, or waiting on one, is for src/fairnotice/clock.py alone.
CLOCK_CALLS = frozenset(
    {
        "datetime.date.today",
        "datetime.datetime.now",
        "datetime.datetime.today",
        "datetime.datetime.utcnow",
        "time.gmtime",
        "time.localtime",
        "time.monotonic",
        "time.monotonic_ns",
        "time.perf_counter",
        "time.perf_counter_ns",
        "time.sleep",
        "time.time",
        "time.time_ns",
    }
)
# A benchmark measures; it may use the finest clock there is.
STOPWATCH_CALLS = frozenset({"time.perf_counter", "time.perf_counter_ns"})

# The pure rooms know no clock, no chance, no I/O, no log and no concurrency.
PURE_MODULES = frozenset(
    {
        "collections",
        "dataclasses",
        "datetime",
        "difflib",
        "enum",
        "fairnotice",
        "functools",
        "hashlib",
        "heapq",
        "ipaddress",
        "itertools",
        "json",
        "math",
        "re",
        "string",
        "typing",
        "urllib",
        "uuid",
    }
)
IMPURE_CALLS = frozenset({"uuid.uuid1", "uuid.uuid4"})
IMPURE_BUILTINS = frozenset({"__import__", "breakpoint", "eval", "exec", "input", "open", "print"})

# Rooms with walls of their own: what of fairnotice each may import, besides itself.
_GUEST_ROOMS = frozenset(
    {
        "client",
        "agent",
        "wire",
        "model",
        "words",
        "errors",
        "clock",
        "systemd",
        "__version__",
    }
)
_PURE_FLOOR = frozenset({"model", "words", "errors"})
WALLS = {
    # A pure room may not even import the file that reads the clock.
    "engine": _PURE_FLOOR,
    "wire": _PURE_FLOOR,
    "model": _PURE_FLOOR - {"model"},
    "client": _GUEST_ROOMS - {"agent"},
    "agent": _GUEST_ROOMS,
    "metadata": frozenset({"wire", "model", "words", "errors", "clock", "__version__"}),
}
# Rooms that run on the standard library alone: the pure ones, and what is installed in a VM.
STANDARD_LIBRARY_ROOMS = PURE_ROOMS | {"clock", "systemd", "client", "agent"}

# docs/STYLE.md, "The words", as far as a word has no other use here: the one in front is not
# used, the one behind is.
WORDS = {
    "ack": "approval",
    "cancelled": "canceled",
    "outage": "impact",
    "subscribed": "enabled",
    "tenant": "scope",
}
# What leaves a test out. Where CI is set none may be.
SKIPS = frozenset(
    {
        "pytest.importorskip",
        "pytest.mark.skip",
        "pytest.mark.skipif",
        "pytest.mark.xfail",
        "pytest.skip",
        "pytest.xfail",
    }
)
EMPTY_NAMES = frozenset({"common", "helper", "helpers", "manager", "misc", "util", "utils"})

# Written in pieces, so that this file does not name what it forbids.
INDEX_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("deb", "debian", "org"),
    )
)


@dataclass(frozen=True)
class Source:
    """One Python file: where it lies, relative to the repository, and what it says."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed file."""
        return ast.parse(self.text)

    @property
    def room(self) -> str | None:
        """The room of src/fairnotice the file is in: `engine`, `clock`; None elsewhere."""
        parts = Path(self.path).parts
        if parts[:2] != ("src", "fairnotice"):
            return None
        return parts[2].removesuffix(".py")

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the tree."""
        return list(ast.walk(self.tree))


def python_sources(*folders: str) -> list[Source]:
    """The Python files under the given folders of the repository."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return [Source(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")) for path in paths]


def text_files() -> Iterator[tuple[str, str]]:
    """Every file that git holds or is about to hold, with its text."""
    git = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(git, cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.is_file():
            yield name, path.read_text("utf-8", errors="replace")


def rooms() -> list[str]:
    """The rooms of src/fairnotice: its packages and its modules, `__init__` left out."""
    packages = (path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    modules = (path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")
    return sorted((*packages, *modules))


# --- Sizes and names ------------------------------------------------------------------------


def long_functions(source: Source) -> list[str]:
    """Functions of more lines than a reader can hold."""
    return [
        f"{source.path}:{node.lineno} {node.name} has {lines} lines, over {FUNCTION_LINES_MAX}"
        for node in source.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]


def long_module(source: Source) -> list[str]:
    """The file itself, when it is a room that wants a wall."""
    lines = len(source.text.splitlines())
    if lines <= MODULE_LINES_MAX:
        return []
    return [f"{source.path} has {lines} lines, over {MODULE_LINES_MAX}"]


def missing_docstring(source: Source) -> list[str]:
    """The file, when it does not say what it is for."""
    return [] if ast.get_docstring(source.tree) else [f"{source.path} has no docstring"]


def empty_name(source: Source) -> list[str]:
    """The file, when its name says nothing."""
    words = set(Path(source.path).stem.split("_"))
    return [f"{source.path}: a name that says nothing ({word})" for word in words & EMPTY_NAMES]


def foreign_words(source: Source) -> list[str]:
    """Names given in a file of the package that use a word the project does not use."""
    if source.room is None:
        return []
    return [
        f"{source.path}:{line} {name}: say {WORDS[word]}"
        for line, name in _names_given(source)
        for word in re.findall(r"[a-z]+", re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower())
        if word in WORDS
    ]


def _names_given(source: Source) -> Iterator[tuple[int, str]]:
    for node in source.nodes:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr


def silent_skips(source: Source) -> list[str]:
    """Tests that are left out in a file which never asks whether this is CI: there none may be."""
    if any(isinstance(node, ast.Constant) and node.value == "CI" for node in source.nodes):
        return []
    return [
        f"{source.path}:{line} {name}: in CI it would count as passed; ask for CI"
        for line, name in _names_used(source)
        if name in SKIPS
    ]


# --- Clocks, chance and I/O -----------------------------------------------------------------


def clock_calls(source: Source) -> list[str]:
    """Uses of the system's clocks outside the one file that may."""
    if source.room == "clock":
        return []
    # What measures, and what makes load at a given pace, has a stopwatch.
    measures = source.path.startswith(("bench/", "tests/load/"))
    banned = CLOCK_CALLS - STOPWATCH_CALLS if measures else CLOCK_CALLS
    return [
        f"{source.path}:{line} {name}: time is an argument; take a Clock"
        for line, name in _names_used(source)
        if name in banned
    ]


def impurities(source: Source) -> list[str]:
    """What a pure room must not import or call."""
    if source.room not in PURE_ROOMS:
        return []
    imports = (
        (line, module)
        for line, module in _modules_imported(source)
        if module.partition(".")[0] not in PURE_MODULES
    )
    calls = ((line, name) for line, name in _names_used(source) if name in IMPURE_CALLS)
    builtins = (
        (node.lineno, node.id)
        for node in source.nodes
        if isinstance(node, ast.Name) and node.id in IMPURE_BUILTINS
    )
    return [
        f"{source.path}:{line} {name} in a pure room"
        for line, name in sorted({*imports, *calls, *builtins})
    ]


def _names_used(source: Source) -> Iterator[tuple[int, str]]:
    """Dotted names that are read, each resolved to where it was imported from."""
    origins = _import_origins(source)
    for node in source.nodes:
        if isinstance(node, ast.Attribute | ast.Name):
            head, _, rest = _dotted(node).partition(".")
            origin = origins.get(head)
            if origin is not None:
                yield node.lineno, f"{origin}.{rest}" if rest else origin


def _dotted(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            return f"{_dotted(value)}.{attribute}"
    return ""


def _import_origins(source: Source) -> dict[str, str]:
    """Local name -> dotted name it was imported as."""
    origins = {}
    for node in source.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                head = alias.name.partition(".")[0]
                origins[alias.asname or head] = alias.name if alias.asname else head
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                origins[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return origins


# --- Walls ----------------------------------------------------------------------------------


def breached_walls(source: Source) -> list[str]:
    """Imports that a room with walls must not make."""
    complaints = []
    for line, module in _modules_imported(source):
        top, _, rest = module.partition(".")
        target = rest.partition(".")[0]
        if top == "fairnotice":
            allowed = WALLS.get(source.room or "")
            wrong = allowed is not None and target not in {"", source.room, *allowed}
        else:
            foreign = top not in sys.stdlib_module_names
            wrong = foreign and source.room in STANDARD_LIBRARY_ROOMS
        if wrong:
            complaints.append(f"{source.path}:{line} {source.room} must not import {module}")
    return complaints


def _modules_imported(source: Source) -> Iterator[tuple[int, str]]:
    """Modules imported anywhere in the file; relative ones by their full name."""
    package = Path(source.path).with_suffix("").parts[1:-1]
    for node in source.nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *filter(None, [node.module])))
            if module == "fairnotice":
                yield from ((node.lineno, f"fairnotice.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, module


# --- Text -----------------------------------------------------------------------------------


def index_hosts(name: str, text: str) -> list[str]:
    """Hosts of package indexes that a file names: where packages come from is the machine's."""
    return [f"{name} names {host}" for host in INDEX_HOSTS if host in text.lower()]


def unlisted(names: list[str], page: str) -> list[str]:
    """Those of the names that a page does not mention in backticks or as a link.

    A pattern in backticks, such as `routes_*.py`, stands for all names that fit.
    """
    patterns = re.findall(r"`(\w+\*\.py)`", page)
    return [
        name
        for name in names
        if not re.search(rf"[`(/]{re.escape(name)}(\.py)?[`)/]", page)
        and not any(fnmatchcase(name, pattern) for pattern in patterns)
    ]


def missing_files(page: str, files: list[str]) -> list[str]:
    """Python files that a page speaks of, by the end of their path, and that are not there."""
    spoken_of = sorted(set(re.findall(r"`([\w/]+\.py)`", page)))
    return [
        name for name in spoken_of if not any(f"/{file}".endswith(f"/{name}") for file in files)
    ]


def missing_targets(page: str, makefile: str) -> list[str]:
    """Targets that a page tells people to make and the Makefile does not have."""
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    told = set(re.findall(r"(?:^|`)make ([a-z-]+)", page, re.MULTILINE))
    return sorted(told - targets)


def untested_rules(rules: range, sources: list[Source]) -> list[int]:
    """Rules of the law that no test is named after."""
    names = " ".join(
        node.name
        for source in sources
        for node in source.nodes
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )
    return [rule for rule in rules if not re.search(rf"rule_{rule:02}(?!\d)", names)]
