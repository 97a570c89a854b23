"""What a command is handed when it runs: its options, the settings, the control plane, a clock."""

import argparse
import json
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from fairnotice.cli import exits
from fairnotice.cli.remote import Remote
from fairnotice.cli.settings import Known, of_options
from fairnotice.clock import Clock, SystemClock


class Session:
    """One command that somebody typed."""

    def __init__(
        self,
        options: argparse.Namespace,
        clock: Clock | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.options = options
        self.environ = os.environ if environ is None else environ
        self.clock = clock or SystemClock()

    @cached_property
    def settings(self) -> dict[str, Known]:
        """Every setting with its value and where that comes from."""
        return of_options(self.options, self.environ)

    @property
    def token(self) -> str:
        """What whoever typed it asks with; empty where he has none."""
        return self.environ.get("FAIRNOTICE_TOKEN", "")

    @cached_property
    def remote(self) -> Remote:
        """The control plane that is asked."""
        return Remote(
            self.settings["url"].value,
            token=self.token,
            ca=self.settings["ca"].value,
        )

    @property
    def json(self) -> bool:
        """Whether a program reads what is printed."""
        return bool(self.options.json)

    def show(self, result: Any, picture: Callable[[Any], None]) -> int:  # noqa: ANN401, JSON
        """Print a result: as JSON where that was asked for, else as people read it."""
        if self.json:
            print(json.dumps(result, indent=2, ensure_ascii=False))
        else:
            picture(result)
        return exits.DONE
