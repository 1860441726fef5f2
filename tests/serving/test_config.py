from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidemill.errors import ConfigError
from tidemill.serving.config import ServerConfig, load_server_config


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("host: 0.0.0.0\nhttp_port: 1\ngrpc_port: 1\n")
    environ = {"TIDEMILL_HTTP_PORT": "2", "TIDEMILL_GRPC_PORT": "2", "TIDEMILL_SERVICE_HOST": "10.0.0.1", "HOST": "x"}
    config = load_server_config(file, environ, {"grpc_port": 3, "log_level": None})
    assert (config.host, config.http_port, config.grpc_port, config.log_level) == ("0.0.0.0", 2, 3, "info")


def test_without_sources_everything_has_a_default() -> None:
    assert load_server_config() == ServerConfig()


@pytest.mark.parametrize(
    ("text", "environ", "flags", "part"),
    [
        ("http_prot: 1", {}, {}, "unknown setting 'http_prot' (from {file}); known are host, http_port"),
        ("http_port: 70000", {}, {}, "setting 'http_port' (from {file}) is 70000"),
        ("", {"TIDEMILL_MAX_INFLIGHT": "many"}, {}, "setting 'max_inflight' (from environment) is 'many'"),
        ("", {}, {"drain_limit_seconds": -1.0}, "setting 'drain_limit_seconds' (from flag) is -1.0"),
        ("- a list", {}, {}, "must hold settings as `name: value`, not a list"),
        ("a: b: c", {}, {}, "is not YAML"),
    ],
)
def test_faults_name_the_setting_and_where_it_came_from(
    tmp_path: Path, text: str, environ: dict[str, str], flags: dict[str, Any], part: str
) -> None:
    file = tmp_path / "server.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_server_config(file, environ, flags)
    assert part.format(file=file) in str(caught.value)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none\.yaml"):
        load_server_config(tmp_path / "none.yaml")
