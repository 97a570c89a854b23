"""`fairnotice config`: the settings in force, and where each comes from."""

import os
from functools import partial
from pathlib import Path
from typing import Any

from rich.text import Text

from fairnotice.cli import settings, shown
from fairnotice.cli.parsing import Subparsers, group, leaf
from fairnotice.cli.session import Session


def add(subparsers: Subparsers) -> None:
    """Add the group."""
    lines = ("fairnotice config show", "FAIRNOTICE_TIMING=azure fairnotice config show")
    commands = group(subparsers, "config", "the settings, and where each comes from", lines)
    summary = "every setting: its value, where that comes from, what it means"
    lines = ("fairnotice config show", "fairnotice config show --json")
    show = leaf(commands, "show", _show, summary, lines)
    show.epilog = f"{show.epilog}\n\n{_meanings()}"


def _meanings() -> str:
    """All settings, for a person who looks for one."""
    lines = (
        f"  {setting.name:<13} {setting.meaning}\n{'':16}{setting.takes}"
        for setting in settings.SETTINGS
    )
    return "\n".join(["settings, in the file as written, by flag or FAIRNOTICE_NAME:", *lines])


def _show(session: Session) -> int:
    path, _ = settings.config_file(session.options, os.environ)
    rows = [
        {
            "name": setting.name,
            "value": settings.hidden(session.settings[setting.name].value),
            "origin": session.settings[setting.name].origin,
            "takes": setting.takes,
            "default": setting.default(),
            "meaning": setting.meaning,
        }
        for setting in settings.SETTINGS
    ]
    return session.show({"file": str(path), "settings": rows}, partial(_picture, path))


def _picture(path: Path, found: dict[str, Any]) -> None:
    rows = (
        (
            row["name"],
            Text(row["value"] or '""', style="" if row["origin"] == settings.DEFAULT else "bold"),
            Text(row["origin"], style="dim" if row["origin"] == settings.DEFAULT else "green"),
        )
        for row in found["settings"]
    )
    shown.say(shown.table(("SETTING", "[VALUE]", "[FROM]"), rows))
    there = "" if path.exists() else " (not there)"
    shown.say("", shown.dim(f"File: {path}{there}. Or: FAIRNOTICE_NAME, or a flag."))
