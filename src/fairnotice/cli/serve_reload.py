"""What SIGHUP does to a service that runs: takes what can be taken, and says what needs a restart.

reload = Reload(path, config, run, entrance)
reload()                      # reads the file again; a broken one changes nothing
"""

import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec

from fairnotice.cli.logs import log_to_standard_error
from fairnotice.cli.serve_config import ServeConfig, read
from fairnotice.control.running import Entrance, Running
from fairnotice.errors import UsageError

log = logging.getLogger(__name__)

# What changes without a restart: a key, or a whole table.
RELOADED = ("log", "tls", "retention", "control.names", "metadata.rate_limit")


class Reload:
    """The configuration in force, and how it becomes another."""

    def __init__(self, path: Path, config: ServeConfig, run: Running, entrance: Entrance) -> None:
        self._path = path
        self._run = run
        self._entrance = entrance
        # What a restart is needed for stays here as it is in force, and is said again each time.
        self._in_force = dict(_keys(config))

    def __call__(self) -> None:
        """Read the file again."""
        try:
            config = read(self._path)
        except UsageError as error:
            for line in str(error).splitlines():
                log.warning("the configuration is kept as it was: %s", line)
            return
        self._take(config)
        given = dict(_keys(config))
        changed = [
            key
            for key in sorted(given.keys() | self._in_force.keys())
            if given.get(key) != self._in_force.get(key)
        ]
        for key in changed:
            self._say(key, given)
        if not changed:
            log.info("%s says what it said before", self._path)

    def _say(self, key: str, given: dict[str, object]) -> None:
        """Tell of one key; not of the value of one that may be a secret."""
        if key in given and key in self._in_force and is_reloaded(key):
            log.info("%s is %s now, and was %s", key, given[key], self._in_force[key])
            self._in_force[key] = given[key]
        else:
            log.warning("%s has changed in %s, which needs a restart", key, self._path)

    def _take(self, config: ServeConfig) -> None:
        log_to_standard_error(config.log.format, config.log.level)
        kept = config.retention
        self._run.conductor.keep_for(**msgspec.structs.asdict(kept))
        if self._run.guard is not None:
            self._run.guard.believe(config.names)
        if self._run.worker is not None and config.metadata is not None:
            self._run.worker.rate_limit = config.metadata.rate
        if self._entrance.certificates is not None and config.tls is not None:
            self._entrance.certificates.use(config.tls.pair)


def is_reloaded(key: str) -> bool:
    """Whether a key such as `control.names` is taken without a restart."""
    return any(key == one or key.startswith(one + ".") for one in RELOADED)


def _keys(config: ServeConfig) -> Iterator[tuple[str, object]]:
    """Every key with its value: `control.listen`, `timing`; one of a table that is there."""
    for name, table in msgspec.to_builtins(config).items():
        if isinstance(table, dict):
            yield from ((f"{name}.{key}", value) for key, value in table.items())
        elif table is not None:
            yield name, table
