"""What all commands share when they are typed: options, examples, mistakes and what was meant."""

import argparse
import re
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn, Protocol

from fairnotice.cli import exits
from fairnotice.cli.session import Session
from fairnotice.cli.settings import first_line, place, suggestion

# Which kind of name an argument takes: shell completion offers those there are.
NAMES_OF = "names_of"
# Set on the parser of a command that runs another: what is behind -- is in `options.behind`.
RUNS_ANOTHER = "runs_another"
# The option of such a command with which it runs none.
RUNS_NONE = "runs_none"
BEHIND = "--"
# Set on the parser of a command whose last argument's words may also stand behind options, which
# argparse alone does not allow: the name of that argument.
TAKES_MORE = "takes_more"
# Words that an argument takes, each with its own sentence where it is none of them.
WORDS = "words"

# "invalid choice: 'vmm' (choose from 'vm', 'node')", with or without quotes by version of Python.
_NO_CHOICE = re.compile(r"invalid choice: '?(?P<typed>[^']*?)'? \(.*choose from (?P<known>.*)\)")
_HELP_COLUMNS = 30
_HELP_WIDTH = 102


class Subparsers(Protocol):
    """Where commands are added: what argparse's `add_subparsers` returns."""

    def add_parser(self, name: str, **kwargs: Any) -> argparse.ArgumentParser:  # noqa: ANN401
        """Add one."""
        ...


class Help(argparse.RawDescriptionHelpFormatter):
    """Help with room for the names of options, and examples as they were written."""

    def __init__(self, prog: str, **_: Any) -> None:  # noqa: ANN401, argparse's own
        columns = min(shutil.get_terminal_size().columns, _HELP_WIDTH) - 2
        super().__init__(prog, max_help_position=_HELP_COLUMNS, width=columns)


