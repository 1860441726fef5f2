"""`tidemill quantize`, and the same as an option of the commands that write bundles."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from tidemill.bundle.bundle import Bundle
    from tidemill.bundle.stored import StoredBundle
    from tidemill.engine.quantize import QuantizeOptions

__all__ = ["add_arguments", "add_options", "build_repository", "execute", "write_bundle"]

_KINDS = ("int8-dynamic", "int4-blockwise", "float16", "bfloat16")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("bundle", type=Path, help="a version's folder: <repository>/<model>/<version>")
    parser.add_argument("target", type=Path, help="the folder to write; may be the same")
    parser.add_argument("--kind", dest="quantize", choices=_KINDS, required=True, help="how to store weights")
    _add_bounds(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a command that writes bundles."""
    parser.add_argument("--quantize", choices=_KINDS, help="store weights in fewer bits, if that is exact enough")
    _add_bounds(parser)


def execute(args: argparse.Namespace) -> int:
    """Store a bundle's weights in fewer bits, if that is exact enough."""
    from tidemill.repository.loading import open_version

    _quantize(open_version(args.bundle), args.target, args)
    print(f"wrote {args.target}")
    return 0


def write_bundle(bundle: Bundle, folder: Path, args: argparse.Namespace) -> StoredBundle:
    """Write a bundle as the options say; what is refused leaves nothing behind."""
    from tidemill.bundle.stored import open_bundle

    if args.quantize is None:
        return bundle.write(folder)
    with TemporaryDirectory() as draft:
        _quantize(bundle.write(Path(draft) / "1"), folder, args)
    return open_bundle(folder)


def build_repository(build: Callable[[Path], object], repository: Path, args: argparse.Namespace) -> None:
    """Let a model write itself into a repository, its bundles as the options say."""
    if args.quantize is None:
        build(repository)
        return
    with TemporaryDirectory() as draft:
        build(Path(draft))
        bundles = sorted(file.parent for file in Path(draft).glob("*/*/bundle.json"))
        for folder in bundles:
            _quantize_in_place(folder, args)
        build(repository)
        for folder in bundles:
            _take_place(folder, repository / folder.relative_to(draft))


def _add_bounds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-error", type=float, help="largest relative error of an output (by kind: 0.01 to 0.4)")
    parser.add_argument(
        "--samples", type=Path, nargs="+", default=[], help=".npz files of inputs by name to measure with (random)"
    )


def _quantize_in_place(folder: Path, args: argparse.Namespace) -> None:
    from tidemill.bundle.stored import open_bundle

    _quantize(open_bundle(folder), folder, args)


def _take_place(folder: Path, target: Path) -> None:
    from tidemill.bundle.staging import staged_folder

    with staged_folder(target.absolute()) as draft:
        shutil.copytree(folder, draft, dirs_exist_ok=True)


def _quantize(source: StoredBundle, target: Path, args: argparse.Namespace) -> None:
    from tidemill.engine.quantize import quantize_bundle

    try:
        print(quantize_bundle(source, target, _options(args)))
    except FileExistsError as error:
        raise ConfigError(str(error)) from None


def _options(args: argparse.Namespace) -> QuantizeOptions:
    import numpy as np

    from tidemill.engine.quantize import QuantizeOptions

    samples = []
    for file in args.samples:
        try:
            with np.load(file, allow_pickle=False) as arrays:
                samples.append(dict(arrays))
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(f"{file} is no .npz file of arrays: {error}") from None
    return QuantizeOptions(args.quantize, args.max_error, samples)
