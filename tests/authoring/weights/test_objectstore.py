from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from tidemill.weights import Checkpoint, ObjectStore, transfer
from tidemill.weights.credentials import store_config
from tidemill.weights.location import shown, split_url
from tidemill.weights.objectstore import FileChanged, RemoteFile, StoreOptions

CONTENT = bytes(range(256)) * 40
A = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_s3_lists_sizes_and_reads(bucket: Any) -> None:
    bucket.put_object(Key="deep er/w.safetensors", Body=CONTENT)
    bucket.put_object(Key="deep er/b/x.bin", Body=b"x")
    store = ObjectStore("s3://models/deep er")
    assert store.list() == ["b/x.bin", "w.safetensors"]
    assert store.size("w.safetensors") == len(CONTENT)
    assert bytes(store.read("w.safetensors", 100, 50)) == CONTENT[100:150]
    assert store.stat("w.safetensors").etag == bucket.Object("deep er/w.safetensors").e_tag


def test_s3_tells_that_a_file_changed(bucket: Any) -> None:
    bucket.put_object(Key="w", Body=CONTENT)
    store = ObjectStore("s3://models")
    before = store.stat("w")
    bucket.put_object(Key="w", Body=CONTENT[::-1])
    with pytest.raises(FileChanged, match=r"s3://models/w changed while it was read"):
        store.read_part("w", (0, 5), before)


@pytest.mark.parametrize("url", ["s3://models", "s3://nobucket"])
def test_s3_has_no_such_file(bucket: Any, url: str) -> None:
    with pytest.raises(FileNotFoundError, match=rf"{url}/absent does not exist"):
        ObjectStore(url).size("absent")


