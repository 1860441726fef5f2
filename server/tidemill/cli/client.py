"""`tidemill client`: what a server offers, and one question to it; knows nothing but tidemill's client."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.cli.addresses import add_headers, headers, open_client
from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from tidemill.cli.pictures import Normalisation
    from tidemill.client import Client
    from tidemill.protocol.types import TensorSpec

__all__ = ["add_arguments", "execute"]

_URL = "http://HOST:PORT or grpc://HOST:PORT (TIDEMILL_URL, else http://localhost:8000)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("ls", help="the models of a server, and their states")
    show = actions.add_parser("show", help="a model's inputs and outputs")
    infer = actions.add_parser("infer", help="ask a model")
    for action in (show, infer):
        action.add_argument("model", help="the model's name")
        action.add_argument("--version", default="", help="its version (the newest)")
    for action in (listing, show, infer):
        action.add_argument("url", nargs="?", default="", help=_URL)
        add_headers(action)
    for action in (listing, show):
        action.add_argument("--json", action="store_true", help="JSON instead of a table")
    _add_infer(infer)


def _add_infer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        *("--input", "-i"),
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="JSON or text; NAME=@FILE (.npy, .npz, .safetensors, JSON, text, picture); @FILE for all; @- for stdin",
    )
    parser.add_argument("--select", action="append", default=[], metavar="OUTPUT", help="an output to ask for (all)")
    parser.add_argument("--format", choices=["table", "json", "npy", "safetensors"], help="of the answer (table)")
    parser.add_argument("--out", "-o", type=Path, metavar="FILE", help="where to; the ending tells the format")
    parser.add_argument("--mean", default="0", metavar="N,N,N", help="of a picture's colours, scaled to 0..1 (0)")
    parser.add_argument("--deviation", default="1", metavar="N,N,N", help="likewise (1)")
    parser.add_argument("--id", default="", help="shows in the server's logs")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="until giving up (60)")


def execute(args: argparse.Namespace) -> int:
    """List a server's models, show one, or ask it."""
    action = {"ls": _list, "show": _show, "infer": _infer}[args.action]
    with open_client(args.url, headers(args)) as client:
        return action(client, args)


def _list(client: Client, args: argparse.Namespace) -> int:
    index = client.index()
    rows = [(it.name, it.version or "-", it.state or "not loaded", it.reason) for it in index]
    if args.json:
        keys = ("name", "version", "state", "reason")
        _print_json([dict(zip(keys, row, strict=True)) for row in rows])
        return 0
    table = [("MODEL", "VERSION", "STATE", ""), *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _show(client: Client, args: argparse.Namespace) -> int:
    metadata = client.metadata(args.model, args.version)
    if args.json:
        from tidemill.protocol.metadata import format_model_metadata

        _print_json(format_model_metadata(metadata))
        return 0
    print(f"model    {metadata.name}")
    print(f"versions {', '.join(metadata.versions) or '-'}")
    print(f"platform {metadata.platform or '-'}")
    print(f"ready    {'yes' if client.model_ready(args.model, args.version) else 'no'}")
    for kind, specs in (("input", metadata.inputs), ("output", metadata.outputs)):
        for spec in specs:
            print(f"{kind:8} {spec}")
    print(f"try      tidemill client infer {args.model} {_example(metadata.inputs)}")
    return 0


def _example(specs: tuple[TensorSpec, ...]) -> str:
    return " ".join(f"--input {spec.name}={'TEXT' if spec.dtype.name == 'string' else '@FILE'}" for spec in specs)


def _infer(client: Client, args: argparse.Namespace) -> int:
    from tidemill.cli.answers import answer_format, write_answer
    from tidemill.cli.tensor_files import read_inputs

    form = answer_format(args.format, args.out)
    specs = client.metadata(args.model, args.version).inputs
    answer = client.infer(
        args.model,
        read_inputs(args.input, specs, _normalisation(args)),
        version=args.version,
        outputs=args.select,
        id=args.id,
        timeout=args.timeout,
    )
    write_answer(answer, form, args.out)
    return 0


def _normalisation(args: argparse.Namespace) -> Normalisation:
    from tidemill.cli.pictures import Normalisation

    return Normalisation(_colours(args.mean, "--mean"), _colours(args.deviation, "--deviation"))


def _colours(text: str, flag: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) not in (1, 3):
        raise ConfigError(f"{flag} is {text!r}, expected one number or three with commas between")
    return numbers * 3 if len(numbers) == 1 else numbers


def _print_json(document: object) -> None:
    import json

    json.dump(document, sys.stdout, indent=1)
    print()
