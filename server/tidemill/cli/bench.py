"""`tidemill bench`: the load, the data and the report from the line; everything else is `tidemill.bench`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tidemill.cli.addresses import add_headers, addresses, headers
from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from tidemill.bench import Load, Report, Settings
    from tidemill.protocol.types import Array, TensorSpec

__all__ = ["add_arguments", "execute"]

_T = TypeVar("_T", int, float)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("url", nargs="*", help="http://HOST:PORT, grpc://HOST:PORT or both (TIDEMILL_URL)")
    parser.add_argument("--model", "-m", help="the model's name")
    parser.add_argument("--version", default="", help="its version (the newest)")
    add_headers(parser)
    _add_load(parser.add_argument_group("load"))
    _add_data(parser.add_argument_group("data"))
    _add_windows(parser.add_argument_group("measuring"))
    _add_report(parser.add_argument_group("report"))


def _add_load(group: Any) -> None:
    group.add_argument("--concurrency", "-c", metavar="N,...", help="callers of a closed loop (1,8,32 without --rate)")
    group.add_argument("--rate", "-r", metavar="N,...", help="requests a second of an open loop")
    group.add_argument("--arrivals", choices=["poisson", "constant"], default="poisson", help="of the open loop")
    group.add_argument("--wire", "-w", metavar="NAME,...", help="json, binary, grpc, shm (binary, or grpc for grpc://)")
    group.add_argument("--processes", type=int, default=0, help="that make the load (as many as it needs)")
    group.add_argument("--max-inflight", type=int, default=256, help="connections of an open loop (256)")


def _add_data(group: Any) -> None:
    group.add_argument(
        *("--shape", "-s"), action="append", default=[], metavar="DIM=SIZE", help="size of a free dim: seq=64, seq=8:64"
    )
    group.add_argument(
        "--range", action="append", default=[], metavar="INPUT=LOW:HIGH", help="values of an input: input_ids=0:30521"
    )
    group.add_argument("--words", default="8:24", metavar="SIZE", help="words of a generated text (8:24)")
    group.add_argument(
        *("--data", "-d"), action="append", default=[], type=Path, metavar="FILE", help="recorded inputs instead"
    )
    group.add_argument(
        "--replay", metavar="FILE|URL", help="send what a server has recorded (its /v2/requests) again, at its times"
    )
    group.add_argument("--speed", type=float, default=1.0, metavar="N", help="of --replay: 2 for twice as fast (1)")
    group.add_argument("--texts", action="store_true", help="measure how texts are made, token by token (OpenAI's API)")
    group.add_argument("--tokens", default="16:128", metavar="SIZE", help="of an answer, with --texts (16:128)")
    group.add_argument("--seed", type=int, default=0, help="of data and arrivals (0)")


def _add_windows(group: Any) -> None:
    group.add_argument("--window", type=float, default=2.0, metavar="SECONDS", help="length of a window (2)")
    group.add_argument("--warmup", type=float, default=1.0, metavar="SECONDS", help="load that does not count (1)")
    group.add_argument("--windows", type=int, default=3, metavar="N", help="windows in a row that must agree (3)")
    group.add_argument("--max-windows", type=int, default=10, metavar="N", help="before giving up on that (10)")
    group.add_argument("--tolerance", type=float, default=0.1, metavar="SHARE", help="how well they must agree (0.1)")
    group.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="of one request (60)")


def _add_report(group: Any) -> None:
    group.add_argument("--json", type=Path, metavar="FILE", help="write the report; --compare reads it")
    group.add_argument("--plot", type=Path, metavar="FILE.png", help="write a picture")
    group.add_argument(
        "--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"), help="measure nothing; compare two reports"
    )


def execute(args: argparse.Namespace) -> int:
    """Measure a server's throughput and latency, or compare two measurements."""
    if args.compare:
        return _compare(*args.compare)
    if args.texts:
        return _texts(args)
    if args.replay:
        return _replay(args)
    from tidemill.bench import Windows, bench
    from tidemill.bench.progress import watching
    from tidemill.bench.table import report_table

    windows = Windows(args.window, args.warmup, args.windows, args.max_windows, args.tolerance)
    settings = _settings(args, windows)
    loads = _loads(args, settings)
    feeds = _feeds(args, settings)
    with watching(len(loads)) as watcher:
        report = bench(settings, loads, feeds, watcher)
    print(report_table(report))
    _write(report, args)
    return 0 if all(result.answered for result in report.results) else 1


def _settings(args: argparse.Namespace, windows: Any) -> Settings:
    from tidemill.bench import Settings

    if not (args.model or args.replay):
        raise ConfigError("name the model: tidemill bench --model NAME; tidemill client ls shows which there are")
    found = addresses(args.url)
    return Settings(
        model=args.model or "",
        version=args.version,
        http_url=found.get("http", ""),
        grpc_url=found.get("grpc", ""),
        headers=tuple(headers(args).items()),
        windows=windows,
        processes=args.processes,
        most_inflight=args.max_inflight,
        timeout_seconds=args.timeout,
        seed=args.seed,
    )


