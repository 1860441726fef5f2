from __future__ import annotations

import errno
import hashlib
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tidemill.weights import Cache, CacheOptions, DigestMismatch, FileChanged, StoreOptions, transfer

CONTENT = os.urandom(10_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def cache(tmp_path: Path, patience: StoreOptions, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setattr(transfer, "PART_BYTES", 1000)
    return Cache(tmp_path / "cache", CacheOptions(store=patience, pause_seconds=0.01))


def content_of(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_file_is_fetched_once(site: Any, cache: Cache) -> None:
    url = site.put("m/w.safetensors", CONTENT)
    found = cache.fetch(url)
    assert (found.path.read_bytes(), found.sha256, found.size) == (CONTENT, DIGEST, len(CONTENT))
    assert site.downloads == 10
    again = Cache(cache.root).fetch(url)
    assert (again.path, site.downloads) == (found.path, 10)
    assert oct(found.path.stat().st_mode)[-3:] == "444"
    assert len(content_of(cache.root)) == 2


def test_with_a_digest_the_store_is_not_even_asked(site: Any, cache: Cache) -> None:
    url = site.put("w", CONTENT)
    cache.fetch(url, DIGEST)
    site.requests.clear()
    assert cache.fetch(url, DIGEST).path.read_bytes() == CONTENT
    assert cache.fetch("http://127.0.0.1:9/elsewhere", DIGEST).sha256 == DIGEST
    assert site.requests == []


def test_equal_content_is_kept_once(site: Any, cache: Cache) -> None:
    one, other = site.put("a", CONTENT), site.put("b", CONTENT)
    assert cache.fetch(one).path == cache.fetch(other).path
    assert [record.url for record in cache.records()] in ([one, other], [other, one])


def test_a_new_version_is_fetched_and_the_old_stays(site: Any, cache: Cache) -> None:
    url = site.put("w", CONTENT)
    old = cache.fetch(url)
    site.put("w", CONTENT[::-1])
    assert cache.fetch(url).path.read_bytes() == CONTENT[::-1]
    assert old.path.read_bytes() == CONTENT


@pytest.mark.parametrize(("date", "downloads"), [("Tue, 01 Dec 2026 00:00:00 GMT", 10), ("", 20)])
def test_without_an_etag_the_date_decides(site: Any, cache: Cache, date: str, downloads: int) -> None:
    site.etag, site.date = lambda _: None, date
    url = site.put("w", CONTENT)
    for _ in range(2):
        assert cache.fetch(url).sha256 == DIGEST
    assert site.downloads == downloads


def test_a_server_without_ranges_and_an_empty_file(site: Any, cache: Cache) -> None:
    site.has_ranges = False
    assert cache.fetch(site.put("w", CONTENT)).sha256 == DIGEST
    assert cache.fetch(site.put("empty", b"")).path.read_bytes() == b""


def test_s3(bucket: Any, cache: Cache) -> None:
    bucket.put_object(Key="m/w.safetensors", Body=CONTENT)
    assert cache.fetch("s3://models/m/w.safetensors").path.read_bytes() == CONTENT
    with pytest.raises(FileNotFoundError, match=r"s3://models/absent does not exist"):
        cache.fetch("s3://models/absent")


@contextmanager
def small_files(limit: int) -> Iterator[None]:
    """No file may grow over a limit: what a full disk is to the one who writes."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def _status(code: int) -> Callable[[Any], Any]:
    return lambda handler: handler.send_error(code) or True


def _changing(handler: Any) -> bool:
    handler.site.files["/w"] = os.urandom(10_000)
    return False


FAULTS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "403": (_status(403), PermissionError, r"/w may not be read: .*403 Forbidden; ask whoever runs the server"),
    "404": (_status(404), FileNotFoundError, r"/w does not exist \(404\)"),
    "500": (_status(500), ConnectionError, r"/w cannot be read: .*after 2 retries.*500 Internal"),
    "truncated": (lambda handler: handler.send_file(stop_after=7) or True, ConnectionError, r"/w cannot be read"),
    "slow": (lambda handler: handler.site.go.wait() or True, ConnectionError, r"/w cannot be read"),
    "changing": (_changing, FileChanged, r"/w changed while it was read"),
}


@pytest.mark.parametrize("moment", ["at once", "in the middle"])
@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_leaves_an_error_and_no_file(site: Any, cache: Cache, kind: str, moment: str) -> None:
    site.go = threading.Event()
    url = site.put("w", CONTENT)
    fault, error, text = FAULTS[kind]
    quiet = 0 if moment == "at once" else 5
    site.fault = lambda handler: len(site.requests) > quiet and fault(handler)
    with pytest.raises(error, match=text):
        cache.fetch(url)
    site.go.set()
    assert content_of(cache.root) == []
    site.fault = lambda _: False
    assert cache.fetch(site.put("w", CONTENT), DIGEST).path.read_bytes() == CONTENT


@pytest.mark.parametrize("kind", ["500", "truncated", "changing"])
def test_a_passing_fault_is_got_over(site: Any, cache: Cache, kind: str) -> None:
    url = site.put("w", CONTENT)
    fault = FAULTS[kind][0]
    site.fault = lambda handler: len(site.requests) == 4 and fault(handler)
    found = cache.fetch(url)
    assert found.path.read_bytes() == site.files["/w"]
    assert cache.fetch(url).path == found.path


def test_other_bytes_than_were_asked_for_are_not_kept(site: Any, cache: Cache) -> None:
    url = site.put("w", CONTENT)
    with pytest.raises(DigestMismatch, match=rf"/w has sha256 {DIGEST}, expected 0{{64}}; nothing"):
        cache.fetch(url, "0" * 64)
    with pytest.raises(ValueError, match=r"'\.\./x' must be 64"):
        cache.fetch(url, "../x")
    assert content_of(cache.root) == []


def test_a_full_disk(site: Any, cache: Cache) -> None:
    url = site.put("w", CONTENT)
    with (
        small_files(5000),
        pytest.raises(OSError, match=r"no room for the 10000 bytes of .*/w, \d+ are free") as caught,
    ):
        cache.fetch(url)
    assert caught.value.errno == errno.EFBIG
    assert site.downloads == 0
    assert content_of(cache.root) == []
    assert cache.fetch(url).sha256 == DIGEST


CHILD = """
import os, sys
from pathlib import Path
from tidemill.weights import Cache, CacheOptions, transfer
transfer.PART_BYTES = 1000
cache = Cache(Path(sys.argv[1]), CacheOptions(pause_seconds=0.01))
cache.fetch("http://127.0.0.1:9/" , "0" * 64) if False else None
remaining = int(sys.argv[3])
def count(event, args):
    global remaining
    if event == "open" or event.startswith("os."):
        remaining -= 1
        if not remaining:
            os.kill(os.getpid(), 9)
import obstore, tidemill.weights.record
if remaining:
    sys.addaudithook(count)
cache.fetch(sys.argv[2])
"""


def child(cache: Cache, url: str, moments: int = 0) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", CHILD, cache.root, url, str(moments)])


def test_kill_9_during_the_transfer(site: Any, cache: Cache) -> None:
    site.go, reached = threading.Event(), threading.Event()

    def hang(handler: Any) -> None:
        if len(site.requests) > 5:
            reached.set()
            site.go.wait()

    site.fault = hang
    url = site.put("w", CONTENT)
    victim = child(cache, url)
    assert reached.wait(20)
    assert [path.split("/")[0] for path in content_of(cache.root)] == ["drafts"]
    victim.kill()
    victim.wait()
    site.go.set()
    assert cache.fetch(url).sha256 == DIGEST
    assert len(content_of(cache.root)) == 2


def test_kill_9_at_every_touch_of_the_disk(site: Any, cache: Cache) -> None:
    url = site.put("w", CONTENT)
    killed = 0
    for moment in range(1, 100):
        victim = child(cache, url, moment)
        if victim.wait() == 0:
            break
        assert victim.returncode == -signal.SIGKILL
        killed += 1
        assert [blob.name for blob in cache.blobs()] in ([], [DIGEST])
        assert cache.fetch(url).path.read_bytes() == CONTENT
        cache.remove(DIGEST)
        assert content_of(cache.root / "blobs") == content_of(cache.root / "drafts") == []
    assert killed > 10


def test_processes_fetch_one_file_once(site: Any, cache: Cache) -> None:
    url = site.put("w", CONTENT)
    together = [child(cache, url) for _ in range(3)]
    assert [process.wait() for process in together] == [0, 0, 0]
    assert site.downloads == 10


def test_threads_fetch_one_file_once(site: Any, cache: Cache) -> None:
    url = site.put("w", CONTENT)
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(cache.fetch(url).path.read_bytes())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (found, site.downloads) == ([CONTENT] * 4, 10)


@pytest.fixture
def small(cache: Cache) -> Cache:
    return Cache(cache.root, CacheOptions(limit_bytes=25_000, store=cache.options.store))


def test_the_least_recently_used_go_first(site: Any, small: Cache) -> None:
    urls = [site.put(name, os.urandom(10_000)) for name in "abc"]
    first, second = (small.fetch(url).sha256 for url in urls[:2])
    assert small.fetch(urls[0]).sha256 == first
    third = small.fetch(urls[2]).sha256
    assert {blob.name for blob in small.blobs()} == {first, third}
    assert second not in {blob.name for blob in small.blobs()}


def test_what_is_in_use_stays(site: Any, small: Cache, caplog: pytest.LogCaptureFixture) -> None:
    held = [small.fetch(site.put(name, os.urandom(10_000))) for name in "ab"]
    small.fetch(site.put("c", CONTENT))
    assert all(file.path.exists() for file in held)
    assert "goes over its limit" in caplog.text
    assert not small.remove(held[0].sha256)
    digest = held.pop(0).sha256
    assert small.remove(digest)


def test_a_file_over_the_limit_is_refused(site: Any, small: Cache) -> None:
    with pytest.raises(OSError, match=r"30000 bytes is over the cache's limit of 25000; set TIDEMILL_CACHE_LIMIT"):
        small.fetch(site.put("w", bytes(30_000)))
    assert site.downloads == 0


def test_folders_are_built_once_and_go_with_what_they_are_made_of(site: Any, cache: Cache) -> None:
    file = cache.fetch(site.put("w", CONTENT))
    built, path = [], file.path

    def build(folder: Path) -> None:
        built.append(folder)
        (folder / "data").mkdir()
        os.link(path, folder / "data" / "w")

    leftover = cache.root / "folders" / ".key"
    leftover.mkdir(parents=True)
    (leftover / "half").write_bytes(b"")
    folder = cache.folder("key", build)
    assert cache.folder("key", build) == folder
    assert len(built) == 1
    assert content_of(folder) == ["data/w"]
    del file
    assert cache.remove(DIGEST)
    assert not folder.exists()
    assert content_of(cache.root / "drafts") == []


def test_a_broken_blob_is_found(site: Any, cache: Cache) -> None:
    path = cache.fetch(site.put("w", CONTENT)).path
    assert cache.faulty() == []
    path.chmod(0o644)
    path.write_bytes(CONTENT[::-1])
    assert cache.faulty() == [path]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"url": 1}',
        '{"url":"u","sha256":1,"size":1,"version":"1"}',
        '{"url":"u","sha256":"../../x","size":1,"version":"1"}',
    ],
)
def test_a_broken_record_counts_as_none(site: Any, cache: Cache, text: str) -> None:
    url = site.put("w", CONTENT)
    cache.fetch(url)
    (record,) = (cache.root / "records").iterdir()
    record.write_text(text)
    assert cache.fetch(url).sha256 == DIGEST


@pytest.mark.parametrize(
    ("environ", "root", "limit"),
    [
        ({"HOME": "/h"}, "/h/.cache/tidemill", None),
        ({"XDG_CACHE_HOME": "/x", "TIDEMILL_CACHE_LIMIT": "1.5 gb"}, "/x/tidemill", 1_500_000_000),
        ({"TIDEMILL_CACHE": "/c", "TIDEMILL_CACHE_LIMIT": "100"}, "/c", 100),
    ],
)
def test_the_environment_chooses_place_and_limit(environ: dict[str, str], root: str, limit: int | None) -> None:
    cache = Cache.from_environment(environ)
    assert (str(cache.root), cache.options.limit_bytes) == (root, limit)


def test_a_limit_that_is_no_number() -> None:
    with pytest.raises(ValueError, match=r"TIDEMILL_CACHE_LIMIT is 'much', expected a number of bytes such as"):
        Cache.from_environment({"TIDEMILL_CACHE_LIMIT": "much"})
