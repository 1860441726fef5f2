"""Files in object stores and on web servers, through obstore; knows no file format and keeps nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tidemill.weights.credentials import store_config
from tidemill.weights.location import scheme_of, shown
from tidemill.weights.transfer import PART_BYTES, Put, transfer

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta

__all__ = ["FileChanged", "ObjectStore", "RemoteFile", "StoreOptions"]

_LOGINS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or AWS_SKIP_SIGNATURE=true if it is public",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or run: gcloud auth application-default login",
    "az": "set AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN",
}
_NO_DATE = 0  # what obstore says of a file whose date is not sent


class FileChanged(OSError):
    """A file is not the one any more that was asked for."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """What a store says of a file.

    Attributes:
        size: Bytes.
        etag: The mark of this content; None if the store gives none.
        version: What changes with the content: the etag, else the time of the last change; None if neither is sent.
    """

    size: int
    etag: str | None
    version: str | None


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How patient to be.

    Attributes:
        connect_seconds: For a connection.
        stall_seconds: Without a single byte.
        retries: After server errors, broken connections and stalls.
        backoff_seconds: Before the first retry; doubled for each further one.
    """

    connect_seconds: float = 5.0
    stall_seconds: float = 30.0
    retries: int = 5
    backoff_seconds: float = 0.2


class ObjectStore:
    """The files below a URL.

    Args:
        url: A folder: s3://bucket/path, gs://bucket/path, az://container/path, http(s)://host/path.
        options: How patient to be.
        environ: Where credentials and endpoints come from, by the names that the clouds' own tools use.

    Raises:
        ValueError: The URL has another scheme or is malformed, or a setting is missing.
        ModuleNotFoundError: The package obstore is not installed.
    """

    def __init__(self, url: str, options: StoreOptions | None = None, environ: Mapping[str, str] | None = None) -> None:
        self.url = url
        self._scheme = scheme_of(url)
        self._store = _connect(url, options or StoreOptions(), os.environ if environ is None else environ)

    def list(self) -> list[str]:
        """The names of all files below the URL, sorted; OSError if the store cannot list, as most web servers."""
        with self._explained(""):
            return sorted(file["path"] for chunk in self._store.list() for file in chunk)

    def describe(self) -> dict[str, RemoteFile]:
        """The size and version of all files below the URL, by name; raises as `list`."""
        with self._explained(""):
            return {file["path"]: _describe(file) for chunk in self._store.list() for file in chunk}

    def size(self, name: str) -> int:
        """The file's length in bytes."""
        return self.stat(name).size

    def stat(self, name: str) -> RemoteFile:
        """The size and version of a file.

        Raises:
            FileNotFoundError: There is no such file.
            PermissionError: The store does not let us; the message says where credentials come from.
            ConnectionError: The store cannot be reached, or fails even after retries.
        """
        with self._explained(name):
            return _describe(self._store.head(name))

    def read(self, name: str, offset: int, length: int) -> memoryview:
        """The bytes from `offset`; large spans come in parts side by side. Raises as `stat`, and EOFError."""
        if length <= PART_BYTES:
            return self.read_part(name, (offset, length))
        whole = memoryview(bytearray(length))

        def put(begin: int, part: memoryview) -> None:
            whole[begin - offset : begin - offset + len(part)] = part

        expected = self.stat(name)
        transfer(lambda *span: self.read_part(name, span, expected), put, (offset, offset + length))
        return whole.toreadonly()

    def read_part(self, name: str, span: tuple[int, int], expected: RemoteFile | None = None) -> memoryview:
        """The bytes of one span (offset, length), in one request.

        Raises:
            FileChanged: The file is not `expected` any more.
            NotImplementedError: The server sends whole files only.
        """
        offset, length = span
        if length == 0:
            return memoryview(b"")
        options: GetOptions = {"range": (offset, offset + length)}
        if expected is not None and expected.etag is not None and not expected.etag.startswith("W/"):
            options["if_match"] = expected.etag  # a weak etag never matches
        with self._explained(name):
            result = self._store.get(name, options=options)
            # A server may overlook If-Match.
            self._check_same(name, expected, _describe(result.meta))
            part = memoryview(result.bytes()).cast("B")
        if len(part) != length:
            raise EOFError(f"{self.place(name)} gave {len(part)} bytes; {length} from {offset} were asked for")
        return part

    def read_whole(self, name: str, put: Put, expected: RemoteFile) -> None:
        """The whole file in one request, for servers that cannot send a part; raises as `read_part`."""
        offset = 0
        with self._explained(name):
            result = self._store.get(name)
            self._check_same(name, expected, _describe(result.meta))
            for chunk in result:
                put(offset, memoryview(chunk).cast("B"))
                offset += len(chunk)
        if offset != expected.size:
            raise EOFError(f"{self.place(name)} gave {offset} bytes, {expected.size} were announced")

    def place(self, name: str) -> str:
        """The URL of a file, fit to be shown."""
        return f"{shown(self.url)}/{name}" if name else shown(self.url)

    def _check_same(self, name: str, expected: RemoteFile | None, found: RemoteFile) -> None:
        if expected is not None and found != expected:
            raise FileChanged(f"{self.place(name)} changed while it was read")

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        from obstore import exceptions

        place = self.place(name)
        try:
            yield
        except FileNotFoundError:
            raise FileNotFoundError(f"{place} does not exist (404)") from None
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            login = _LOGINS.get(self._scheme, "ask whoever runs the server")
            raise PermissionError(f"{place} may not be read: {_cause(error)}; {login}") from None
        except exceptions.PreconditionError:
            raise FileChanged(f"{place} changed while it was read") from None
        except exceptions.NotSupportedError as error:
            raise NotImplementedError(f"{place}: {_cause(error)}") from None
        except exceptions.BaseError as error:
            raise ConnectionError(f"{place} cannot be read: {_cause(error)}") from None


