"""`tidemill drain`: tells a running server of this machine to become not ready and to serve on."""

from __future__ import annotations

import argparse
import os
import signal

__all__ = ["add_arguments", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("pid", type=int, nargs="?", default=1, help="the server's process; 1, as in a container")


def execute(args: argparse.Namespace) -> int:
    """Take a running server out of the balancer: it is not ready from now on, serves on, and ends at SIGTERM."""
    from tidemill.errors import ConfigError

    try:
        os.kill(args.pid, signal.SIGUSR1)
    except ProcessLookupError:
        raise ConfigError(f"there is no process {args.pid}") from None
    except PermissionError:
        raise ConfigError(f"process {args.pid} belongs to another user") from None
    print(f"process {args.pid} was told to drain")
    return 0
