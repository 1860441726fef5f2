"""What a person sees while a run goes on: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from tidemill.bench.result import Result
from tidemill.bench.session import Watcher
from tidemill.bench.settings import Load

__all__ = ["watching"]


class _Lines:
    """A line a load and window."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def start(self, load: Load) -> None:
        print(f"measuring {load}", file=self._stream, flush=True)

    def tell(self, text: str) -> None:
        print(f"  {text}", file=self._stream, flush=True)

    def finish(self, result: Result) -> None:
        for note in result.notes:
            print(f"  {note}", file=self._stream, flush=True)


@contextmanager
def watching(loads: int, stream: TextIO | None = None) -> Iterator[Watcher]:
    """A watcher for so many loads, on stderr unless another stream is given."""
    out = stream or sys.stderr
    if not out.isatty():
        yield _Lines(out)
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ModuleNotFoundError:
        yield _Lines(out)
        return
    with Progress(console=Console(file=out), transient=True) as bars:
        task = bars.add_task("", total=loads)

        class Bar:
            """One bar over all loads; its label says what the last window gave."""

            load = ""

            def start(self, load: Load) -> None:
                self.load = str(load)
                bars.update(task, description=self.load)

            def tell(self, text: str) -> None:
                bars.update(task, description=f"{self.load}: {text}")

            def finish(self, _result: Result) -> None:
                bars.advance(task)

        yield Bar()
