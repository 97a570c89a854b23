"""The reference has every key and every number, and no other; the guide's files are right."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from fairnotice.agent import config, rendezvous
from fairnotice.agent.daemon import made_handlers
from fairnotice.agent.metrics import FAMILIES
from fairnotice.agent.tables import Table
from tests.agent.test_rules import WHOLE

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = (ROOT / "docs" / "reference" / "agent.md").read_text("utf-8")
GUIDE = (ROOT / "docs" / "guides" / "agent.md").read_text("utf-8")


def documented(heading: str) -> set[str]:
    """The keys in the tables below a heading."""
    section = REFERENCE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))


@pytest.fixture
def asked(monkeypatch):
    """Which keys were asked for, by the beginning of the table's name."""
    found: dict[str, set[str]] = {}
    value = Table._value

    def noting(self, key, default):
        found.setdefault(re.split(r"[ .]", self.where)[0], set()).add(key)
        return value(self, key, default)

    monkeypatch.setattr(Table, "_value", noting)
    return found


def test_every_key_is_documented(asked):
    """Those that the code asks for are those of the page."""
    read = config.read(WHOLE)
    rendezvous.make(read.rendezvous)
    assert documented("At the top") == asked["at"] == set(config.TOP_KEYS)
    assert documented("`[[rule]]`") == asked["[[rule]]"]
    assert documented("`[rendezvous]`") == asked["[rendezvous]"]
    assert documented("`[handler.NAME]`") == asked["[handler"]
    assert documented("The metrics") == set(FAMILIES)


@pytest.mark.parametrize("text", re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL))
def test_the_files_of_the_guide_are_right(tmp_path, text):
    """As they stand there, with their handlers."""
    read = replace(config.read(text), state=tmp_path)
    assert read.rules
    assert made_handlers(read).keys() == read.handlers.keys()
