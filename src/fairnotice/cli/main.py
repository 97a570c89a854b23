"""`fairnotice`: finds the group of commands that was typed, and imports only that.

Nothing here needs more than the standard library, so that what is installed inside a VM works
without any extra.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import fairnotice
from fairnotice.cli import exits, settings
from fairnotice.cli.exits import CommandFailed
from fairnotice.cli.extras import extra_of
from fairnotice.cli.parsing import Parser, Subparsers, config_option, examples, global_options
from fairnotice.errors import FairnoticeError, JournalDamaged, UnknownName, UsageError

# az that was to ask fairnotice, and cannot, asks nobody: its own account least of all.
NO_AZ = "export AZURE_CONFIG_DIR=/dev/null/az-login-failed\nfalse"
NO_AZ_NOTE = (
    "In a terminal that runs what is printed, az now asks nobody until az-login succeeds. "
    "With unset AZURE_CONFIG_DIR it is your own again."
)


class Group(NamedTuple):
    """A group of commands: where it is, what it does, and whether settings are its flags."""

    module: str
    summary: str
    has_settings: bool = False
    # Of one whose lines a shell runs: what it is to run, and a person to know, when it fails.
    # Nothing at all would be a success to `eval`.
    when_failed: tuple[str, str] | None = None


GROUPS = {
    "up": Group("fairnotice.cli.up", "run the whole service on this machine", has_settings=True),
    "serve": Group("fairnotice.cli.serve", "run the control plane, as a configuration file says"),
    "endpoint": Group("fairnotice.cli.endpoint", "only the metadata endpoint, one per node"),
    "node-setup": Group(
        "fairnotice.cli.node_setup", "what a node's network needs: print, do, undo"
    ),
    "fleet": Group("fairnotice.cli.fleet", "declare the fleet, export it, look at it"),
    "vm": Group("fairnotice.cli.vm", "VMs: look, restart, redeploy, evict, stop …"),
    "scale-set": Group("fairnotice.cli.scale_set", "scale sets: look, scale in, terminate notice"),
    "node": Group("fairnotice.cli.node", "nodes: look, maintain, migrate, repair, evacuate …"),
    "libvirt": Group("fairnotice.cli.libvirt", "libvirt: label domains, make a fleet of them"),
    "rollout": Group("fairnotice.cli.rollout", "the same operation on many nodes, in order"),
    "operation": Group("fairnotice.cli.operation", "operations, announced or not: look, cancel"),
    "event": Group("fairnotice.cli.event", "events: look, approve, postpone, cancel, watch"),
    "fault": Group("fairnotice.cli.fault", "faults of the endpoint: let it misbehave on purpose"),
    "scenario": Group("fairnotice.cli.scenario", "stories that show and prove what a VM sees"),
    "conform": Group("fairnotice.cli.conform", "which situations a client survives"),
    "simulate": Group("fairnotice.cli.simulate", "random fleets under the law"),
    "agent": Group("fairnotice.cli.agent", "inside a VM: prepare for events, look, approve"),
    "as": Group("fairnotice.cli.as_vm", "run a command as a VM: 169.254.169.254 is its endpoint"),
    "record": Group("fairnotice.cli.record", "keep what a real endpoint answers in a file"),
    "replay": Group("fairnotice.cli.replay", "serve a recording again"),
    "backup": Group("fairnotice.cli.backup", "keep everything that is remembered in a file"),
    "restore": Group("fairnotice.cli.restore", "make an empty database what a backup holds"),
    "token": Group("fairnotice.cli.token", "tokens: who may do what; make, look, revoke"),
    "webhook": Group("fairnotice.cli.webhook", "webhooks: who outside is told of events"),
    "az-login": Group(
        "fairnotice.cli.az_login",
        "let Azure's az ask fairnotice",
        when_failed=(NO_AZ, NO_AZ_NOTE),
    ),
    "audit": Group("fairnotice.cli.audit", "who asked the control plane for what"),
    "config": Group("fairnotice.cli.config", "the settings in force, and where each is from"),
    "doctor": Group("fairnotice.cli.doctor", "what is wrong with this installation"),
    "completion": Group("fairnotice.cli.completion", "completion for your shell"),
}

DESCRIPTION = """Azure's Scheduled Events as software you can run: notice before impact,
for every virtual machine."""
EXAMPLES = (
    "fairnotice up                          # the service on this machine, with a sample fleet",
    "fairnotice vm restart web-0            # announced to web-0 first, then done",
    "fairnotice event watch                 # who has seen it, who approved, how long it takes",
    "fairnotice event approve 2B9C          # go ahead before the notice is over",
    "fairnotice node maintain node-0        # the same for a whole node",
)


def command() -> int:
    """The program: the exit code of what was typed, and never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Python would try once more to write what is left, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.NOBODY_READS
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    return code