def test_large_spans_are_read_side_by_side(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.weights.objectstore.PART_BYTES", 1000)
    monkeypatch.setattr(transfer, "PART_BYTES", 1000)
    site.put("dir/a b.bin", CONTENT)
    assert bytes(ObjectStore(f"{site.url}/dir").read("a b.bin", 10, 9000)) == CONTENT[10:9010]
    assert sorted(span for command, _, span in site.requests if command == "GET")[:2] == [
        "bytes=10-1009",
        "bytes=1010-2009",
    ]
    assert site.downloads == 9


def test_a_checkpoint_over_a_store_reads_only_what_is_asked_for(site: Any) -> None:
    site.put("m/1.safetensors", save({"a": A, "big": np.zeros(100_000)}))
    site.put("m/x.safetensors.index.json", json.dumps({"weight_map": {"a": "1.safetensors"}}).encode())
    checkpoint = Checkpoint(ObjectStore(f"{site.url}/m"), ["x.safetensors.index.json"])
    np.testing.assert_array_equal(checkpoint["a"], A)
    assert site.requests[-1][2] is not None


FAULTS: dict[str, tuple[Callable[[Any], Any], type[OSError], str]] = {
    "401": (lambda handler: handler.send_error(401) or True, PermissionError, r"may not be read: .*401 Unauthorized"),
    "403": (lambda handler: handler.send_error(403) or True, PermissionError, r"may not be read: .*403 Forbidden; ask"),
    "404": (lambda handler: handler.send_error(404) or True, FileNotFoundError, "does not exist"),
    "500": (lambda handler: handler.send_error(500) or True, ConnectionError, "after 2 retries.* 500 Internal Server"),
    "truncated": (lambda handler: handler.send_file(stop_after=7) or True, ConnectionError, "cannot be read"),
    "silent": (lambda handler: handler.site.go.wait() or True, ConnectionError, "cannot be read"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_faults_are_told(site: Any, patience: StoreOptions, kind: str) -> None:
    site.go = threading.Event()
    site.put("w", CONTENT)
    site.fault, error, text = FAULTS[kind]
    with pytest.raises(error, match=text) as caught:
        ObjectStore(site.url, patience).read("w", 0, 100)
    site.go.set()
    assert "\n" not in str(caught.value)
    assert "<html" not in str(caught.value)


def test_a_server_that_is_not_there(patience: StoreOptions) -> None:
    with pytest.raises(ConnectionError, match=r"http://127\.0\.0\.1:9/w cannot be read"):
        ObjectStore("http://127.0.0.1:9", patience).size("w")


@pytest.mark.parametrize("kind", ["500", "truncated"])
def test_passing_faults_are_got_over(site: Any, patience: StoreOptions, kind: str) -> None:
    site.put("w", CONTENT)
    fault = FAULTS[kind][0]
    site.fault = lambda handler: len(site.requests) <= 2 and fault(handler)
    assert bytes(ObjectStore(site.url, patience).read("w", 0, 100)) == CONTENT[:100]


def test_a_short_answer_and_a_server_without_ranges(site: Any, patience: StoreOptions) -> None:
    site.put("w", CONTENT)
    store = ObjectStore(site.url, patience)
    with pytest.raises(EOFError, match="50 from 10230"):
        store.read("w", len(CONTENT) - 10, 50)
    site.has_ranges = False
    with pytest.raises(NotImplementedError, match="Range request not supported"):
        store.read("w", 0, 5)


def test_a_change_is_seen_though_the_server_overlooks_if_match(site: Any) -> None:
    site.put("w", CONTENT)
    site.heeds_if_match = False
    store = ObjectStore(site.url)
    before = store.stat("w")
    site.put("w", CONTENT[::-1])
    with pytest.raises(FileChanged):
        store.read_part("w", (0, 5), before)


def test_weak_etags_are_compared_and_not_sent(site: Any) -> None:
    site.put("w", CONTENT)
    site.etag = lambda _: 'W/"1"'
    store = ObjectStore(site.url)
    store.read_part("w", (0, 5), store.stat("w"))
    assert "if-match" not in site.headers[-1]
    with pytest.raises(FileChanged):
        store.read_part("w", (0, 5), RemoteFile(len(CONTENT), 'W/"2"', 'W/"2"'))


def test_secrets_of_a_signed_url_are_not_shown(site: Any, patience: StoreOptions) -> None:
    url = site.put("d/w", CONTENT) + "?sig=secret"
    folder, name = split_url(url)
    assert ObjectStore(folder, patience).size(name) == len(CONTENT)
    site.fault = FAULTS["403"][0]
    with pytest.raises(PermissionError, match=r"/d/w may not be read") as caught:
        ObjectStore(folder, patience).size(name)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("ftp://host/w", "scheme 'ftp', which cannot be read; known are s3://"),
        ("gcs://b/w", "did you mean gs"),
        ("s3://w.safetensors", "names no file"),
        ("https://host/", "names no file"),
    ],
)
def test_urls_that_lead_nowhere(url: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        split_url(url)


def test_urls() -> None:
    assert split_url("s3://models/a/w%20.safetensors") == ("s3://models/a", "w%20.safetensors")
    assert split_url("https://host/a/w%20.safetensors") == ("https://host/a", "w .safetensors")
    assert shown("https://me:pw@host/a?token=1#x") == "https://host/a"


def test_a_missing_account_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(ValueError, match=r"az://c/p cannot be opened: .*Account must be.*set AZURE_STORAGE_ACCOUNT"):
        ObjectStore("az://c/p", environ={})


def test_azure_and_google_read_by_their_own_protocols(site: Any) -> None:
    site.put("c/p/w", CONTENT)
    site.date = "Tue, 01 Dec 2026 00:00:00 GMT"
    connection = f"AccountName=acct;AccountKey=a2V5;BlobEndpoint={site.url}"
    azure = ObjectStore("az://c/p", environ={"AZURE_STORAGE_CONNECTION_STRING": connection})
    assert bytes(azure.read("w", 5, 5)) == CONTENT[5:10]
    assert site.headers[-1]["authorization"].startswith("SharedKey acct:")

    google = ObjectStore("gs://c/p", environ={"STORAGE_EMULATOR_HOST": site.url})
    assert bytes(google.read("w", 5, 5)) == CONTENT[5:10]


def test_a_profile_of_the_aws_tools(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[profile lab]\nregion = eu-west-1\nendpoint_url = http://lab:9000\n")
    (tmp_path / "credentials").write_text("[lab]\naws_access_key_id = k%\naws_secret_access_key = s\n")
    environ = {
        "AWS_PROFILE": "lab",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
    }
    place = {"region": "eu-west-1", "endpoint": "http://lab:9000"}
    assert store_config("s3", environ) == {"access_key_id": "k%", "secret_access_key": "s"} | place
    assert store_config("s3", environ | {"AWS_ACCESS_KEY_ID": "x"}) == place
    assert store_config("s3", environ | {"AWS_REGION": "r", "AWS_ENDPOINT_URL": "http://e"})["endpoint"] == "http://e"
