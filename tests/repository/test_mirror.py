"""A repository in a real S3 store, kept as a folder and served from it."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from reloading import loaded, states, value

from tidemill.cli import main
from tidemill.errors import LoadFailed
from tidemill.repository import Repository
from tidemill.repository.mirror import Mirror
from tidemill.weights.objectstore import StoreOptions

WriteModel = Callable[..., Path]
URL = "s3://models/production"
PATIENCE = StoreOptions(connect_seconds=2, stall_seconds=2, retries=0, backoff_seconds=0.01)

pytestmark = pytest.mark.usefixtures("restored_logging")


@pytest.fixture(autouse=True)
def _empty(bucket: Any) -> None:
    bucket.objects.all().delete()


def put(bucket: Any, root: Path, prefix: str = "production") -> None:
    """Copy a repository into the bucket."""
    for file in root.rglob("*"):
        if file.is_file():
            bucket.upload_file(str(file), f"{prefix}/{file.relative_to(root).as_posix()}")


def content(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("."))
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def test_the_folder_becomes_what_the_store_holds(bucket: Any, write_model: WriteModel, tmp_path: Path) -> None:
    root = write_model("value", "v", k=1, config={"max_batch_size": 4})
    write_model("two")
    put(bucket, root)
    mirror = Mirror(URL, tmp_path / "mirror", PATIENCE)
    assert mirror.renew() == ["two/1", "v/1", "v/model.yaml"]
    assert content(mirror.path) == content(root)
    assert mirror.renew() == []
    assert Mirror(URL, mirror.path, PATIENCE).renew() == []


def test_only_what_changed_is_fetched_and_what_is_gone_goes(
    bucket: Any, write_model: WriteModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = write_model("value", "v", k=1)
    write_model("two")
    put(bucket, root)
    mirror = Mirror(URL, tmp_path / "mirror", PATIENCE)
    mirror.renew()
    kept = (mirror.path / "v" / "1").stat().st_ino
    write_model("value", "v", version=2, k=2)
    put(bucket, root / "v" / "2", "production/v/2")
    bucket.objects.filter(Prefix="production/two/").delete()
    assert mirror.renew() == ["two/1", "v/2"]
    assert (mirror.path / "v" / "1").stat().st_ino == kept
    assert sorted(path.name for path in mirror.path.iterdir()) == [".mirror.json", ".mirror.lock", "v"]


def test_a_version_that_is_half_there_or_damaged_is_not_taken(
    bucket: Any, write_model: WriteModel, tmp_path: Path
) -> None:
    root = write_model("value", "v", k=1)
    put(bucket, root)
    mirror = Mirror(URL, tmp_path / "mirror", PATIENCE)
    mirror.renew()
    before = content(mirror.path)
    model = bytearray((root / "v" / "1" / "model.onnx").read_bytes())
    model[-1] ^= 1
    bucket.put_object(Key="production/v/1/model.onnx", Body=bytes(model))
    with pytest.raises(LoadFailed, match=r"model\.onnx has sha256"):
        mirror.renew()
    bucket.Object("production/v/1/model.onnx").delete()
    with pytest.raises(LoadFailed, match=r"model\.onnx belongs to the bundle and is missing"):
        mirror.renew()
    assert content(mirror.path) == before
    assert sorted(path.name for path in (mirror.path / "v").iterdir()) == ["1"]


def test_names_that_lead_elsewhere_are_passed_over(bucket: Any, write_model: WriteModel, tmp_path: Path) -> None:
    put(bucket, write_model("two"))
    for key in ("production/.hidden/1/model.onnx", "production/readme.md", "production/two/.x/model.onnx"):
        bucket.put_object(Key=key, Body=b"x")
    mirror = Mirror(URL, tmp_path / "deep" / "mirror", PATIENCE)
    assert mirror.renew() == ["two/1"]
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["mirror"]


def test_a_store_that_cannot_be_read_changes_nothing(
    bucket: Any, write_model: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(bucket, write_model("two"))
    mirror = Mirror(URL, tmp_path / "mirror", PATIENCE)
    mirror.renew()
    before = content(mirror.path)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(LoadFailed, match="the repository s3://models/production cannot be fetched"):
        Mirror(URL, mirror.path, PATIENCE).renew()
    assert content(mirror.path) == before


async def test_a_new_version_in_the_store_is_served_by_the_next_look(
    bucket: Any, write_model: WriteModel, tmp_path: Path
) -> None:
    root = write_model("value", "v", k=1)
    put(bucket, root)
    repository = Repository.open([Mirror(URL, tmp_path / "mirror", PATIENCE)])
    await repository.load_all()
    assert await value(repository) == 1
    write_model("value", "v", version=2, k=2)
    put(bucket, root)
    for _ in range(2):  # seen once, and still the same at the second look
        await repository.poll()
    assert await value(repository) == 2
    bucket.put_object(Key="production/v/3/bundle.json", Body=b"{}")
    await repository.poll()
    assert await value(repository) == 2
    assert states(repository)["2"] == "READY"
    repository.close()


async def test_a_model_is_loaded_anew_on_demand(bucket: Any, write_model: WriteModel, tmp_path: Path) -> None:
    root = write_model("value", "v", k=1)
    put(bucket, root)
    repository = Repository.open([Mirror(URL, tmp_path / "mirror", PATIENCE)])
    await repository.load_all()
    write_model("value", "v", k=5)
    put(bucket, root)
    await repository.load("v")
    assert await value(repository) == 5
    repository.close()


def test_fetch_says_what_changed(
    bucket: Any, write_model: WriteModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_model("two")
    put(bucket, root)
    assert main(["fetch", URL, "--repository", str(tmp_path / "here")]) == 0
    assert capsys.readouterr().out.splitlines() == ["two/1", f"{tmp_path / 'here'} is what {URL} is; 1 changed"]
    assert content(tmp_path / "here") == content(root)
    assert main(["fetch", "ftp://a/b", "--repository", str(tmp_path / "here")]) == 1
    assert "ftp" in capsys.readouterr().err


async def test_a_server_serves_a_url(bucket: Any, write_model: WriteModel, tmp_path: Path) -> None:
    put(bucket, write_model("two"))
    command = [sys.executable, "-m", "tidemill.cli", "serve", URL, "--http-port", "0", "--grpc-port", "0"]
    environment = {**os.environ, "TIDEMILL_CACHE": str(tmp_path / "cache")}
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, env=environment)
    try:
        assert process.stdout
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        port = re.findall(r"127\.0\.0\.1:(\d+)", line)[0]
        body = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            answer = (await client.post("/v2/models/two/infer", json=body)).json()
        assert answer["outputs"][0]["data"] == [2.0, 3.0]
    finally:
        process.kill()
        await process.communicate()


async def test_a_folder_beside_a_store_is_served_too(bucket: Any, write_model: WriteModel, tmp_path: Path) -> None:
    put(bucket, write_model("value", "v", k=1))
    local = write_model("two", repository=tmp_path / "local")
    repository = Repository.open([local, Mirror(URL, tmp_path / "mirror", PATIENCE)])
    await repository.load_all()
    assert repository.names() == ["two", "v"]
    repository.close()
    assert (await loaded(local)).names() == ["two"]


def test_a_folder_of_somebody_elses_is_left_alone(bucket: Any, write_model: WriteModel, tmp_path: Path) -> None:
    put(bucket, write_model("two"))
    (tmp_path / "mine" / "thesis").mkdir(parents=True)
    with pytest.raises(LoadFailed, match="which would be lost"):
        Mirror(URL, tmp_path / "mine", PATIENCE).renew()
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis"]


def test_an_address_without_models_removes_nothing(bucket: Any, write_model: WriteModel, tmp_path: Path) -> None:
    put(bucket, write_model("two"))
    mirror = Mirror(URL, tmp_path / "mirror", PATIENCE)
    mirror.renew()
    (mirror.path / "own").mkdir()
    with pytest.raises(LoadFailed, match="holds no model"):
        Mirror(f"{URL}x", mirror.path, PATIENCE).renew()
    assert mirror.renew() == []
    assert sorted(path.name for path in mirror.path.iterdir() if path.name[0] != ".") == ["own", "two"]


def test_empty_files_in_the_names_of_folders_are_none(bucket: Any, write_model: WriteModel, tmp_path: Path) -> None:
    put(bucket, write_model("two"))
    for key in ("production/", "production/two/", "production/two/1/"):
        bucket.put_object(Key=key, Body=b"")
    assert Mirror(URL, tmp_path / "mirror", PATIENCE).renew() == ["two/1"]


def test_what_a_process_left_that_ended_is_removed(bucket: Any, write_model: WriteModel, tmp_path: Path) -> None:
    put(bucket, write_model("two"))
    mirror = Mirror(URL, tmp_path / "mirror", PATIENCE)
    mirror.renew()
    (mirror.path / "two" / ".2.deadbeef").mkdir()
    (mirror.path / "two" / "7").mkdir()  # put in its place, and the process ended before it noted that
    assert mirror.renew() == ["two/7"]
    assert [path.name for path in (mirror.path / "two").iterdir()] == ["1"]


@pytest.mark.parametrize("index", ["[]", '{"../victim": {}}', '{"two/1": 3}', "nonsense"])
def test_an_index_that_is_none_harms_nothing(bucket: Any, write_model: WriteModel, tmp_path: Path, index: str) -> None:
    put(bucket, write_model("two"))
    mirror = Mirror(URL, tmp_path / "mirror", PATIENCE)
    mirror.renew()
    (tmp_path / "victim").mkdir()
    (mirror.path / ".mirror.json").write_text(index)
    assert mirror.renew() == ["two/1"]
    assert (tmp_path / "victim").is_dir()