def _connect(url: str, options: StoreOptions, environ: Mapping[str, str]) -> Any:
    try:
        from obstore import exceptions
        from obstore.store import from_url
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{shown(url)} takes the package obstore; run: pip install 'tidemill[objectstore]'", name="obstore"
        ) from None
    scheme = scheme_of(url)
    config = store_config(scheme, environ)
    plain = any(place.startswith("http://") for place in (url, *config.values()))
    settings: dict[str, Any] = {"config": config} if config else {}
    try:
        return from_url(url, client_options=_client(options, plain), retry_config=_retry(options), **settings)
    except (exceptions.BaseError, ValueError) as error:
        hint = f"; {_LOGINS[scheme]}" if scheme in _LOGINS else ""
        raise ValueError(f"{shown(url)} cannot be opened: {_cause(error)}{hint}") from None


def _client(options: StoreOptions, plain: bool) -> Any:
    return {
        "allow_http": plain,
        "connect_timeout": timedelta(seconds=options.connect_seconds),
        "read_timeout": timedelta(seconds=options.stall_seconds),
        # The whole of a request may take long on a slow line; only a stall is a fault.
        "timeout": timedelta(days=1),
    }


def _retry(options: StoreOptions) -> Any:
    first = timedelta(seconds=options.backoff_seconds)
    backoff = {"init_backoff": first, "max_backoff": timedelta(seconds=10), "base": 2}
    return {"max_retries": options.retries, "backoff": backoff, "retry_timeout": timedelta(minutes=3)}


def _describe(meta: ObjectMeta) -> RemoteFile:
    etag, changed = meta["e_tag"], meta["last_modified"]
    dated = changed.isoformat() if changed.timestamp() != _NO_DATE else None
    return RemoteFile(meta["size"], etag, etag or dated)


def _cause(error: Exception) -> str:
    """The first line of obstore's text, up to the page that the server sent, without a signed URL's query."""
    line = str(error).partition("\n")[0]
    return re.sub(r"\?\S+", "", re.sub(r"(code: \d+ [\w -]+?):.*", r"\1", line)).strip(" :-")
