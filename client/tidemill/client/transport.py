"""The transports, blocking and asyncio: they keep connections and move the bytes that links name; know no protocol."""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tidemill.client.address import Address
from tidemill.client.attempts import NotRun
from tidemill.client.call import Call
from tidemill.client.link import Link, Links, Steps
from tidemill.client.settings import Settings
from tidemill.errors import DeadlineExceeded, TidemillError, Unavailable

__all__ = ["AsyncTransport", "Transport"]

_CONNECT_SECONDS = 10.0
_IDLE_BYTES = 1 << 16
_BUSY_READ = (BlockingIOError, ssl.SSLWantReadError)


@dataclass(frozen=True, slots=True)
class _Connection:
    socket: socket.socket
    link: Link


class _Pool:
    """The idle connections of one client; closed with it, also when it is merely dropped."""

    def __init__(self, address: Address, settings: Settings, links: Links) -> None:
        self.address = address
        self.links = links
        self.tls = settings.tls() if address.is_tls else None
        if self.tls and links.alpn:
            self.tls.set_alpn_protocols([links.alpn])
        self._idle: deque[_Connection] = deque()
        self.close = weakref.finalize(self, _close_all, self._idle)

    def take(self) -> _Connection | None:
        """The connection used last that still stands."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if _stands(connection):
                return connection
            connection.socket.close()
        return None

    def give(self, connection: _Connection) -> None:
        """Take a connection back after an answer."""
        if connection.link.reusable and self.close.alive:
            self._idle.append(connection)
        else:
            connection.socket.close()

    def encrypt(self, connection: socket.socket) -> socket.socket:
        """Wrap a connection where the address asks for it; the handshake is left to do."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls is None:
            return connection
        return self.tls.wrap_socket(connection, server_hostname=self.address.host, do_handshake_on_connect=False)

    def connected(self, connection: socket.socket) -> _Connection:
        """A connection whose handshake is done."""
        wanted = self.links.alpn
        if wanted and isinstance(connection, ssl.SSLSocket) and connection.selected_alpn_protocol() != wanted:
            connection.close()
            raise NotRun(f"{self.address} did not agree to speak {wanted!r}; is gRPC spoken there?")
        return _Connection(connection, self.links.open())


class Transport:
    """Blocking; threads may share it."""

    def __init__(self, address: Address, settings: Settings, links: Links) -> None:
        self._pool = _Pool(address, settings, links)

    def send(self, call: Call[Any], seconds: float | None) -> Any:
        """One attempt, at most so many seconds long."""
        end = None if seconds is None else time.monotonic() + seconds
        connection = self._pool.take() or self._connect(seconds)
        try:
            with _socket_errors(self._pool.address, seconds):
                return _drive(connection.link.steps(call, seconds), connection.socket, end)
        finally:
            self._pool.give(connection)

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()

    def _connect(self, seconds: float | None) -> _Connection:
        address = self._pool.address
        limit = _CONNECT_SECONDS if seconds is None else min(seconds, _CONNECT_SECONDS)
        with _connect_errors(address):
            connection = self._pool.encrypt(socket.create_connection((address.host, address.port), limit))
            if isinstance(connection, ssl.SSLSocket):
                with _closed_on_error(connection):
                    connection.do_handshake()
            return self._pool.connected(connection)


class AsyncTransport:
    """For asyncio. Idle connections belong to no loop: a second loop may go on with them."""

    def __init__(self, address: Address, settings: Settings, links: Links) -> None:
        self._pool = _Pool(address, settings, links)

    async def send(self, call: Call[Any], seconds: float | None) -> Any:
        """One attempt, at most so many seconds long. A cancelled one closes its connection, which the server sees."""
        with _socket_errors(self._pool.address, seconds):
            async with asyncio.timeout(seconds):
                connection = self._pool.take() or await self._connect()
                try:
                    return await _drive_async(connection.link.steps(call, seconds), connection.socket)
                finally:
                    self._pool.give(connection)

    async def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()

    async def _connect(self) -> _Connection:
        address, loop = self._pool.address, asyncio.get_running_loop()
        with _connect_errors(address):
            async with asyncio.timeout(_CONNECT_SECONDS):
                found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
                connection = self._pool.encrypt(await _connect_to_any(found))
                with _closed_on_error(connection):
                    await _shake_hands(connection)
                return self._pool.connected(connection)


