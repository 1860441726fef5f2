"""How many threads a model's run may use; reads the cgroup's files through a function and knows no session."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import TypeAlias

__all__ = ["Reader", "available_threads", "cpu_quota", "read_file"]

Reader: TypeAlias = Callable[[str], str | None]
"""Gives the text of a file, None if it cannot be read."""

_ROOT = "/sys/fs/cgroup"


def read_file(path: str) -> str | None:
    """The text of a file, None if it cannot be read."""
    try:
        return Path(path).read_text()
    except OSError:
        return None


def available_threads(affinity: int | None = None, read: Reader = read_file) -> int:
    """The CPUs this process may really use, at least 1.

    ONNX Runtime counts the host's cores; in a container with a quota its threads would only throttle each other.

    Args:
        affinity: CPUs that the scheduler allows; asked of the system by default.
        read: How files are read.
    """
    allowed = affinity or len(os.sched_getaffinity(0))
    return max(1, math.ceil(min(allowed, cpu_quota(read))))


def cpu_quota(read: Reader) -> float:
    """The CPUs that the cgroup's quota grants, of version 2 or 1, the tightest on the way up; infinity for no limit."""
    own = _own_groups(read("/proc/self/cgroup") or "")
    quotas = [_quota_v2(read(f"{_ROOT}{folder}/cpu.max")) for folder in _upwards(own.get("", "/"))]
    for base in (f"{_ROOT}/cpu", f"{_ROOT}/cpu,cpuacct"):
        for folder in _upwards(own.get("cpu", "/")):
            period = read(f"{base}{folder}/cpu.cfs_period_us")
            quotas.append(_quota(read(f"{base}{folder}/cpu.cfs_quota_us"), period))
    return min(quotas)


def _own_groups(text: str) -> dict[str, str]:
    """This process's folder by controller; that of version 2 has the controller ""."""
    groups = {}
    for line in text.splitlines():
        _, controllers, folder = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), folder))
    return groups


def _upwards(folder: str) -> Iterator[str]:
    """The folder and those above it, the root as "", none of which is below another's limit."""
    path = PurePosixPath(folder)
    for step in (path, *path.parents):
        yield "" if str(step) == "/" else str(step)


def _quota_v2(text: str | None) -> float:
    quota, _, period = (text or "max").strip().partition(" ")
    return _quota(quota, period)


def _quota(quota: str | None, period: str | None) -> float:
    """Microseconds of CPU time a period of microseconds; "max", -1 or nothing mean no limit."""
    try:
        granted, each = int(quota or -1), int(period or 100_000)
    except ValueError:
        return math.inf
    return granted / each if granted > 0 and each > 0 else math.inf