def _texts(args: argparse.Namespace) -> int:
    """The words of a prompt are `--words`; each load is measured for the time of its windows."""
    from tidemill.bench import Sizes
    from tidemill.bench.texts import TextLoad, bench_texts, texts_table

    settings = _settings(args, None)
    rates = _numbers(args.rate, "--rate", float)
    callers = _numbers(args.concurrency or ("" if rates else "1,4,8"), "--concurrency", int)
    common = TextLoad(
        url=settings.http_url,
        model=settings.model,
        prompt=Sizes.parse(args.words),
        tokens=Sizes.parse(args.tokens),
        seconds=args.window * args.windows,
        warmup=args.warmup,
        headers=settings.headers,
        timeout=args.timeout,
        seed=args.seed,
    )
    loads = [replace(common, concurrency=one) for one in callers] + [replace(common, rate=one) for one in rates]
    reports = [bench_texts(load) for load in loads]
    print(texts_table(reports))
    if args.json:
        document = {"model": settings.model, "texts": [report.to_document() for report in reports]}
        args.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


def _replay(args: argparse.Namespace) -> int:
    from tidemill.bench.replay import read_recording, replay, replay_table
    from tidemill.bench.target import Target

    settings = _settings(args, None)
    recorded = [one for one in read_recording(_recording(args)) if args.model in (None, one.model)]
    if not recorded:
        raise ConfigError(f"the recording holds no request for the model {args.model!r}")

    def signature(model: str, version: str) -> Sequence[TensorSpec]:
        with Target(replace(settings, model=model, version=version)) as target:
            return target.signature().inputs

    wire = args.wire or ("binary" if settings.http_url else "grpc")
    results = replay(settings, recorded, signature, wire, args.speed)
    print(replay_table(results))
    if args.json:
        document = {"replay": [result.to_document() for result in results]}
        args.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if all(result.replayed_ms for result in results) else 1


def _recording(args: argparse.Namespace) -> Any:
    """What a server tells of its last requests, or a file that holds it."""
    from tidemill.bench.target import fetch_recording

    source = str(args.replay)
    if source.startswith(("http://", "https://")):
        return fetch_recording(source, headers(args))
    try:
        return json.loads(Path(source).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {source}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{source} is no recording of /v2/requests: {error}") from error


def _loads(args: argparse.Namespace, settings: Settings) -> list[Load]:
    from tidemill.bench import Load

    wires = args.wire.split(",") if args.wire else ["binary" if settings.http_url else "grpc"]
    rates = _numbers(args.rate, "--rate", float)
    callers = _numbers(args.concurrency or ("" if rates else "1,8,32"), "--concurrency", int)
    closed = [Load(wire, concurrency=level) for wire in wires for level in callers]
    return closed + [Load(wire, rate=rate, arrivals=args.arrivals) for wire in wires for rate in rates]


def _numbers(text: str | None, flag: str, kind: type[_T]) -> list[_T]:
    try:
        return [kind(part) for part in text.split(",")] if text else []
    except ValueError:
        raise ConfigError(f"{flag} is {text!r}, expected numbers with commas between, such as 1,8,32") from None


def _feeds(args: argparse.Namespace, settings: Settings) -> Sequence[Mapping[str, Array]]:
    from tidemill.bench import Generator, Range, Sizes, generated
    from tidemill.bench.target import Target
    from tidemill.cli.tensor_files import read_requests

    with Target(settings) as target:
        specs = target.signature().inputs
    if args.data:
        return [feed for path in args.data for feed in read_requests(path, specs)]
    shapes = {name: Sizes.parse(size) for name, size in _pairs(args.shape, "--shape").items()}
    ranges = {name: Range.parse(text) for name, text in _pairs(args.range, "--range").items()}
    return generated(Generator(specs, shapes, ranges, Sizes.parse(args.words)), args.seed)


def _pairs(texts: Sequence[str], flag: str) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for name, sign, value in pairs:
        if not (name and value):
            raise ConfigError(f"{flag} is {name + sign + value!r}, expected NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _write(report: Report, args: argparse.Namespace) -> None:
    try:
        if args.json:
            args.json.write_text(json.dumps(report.to_document(), indent=1) + "\n", encoding="utf-8")
        if args.plot:
            from tidemill.bench.plot import write_plot

            write_plot(report, args.plot)
    except OSError as error:
        raise ConfigError(f"cannot write the report: {error}") from error


def _compare(before: Path, after: Path) -> int:
    from tidemill.bench import compare
    from tidemill.bench.table import comparison_table

    print(comparison_table(compare(_read(before), _read(after)), (before.stem, after.stem)))
    return 0


def _read(path: Path) -> Report:
    from tidemill.bench import Report

    try:
        return Report.from_document(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is no report of tidemill bench: {error}") from error
