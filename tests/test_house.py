"""The house stands: sizes, names, clocks, walls and papers, checked on every file.

Each check comes in two tests: the repository passes it, and a small bad example does not.
"""

import pytest

from tests import house
from tests.house import ROOT, Source

SOURCES = house.python_sources("src", "tests", "bench", "scripts")
CODE_CHECKS = (
    house.long_functions,
    house.long_module,
    house.missing_docstring,
    house.empty_name,
    house.foreign_words,
    house.silent_skips,
    house.clock_calls,
    house.impurities,
    house.breached_walls,
)
LAW = "src/fairnotice/engine/law.py"
GUEST = "src/fairnotice/client/client.py"
PAPERS = ("README.md", "CONTRIBUTING.md", "SPECIFICATION.md", "docs/ARCHITECTURE.md")

# (check, path, text): each of these must be found fault with.
BAD = {
    "function over 70 lines": (house.long_functions, LAW, "def f():\n" + "    x = 1\n" * 70),
    "async function over 70": (house.long_functions, LAW, "async def f():\n" + "    x = 1\n" * 70),
    "module over 500 lines": (house.long_module, LAW, "x = 1\n" * 501),
    "no docstring": (house.missing_docstring, LAW, "x = 1\n"),
    "utils.py": (house.empty_name, "src/fairnotice/wire/json_utils.py", ""),
    "manager.py": (house.empty_name, "src/fairnotice/manager.py", ""),
    "foreign word, variable": (house.foreign_words, LAW, "cancelled_events = 1\n"),
    "foreign word, argument": (house.foreign_words, LAW, "def f(tenant): ...\n"),
    "foreign word, class": (house.foreign_words, LAW, "class EventAck: ...\n"),
    "foreign word, attribute": (house.foreign_words, LAW, "event.outage = ()\n"),
    "a skip by a mark": (
        house.silent_skips,
        "tests/test_law.py",
        "import pytest\n@pytest.mark.skipif(True, reason='')\ndef test_law(): ...\n",
    ),
    "a skip on the way": (
        house.silent_skips,
        "tests/test_law.py",
        "from pytest import skip\ndef test_law():\n    skip('no root')\n",
    ),
    "datetime.now": (
        house.clock_calls,
        LAW,
        "from datetime import UTC, datetime\nt = datetime.now(UTC)\n",
    ),
    "datetime.now, module": (
        house.clock_calls,
        LAW,
        "import datetime\nt = datetime.datetime.now()",
    ),
    "datetime.now, renamed": (
        house.clock_calls,
        "tests/engine/test_law.py",
        "import datetime as dt\nt = dt.datetime.now()\n",
    ),
    "date.today": (house.clock_calls, LAW, "from datetime import date\nt = date.today()\n"),
    "clock passed on": (house.clock_calls, LAW, "import time\nclock = time.monotonic\n"),
    "clock imported by name": (house.clock_calls, LAW, "from time import time as t\nx = t()\n"),
    "sleep": (house.clock_calls, "bench/law.py", "import time\ntime.sleep(1)\n"),
    "randomness in a pure room": (house.impurities, LAW, "import random\n"),
    "random ids in a pure room": (house.impurities, LAW, "import uuid\nx = uuid.uuid4()\n"),
    "logging in a pure room": (house.impurities, LAW, "def f():\n    from logging import info\n"),
    "asyncio in a pure room": (house.impurities, "src/fairnotice/model.py", "import asyncio\n"),
    "os.path in a pure room": (house.impurities, LAW, "import os.path\n"),
    "open in a pure room": (house.impurities, LAW, "f = open('x')\n"),
    "print in a pure room": (house.impurities, "src/fairnotice/wire/document.py", "print(1)\n"),
    "a package in a pure room": (house.breached_walls, LAW, "import msgspec\n"),
    "a package in a VM": (house.breached_walls, GUEST, "from rich import print\n"),
    "the engine in a VM": (house.breached_walls, GUEST, "from fairnotice.engine import fleet\n"),
    "the engine, sideways": (house.breached_walls, GUEST, "from fairnotice import engine\n"),
    "the engine, relative": (house.breached_walls, GUEST, "from ..engine import fleet\n"),
    "a store on the hot path": (
        house.breached_walls,
        "src/fairnotice/metadata/board.py",
        "import fairnotice.stores.memory\n",
    ),
}
GOOD = {
    "the clock reads the clock": ("src/fairnotice/clock.py", "import time\nt = time.monotonic()\n"),
    "a benchmark has a stopwatch": ("bench/law.py", "import time\nt = time.perf_counter()\n"),
    "ids and instants are types": (
        LAW,
        "from datetime import datetime\nfrom uuid import UUID\nx: tuple[datetime, UUID]\n",
    ),
    "an impure room may print": ("src/fairnotice/cli/event.py", "import os\nprint(os.sep)\n"),
    "a guest room speaks the wire": (GUEST, "from fairnotice.wire import document\nimport json\n"),
    "a skip that asks for CI": (
        "tests/test_law.py",
        "import os, pytest\nif 'CI' not in os.environ:\n    pytest.skip('no root')\n",
    ),
    "Azure's spelling": (LAW, "def canceled(event, resources): ...\n"),
}


