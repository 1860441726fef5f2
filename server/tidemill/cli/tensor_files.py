"""Tensors out of files and words of the command line, as a model's signature wants them; knows no server."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from tidemill.cli.pictures import Normalisation, is_picture, read_picture
from tidemill.dtype import DType
from tidemill.errors import InvalidArgument
from tidemill.protocol.json_data import from_json
from tidemill.protocol.npy import from_npy
from tidemill.protocol.rest import parse_infer
from tidemill.protocol.safetensors_body import from_safetensors
from tidemill.protocol.types import Array, TensorSpec

__all__ = ["read_inputs", "read_requests"]

_NPY, _ZIP = b"\x93NUMPY", b"PK\x03\x04"
_FORMS = "--input NAME=VALUE, --input NAME=@FILE or --input @FILE (all inputs: .json, .npz, .safetensors; @- is stdin)"


def read_inputs(
    texts: Sequence[str], specs: Sequence[TensorSpec], pictures: Normalisation | None = None
) -> dict[str, Array]:
    """The inputs of one request.

    Args:
        texts: NAME=VALUE with JSON or plain text, NAME=@FILE for one input, @FILE for all of them.
        specs: The model's inputs.
        pictures: How pictures become floats.

    Raises:
        InvalidArgument: A file cannot be read, a name is not the model's, or a value does not fit; the message says
            which input and what was expected.
    """
    found: dict[str, Array] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if text.startswith("@"):
            found |= _all_inputs(text[1:], specs)
        elif not sign:
            raise InvalidArgument(f"--input is {text!r}, expected one of {_FORMS}")
        elif value.startswith("@"):
            found[name] = _one_input(value[1:], _spec(name, specs), pictures)
        else:
            found[name] = _from_text(value, _spec(name, specs))
    missing = [str(spec) for spec in specs if spec.name not in found]
    if missing:
        raise InvalidArgument(f"the model also takes {'; '.join(missing)}; give {_FORMS}")
    return found


def read_requests(path: Path, specs: Sequence[TensorSpec]) -> list[dict[str, Array]]:
    """The requests of a file: one of .npz, .safetensors or .json, one a line of .jsonl, all of {"data": [...]}.

    Raises:
        InvalidArgument: As `read_inputs`.
    """
    source = str(path)
    if path.suffix == ".jsonl":
        lines = _bytes(source).splitlines()
        return [_document(_json(line, source), specs, f"{source}:{at}") for at, line in enumerate(lines, 1) if line]
    data = _bytes(source)
    if not data.startswith(_ZIP) and not _is_safetensors(data):
        document = _json(data, source)
        if isinstance(document, dict) and isinstance(document.get("data"), list):
            return [_document(item, specs, f"{source}, data[{at}]") for at, item in enumerate(document["data"])]
    return [_all_inputs(source, specs)]


def _spec(name: str, specs: Sequence[TensorSpec]) -> TensorSpec:
    names = {spec.name: spec for spec in specs}
    if name in names:
        return names[name]
    near = get_close_matches(name, names, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise InvalidArgument(f"the model has no input {name!r}, it takes {', '.join(map(str, specs))}{hint}")


def _bytes(source: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise InvalidArgument(f"cannot read {source}: {error.strerror}") from error


def _all_inputs(source: str, specs: Sequence[TensorSpec]) -> dict[str, Array]:
    data = _bytes(source)
    if data.startswith(_ZIP):
        return {name: from_npy(part, _spec(name, specs).dtype, name=f"input {name!r}") for name, part in _npz(data)}
    if _is_safetensors(data):
        arrays = from_safetensors(data)[0]
        return {name: _checked(array, _spec(name, specs)) for name, array in arrays.items()}
    if data.startswith(_NPY):
        if len(specs) > 1:
            raise InvalidArgument(f"{source} holds one tensor, and the model takes {', '.join(map(str, specs))}")
        return {specs[0].name: _with_batch(from_npy(data, specs[0].dtype, name=f"input {specs[0].name!r}"), specs[0])}
    return _document(_json(data, source), specs, source)


def _npz(data: bytes) -> Iterable[tuple[str, bytes]]:
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        return [(name.removesuffix(".npy"), archive.read(name)) for name in archive.namelist()]
    except zipfile.BadZipFile as error:
        raise InvalidArgument(f"the .npz file is damaged: {error}") from error


def _is_safetensors(data: bytes) -> bool:
    """A length of 8 bytes, then JSON."""
    return len(data) > 8 and data[8:9] == b"{" and int.from_bytes(data[:8], "little") < len(data)


def _json(data: bytes, source: str) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise InvalidArgument(f"{source} is neither .npy, .npz nor safetensors, and no JSON: {error}") from None


def _document(document: Any, specs: Sequence[TensorSpec], source: str) -> dict[str, Array]:
    """A request of the protocol, or an object of values by input, each as a list or as {"content", "shape"}."""
    if not isinstance(document, dict):
        raise InvalidArgument(f"{source} holds no object with the inputs by name, such as {{{specs[0].name!r}: [...]}}")
    if isinstance(document.get("inputs"), list):
        return dict(parse_infer(json.dumps(document).encode(), None).inputs)
    return {name: _from_json(value, _spec(name, specs)) for name, value in document.items()}


def _from_json(value: Any, spec: TensorSpec) -> Array:
    name = f"input {spec.name!r}"
    if isinstance(value, dict):
        return from_json(value.get("content"), spec.dtype, value.get("shape", []), name=name)
    try:
        shape = np.array(value).shape
    except ValueError as error:
        raise InvalidArgument(f"{name} is no tensor, its lists differ in length: {error}") from None
    array = from_json(value if isinstance(value, list) else [value], spec.dtype, list(shape), name=name)
    return _with_batch(array, spec)


def _one_input(source: str, spec: TensorSpec, pictures: Normalisation | None) -> Array:
    data, label = _bytes(source), f"input {spec.name!r}"
    if data.startswith(_NPY):
        return _with_batch(from_npy(data, spec.dtype, name=label), spec)
    if data.startswith(_ZIP) or _is_safetensors(data):
        arrays = dict(_npz(data)) if data.startswith(_ZIP) else from_safetensors(data)[0]
        if spec.name not in arrays:
            raise InvalidArgument(f"{source} holds {', '.join(map(repr, arrays))}, not {spec.name!r}")
        found = arrays[spec.name]
        return from_npy(found, spec.dtype, name=label) if isinstance(found, bytes) else _checked(found, spec)
    if spec.dtype is DType.string:
        return _texts([data] if is_picture(data) else data.splitlines(), spec)
    if is_picture(data):
        return read_picture(data, spec, pictures or Normalisation())
    return _from_json(_json(data, source), spec)


def _from_text(text: str, spec: TensorSpec) -> Array:
    if spec.dtype is DType.string and not text.startswith("["):
        return _texts([text.encode()], spec)
    try:
        value = json.loads(text)
    except ValueError:
        raise InvalidArgument(
            f"input {spec.name!r} is {text!r}, expected JSON for {spec}, such as 1.5 or [1, 2]; a file is @FILE"
        ) from None
    return _from_json(value, spec)


def _texts(elements: Sequence[bytes], spec: TensorSpec) -> Array:
    array = np.empty(len(elements), dtype=np.object_)
    array[:] = elements
    # One element a row, whatever the rank is.
    return array.reshape([len(elements), *[1] * (len(spec.shape) - 1)])


def _checked(array: Array, spec: TensorSpec) -> Array:
    given = DType.from_numpy(array.dtype)
    if given is not spec.dtype:
        raise InvalidArgument(f"input {spec.name!r} is {given.wire} in the file, expected {spec.dtype.wire}")
    return _with_batch(array, spec)


def _with_batch(array: Array, spec: TensorSpec) -> Array:
    """One row where the batch axis was left out."""
    return array[None] if array.ndim == len(spec.shape) - 1 and not isinstance(spec.shape[0], int) else array
