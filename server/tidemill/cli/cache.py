"""`tidemill cache`: what was fetched from stores, and whether it is still what it was."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from tidemill.weights.cache import Cache

__all__ = ["add_arguments", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--root", type=Path, help="the cache's folder (TIDEMILL_CACHE, else ~/.cache/tidemill)")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("ls", help="list the files, the least recently used first")
    remove = actions.add_parser("rm", help="remove files that no process uses")
    remove.add_argument("which", nargs="*", metavar="FILE", help="a URL, or the begin of a sha256")
    remove.add_argument("--all", action="store_true", help="everything")
    actions.add_parser("verify", help="read every file and compare it with its digest")


def execute(args: argparse.Namespace) -> int:
    """List, remove or verify fetched files."""
    from tidemill.weights.cache import Cache

    try:
        cache = Cache(args.root) if args.root else Cache.from_environment()
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if args.action == "ls":
        return _list(cache)
    return _verify(cache) if args.action == "verify" else _remove(cache, args.which, everything=args.all)


def _list(cache: Cache) -> int:
    urls = _urls(cache)
    sizes = [blob.stat().st_size for blob in cache.blobs()]
    for blob, size in zip(cache.blobs(), sizes, strict=True):
        used = datetime.fromtimestamp(blob.stat().st_mtime).astimezone().isoformat(" ", "seconds")
        print(f"{blob.name[:12]}  {size:>14,}  {used}  {' '.join(urls.get(blob.name, ['(no URL)']))}")
    print(f"{len(sizes)} files, {sum(sizes):,} bytes in {cache.root}")
    return 0


def _verify(cache: Cache) -> int:
    faulty = cache.faulty()
    for blob in faulty:
        print(f"{blob.name} is damaged; run: tidemill cache rm {blob.name[:12]}")
    print(f"{len(cache.blobs()) - len(faulty)} of {len(cache.blobs())} files are whole")
    return 1 if faulty else 0


def _remove(cache: Cache, which: list[str], *, everything: bool) -> int:
    urls, names = _urls(cache), [blob.name for blob in cache.blobs()]
    if not which and not everything:
        raise ConfigError("name what to remove, by URL or sha256, or give --all")
    chosen = set(names) if everything else set()
    for given in which:
        found = {name for name in names if name.startswith(given) or given in urls.get(name, [])}
        if not found:
            raise ConfigError(f"{given} is not in {cache.root}; see: tidemill cache ls")
        chosen |= found
    kept = [name for name in sorted(chosen) if not cache.remove(name)]
    for name in kept:
        print(f"{name[:12]} is in use and stays")
    print(f"removed {len(chosen) - len(kept)} files")
    return 1 if kept else 0


def _urls(cache: Cache) -> dict[str, list[str]]:
    urls: dict[str, list[str]] = {}
    for record in cache.records():
        urls.setdefault(record.sha256, []).append(record.url)
    return urls
