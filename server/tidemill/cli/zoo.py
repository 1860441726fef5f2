"""`tidemill zoo`: the ready models listed, built, or built and served at once."""

from __future__ import annotations

import argparse
from pathlib import Path

from tidemill.cli import build, serve

__all__ = ["add_arguments", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="the models, and where their weights come from")
    build.add_arguments(actions.add_parser("build", help="write models into a repository"))
    serving = actions.add_parser("serve", help="build what is not there yet, and serve the repository")
    serving.add_argument("names", nargs="+", metavar="NAME", help="models to build")
    serving.add_argument("--repository", type=Path, default=Path("models"), help="folder to write into (models)")
    serve.add_options(serving)


def execute(args: argparse.Namespace) -> int:
    """List, build or serve ready-made models."""
    if args.action == "list":
        return _list()
    if args.action == "build":
        return build.execute(args)
    for name, model in build.find_models(args.names).items():
        if not all((args.repository / one).is_dir() for one in model.served or (name,)):
            build.execute(argparse.Namespace(names=[name], repository=args.repository, weights=None, quantize=None))
    return serve.execute(argparse.Namespace(**vars(args) | {"repository": [args.repository]}))


def _list() -> int:
    from tidemill.modelzoo import ZOO

    models = build.find_models()
    width, longest = (max(map(len, column)) for column in (models, [one.summary for one in models.values()]))
    for name, model in models.items():
        weights = f"{model.package or 'in tidemill'}, {model.licence}" if name in ZOO else "give --weights"
        print(f"{name:{width}}  {model.summary:{longest}}  {weights}")
    return 0
