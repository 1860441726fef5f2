"""`tidemill serve`: the settings from the line, the rest from file and environment."""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemill.repository.mirror import Mirror
    from tidemill.repository.repository import Place

__all__ = ["add_arguments", "add_options", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "repository", nargs="+", help="folder that holds <model>/<version>/bundle.json, or s3://..., gs://..., az://..."
    )
    parser.add_argument("--model-name", metavar="NAME", help="the folder is a single model, to be served as NAME")
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the settings; what is not given comes from the environment, the file or the defaults."""
    parser.add_argument("--config", type=Path, help="a YAML file of settings")
    parser.add_argument("--host", help="address to listen on (127.0.0.1)")
    parser.add_argument("--http-port", type=int, help="port of REST (8000); 0 for a free one")
    parser.add_argument("--grpc-port", type=int, help="port of gRPC (8001); 0 for a free one")
    parser.add_argument("--max-request-bytes", type=int, help="largest request, decompressed")
    parser.add_argument("--max-inflight", type=int, help="most requests in the server at one time")
    parser.add_argument("--drain-window-seconds", type=float, help="how long to serve on after SIGTERM")
    parser.add_argument("--drain-limit-seconds", type=float, help="how long requests in flight may take after that")
    parser.add_argument(
        "--strict-readiness", action=argparse.BooleanOptionalAction, help="ready only if all models are"
    )
    parser.add_argument("--http-fast-lane", action=argparse.BooleanOptionalAction, help="REST's short way (on)")
    parser.add_argument("--grpc-fast-lane", action=argparse.BooleanOptionalAction, help="gRPC's own HTTP/2 (off)")
    parser.add_argument("--allow-code", action=argparse.BooleanOptionalAction, help="run pipeline.py files (off)")
    parser.add_argument("--artifact-dir", type=Path, help="where optimised graphs are kept for the next start")
    parser.add_argument("--precompiled", action=argparse.BooleanOptionalAction, help="compile nothing; load only those")
    parser.add_argument("--cache-bytes", type=int, help="memory for answers of models with response_cache")
    parser.add_argument("--cache-redis", metavar="URL", help="a Redis server that keeps those answers instead")
    parser.add_argument("--keys-file", type=Path, help="YAML file with the API keys of each group")
    parser.add_argument("--tls-certificate", type=Path, help="certificate chain as PEM, for both faces")
    parser.add_argument("--tls-key", type=Path, help="its private key as PEM")
    parser.add_argument("--tls-client-ca", type=Path, help="authorities that clients' certificates must come from")
    parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"])
    parser.add_argument("--log-format", choices=["text", "json"])


def execute(args: argparse.Namespace) -> int:
    """Serve the models of a repository until SIGTERM."""
    # The first process of a container never gets a signal that it does not handle. Until the server handles SIGTERM,
    # which takes about a second of imports, it ends the process.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # `tidemill drain` that comes as early has nothing to drain.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        return _serve(args)
    finally:
        signal.signal(signal.SIGTERM, before)


def _serve(args: argparse.Namespace) -> int:
    from tidemill.serving.config import ServerConfig, load_server_config
    from tidemill.serving.run import run

    repositories = _places(args.repository, getattr(args, "model_name", None))
    flags = {name: getattr(args, name, None) for name in ServerConfig.model_fields}
    return run(repositories, load_server_config(args.config, os.environ, flags))


def _places(given: Sequence[str | Path], name: str | None) -> list[Place]:
    from tidemill.errors import ConfigError
    from tidemill.repository.layout import OneModel
    from tidemill.weights.location import is_url

    places = [_mirror(place) if is_url(place) else Path(place) for place in given]
    if name is None:
        return list(places)
    if len(places) != 1:
        raise ConfigError(f"--model-name {name} names the model of one folder; {len(places)} were given")
    if not isinstance(places[0], Path):
        raise ConfigError(f"--model-name {name} takes a folder; fetch {given[0]} with `tidemill fetch`")
    return [OneModel(name, places[0])]


def _mirror(url: str | Path) -> Mirror:
    """A repository in a store, kept in the cache's folder."""
    from tidemill.errors import ConfigError
    from tidemill.repository.mirror import Mirror
    from tidemill.weights.cache import Cache
    from tidemill.weights.progress import progress_for

    try:
        folder = Cache.from_environment().root / "repositories" / hashlib.sha256(str(url).encode()).hexdigest()[:32]
        return Mirror(str(url), folder, progress=progress_for())
    except ValueError as error:
        raise ConfigError(str(error)) from None
