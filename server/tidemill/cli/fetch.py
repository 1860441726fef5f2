"""`tidemill fetch`: a repository from a store into a folder, for machines that cannot reach the store later."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["add_arguments", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("url", help="the repository: s3://bucket/path, gs://bucket/path or az://container/path")
    parser.add_argument("--repository", type=Path, required=True, help="the folder to make equal to it")
    parser.add_argument("--weights", action="store_true", help="fetch weights that bundles only refer to as well")


def execute(args: argparse.Namespace) -> int:
    """Copy a repository from a store into a folder, digests compared; what is there already is not fetched again."""
    from tidemill.errors import ConfigError
    from tidemill.repository.mirror import Mirror
    from tidemill.weights.progress import progress_for

    try:
        mirror = Mirror(args.url, args.repository, progress=progress_for())
    except ValueError as error:
        raise ConfigError(str(error)) from None
    changed = mirror.renew()
    for path in changed:
        print(path)
    if args.weights:
        _fetch_weights(args.repository)
    print(f"{args.repository} is what {mirror.url} is; {len(changed)} changed")
    return 0


def _fetch_weights(repository: Path) -> None:
    from tidemill.bundle.local import make_local
    from tidemill.repository.layout import scan
    from tidemill.repository.loading import open_version

    for model in scan([repository]):
        for folder in model.versions.values():
            make_local(open_version(folder))
