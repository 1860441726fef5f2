"""The composition root: builds a server of its parts, starts both faces, and takes it down without losing a request."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tidemill.batching.batcher import RUN_THREADS
from tidemill.batching.record import BatchRecord, Observer
from tidemill.engine.artifact import ArtifactCache
from tidemill.errors import ConfigError
from tidemill.generation.generator import Observers
from tidemill.repository.control import RepositoryControl
from tidemill.repository.repository import Events, Place, Repository
from tidemill.repository.response_cache import LocalCache, Note, ResponseCache
from tidemill.repository.served import ModelState, ServedModel
from tidemill.serving.certificates import Certificates
from tidemill.serving.changes import Changes
from tidemill.serving.config import ServerConfig
from tidemill.serving.grpc.fast.lane import GrpcLane
from tidemill.serving.grpc.server import bind, create_server
from tidemill.serving.http.app import create_app
from tidemill.serving.http.fast_request import Lane
from tidemill.serving.http.guard import Guard
from tidemill.serving.http.request_ids import RequestIds
from tidemill.serving.http.server import HttpServer, listen
from tidemill.serving.keys import KeyRing, with_keys
from tidemill.serving.logs import configure_logs
from tidemill.serving.metrics import Load, Metrics
from tidemill.serving.request_log import RequestLog
from tidemill.serving.service import Service
from tidemill.serving.tracing import Tracing, open_tracing

__all__ = ["Server", "run"]

_LOG = logging.getLogger("tidemill.serving")
_GONE = (ModelState.FAILED, ModelState.UNAVAILABLE)
_STATES = tuple(state.value for state in ModelState)
_ANSWER_SECONDS = 1.0
_LOAD_THREADS = "tidemill-load"
_RENEW_SECONDS = 5.0


class Server:
    """One server in the running event loop: `start`, `load`, then `stop`.

    Attributes:
        service: What both faces serve.
        http_port: The port of REST, once started.
        grpc_port: The port of gRPC, once started.
    """

    def __init__(self, repositories: Sequence[Place], config: ServerConfig) -> None:
        """Build everything and start nothing.

        Args:
            repositories: Where the models are.
            config: The operator's settings.

        Raises:
            ConfigError: A repository cannot be read.
        """
        self._ring = KeyRing(config.keys_file)
        self._certificates = Certificates.of(config)
        self.config = config = with_keys(config, self._ring.keys)
        self._cache = _open_cache(config)
        metrics, changes = Metrics(), Changes()
        self._tracing = open_tracing(config)
        repository = Repository.open(
            repositories,
            _events(metrics, changes, self._tracing),
            control=_control(config),
            artifacts=_artifacts(config),
            cache=self._cache,
            allow_code=config.allow_code,
        )
        self.service = Service(repository, metrics, config, changes)
        self._set_watchers()
        apart = self.service.admission.apart
        self.http_port = 0
        self.grpc_port = 0
        ring = self._ring if config.keys_file else None
        # The lanes answer many requests as one, and have no place for the trace of each.
        self._lane = Lane(self.service, ring) if config.http_fast_lane and not apart else None
        app = create_app(self.service)
        tls = self._certificates.context if self._certificates else None
        guarded = Guard(app, ring, metrics) if ring else app
        self._http = HttpServer(RequestIds(guarded), self._lane, tls, config.read_timeout_seconds)
        self._grpc: Any = create_server(self.service, ring)
        plain = config.grpc_fast_lane and not self._certificates and not apart
        self._grpc_lane = GrpcLane(self.service, ring) if plain else None
        self._renewing: asyncio.Task[None] | None = None

    def _set_watchers(self) -> None:
        service, wanted = self.service, self.config.request_log
        log = [RequestLog(failed_only=wanted == "failed")] if wanted != "none" else []
        recorder = [service.recorder.on_request] if service.recorder else []
        tracing = [self._tracing.on_request] if self._tracing else []
        service.admission.watchers = (*log, *recorder, *tracing)
        service.admission.apart = bool(self._tracing) or wanted == "all"

    async def start(self) -> None:
        """Listen on both ports; the server is live and not ready.

        Raises:
            ConfigError: A port cannot be taken.
        """
        listener = listen(self.config.host, self.config.http_port)
        try:
            self.grpc_port = await self._bind_grpc()
        except ConfigError:
            listener.close()
            raise
        self.http_port = listener.getsockname()[1]
        await self._http.start(listener)
        await self._grpc.start()
        if self.config.keys_file or self._certificates:
            self._renewing = asyncio.create_task(self._renew())

    async def _bind_grpc(self) -> int:
        if self._grpc_lane is None:
            return bind(self._grpc, self.config.host, self.config.grpc_port, self._certificates)
        self._grpc.add_insecure_port(self._grpc_lane.address)
        return await self._grpc_lane.start(self.config.host, self.config.grpc_port)

    async def _finish_grpc(self) -> None:
        if self._grpc_lane:
            await self._grpc_lane.finish()
        # `stop` tells everybody what is the matter at the limit; grpcio would cut them off without a word.
        await self._grpc.stop(self.config.drain_limit_seconds + 2 * _ANSWER_SECONDS)

    async def _abandon_grpc(self) -> None:
        if self._grpc_lane:
            await self._grpc_lane.abandon()
        await self._grpc.stop(0)

    async def load(self) -> None:
        """Load and warm all models; afterwards the server is ready if they are."""
        await self.service.load()

    def drain(self) -> None:
        """Become not ready and serve on, closing connections after their next answer; ended only by `stop`."""
        self.service.drain()
        self._http.part_from_clients()

    async def stop(self, hurry: asyncio.Event | None = None) -> None:
        """Become not ready, serve on for the drain window, refuse, let requests in flight finish, and end.

        Args:
            hurry: Once set, nothing is waited for any longer.
        """
        hurry = hurry or asyncio.Event()
        if self._renewing:
            self._renewing.cancel()
        self.drain()
        await _first(hurry.wait(), asyncio.sleep(self.config.drain_window_seconds))
        self.service.refuse()
        ended = asyncio.gather(self._http.finish(), self._finish_grpc())
        await _first(hurry.wait(), asyncio.sleep(self.config.drain_limit_seconds), asyncio.shield(ended))
        ended.add_done_callback(_take_notice)
        # What still waits or is run is told so now; answers need a moment to leave.
        self.service.close()
        self.service.abandon()
        await _first(asyncio.shield(ended), asyncio.sleep(_ANSWER_SECONDS))
        await asyncio.gather(self._http.abandon(), self._abandon_grpc())
        if self._cache:
            await self._cache.close()
        if self._tracing:
            await asyncio.to_thread(self._tracing.close)

    def renew(self) -> None:
        """Take over keys and certificates whose files have changed."""
        if self._ring.renew() and self._lane:
            self._lane.forget()
        if self._certificates:
            self._certificates.renew()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            try:
                await asyncio.to_thread(self.renew)
            except Exception:  # whatever it was, the next look may be better
                _LOG.exception("keys and certificates could not be looked at")

    def __str__(self) -> str:
        scheme = ("https", "grpcs") if self._certificates else ("http", "grpc")
        host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
        return f"{scheme[0]}://{host}:{self.http_port} and {scheme[1]}://{host}:{self.grpc_port}"


def run(repositories: Sequence[Place], config: ServerConfig) -> int:
    """Serve until SIGTERM or SIGINT; a second signal ends at once.

    Args:
        repositories: Where the models are.
        config: The operator's settings.

    Returns:
        The process's exit status.

    Raises:
        ConfigError: A repository or a port cannot be used.
    """
    import uvloop

    configure_logs(config.log_level, config.log_format)
    _allow_connections()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(repositories, config))
        _leave_work_behind()
    return 0


def _leave_work_behind() -> None:
    """End the process although a run or a load goes on: native code may not heed that, and Python waits for it."""
    ends = time.monotonic() + _ANSWER_SECONDS
    working = [thread for thread in threading.enumerate() if thread.name.startswith((RUN_THREADS, _LOAD_THREADS))]
    for thread in working:
        thread.join(max(0.0, ends - time.monotonic()))
    if any(thread.is_alive() for thread in working):
        _LOG.warning("a run or a load does not end; the process ends without it")
        sys.stdout.flush()
        logging.shutdown()
        os._exit(0)


def _allow_connections() -> None:
    """Take all file descriptors that the system grants; a process starts with few, for the sake of `select`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems name a limit that they do not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        _LOG.debug("the limit of open files was raised from %d to %d", soft, hard)


