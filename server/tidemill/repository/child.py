"""A model in a process of its own: opened there, run by what comes over a pipe; knows neither server nor requests."""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tidemill.bundle.config import read_config
from tidemill.engine.artifact import ArtifactCache
from tidemill.engine.instance import Instance
from tidemill.errors import InferenceFailed, TidemillError
from tidemill.protocol.types import Array, TensorSpec
from tidemill.repository.loading import open_instance
from tidemill.repository.tensor_pipe import TensorPipe

__all__ = ["main"]


class _Stop:
    """Ends one run early; see `tidemill.engine.session.Cancel`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stop: Callable[[], None] | None = None
        self._set = False

    def attach(self, stop: Callable[[], None]) -> None:
        """Call `stop` when it is set, at once if it is."""
        with self._lock:
            self._stop = stop
            if self._set:
                stop()

    def set(self) -> None:
        """End the run, or whatever run will be attached."""
        with self._lock:
            self._set = True
            if self._stop:
                self._stop()


class _Runs:
    """The runs under way, by the numbers that the server gave them."""

    def __init__(self, pipe: TensorPipe, instance: Instance, instances: int) -> None:
        self._pipe = pipe
        self._instance = instance
        self._threads = ThreadPoolExecutor(instances)
        self._stops: dict[int, _Stop] = {}

    def take(self, head: Mapping[str, Any], feed: Mapping[str, Array]) -> None:
        """Begin a run, or end one."""
        number = head["run"]
        if head["kind"] == "stop":
            if stop := self._stops.get(number):
                stop.set()
            return
        self._stops[number] = _Stop()
        self._threads.submit(self._run, number, feed)

    def _run(self, number: int, feed: Mapping[str, Array]) -> None:
        try:
            outputs = self._instance.run(feed, self._stops.get(number))
            self._pipe.send({"kind": "done", "run": number}, outputs)
        except OSError:  # the other end is gone, and `main` is about to hear of it
            pass
        except Exception as error:
            self._pipe.send({"kind": "failed", "run": number, **_told(error)})
        finally:
            del self._stops[number]


def main() -> None:
    """Serve the socket whose number is the first argument until the other end is gone."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    pipe = TensorPipe(connection)
    try:
        opening, _ = pipe.receive()
        if runs := _open(pipe, opening):
            while True:
                runs.take(*pipe.receive())
    except (EOFError, OSError):
        pass
    finally:
        os._exit(0)  # runs that nobody waits for any more would hold up an orderly end


def _end_with(connection: socket.socket) -> None:
    """End at once when the other end is gone, however it went and however long the load under way takes."""
    hung_up = select.poll()
    hung_up.register(connection, 0)
    hung_up.poll()
    os._exit(0)


def _open(pipe: TensorPipe, opening: Mapping[str, Any]) -> _Runs | None:
    artifacts = ArtifactCache(Path(opening["artifacts"]), opening["strict"]) if opening["artifacts"] else None
    try:
        config = read_config({**opening["config"], "isolation": "none"}, "the configuration")
        instance = open_instance(Path(opening["folder"]), config, artifacts)
    except Exception as error:
        pipe.send({"kind": "failed", **_told(error)})
        return None
    pipe.send({"kind": "opened", **_described(instance)})
    return _Runs(
        pipe, instance, config.fixed_instances + 1
    )  # one more, as runs that were given up end in their own time


def _described(instance: Instance) -> dict[str, Any]:
    return {
        "inputs": [_spec(spec) for spec in instance.inputs],
        "outputs": [_spec(spec) for spec in instance.outputs],
        "providers": instance.providers,
        "threads": instance.threads,
        "artifact": instance.artifact,
        "key": instance.key,
        "nodes": dict(instance.placement.nodes),
    }


def _spec(spec: TensorSpec) -> tuple[str, str, tuple[int | str, ...]]:
    return spec.name, spec.dtype.name, spec.shape


def _told(error: Exception) -> dict[str, str]:
    known = error if isinstance(error, TidemillError) else InferenceFailed(f"{type(error).__name__}: {error}")
    return {"error": type(known).__name__, "text": str(known)}


if __name__ == "__main__":
    main()
