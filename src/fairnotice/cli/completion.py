"""`fairnotice completion SHELL`: a script that completes commands, options and names."""

import argparse
from collections.abc import Iterator
from typing import Any, NamedTuple

from fairnotice.cli import exits, main
from fairnotice.cli.exits import CommandFailed
from fairnotice.cli.parsing import NAMES_OF, WORDS, Subparsers, examples, global_options
from fairnotice.cli.session import Session

# Whoever waits for a name to be completed does not wait for long.
TIMEOUT_SECONDS = 2.0


class Place(NamedTuple):
    """What may follow these words: further words, and names of this kind."""

    words: tuple[str, ...]
    choices: tuple[str, ...]
    names_of: str


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    lines = (
        'eval "$(fairnotice completion bash)"                       # in ~/.bashrc',
        'eval "$(fairnotice completion zsh)"                        # in ~/.zshrc',
        "fairnotice completion fish > ~/.config/fish/completions/fairnotice.fish",
    )
    parser = subparsers.add_parser(
        "completion",
        help="completion for your shell",
        description="Print a script that completes commands, options and names.",
        epilog=examples(lines),
        parents=[global_options()],
    )
    parser.add_argument("shell", nargs="?", choices=tuple(SCRIPTS), help="your shell")
    # What the scripts ask: the names there are.
    parser.add_argument("--names", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the script; or the names that a script asks for."""
    if options.names:
        return _print_names(options)
    if options.shell is None:
        raise CommandFailed("Which shell: bash, zsh or fish?", exits.WRONG_USAGE)
    print(SCRIPTS[options.shell](list(places(main.all_commands()))), end="")
    return exits.DONE


def _print_names(options: argparse.Namespace) -> int:
    remote = Session(options).remote
    query = {"limit": 1000}
    answer = remote.ask("GET", ("v1", options.names), query, timeout_seconds=TIMEOUT_SECONDS)
    for row in answer.body["items"]:
        if not row.get("gone_at"):
            print(row.get("name") or row["id"])
    return exits.DONE


# ---- The tree of commands ----


def places(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[Place]:
    """Every place in a command line where something may be completed."""
    subparsers: dict[str, argparse.ArgumentParser] = {}
    options: list[str] = []
    names_of = ""
    for action in _actions(parser):
        if isinstance(action.choices, dict):
            subparsers = action.choices
        elif action.option_strings and action.help != argparse.SUPPRESS:
            options += [one for one in action.option_strings if one.startswith("--")]
        elif not action.option_strings:
            names_of = getattr(action, NAMES_OF, names_of)
            options += action.choices or getattr(action, WORDS, ())
    yield Place(words, (*subparsers, *options), names_of)
    for name, inner in subparsers.items():
        yield from places(inner, (*words, name))


def _actions(parser: argparse.ArgumentParser) -> list[Any]:
    return parser._actions  # noqa: SLF001 - argparse has no other way to look at a parser


# ---- The scripts ----


def _bash(found: list[Place]) -> str:
    cases = "\n".join(
        f"    '{' '.join(place.words)}') "
        f"words='{' '.join(place.choices)}' names='{place.names_of}' ;;"
        for place in found
    )
    return f"""# fairnotice completion for bash: eval "$(fairnotice completion bash)"
_fairnotice() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" path='' words='' names='' word
  local -i index
  for ((index = 1; index < COMP_CWORD && index <= 2; index++)); do
    word="${{COMP_WORDS[index]}}"
    [[ $word == -* ]] && break
    path="${{path:+$path }}$word"
  done
  case "$path" in
{cases}
  esac
  if [[ -n $names && $current != -* ]]; then
    words="$words $(fairnotice completion --names "$names" 2>/dev/null)"
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _fairnotice fairnotice
"""


def _zsh(found: list[Place]) -> str:
    return (
        '# fairnotice completion for zsh: eval "$(fairnotice completion zsh)"\n'
        "autoload -Uz compinit bashcompinit && compinit -u && bashcompinit\n"
    ) + _bash(found).partition("\n")[2]


def _fish(found: list[Place]) -> str:
    lines = ["# fairnotice completion for fish", "complete -c fairnotice -f"]
    for place in found:
        when = _fish_condition(place.words)
        for word in place.choices:
            what = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            lines.append(f"complete -c fairnotice -n '{when}' {what}")
        if place.names_of:
            names = f"(fairnotice completion --names {place.names_of} 2>/dev/null)"
            lines.append(f"complete -c fairnotice -n '{when}' -a '{names}'")
    return "\n".join(lines) + "\n"


def _fish_condition(words: tuple[str, ...]) -> str:
    if not words:
        return "__fish_use_subcommand"
    return "; and ".join(f"__fish_seen_subcommand_from {word}" for word in words)


SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
