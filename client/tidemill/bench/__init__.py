"""Measure a server of the Open Inference Protocol: closed and open loops, over REST, gRPC and shared memory.

It needs `tidemill[bench]`; what `tidemill bench` does, a program can do with these.
"""

from __future__ import annotations

from tidemill.bench.compare import Change, compare
from tidemill.bench.inputs import Generator, Range
from tidemill.bench.result import Report, Result
from tidemill.bench.session import Watcher, bench, generated
from tidemill.bench.settings import Load, Settings, Windows
from tidemill.bench.sizes import Sizes

__all__ = [
    "Change",
    "Generator",
    "Load",
    "Range",
    "Report",
    "Result",
    "Settings",
    "Sizes",
    "Watcher",
    "Windows",
    "bench",
    "compare",
    "generated",
]
