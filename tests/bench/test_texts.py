"""`tidemill bench --texts` against a server whose counts are known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from talker import write_talker
from zoo_server import serving

from tidemill.bench.sizes import Sizes
from tidemill.bench.texts import TextLoad, bench_texts, texts_table
from tidemill.cli.main import main
from tidemill.errors import InferenceFailed


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    repository = tmp_path_factory.mktemp("texts")
    write_talker(repository / "talker")
    with serving(repository) as addresses:
        yield f"http://{addresses['http']}"


def load(url: str, **fields: object) -> TextLoad:
    sizes = {"prompt": Sizes.parse("2:6"), "tokens": Sizes.parse("7")}
    return TextLoad(url=url, model="talker", seconds=0.5, warmup=0.1, **{**sizes, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("how", [{"concurrency": 3}, {"rate": 20.0}], ids=str)
def test_tokens_are_counted_and_timed(url: str, how: dict[str, float]) -> None:
    report = bench_texts(load(url, **how))
    assert report.failed == 0
    assert report.texts > 3
    assert report.tokens_per_second > 7
    for times in (report.first, report.between, report.whole):
        assert list(times) == sorted(times)
    assert report.first[0] + 6 * report.between[0] == pytest.approx(report.whole[0], rel=0.5)
    table = texts_table([report])
    assert len(table.splitlines()) == 2


def test_what_is_refused_is_told(url: str) -> None:
    with pytest.raises(InferenceFailed, match="room for 256"):
        bench_texts(load(url, concurrency=1, tokens=Sizes.parse("999")))


def test_from_the_line(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "report.json"
    line = ["bench", url, "--model", "talker", "--texts", "--tokens", "5", "--words", "3", "--concurrency", "2"]
    assert main([*line, "--window", "0.3", "--windows", "1", "--warmup", "0.1", "--json", str(target)]) == 0
    assert "first token ms" in capsys.readouterr().out
    (report,) = json.loads(target.read_text())["texts"]
    assert report["load"] == "2 callers"
    assert report["failed"] == 0
