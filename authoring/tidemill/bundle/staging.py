"""A folder that appears whole or not at all; knows of bundles only which files one may replace."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from tidemill.bundle.manifest import MANIFEST_FILE
from tidemill.bundle.stored import open_bundle
from tidemill.errors import InvalidBundle
from tidemill.weights.durable import exchange, sync

__all__ = ["staged_folder"]


@contextmanager
def staged_folder(target: Path) -> Iterator[Path]:
    """A hidden folder beside `target` that takes its place when the block ends without an exception.

    Of several writers at one time each puts a whole folder in its place, one after the other.

    Raises:
        FileExistsError: `target` is there and is no bundle, is a symbolic link, or holds files that are not the
            bundle's.
    """
    _check_replaceable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = _sibling(target)
    draft.mkdir()
    try:
        yield draft
        for file in draft.iterdir():
            sync(file)
        sync(draft)
        with _alone(target):
            _check_replaceable(target)
            _swap(draft, target)
        sync(target.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Keep other writers of the same folder waiting; the lock is the folder above, so that no file is left behind."""
    descriptor = os.open(target.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _check_replaceable(target: Path) -> None:
    if target.is_symlink():
        raise FileExistsError(f"{target} is a symbolic link to {os.readlink(target)}; write to where it leads")
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    try:
        files = open_bundle(target).manifest.files
    except InvalidBundle as error:
        raise FileExistsError(
            f"{target} is there and cannot be replaced, since it is no whole bundle: {error}"
        ) from None
    foreign = sorted(file.name for file in target.iterdir() if file.name not in {*files, MANIFEST_FILE})
    if foreign:
        raise FileExistsError(f"{target} holds {', '.join(foreign)}, which would be lost; move it away first")


def _swap(draft: Path, target: Path) -> None:
    if not target.exists():
        draft.rename(target)
        return
    if exchange(draft, target):
        return  # the draft is now what was there, and goes with it
    old = _sibling(target)
    target.rename(old)
    try:
        draft.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old)


def _sibling(target: Path) -> Path:
    return target.with_name(f".{target.name}.{uuid4().hex}")
