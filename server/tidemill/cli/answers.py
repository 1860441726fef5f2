"""Answers as tables, JSON, .npy and safetensors; knows no server."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tidemill.dtype import DType
from tidemill.errors import ConfigError
from tidemill.protocol.json_data import to_json
from tidemill.protocol.npy import to_npy
from tidemill.protocol.safetensors_body import to_safetensors
from tidemill.protocol.types import Array

__all__ = ["answer_format", "write_answer"]

_FORMATS = {".json": "json", ".npy": "npy", ".safetensors": "safetensors", ".txt": "table"}
_MOST_SHOWN = 8
_DIGITS = 4


def answer_format(given: str | None, path: Path | None) -> str:
    """The format asked for, else that of the file's ending, else a table.

    Raises:
        ConfigError: The ending is none of the known ones, or bytes would go to a terminal.
    """
    if given is None and path is not None and path.suffix not in _FORMATS:
        raise ConfigError(f"{path} has no known ending ({', '.join(_FORMATS)}); give --format")
    found = given or (_FORMATS[path.suffix] if path else "table")
    if found in ("npy", "safetensors") and path is None and sys.stdout.isatty():
        raise ConfigError(f"{found} are bytes, which a terminal cannot show; give --out FILE or a pipe")
    return found


def write_answer(answer: Mapping[str, Array], form: str, path: Path | None) -> None:
    """Write all outputs to a file, or to stdout.

    Raises:
        ConfigError: The file cannot be written, or .npy is to hold several outputs.
        InvalidArgument: An output has no exact form in this format.
    """
    data = _encode(answer, form)
    try:
        if path is not None:
            path.write_bytes(data)
            return
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # The reader has seen enough; without this, Python would complain once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error


def _encode(answer: Mapping[str, Array], form: str) -> bytes:
    if form == "json":
        import orjson

        nested = {name: to_json(array, nested=True, name=f"output {name!r}") for name, array in answer.items()}
        return orjson.dumps(nested, option=orjson.OPT_INDENT_2) + b"\n"
    if form == "npy":
        if len(answer) != 1:
            raise ConfigError(f".npy holds one tensor, the answer has {', '.join(answer)}; name one with --select")
        return to_npy(next(iter(answer.values())))
    if form == "safetensors":
        return b"".join(to_safetensors(answer, {}))
    return _table(answer).encode()


def _table(answer: Mapping[str, Array]) -> str:
    """A line an output, then its first numbers, row by row."""
    lines = []
    for name, array in answer.items():
        dtype = DType.from_numpy(array.dtype)
        lines.append(f"{name}: {dtype.wire}{list(array.shape)}")
        rows = array.reshape(array.shape[0] if array.ndim else 1, -1) if array.size else array.reshape(0, 0)
        lines += [f"  {_row(row)}" for row in rows[:_MOST_SHOWN]]
        if len(rows) > _MOST_SHOWN:
            lines.append(f"  ... {len(rows) - _MOST_SHOWN} more rows")
    return "\n".join(lines) + "\n"


def _row(row: Array) -> str:
    more = f"  ... {row.size - _MOST_SHOWN} more" if row.size > _MOST_SHOWN else ""
    return "  ".join(_cell(value) for value in row[:_MOST_SHOWN]) + more


def _cell(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, np.generic) and value.dtype.kind not in "biu":
        return f"{float(value):.{_DIGITS}f}"
    return str(value)
