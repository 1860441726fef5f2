"""The processes that make a load, as one; knows how to start, ask and stop them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Self

from tidemill.bench.samples import Samples
from tidemill.bench.settings import Load, Settings
from tidemill.bench.worker import Job, work
from tidemill.errors import TidemillError

__all__ = ["Crew"]

_STOP_SECONDS = 5.0
_ANSWER_SECONDS = 60.0


class Crew:
    """Load from the first moment inside `with` to its end.

    Args:
        settings: Of the measurement.
        load: What to make.
        requests: What to send.
        processes: How many share it; never more than there are callers.
    """

    def __init__(self, settings: Settings, load: Load, requests: Sequence[bytes], processes: int) -> None:
        self.processes = min(processes, load.concurrency or processes)
        self._jobs = [Job(settings, load, requests, share, self.processes) for share in range(self.processes)]
        self._members: list[tuple[BaseProcess, Connection]] = []

    def __enter__(self) -> Self:
        # A fork would carry this process's threads' locks along.
        context = multiprocessing.get_context("spawn")
        for job in self._jobs:
            ours, theirs = context.Pipe()
            process = context.Process(target=work, args=(job, theirs), daemon=True)
            process.start()
            theirs.close()
            self._members.append((process, ours))
        # A member answers once it runs: what it did until then does not count.
        self.take()
        return self

    def take(self) -> Samples:
        """What all of them saw since the last time.

        Raises:
            TidemillError: A process ended.
        """
        for _, pipe in self._members:
            pipe.send("take")
        return Samples.joined([self._answer(process, pipe) for process, pipe in self._members], apart=False)

    def _answer(self, process: BaseProcess, pipe: Connection) -> Samples:
        try:
            if pipe.poll(_ANSWER_SECONDS):
                answer: Samples = pipe.recv()
                return answer
        except EOFError:
            process.join(_STOP_SECONDS)
        raise TidemillError(f"a process of the load ended or hangs (exit code {process.exitcode})")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process, pipe in self._members:
            # The other end may be gone; closing says the same as "stop".
            pipe.close()
            process.join(_STOP_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
