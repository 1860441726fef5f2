"""`tidemill import`: anybody's ONNX model, turned into a bundle in a repository."""

from __future__ import annotations

import argparse
from pathlib import Path

from tidemill.cli import quantize
from tidemill.errors import ConfigError

__all__ = ["add_arguments", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", type=Path, help="an ONNX file; its external data is found beside it")
    parser.add_argument("--repository", type=Path, default=Path("models"), help="folder to write into (models)")
    parser.add_argument("--name", help="the model's name (the file's, or of its folder for a model.onnx)")
    parser.add_argument("--version", type=int, help="the version (the next one that is free)")
    quantize.add_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Turn an ONNX model into a bundle."""
    from tidemill.bundle.imported import import_model
    from tidemill.repository.layout import name_fault

    name = args.name or _name_of(args.model)
    if fault := name_fault(name):
        raise ConfigError(f"{fault}; give a --name")
    if args.version is not None and args.version < 1:
        raise ConfigError(f"a version is a number from 1, not {args.version}")
    folder = args.repository / name / str(args.version or _next_version(args.repository / name))
    try:
        stored = quantize.write_bundle(import_model(args.model, name), folder, args)
    except (OSError, ValueError) as error:
        raise ConfigError(str(error)) from None
    for spec in (*stored.inputs, *stored.outputs):
        print(spec)
    print(f"wrote {stored.path}; now run: tidemill serve {args.repository}")
    return 0


def _name_of(model: Path) -> str:
    return model.absolute().parent.name if model.stem == "model" else model.stem


def _next_version(model: Path) -> int:
    folders = model.iterdir() if model.is_dir() else ()
    return max((int(folder.name) for folder in folders if folder.name.isdecimal()), default=0) + 1