def main(typed: Sequence[str]) -> int:
    """Do what was typed; the exit code."""
    failed = True
    try:
        code = _done(typed)
        failed = code != exits.DONE
    except SystemExit as ended:
        # So argparse ends, after a help text too.
        failed = bool(ended.code)
        raise
    finally:
        # Also after Ctrl-C.
        if failed:
            _say_failed(_chosen(typed))
    return code


def _say_failed(chosen: str | None) -> None:
    """What the shell is told that runs the lines of a command which has failed."""
    said = None if chosen is None else GROUPS[chosen].when_failed
    if said is not None:
        print(said[1], file=sys.stderr)
        print(said[0])


def _done(typed: Sequence[str]) -> int:
    try:
        options = parser(typed).parse_args(typed)
        if GROUPS[options.group].has_settings:
            settings.fill(options)
        return int(options.run(options) or exits.DONE)
    except (FairnoticeError, ModuleNotFoundError) as error:
        print(_sentence(error), file=sys.stderr)
        return _code(error)
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except Exception as error:  # a fault of ours is said in a sentence too
        if sys.flags.dev_mode:
            raise
        where = "python -X dev -m fairnotice … shows where."
        print(f"A fault of fairnotice: {type(error).__name__}: {error}. {where}", file=sys.stderr)
        return exits.REFUSED


def parser(typed: Sequence[str]) -> Parser:
    """The parser for what was typed: all groups by name, one of them in full."""
    top, groups = _program()
    chosen = _chosen(typed)
    for name, group in GROUPS.items():
        if name == chosen:
            load(name, groups)
        else:
            groups.add_parser(name, help=group.summary)
    return top


def _chosen(typed: Sequence[str]) -> str | None:
    return next((word for word in typed if word in GROUPS), None)


def _program() -> tuple[Parser, Subparsers]:
    """The program itself, and where its groups are added."""
    top = Parser(
        prog="fairnotice",
        description=DESCRIPTION,
        epilog=examples(EXAMPLES),
        parents=[global_options()],
    )
    version = f"fairnotice {fairnotice.__version__}"
    top.add_argument("--version", action="version", version=version)
    groups = top.add_subparsers(title="commands", metavar="COMMAND", required=True, dest="group")
    return top, groups


class _Summarised(NamedTuple):
    """Where a group adds itself: the program lists it by the same words, in full or by name."""

    groups: Subparsers

    def add_parser(self, name: str, **kwargs: Any) -> argparse.ArgumentParser:  # noqa: ANN401
        """Add the group; whoever takes settings as flags takes the file as one, too."""
        kwargs["help"] = GROUPS[name].summary
        if GROUPS[name].has_settings:
            kwargs["parents"] = [*kwargs.get("parents", ()), config_option()]
        return self.groups.add_parser(name, **kwargs)


def load(name: str, groups: Subparsers) -> None:
    """Import a group and add its commands."""
    importlib.import_module(GROUPS[name].module).add(_Summarised(groups))


def _sentence(error: Exception) -> str:
    if not isinstance(error, ModuleNotFoundError):
        return str(error)
    if (error.name or "").startswith("fairnotice"):
        return f"This command is not there yet ({error.name})."
    extra = extra_of(error.name or "")
    return f"This command needs {error.name}, which is missing: pip install 'fairnotice[{extra}]'"


def _code(error: Exception) -> int:
    if isinstance(error, CommandFailed):
        return error.code
    if isinstance(error, UnknownName):
        return exits.NOT_FOUND
    if isinstance(error, JournalDamaged):
        return exits.DAMAGED
    return exits.WRONG_USAGE if isinstance(error, UsageError) else exits.REFUSED


def all_commands() -> argparse.ArgumentParser:
    """The parser with every group in full, as far as what it needs is installed."""
    top, groups = _program()
    for name, group in GROUPS.items():
        try:
            load(name, groups)
        except ModuleNotFoundError:
            groups.add_parser(name, help=group.summary)
    return top
