"""`tidemill build`: a ready model from the zoo, written into a repository."""

from __future__ import annotations

import argparse
from difflib import get_close_matches
from pathlib import Path

from tidemill.cli import quantize
from tidemill.errors import ConfigError

__all__ = ["add_arguments", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="models to build; without one they are listed")
    parser.add_argument("--repository", type=Path, default=Path("models"), help="folder to write into (models)")
    quantize.add_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Write ready-made models into a repository."""
    from tidemill.modelzoo import ZOO

    if not args.names:
        width = max(map(len, ZOO))
        print("\n".join(f"{name:{width}}  {model.summary}" for name, model in sorted(ZOO.items())))
        return 0
    for name in args.names:
        if name not in ZOO:
            close = get_close_matches(name, ZOO, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(sorted(ZOO))}"
            raise ConfigError(f"the zoo has no model {name!r}; {hint}")
    for name in args.names:
        quantize.build_repository(ZOO[name].build, args.repository, args)
        print(f"wrote {args.repository / name}")
    print(f"now run: tidemill serve {args.repository}")
    return 0
