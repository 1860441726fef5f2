"""The server: one service behind a REST and a gRPC face."""

from __future__ import annotations

from tidemill.serving.config import ServerConfig, load_server_config
from tidemill.serving.run import Server, run
from tidemill.serving.service import Service

__all__ = ["Server", "ServerConfig", "Service", "load_server_config", "run"]