async def _serve(repositories: Sequence[Place], config: ServerConfig) -> None:
    stopping, hurry = asyncio.Event(), asyncio.Event()
    with _signals(stopping, hurry), _load_threads():
        server = Server(repositories, config)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, server.drain)
        await server.start()
        loading = asyncio.create_task(server.load())
        await _first(stopping.wait(), asyncio.shield(loading))
        if loading.done():
            loading.result()
            # What is there by now stays: a collection that walked through it would hold up requests for 50 ms and more.
            gc.collect()
            gc.freeze()
            _tell(server)
        await stopping.wait()
        loading.cancel()
        await server.stop(hurry)


def _tell(server: Server) -> None:
    reason = server.service.not_ready_reason()
    state = f"is not ready ({reason}), listening" if reason else f"serves {len(server.service.model_names())} model(s)"
    print(f"tidemill {state} on {server}", flush=True)


def _control(config: ServerConfig) -> RepositoryControl:
    polled = config.effective_model_control == "poll"
    return RepositoryControl(config.load_models, config.poll_seconds if polled else 0.0)


def _open_cache(config: ServerConfig) -> ResponseCache | None:
    if config.cache_redis is None:
        return LocalCache(config.cache_bytes) if config.cache_bytes else None
    try:
        from tidemill.repository.redis_cache import RedisCache

        return RedisCache(config.cache_redis)
    except ModuleNotFoundError:
        raise ConfigError("cache_redis needs the package redis; run: pip install 'tidemill[redis]'") from None
    except ValueError as error:
        raise ConfigError(f"cache_redis is no URL of a Redis server: {error}") from None


