from __future__ import annotations

import json
import logging

import pytest

from tidemill.serving.logs import configure_logs

pytestmark = pytest.mark.usefixtures("restored_logging")


def test_json_lines_carry_extras_and_exceptions(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("info", "json")
    log = logging.getLogger("tidemill.test")
    log.info("loaded %s", "é", extra={"model": "m"})
    log.debug("not shown")
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("failed")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["level"], first["logger"], first["message"], first["model"]) == (
        "info",
        "tidemill.test",
        "loaded é",
        "m",
    )
    assert "ValueError: broken" in second["exception"]


def test_libraries_are_heard_from_warnings_on(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("debug", "text")
    logging.getLogger("some.library").info("quiet")
    logging.getLogger("some.library").warning("heard")
    logging.getLogger("tidemill.x").debug("own")
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2] for line in lines] == ["heard", "own"]
