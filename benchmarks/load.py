"""Served requests against the bare runtime, side by side in one run: what does serving cost?"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import time
from contextlib import ExitStack
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from contenders import (
    Contender,
    Cores,
    answers,
    check_answer,
    free_ports,
    http,
    infer_request,
    make_feed,
    open_raw,
    pin,
    raw,
    running,
)

HERE = Path(__file__).parent


def main() -> None:
    settings = _settings()
    cores = Cores.chosen()
    pin(cores.client)
    with ExitStack() as servers:
        contenders = _contenders(settings, cores, servers)
        _measure(contenders, settings)
    _print(contenders)
    _write(contenders, settings, cores)


def _settings() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repository", type=Path, default=Path("models"), help="built by `make bench`")
    parser.add_argument("--models", nargs="+", default=["mlp", "minilm"])
    parser.add_argument("--connections", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--rounds", type=int, default=5, help="stretches of each contender, in shuffled order")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a stretch")
    parser.add_argument("--seed", type=int, default=0, help="of the order")
    return parser.parse_args()


def _contenders(settings: argparse.Namespace, cores: Cores, servers: ExitStack) -> list[Contender]:
    port, grpc_port = free_ports(2)
    serve = ["-m", "tidemill.cli", "serve", str(settings.repository), "--host", "127.0.0.1"]
    ports = ["--http-port", str(port), "--grpc-port", str(grpc_port)]
    servers.enter_context(running([*serve, *ports], cores, lambda: answers(port, "/v2/health/ready")))
    found: list[Contender] = []
    for model in settings.models:
        found += _of_model(model, port, settings, cores, servers)
    return found


def _of_model(model: str, port: int, settings: argparse.Namespace, cores: Cores, servers: ExitStack) -> list[Contender]:
    session = open_raw(settings.repository, model)
    feed = make_feed(session, 1)
    request = infer_request(model, feed, [spec.name for spec in session.get_outputs()])
    length = check_answer(port, request, session, feed)
    (floor,) = free_ports(1)
    command = [str(HERE / "floor.py"), str(floor), str(length)]
    servers.enter_context(running(command, cores, lambda: answers(floor, "/")))
    most = max(settings.connections)
    return [
        raw(session, model, 1, cores),
        raw(session, model, most, cores),
        *(http("tidemill", model, port, request, connections) for connections in settings.connections),
        http("floor", model, floor, request, most),
    ]


def _measure(contenders: list[Contender], settings: argparse.Namespace) -> None:
    """One stretch each to warm up, then the rounds; whatever disturbs the machine hits all alike."""
    for contender in contenders:
        contender.measure(settings.seconds / 2)
    order = random.Random(settings.seed)
    for _ in range(settings.rounds):
        for contender in order.sample(contenders, len(contenders)):
            contender.rounds.append(contender.measure(settings.seconds))


def _rows_per_second(contender: Contender) -> list[float]:
    return [it.requests_per_second * contender.rows for it in contender.rounds]


def _shares(contender: Contender, bare: Contender) -> list[float]:
    """Rows a second over those of the bare runtime, round by round."""
    return [a / b for a, b in zip(_rows_per_second(contender), _rows_per_second(bare), strict=True)]


def _bare(contenders: list[Contender], model: str) -> Contender:
    return next(it for it in contenders if it.model == model and it.name == "onnxruntime")


def _print(contenders: list[Contender]) -> None:
    print(f"{'model':10}{'contender':32}{'rows/s':>10}{'min..max':>18}{'p50 ms':>9}{'p99 ms':>9}{'of bare':>9}")
    for it in contenders:
        rate = _rows_per_second(it)
        share = statistics.median(_shares(it, _bare(contenders, it.model)))
        p50, p99 = (statistics.median(getattr(round_, name) for round_ in it.rounds) for name in ("p50_ms", "p99_ms"))
        spread = f"{min(rate):.0f}..{max(rate):.0f}"
        print(f"{it.model:10}{it.name:32}{statistics.median(rate):10.0f}{spread:>18}{p50:9.2f}{p99:9.2f}{share:9.3f}")


def _write(contenders: list[Contender], settings: argparse.Namespace, cores: Cores) -> None:
    result = {
        "settings": {name: str(value) if isinstance(value, Path) else value for name, value in vars(settings).items()},
        "machine": _machine() | {"cores": asdict(cores)},
        "contenders": [_record(it, _bare(contenders, it.model)) for it in contenders],
    }
    target = HERE / "results" / f"load-{time.strftime('%Y%m%d-%H%M%S')}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written to {os.path.relpath(target)}")


def _record(contender: Contender, bare: Contender) -> dict[str, Any]:
    return {
        "model": contender.model,
        "contender": contender.name,
        "rows": contender.rows,
        "share_of_bare": statistics.median(_shares(contender, bare)),
        "rounds": [asdict(it) for it in contender.rounds],
    }


def _machine() -> dict[str, Any]:
    packages = {name: version(name) for name in ("tidemill", "onnxruntime", "numpy", "uvicorn", "uvloop")}
    return {"cpus": os.cpu_count(), "architecture": platform.machine(), "python": platform.python_version(), **packages}


if __name__ == "__main__":
    main()
