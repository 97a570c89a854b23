"""The files that the pages of the guides show, carried out with stand-ins for their programs."""

import contextlib
import re
import shutil
from types import SimpleNamespace

from fairnotice.agent import config
from tests.agent.agents import thread
from tests.house import ROOT

GUIDES = ROOT / "docs" / "guides"
JOBS = GUIDES / "jobs"
STAND_IN = """#!/bin/sh
# Writes down how it was called, and does what the program whose name it has would do here.
echo "$(basename "$0") $*" >> "{folder}/log"
case "$(basename "$0") $*" in
    "systemctl "*" show "*) printf 'LoadState=loaded\\nActiveState=active\\n' ;;
    "is-not-primary "*) test -e "{folder}/switched" ;;
    "switch-primary "*) touch "{folder}/switched" ;;
    "kubectl get "*unschedulable*) if [ -e "{folder}/cordoned" ]; then echo true; fi ;;
    "kubectl get "*annotations*) cat "{folder}/annotation" 2>/dev/null || true ;;
    "kubectl cordon "*) touch "{folder}/cordoned" ;;
    "kubectl uncordon "*) rm "{folder}/cordoned" ;;
    "kubectl annotate "*-cordoned-) rm "{folder}/annotation" ;;
    "kubectl annotate "*) echo "$*" > "{folder}/annotation" ;;
esac
"""
PROGRAMS = (
    "is-not-primary",
    "kubectl",
    "restore-computation",
    "save-computation",
    "switch-primary",
    "systemctl",
)


def blocks(page, language="toml"):
    """The blocks of a page in this language."""
    return re.findall(
        rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )


def replaced(text, words):
    """The text with these words in the place of those; each is there."""
    for old, new in words.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


class StandIns:
    """A folder of programs that stand in for those of the pages."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        for name in PROGRAMS:
            program = folder / name
            program.write_text(STAND_IN.format(folder=folder))
            program.chmod(0o755)

    def calls(self):
        """How they were called, in order."""
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []

    def must_be_harmless(self, read):
        """Every program that this configuration can run is a stand-in; a shell runs those alone."""
        for table in read.handlers.values():
            programs = {value[0] for value in table.settings.values() if is_command(value)}
            programs |= {"systemctl"} if table.kind in {"systemd", "shutdown"} else set()
            for name in programs - {"sh"}:
                assert shutil.which(name) == str(self.folder / name), name


def is_command(value):
    """Whether this may be a command line: a list of words, no list of servers or addresses."""
    listed = isinstance(value, list) and all(isinstance(word, str) for word in value)
    return listed and not re.search(r"[/@.]", value[0])


@contextlib.contextmanager
def agent(text, url, stand_ins):
    """An agent with this file; it runs nothing but stand-ins."""
    file = stand_ins.folder / "agent.toml"
    file.write_text(text)
    stand_ins.must_be_harmless(config.load(file))
    with thread(SimpleNamespace(config=file), url) as running:
        yield running
