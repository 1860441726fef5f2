"""`tidemill build`: ready models from the zoo, written into a repository."""

from __future__ import annotations

import argparse
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.cli import quantize
from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from tidemill.modelzoo import ZooModel

__all__ = ["add_arguments", "execute", "find_models"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="models to build; without one they are listed")
    parser.add_argument("--repository", type=Path, default=Path("models"), help="folder to write into (models)")
    parser.add_argument("--weights", help="a checkpoint, file or URL, in the place of the packaged weights")
    quantize.add_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Write ready-made models into a repository."""
    if not args.names:
        models = find_models()
        width = max(map(len, models))
        print("\n".join(f"{name:{width}}  {model.summary}" for name, model in models.items()))
        return 0
    if args.weights and len(args.names) > 1:
        raise ConfigError("--weights is the checkpoint of one model; build the others by a line of their own")
    for name, model in find_models(args.names).items():
        try:
            quantize.build_repository(partial(model.build, weights=args.weights), args.repository, args)
        except (ModuleNotFoundError, OSError, ValueError) as error:
            raise ConfigError(f"{name}: {error}") from None
        print("\n".join(f"wrote {args.repository / one}" for one in model.served or (name,)))
    print(f"now run: tidemill serve {args.repository}")
    return 0


def find_models(names: list[str] | None = None) -> dict[str, ZooModel]:
    """Models by name, all if none is given; ConfigError for a name that the zoo does not know."""
    from tidemill.modelzoo import ARCHITECTURES, ZOO

    known = dict(sorted((ZOO | ARCHITECTURES).items()))
    for name in names or ():
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
            raise ConfigError(f"the zoo has no model {name!r}; {hint}")
    return {name: known[name] for name in names or known}