def page(name: str) -> str:
    """A page of the repository."""
    return (ROOT / name).read_text("utf-8")


@pytest.mark.parametrize("check", CODE_CHECKS, ids=lambda check: check.__name__)
def test_every_file_keeps_the_house_rules(check):
    """No file of the repository breaks the rule."""
    assert [complaint for source in SOURCES for complaint in check(source)] == []


@pytest.mark.parametrize("name", BAD)
def test_a_broken_rule_is_found(name):
    """A small file that breaks the rule is found fault with, once."""
    check, path, text = BAD[name]

    assert len(check(Source(path, text))) == 1


@pytest.mark.parametrize("name", GOOD)
def test_what_is_allowed_is_left_alone(name):
    """A small file that only looks suspicious passes every check but the docstring's."""
    path, text = GOOD[name]
    source = Source(path, '"""A docstring."""\n' + text)

    assert [complaint for check in CODE_CHECKS for complaint in check(source)] == []


def test_every_room_is_in_the_architecture():
    """A stranger finds each room in docs/ARCHITECTURE.md."""
    assert house.unlisted(house.rooms(), page("docs/ARCHITECTURE.md")) == []


@pytest.mark.parametrize("room", ["arm", "deliveries", "drivers/libvirt", "endpoint", "engine"])
def test_every_file_of_a_room_is_in_the_architecture(room):
    """A stranger finds each file there, by its name or by a pattern such as `routes_*.py`."""
    files = [path.name for path in (house.PACKAGE / room).glob("*.py") if path.stem != "__init__"]

    assert files
    assert house.unlisted(files, page("docs/ARCHITECTURE.md")) == []


def test_an_undocumented_room_is_found():
    """A room that only shares letters with a word on the page is not documented by it."""
    assert house.unlisted(["clock", "engine"], "the `engine/` needs no clockwork") == ["clock"]


def test_an_undocumented_file_is_found():
    """One of which neither the name nor a pattern is on the page."""
    files = ["route.py", "routes_vms.py", "shapes.py"]

    assert house.unlisted(files, "`routes_*.py` and `shapes.py`") == ["route.py"]


@pytest.mark.parametrize("name", PAPERS)
def test_the_papers_name_only_files_that_exist(name):
    """A file that moved takes its mention in the papers along."""
    assert house.missing_files(page(name), [source.path for source in SOURCES]) == []


def test_a_paper_that_names_a_lost_file_is_found():
    """A page that speaks of a file which is not there is found."""
    files = ["src/fairnotice/engine/decide.py"]

    assert house.missing_files("`engine/decide.py`, `decide.py`, `cide.py`", files) == ["cide.py"]


@pytest.mark.parametrize("name", PAPERS)
def test_the_papers_name_only_targets_that_exist(name):
    """What a page tells people to make, the Makefile makes."""
    assert house.missing_targets(page(name), page("Makefile")) == []


def test_a_paper_that_names_a_lost_target_is_found():
    """A page that tells people to make what cannot be made is found."""
    assert house.missing_targets("run `make peace`\nmake test", "test: check\n") == ["peace"]


def test_every_decision_is_listed():
    """Each record in docs/decisions/ is linked from its index."""
    decisions = ROOT / "docs" / "decisions"
    records = [path.name for path in decisions.glob("*.md") if path.name != "README.md"]

    assert records
    assert house.unlisted(records, page("docs/decisions/README.md")) == []


def test_an_unlisted_decision_is_found():
    """A record without a link is found."""
    assert house.unlisted(["0001-a.md", "0002-b.md"], "[1](0001-a.md)") == ["0002-b.md"]


def test_no_file_names_a_package_index():
    """Where packages come from is the machine's business."""
    complaints = [c for name, text in house.text_files() for c in house.index_hosts(name, text)]

    assert complaints == []


def test_a_named_package_index_is_found():
    """A lock file that names an index is found."""
    assert house.index_hosts("lock", f"--index-url https://{house.INDEX_HOSTS[0]}/simple")


def test_every_rule_is_in_the_specification():
    """SPECIFICATION.md states the rules 1 to 26, each under its own heading."""
    specification = page("SPECIFICATION.md")

    assert [n for n in range(1, 27) if f"\n#### Rule {n} · " not in specification] == []


def test_every_rule_has_a_test_named_after_it():
    """Rule 7 is held by at least one test of the engine with `rule_07` in its name."""
    assert house.untested_rules(range(1, 27), house.python_sources("tests/engine")) == []


def test_a_rule_without_a_test_is_found():
    """A test of rule 1 is no test of rule 11, and neither is a test of rule 2."""
    tests = Source("tests/engine/test_law.py", "def test_rule_01_not_before(): ...\n")

    assert house.untested_rules(range(1, 3), [tests]) == [2]
    assert house.untested_rules(range(11, 12), [tests]) == [11]
