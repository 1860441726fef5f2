"""`tidemill completion`: a script that completes commands, flags and choices in a shell, made of the parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["Command", "add_arguments", "commands_of", "execute"]

_SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True)
class Flag:
    """One option: its spellings, whether a value follows, and which values there are."""

    names: tuple[str, ...]
    takes_value: bool
    choices: tuple[str, ...]
    summary: str


@dataclass(frozen=True)
class Command:
    """A command by its words, with what may follow them."""

    words: tuple[str, ...]
    commands: dict[str, str]
    flags: tuple[Flag, ...]
    choices: tuple[str, ...]

    @property
    def key(self) -> str:
        """The words as one."""
        return " ".join(self.words)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("shell", choices=_SHELLS, help='bash: eval "$(tidemill completion bash)" in ~/.bashrc')


def execute(args: argparse.Namespace) -> int:
    """Print a script that completes this command in a shell."""
    from tidemill.cli.main import make_parser

    print(_SCRIPTS[args.shell](list(commands_of(make_parser()))))
    return 0


def commands_of(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[Command]:
    """All commands of a parser, the outermost (without words) first."""
    # argparse has no public list of its parts; these names have stood since Python 2.7.
    actions = parser._actions
    below = next((it for it in actions if isinstance(it, argparse._SubParsersAction)), None)
    flags = tuple(_flag(action) for action in actions if action.option_strings)
    values = [it for it in actions if not it.option_strings and it is not below]
    choices = tuple(str(choice) for action in values for choice in action.choices or ())
    named = {it.dest: it.help or "" for it in below._choices_actions} if below else {}
    yield Command(words, named, flags, choices)
    for name, inner in below.choices.items() if below else ():
        yield from commands_of(inner, (*words, name))


def _flag(action: argparse.Action) -> Flag:
    choices = tuple(map(str, action.choices or ()))
    return Flag(tuple(action.option_strings), action.nargs != 0, choices, (action.help or "").replace("%%", "%"))


def _bash(commands: list[Command]) -> str:
    """Finds the command by the words before the cursor; a value that has no choices is a file."""
    known = "|".join(f'"{command.key}"' for command in commands if command.words)
    tables = "\n".join(
        f'        "{command.key}") words="{_words(command)}"; valued="{_valued(command)}" ;;' for command in commands
    )
    choices = "\n".join(
        f'        "{command.key} {name}") COMPREPLY=($(compgen -W "{" ".join(flag.choices)}" -- "$current")); return ;;'
        for command in commands
        for flag in command.flags
        if flag.choices
        for name in flag.names
    )
    return f"""_tidemill() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" command="" word words valued
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "${{command:+$command }}$word" in
        {known}) command="${{command:+$command }}$word" ;;
        esac
    done
    case "$command" in
{tables}
    esac
    case "$command $previous" in
{choices}
    esac
    if [[ " $valued " == *" $previous "* ]]; then
        COMPREPLY=($(compgen -f -- "$current")); return
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    [[ "$current" == -* || ${{#COMPREPLY[@]}} -gt 0 ]] || COMPREPLY=($(compgen -f -- "$current"))
}}
complete -o filenames -o bashdefault -F _tidemill tidemill"""


def _words(command: Command) -> str:
    return " ".join([*command.commands, *command.choices, *(name for flag in command.flags for name in flag.names)])


def _valued(command: Command) -> str:
    return " ".join(name for flag in command.flags if flag.takes_value for name in flag.names)


def _zsh(commands: list[Command]) -> str:
    """Zsh runs bash's script by way of its own compatibility layer."""
    return "\n".join(["autoload -U +X bashcompinit && bashcompinit", _bash(commands)])


def _fish(commands: list[Command]) -> str:
    lines = ["complete -c tidemill -e"]
    for command in commands:
        condition = f"-n '{_fish_condition(command)}'"
        lines += [
            f"complete -c tidemill {condition} -f -a {name} -d {_quoted(summary)}"
            for name, summary in command.commands.items()
        ]
        lines += [f"complete -c tidemill {condition} -f -a {choice}" for choice in command.choices]
        lines += [f"complete -c tidemill {condition} {_fish_flag(flag)}" for flag in command.flags]
    return "\n".join(lines)


def _fish_condition(command: Command) -> str:
    seen = [f"__fish_seen_subcommand_from {word}" for word in command.words]
    below = " ".join(command.commands)
    unseen = [f"not __fish_seen_subcommand_from {below}"] if below else []
    return "; and ".join([*seen, *unseen]) or "true"


def _fish_flag(flag: Flag) -> str:
    names = [f"-l {it[2:]}" if it.startswith("--") else f"-s {it[1:]}" for it in flag.names]
    value = ["-r"] if flag.takes_value else []
    choices = [f"-f -a {_quoted(' '.join(flag.choices))}"] if flag.choices else []
    return " ".join([*names, *value, *choices, f"-d {_quoted(flag.summary)}"])


def _quoted(text: str) -> str:
    plain = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{plain}'"


_SCRIPTS: dict[str, Callable[[list[Command]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
