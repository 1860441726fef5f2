"""The `tidemill` command: parses the line and hands over; each command imports what it needs only when it runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tidemill.cli import (
    bench,
    build,
    cache,
    check,
    client,
    completion,
    drain,
    fetch,
    health,
    importing,
    inspect,
    quantize,
    serve,
    zoo,
)
from tidemill.errors import TidemillError

__all__ = ["main", "make_parser"]

_COMMANDS = {
    "serve": serve,
    "build": build,
    "zoo": zoo,
    "import": importing,
    "quantize": quantize,
    "check": check,
    "inspect": inspect,
    "cache": cache,
    "fetch": fetch,
    "health": health,
    "drain": drain,
    "client": client,
    "bench": bench,
    "completion": completion,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: The arguments; those of the process by default.

    Returns:
        The exit status: 0 for success, 1 for an error that was printed.
    """
    args = make_parser().parse_args(argv)
    try:
        return int(_COMMANDS[args.command].execute(args))
    except TidemillError as error:
        print(f"tidemill {args.command}: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tidemill"):
            raise
        print(f"tidemill {args.command} needs the package {error.name!r}; {_INSTALL[args.command]}", file=sys.stderr)
        return 1
    except ImportError as error:
        # A client's facade says itself what to install.
        print(f"tidemill {args.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


_INSTALL = {
    "serve": "run: pip install 'tidemill[server,cpu]' (with an NVIDIA GPU: 'tidemill[server,gpu]')",
    "build": "run: pip install 'tidemill[zoo]'",
    "zoo": "run: pip install 'tidemill[zoo,server,cpu]'",
    "import": "run: pip install 'tidemill[author]'",
    "quantize": "run: pip install 'tidemill[author,cpu]'",
    "check": "run: pip install 'tidemill[author,cpu]'",
    "inspect": "run: pip install 'tidemill[author]'",
    "cache": "run: pip install 'tidemill[objectstore]'",
    "fetch": "run: pip install 'tidemill[objectstore,author]'",
    "drain": "run: pip install tidemill",
    "client": "run: pip install 'tidemill[client,grpc]'",
    "bench": "run: pip install 'tidemill[bench]'",
    "health": "run: pip install 'tidemill[client,grpc]'",
}


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser("tidemill", description="Serve ONNX models, batched, over HTTP and gRPC.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in _COMMANDS.items():
        summary = (command.execute.__doc__ or "").partition("\n")[0]
        command.add_arguments(commands.add_parser(name, help=summary, description=summary))
    return parser