async def _connect_to_any(found: list[Any]) -> socket.socket:
    errors: list[OSError] = []
    for family, kind, number, _, place in found:
        connection = socket.socket(family, kind, number)
        connection.setblocking(False)
        try:
            with _closed_on_error(connection):
                await asyncio.get_running_loop().sock_connect(connection, place)
            return connection
        except OSError as error:
            errors.append(error)
    raise errors[0] if errors else OSError("the name has no address")


async def _shake_hands(connection: socket.socket) -> None:
    while isinstance(connection, ssl.SSLSocket):
        try:
            connection.do_handshake()
            return
        except ssl.SSLWantReadError:
            await _until(connection, writable=False)
        except ssl.SSLWantWriteError:
            await _until(connection, writable=True)


def _drive(steps: Steps, connection: socket.socket, end: float | None) -> Any:
    try:
        step = next(steps)
        while True:
            _limit(connection, end)
            if isinstance(step, memoryview):
                step = steps.send(connection.recv_into(step))
                continue
            try:
                for part in step:
                    connection.sendall(part)
            except ConnectionError as error:
                step = steps.throw(error)
            else:
                step = steps.send(0)
    except StopIteration as done:
        return done.value


def _limit(connection: socket.socket, end: float | None) -> None:
    if end is not None:
        connection.settimeout(max(end - time.monotonic(), 1e-6))
    elif connection.gettimeout() is not None:
        # Each change is a call of the system.
        connection.settimeout(None)


async def _drive_async(steps: Steps, connection: socket.socket) -> Any:
    if connection.gettimeout() != 0:
        connection.setblocking(False)
    try:
        step = next(steps)
        while True:
            if isinstance(step, memoryview):
                step = steps.send(await _receive(connection, step))
                continue
            try:
                for part in step:
                    await _send_all(connection, memoryview(part))
            except ConnectionError as error:
                step = steps.throw(error)
            else:
                step = steps.send(0)
    except StopIteration as done:
        return done.value


async def _receive(connection: socket.socket, view: memoryview) -> int:
    while True:
        try:
            return connection.recv_into(view)
        except _BUSY_READ:
            await _until(connection, writable=False)
        except ssl.SSLWantWriteError:
            await _until(connection, writable=True)


async def _send_all(connection: socket.socket, view: memoryview) -> None:
    while view:
        try:
            view = view[connection.send(view) :]
        except (BlockingIOError, ssl.SSLWantWriteError):
            await _until(connection, writable=True)
        except ssl.SSLWantReadError:
            await _until(connection, writable=False)


async def _until(connection: socket.socket, *, writable: bool) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    watch, forget = (loop.add_writer, loop.remove_writer) if writable else (loop.add_reader, loop.remove_reader)
    # By number: a loop that is asked about the socket object would keep it.
    watch(connection.fileno(), _set, ready)
    try:
        await ready
    finally:
        forget(connection.fileno())


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _stands(connection: _Connection) -> bool:
    """Whether an idle connection can be used; what came meanwhile is the link's to judge."""
    poll = select.poll()
    poll.register(connection.socket, select.POLLIN)
    while poll.poll(0):
        connection.socket.setblocking(False)
        try:
            data = connection.socket.recv(_IDLE_BYTES)
        except _BUSY_READ:
            return True
        except OSError:
            return False
        if not connection.link.absorb(data):
            return False
    return True


def _close_all(connections: deque[_Connection]) -> None:
    while connections:
        connections.pop().socket.close()


@contextmanager
def _closed_on_error(connection: socket.socket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


@contextmanager
def _connect_errors(address: Address) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise NotRun(f"cannot reach {address}: no connection within its time limit") from error
    except (OSError, UnicodeError) as error:
        raise NotRun(f"cannot reach {address}: {error}") from error


@contextmanager
def _socket_errors(address: Address, seconds: float | None) -> Iterator[None]:
    try:
        yield
    except TidemillError:
        raise
    except TimeoutError as error:
        raise DeadlineExceeded(f"{address} did not answer within {seconds:.3g} s") from error
    except OSError as error:
        raise Unavailable(f"lost the connection to {address}: {error}") from error