def _artifacts(config: ServerConfig) -> ArtifactCache | None:
    return ArtifactCache(config.artifact_dir, strict=config.precompiled) if config.artifact_dir else None


def _events(metrics: Metrics, changes: Changes, tracing: Tracing | None) -> Events:
    def on_state(served: ServedModel) -> None:
        metrics.model(served.name, served.version)
        metrics.set_state(served.name, served.version, served.state.value, _STATES)
        (metrics.gone if served.state in _GONE else metrics.served)(served.name, served.version)
        if served.state is ModelState.READY:
            metrics.loaded(served.name, served.version, served.load_seconds)
            metrics.placed(served.name, served.version, served.placement)
            load = Load(lambda: served.queued, lambda: served.busy, lambda: served.longest_run)
            metrics.watch_load(served.name, served.version, load)
        changes.announce()

    def observer(served: ServedModel) -> Observer:
        on_batch = metrics.model(served.name, served.version).on_batch
        if tracing is None:
            return on_batch

        def both(record: BatchRecord) -> None:
            on_batch(record)
            tracing.on_batch(served.name, served.version, record)

        return both

    def on_cache(served: ServedModel) -> Note:
        return metrics.model(served.name, served.version).on_cache

    def on_step(served: ServedModel, code: str, seconds: float) -> None:
        metrics.model(served.name, served.version).on_step(code, seconds)

    def on_text(served: ServedModel) -> Observers:
        return metrics.generation.observers(served.name, served.version)

    return Events(on_state, observer, on_step, on_cache, on_text)


@contextlib.contextmanager
def _signals(*events: asyncio.Event) -> Iterator[None]:
    """Set the next event at every SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    coming = iter(events)

    def on_signal() -> None:
        if event := next(coming, None):
            event.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _load_threads() -> Iterator[None]:
    """Have what the event loop hands to threads done by some that can be told from others; they may outlast it."""
    threads = ThreadPoolExecutor(thread_name_prefix=_LOAD_THREADS)
    asyncio.get_running_loop().set_default_executor(threads)
    try:
        yield
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _take_notice(ended: asyncio.Future[Any]) -> None:
    """Let no exception be a surprise: what did not end by itself is cut off."""
    if not ended.cancelled():
        ended.exception()


async def _first(*awaitables: Awaitable[Any]) -> None:
    """Return when one of them is done, and cancel the others."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
