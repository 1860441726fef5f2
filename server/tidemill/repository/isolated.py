"""A model that runs in a process of its own, as if it ran here; knows how that process is told, not what it does."""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from tidemill import errors
from tidemill.bundle.config import ModelConfig
from tidemill.dtype import DType
from tidemill.engine.artifact import ArtifactCache
from tidemill.engine.instance import Instance
from tidemill.engine.placement import Placement
from tidemill.engine.session import Cancel
from tidemill.errors import InferenceFailed, LoadFailed, TidemillError, Unavailable
from tidemill.protocol.types import Array, TensorSpec
from tidemill.repository.tensor_pipe import TensorPipe

__all__ = ["IsolatedInstance"]

_LOG = logging.getLogger("tidemill.repository")


class IsolatedInstance(Instance):
    """An instance whose graph is read, loaded and run by a child process.

    When that process ends by itself, be it by a fault of native code or by a signal, the runs under way fail with
    Unavailable, and so does every later one: the model has to be loaded again.
    """

    def __init__(self, folder: Path, config: ModelConfig, artifacts: ArtifactCache | None = None) -> None:
        """Start the process and have it load the model; see `open_instance`.

        Raises:
            LoadFailed: The process ended before the model was loaded.
            TidemillError: What `open_instance` raised in it.
        """
        self._child = child = _Child()
        self._finalizer = weakref.finalize(self, child.close)
        try:
            told = child.open(_opening(folder, config, artifacts))
        except BaseException:
            child.close()
            raise
        self.inputs, self.outputs = _specs(told["inputs"]), _specs(told["outputs"])
        self.providers = tuple(told["providers"])
        self.threads = int(told["threads"])
        self.artifact, self.key = str(told["artifact"]), str(told["key"])
        self._placement = Placement(told["nodes"])

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._child.process.pid

    @property
    def placement(self) -> Placement:
        """How many of the model's nodes each provider executes."""
        return self._placement

    def run(self, feed: Mapping[str, Array], cancel: Cancel | None = None) -> dict[str, Array]:
        """Run the model on arrays by input name, in the child.

        Raises:
            Unavailable: The child ended before it had answered.
            TidemillError: What the run raised.
        """
        return self._child.run(feed, cancel)

    def watch(self, on_end: Callable[[str], None]) -> None:
        """Be told, on another thread and once, why the child ended, if it does so by itself.

        Raises:
            LoadFailed: It ended before.
        """
        self._child.watch(on_end)

    def close(self) -> None:
        """End the process; runs under way fail."""
        self._finalizer()


class _Child:
    """The process, and the runs whose answers are to come."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            # A session of its own, as a terminal's interrupt is for the server, which then drains.
            command = [sys.executable, "-P", "-m", "tidemill.repository.child", str(theirs.fileno())]
            self.process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._pipe = TensorPipe(ours)
        self._numbers = count()
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[dict[str, Array]]] = {}
        self._ended = ""
        self._on_end: Callable[[str], None] | None = None
        self._closing = False
        self._listener = threading.Thread(target=self._listen, name="tidemill-child", daemon=True)

    def open(self, opening: Mapping[str, Any]) -> dict[str, Any]:
        """Have the model loaded; what is told of it. From then on `run` works."""
        try:
            self._pipe.send(opening)
            told, _ = self._pipe.receive()
        except (EOFError, OSError, ValueError):
            raise LoadFailed(f"the model's process {self._reap()} while it loaded the model") from None
        if told["kind"] == "failed":
            raise _error(told)
        self._listener.start()
        return told

    def run(self, feed: Mapping[str, Array], cancel: Cancel | None) -> dict[str, Array]:
        number, answer = next(self._numbers), Future[dict[str, Array]]()
        with self._lock:
            if self._ended:
                raise Unavailable(self._ended)
            self._waiting[number] = answer
        try:
            self._send({"kind": "run", "run": number}, feed)
        except TidemillError:  # a tensor that cannot be written; nothing was sent
            self._waiting.pop(number, None)
            raise
        if cancel:
            cancel.attach(partial(self._send, {"kind": "stop", "run": number}))
        return answer.result()

    def watch(self, on_end: Callable[[str], None]) -> None:
        with self._lock:
            if self._ended:
                raise LoadFailed(self._ended)
            self._on_end = on_end

    def close(self) -> None:
        self._closing = True
        self.process.kill()
        self._pipe.close()
        if self._listener.is_alive() and self._listener is not threading.current_thread():
            self._listener.join()
        self.process.wait()

    def _send(self, head: Mapping[str, Any], feed: Mapping[str, Array] | None = None) -> None:
        with suppress(OSError):  # the listener hears of it as well, and fails who waits
            self._pipe.send(head, feed)

    def _listen(self) -> None:
        try:
            while True:
                self._settle(*self._pipe.receive())
        except (EOFError, OSError):
            pass
        except Exception as error:  # whatever it sent: a process that cannot be understood is of no use
            _LOG.error("the process of a model sent what is no answer: %s", error)
        self.process.kill()
        self._end(f"the model's process {self._reap()}; it is started again")

    def _settle(self, told: Mapping[str, Any], outputs: dict[str, Array]) -> None:
        with self._lock:
            answer = self._waiting.pop(told["run"])
        if told["kind"] == "done":
            answer.set_result(outputs)
        else:
            answer.set_exception(_error(told))

    def _end(self, reason: str) -> None:
        with self._lock:
            self._ended = "the model was unloaded" if self._closing else reason
            waiting, self._waiting = self._waiting, {}
        if self._on_end and not self._closing:
            self._on_end(reason)
        for answer in waiting.values():
            answer.set_exception(Unavailable(self._ended))

    def _reap(self) -> str:
        code = self.process.wait()
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"


def _opening(folder: Path, config: ModelConfig, artifacts: ArtifactCache | None) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "config": config.model_dump(mode="json", exclude_unset=True),
        "artifacts": str(artifacts.directory) if artifacts else "",
        "strict": bool(artifacts and artifacts.strict),
    }


def _specs(told: list[tuple[str, str, list[int | str]]]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, DType[dtype], tuple(shape)) for name, dtype, shape in told)


def _error(told: Mapping[str, Any]) -> TidemillError:
    kind = getattr(errors, told["error"], None)
    if isinstance(kind, type) and issubclass(kind, TidemillError):
        return kind(told["text"])
    return InferenceFailed(told["text"])
