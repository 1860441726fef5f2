"""Servers side by side on the same models, core and load: `make bench`."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h2load
import numpy as np
import onnxruntime as ort
import report
import servers
from contenders import Contender, Target, bare, open_bare, served
from encoded import WIRES, check
from models import MODELS, Feed, Model, build
from processes import Cores, free_ports, pin, running

_FEEDS = 16


def main() -> None:
    settings = _settings()
    version, cores = h2load.require_h2load(), Cores.chosen()
    build(settings.models, settings.repository)
    pin(cores.load)
    contenders: list[Contender] = []
    for workload in settings.models:
        with ExitStack() as stack:
            found = list(_contenders(Workload.of(workload, settings), settings, cores, stack))
            _measure(found, settings)
        contenders += found
    _report(contenders, settings, {"h2load": version, "cores": f"server {cores.server}, load {cores.load}"})


def _report(contenders: list[Contender], settings: argparse.Namespace, more: dict[str, str]) -> None:
    report.print_table(contenders)
    machine = report.describe_machine({**more, **servers.versions(settings.servers)})
    target = report.write_json(contenders, settings, machine)
    print(f"\nwritten to {target}")
    if settings.plot:
        report.write_plot(contenders, target.with_suffix(".png"))
        print(f"and to {target.with_suffix('.png')}")


def _settings() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    # h2load sends one body again and again, so it cannot drive those whose lengths differ.
    alike = [name for name, model in MODELS.items() if model.lengths[0] == model.lengths[1]]
    _add_choice(parser, "--models", alike, alike)
    _add_choice(parser, "--servers", list(servers.SERVERS), servers.at_hand())
    parser.add_argument("--wires", nargs="+", choices=WIRES, default=list(WIRES), help="of those that a server speaks")
    parser.add_argument("--connections", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--rounds", type=int, default=3, help="stretches of each contender, in shuffled order")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a stretch, at least 1")
    parser.add_argument("--seed", type=int, default=0, help="of the order and the data")
    parser.add_argument("--repository", type=Path, default=Path(".cache/bench-models"), help="where models are built")
    parser.add_argument("--plot", action=argparse.BooleanOptionalAction, default=True, help="a PNG beside the JSON")
    return parser.parse_args()


@dataclass(frozen=True)
class Workload:
    """What is asked, and what is right."""

    name: str
    model: Model
    repository: Path
    session: ort.InferenceSession
    feeds: list[Feed]
    expected: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, settings: argparse.Namespace) -> Workload:
        """Seeded feeds (one unless their lengths differ) and the bare runtime's answer to the first."""
        model, rng = MODELS[name], np.random.default_rng(settings.seed)
        feeds = [model.feed(rng) for _ in range(_FEEDS if model.lengths[0] != model.lengths[1] else 1)]
        session = open_bare(settings.repository, model)
        names = [it.name for it in session.get_outputs()]
        expected = dict(zip(names, session.run(names, dict(feeds[0])), strict=True))
        return cls(name, model, settings.repository.absolute() / model.served, session, feeds, expected)


def _add_choice(parser: argparse.ArgumentParser, flag: str, known: list[str], default: list[str]) -> None:
    parser.add_argument(flag, nargs="+", choices=known, default=default, metavar="NAME", help=", ".join(known))


def _contenders(
    workload: Workload, settings: argparse.Namespace, cores: Cores, stack: ExitStack
) -> Iterator[Contender]:
    for rows in workload.model.batches:
        yield bare(workload.name, workload.session, workload.feeds, rows, cores)
    for name, server in {**servers.FLOORS, **{name: servers.SERVERS[name] for name in settings.servers}}.items():
        wires = [wire for wire in settings.wires if wire in server.wires]
        if not wires:
            continue
        reply = sum(array.nbytes for array in workload.expected.values())
        place = servers.Place(workload.repository, workload.model.served, tuple(free_ports(4)), reply)
        pid = stack.enter_context(running(server.launch(place), cores.server, workload.repository / f"{name}.log"))
        for wire in wires:
            target = _target(server, wire, place, pid, workload)
            for connections in settings.connections:
                yield served(workload.name, name, wire, connections, target, cores)


def _target(server: servers.Server, wire: str, place: servers.Place, pid: int, workload: Workload) -> Target:
    outputs = list(workload.expected)
    requests = [server.wires[wire](place.model, feed, outputs) for feed in workload.feeds]
    port = place.ports[1 if requests[0].http2 else 0]
    if server.checked:
        check(port, requests[0], place.model, workload.feeds[0], workload.expected)
    return Target(port, pid, requests)


def _measure(contenders: list[Contender], settings: argparse.Namespace) -> None:
    """One stretch each to warm up, then the rounds; whatever disturbs the machine hits all alike."""
    for contender in contenders:
        contender.measure(settings.seconds / 2)
    order = random.Random(settings.seed)
    for turn in range(settings.rounds):
        for contender in order.sample(contenders, len(contenders)):
            contender.rounds.append(contender.measure(settings.seconds))
            print(f"round {turn + 1} {contender.workload}: {contender}", file=sys.stderr)


if __name__ == "__main__":
    main()
