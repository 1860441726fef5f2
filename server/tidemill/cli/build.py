"""`tidemill build`: a ready model from the zoo, written into a repository."""

from __future__ import annotations

import argparse
from difflib import get_close_matches
from pathlib import Path

from tidemill.errors import ConfigError

__all__ = ["add_arguments", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", nargs="?", help="the model's name; without one the names are listed")
    parser.add_argument("--repository", type=Path, default=Path("models"), help="folder to write into (models)")


def execute(args: argparse.Namespace) -> int:
    """Write a ready-made model into a repository."""
    from tidemill.modelzoo import ZOO

    if args.name is None:
        print("\n".join(sorted(ZOO)))
        return 0
    if args.name not in ZOO:
        close = get_close_matches(args.name, ZOO, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(sorted(ZOO))}"
        raise ConfigError(f"the zoo has no model {args.name!r}; {hint}")
    ZOO[args.name].build(args.repository)
    print(f"wrote {args.repository / args.name}; now run: tidemill serve {args.repository}")
    return 0