class Parser(argparse.ArgumentParser):
    """A parser that says in a sentence what is wrong, and what may have been meant."""

    def __init__(self, **kwargs: Any) -> None:  # noqa: ANN401, argparse's own
        kwargs.setdefault("formatter_class", Help)
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(**kwargs)

    def parse_known_args(  # type: ignore[override]
        self,
        args: Any = None,  # noqa: ANN401, argparse's own
        namespace: Any = None,  # noqa: ANN401, argparse's own
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse does; but whatever is too much is said by the command that does not know it.

        Left to argparse, the program itself would complain, which does not know the flags.
        """
        behind: list[str] = []
        if getattr(self, RUNS_ANOTHER, False) and BEHIND in args:
            # argparse would take out a second -- too, which is the other command's.
            place = args.index(BEHIND)
            args, behind = args[:place], args[place + 1 :]
        found, extra = super().parse_known_args(args, namespace)
        if getattr(self, RUNS_ANOTHER, False):
            if not behind and not getattr(found, RUNS_NONE, False):
                self.error("write -- and, behind that, the command that is to be run")
            found.behind = behind
        more = getattr(self, TAKES_MORE, None)
        if more is not None:
            words = [word for word in extra if not word.startswith("-")]
            setattr(found, more, [*getattr(found, more), *words])
            extra = [word for word in extra if word.startswith("-")]
        if extra:
            self.error(self._too_much(extra[0]))
        return found, []

    def _too_much(self, word: str) -> str:
        if not word.startswith("-"):
            return f"{word!r} is too much"
        flag = word.partition("=")[0]
        meant = suggestion(flag, self._option_string_actions)
        return f"there is no {flag} here. {meant}" if meant else f"there is no {flag} here"

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        if message.endswith("required: COMMAND"):
            # Whoever names no command wants to know which there are.
            self.print_help(sys.stderr)
            self.exit(exits.WRONG_USAGE)
        self.exit(exits.WRONG_USAGE, f"{in_words(message)} See: {self.prog} --help\n")


def in_words(message: str) -> str:
    """What argparse says, as a sentence, with the nearest word where one is near."""
    found = _NO_CHOICE.search(message)
    if found is None:
        end = "" if message.endswith("?") else "."
        return f"{message[:1].upper()}{message[1:].rstrip('.')}{end}"
    known = [word.strip(" '") for word in found["known"].split(",")]
    meant = _meant(found["typed"], known) or f"Choose among {', '.join(known)}."
    return f"There is no {found['typed']!r} here. {meant}"


# What people type who know it by another word.
_ELSEWHERE = {
    "describe": "show",
    "drain": "evacuate",
    "get": "show",
    "ls": "list",
    "reboot": "restart",
    "remove": "delete",
    "rm": "delete",
    "shutdown": "stop",
}


def _meant(typed: str, known: Sequence[str]) -> str:
    word = _ELSEWHERE.get(typed.lower(), "")
    return f"Did you mean {word}?" if word in known else suggestion(typed, known)


# ---- Options ----


def global_options() -> argparse.ArgumentParser:
    """What may stand in front of a command or behind it."""
    parent = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    options = parent.add_argument_group("the control plane")
    options.add_argument("--url", help="where it is (FAIRNOTICE_URL, http://127.0.0.1:8600)")
    options.add_argument("--ca", metavar="FILE", help="by which it is known (FAIRNOTICE_CA)")
    options.add_argument("--config", metavar="FILE", help="the file with settings")
    return parent


def config_option() -> argparse.ArgumentParser:
    """For commands that ask no control plane: where the settings are."""
    parent = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    parent.add_argument("--config", metavar="FILE", help="the file with settings")
    return parent


def _json_option() -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument("--json", action="store_true", help="print what the API answers")
    return parent


def examples(lines: Sequence[str]) -> str:
    """The end of a help text."""
    return "\n".join(["examples:", *(f"  {line}" for line in lines)])


# ---- Commands ----


def group(subparsers: Subparsers, name: str, summary: str, lines: Sequence[str]) -> Subparsers:
    """A group of commands, such as `vm`; its commands are added to what is returned."""
    parser = subparsers.add_parser(
        name, help=summary, description=f"{sentence(summary)}", epilog=examples(lines)
    )
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True, dest="command")


def leaf(
    subparsers: Subparsers,
    name: str,
    run: Callable[[Session], int],
    summary: str,
    lines: Sequence[str],
) -> argparse.ArgumentParser:
    """One command, with what all of them take; `run` is handed a session."""
    parser = subparsers.add_parser(
        name,
        help=summary,
        description=sentence(summary),
        epilog=examples(lines),
        parents=[_json_option(), global_options()],
    )
    parser.set_defaults(run=partial(_run, run))
    return parser


def alone(
    subparsers: Subparsers,
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
    lines: Sequence[str],
) -> argparse.ArgumentParser:
    """A command that asks no control plane; `run` is handed what was typed."""
    parser = subparsers.add_parser(
        name, help=summary, description=sentence(summary), epilog=examples(lines)
    )
    parser.set_defaults(run=run)
    return parser


def _run(run: Callable[[Session], int], options: argparse.Namespace) -> int:
    return run(Session(options))


def sentence(summary: str) -> str:
    """A summary as a sentence of its own."""
    return f"{summary[:1].upper()}{summary[1:]}."


def names(
    parser: argparse.ArgumentParser, kind: str, *, many: bool = True, what: str = ""
) -> argparse.Action:
    """The names of VMs, nodes, events … that a command is about."""
    by_id = kind in ("events", "operations", "rollouts")
    action = parser.add_argument(
        "names" if many else "name",
        nargs="+" if many else None,
        type=some_name,
        metavar="ID" if by_id else "NAME",
        help=what or ("its id, or how that begins" if by_id else "its name"),
    )
    setattr(action, NAMES_OF, kind)
    return action


def store_options(
    parser: argparse.ArgumentParser, kept_as: str, what: str, *, required: bool = False
) -> None:
    """Which store a command is about: by its URL, or by a file that holds it.

    Kept under another name than `store`, which is the setting of where `up` keeps what it knows.
    """
    either = parser.add_mutually_exclusive_group(required=required)
    either.add_argument("--store", dest=kept_as, metavar="URL", help=what)
    either.add_argument(
        "--store-file",
        dest=kept_as,
        metavar="FILE",
        type=first_line,
        help="the same, as the first line of a file: for a URL with a password",
    )


def some_name(text: str) -> str:
    """A name or an id, whatever it is called, but not nothing."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"give a name or an id, not {text!r}")
    return text


def from_one(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"give a whole number from 1 on, not {text!r}")
    return int(text)


def up_to(most: int, text: str) -> int:
    """A whole number from 1 to this one."""
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"give a whole number from 1 to {most}, not {text!r}")
    return int(text)


def from_zero(text: str) -> int:
    """A whole number from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"give a whole number from 0 on, not {text!r}")
    return int(text)


def listening(text: str) -> tuple[str, int]:
    """Where to listen."""
    found = place(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"give HOST:PORT, as 127.0.0.1:8169, not {text!r}")
    return found


def ends_like_ctrl_c() -> None:
    """From now on a command that is ended politely ends as with Ctrl-C: with its last words.

    Ctrl-C is set too: what a shell starts in the background has it switched off.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
