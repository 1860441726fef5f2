"""The forms in which inference travels over REST: what each reads from a body and writes into one; knows no sockets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from starlette.datastructures import Headers, QueryParams

from tidemill.errors import InvalidArgument
from tidemill.protocol import rest
from tidemill.protocol.generate import format_generated, parse_generate
from tidemill.protocol.npy import from_npy, to_npy
from tidemill.protocol.predict import format_predictions, parse_predict
from tidemill.protocol.raw import only_input, parse_raw_infer
from tidemill.protocol.requested import ReadRegion
from tidemill.protocol.safetensors_body import from_safetensors, to_safetensors
from tidemill.protocol.types import InferRequest, InferResponse, ModelMetadata, RequestedOutput
from tidemill.serving.http.body import Buffer
from tidemill.serving.service import Service

__all__ = ["Call", "Form", "Generate", "GenerateStream", "OpenInference", "Predict", "Written", "infer_form"]

NPY = "application/x-npy"
SAFETENSORS = "application/vnd.safetensors"
RAW = "application/x-raw"
_SYNONYMS = {
    "application/npy": NPY,
    "application/safetensors": SAFETENSORS,
    "application/x-safetensors": SAFETENSORS,
}
_MEDIA = ("image/", "audio/", "video/")


@dataclass(frozen=True, slots=True)
class Call:
    """One request for one model, before its body is read."""

    service: Service
    model: str
    version: str
    headers: Headers
    query: QueryParams

    @property
    def metadata(self) -> ModelMetadata:
        """The model's signature."""
        return self.service.model_metadata(self.model, self.version)

    @property
    def read_region(self) -> ReadRegion:
        """Reads this request's inputs in shared memory."""
        return self.service.memory.reader()


@dataclass(frozen=True, slots=True)
class Written:
    """A body in parts, and the headers that describe it."""

    buffers: Sequence[Buffer]
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})


class Form(Protocol):
    """One way to ask and to answer."""

    def read(self, body: Buffer, call: Call) -> InferRequest:
        """Read a decompressed body; InvalidArgument if it is not of this form."""

    def write(self, response: InferResponse, request: InferRequest, /) -> Written:
        """Write the answer to `request`; InvalidArgument if this form cannot hold it."""


class OpenInference:
    """JSON with binary tensors after it: the protocol's own form."""

    def read(self, body: Buffer, call: Call) -> InferRequest:
        """Read JSON and what follows it, or a raw request."""
        json_length = rest.parse_header_length(call.headers.get(rest.HEADER_LENGTH))
        if json_length == 0:
            return parse_raw_infer(body, call.metadata, model_version=call.version)
        return rest.parse_infer(
            body, json_length, model_name=call.model, model_version=call.version, read_region=call.read_region
        )

    def write(self, response: InferResponse, request: InferRequest, /) -> Written:
        """Write each output in the form that it was asked for."""
        json_length, buffers = rest.format_infer_response(response, request)
        if json_length is None:
            return Written(buffers)
        return Written(buffers, {"content-type": "application/octet-stream", rest.HEADER_LENGTH: str(json_length)})


class Raw(OpenInference):
    """One tensor's bytes, or a file such as an image for a BYTES input; answered in the protocol's own form."""

    def read(self, body: Buffer, call: Call) -> InferRequest:
        """Read the bytes of the model's only input."""
        return _asking(parse_raw_infer(body, call.metadata, model_version=call.version), call)


class Npy:
    """One tensor as numpy's file format."""

    def read(self, body: Buffer, call: Call) -> InferRequest:
        """Read the model's only input."""
        spec = only_input(call.metadata)
        array = from_npy(body, spec.dtype, name=f"input {spec.name!r}")
        return _asking(InferRequest(call.model, {spec.name: array}, call.version), call)

    def write(self, response: InferResponse, _request: InferRequest, /) -> Written:
        """Write the only output."""
        if len(response.outputs) != 1:
            names = ", ".join(map(repr, response.outputs))
            raise InvalidArgument(
                f"a .npy file holds one tensor, the model answers {names}; ask for one with ?output=NAME"
            )
        (array,) = response.outputs.values()
        return Written([to_npy(array)], {"content-type": NPY})


class Safetensors:
    """Tensors by name as a safetensors document."""

    def read(self, body: Buffer, call: Call) -> InferRequest:
        """Read the inputs."""
        inputs, metadata = from_safetensors(body)
        return _asking(InferRequest(call.model, inputs, call.version, id=metadata.get("id", "")), call)

    def write(self, response: InferResponse, _request: InferRequest, /) -> Written:
        """Write the outputs."""
        metadata = {"model_name": response.model_name, "model_version": response.model_version}
        if response.id:
            metadata["id"] = response.id
        return Written(to_safetensors(response.outputs, metadata), {"content-type": SAFETENSORS})


class Generate:
    """One flat JSON object in, one out."""

    def read(self, body: Buffer, call: Call) -> InferRequest:
        """Read the inputs by their names."""
        return parse_generate(body, call.metadata, model_version=call.version)

    def write(self, response: InferResponse, _request: InferRequest, /) -> Written:
        """Write the outputs by their names."""
        return Written([format_generated(response)])


class GenerateStream(Generate):
    """The same, answered as server-sent events."""

    def write(self, response: InferResponse, _request: InferRequest, /) -> Written:
        """Write one event."""
        headers = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        return Written([b"data: ", format_generated(response), b"\n\n"], headers)


class Predict:
    """KServe's first protocol."""

    def read(self, body: Buffer, call: Call) -> InferRequest:
        """Read rows, or whole tensors."""
        request, by_rows = parse_predict(body, call.metadata, model_version=call.version)
        return replace(request, parameters={"by_rows": by_rows})

    def write(self, response: InferResponse, request: InferRequest, /) -> Written:
        """Answer as was asked."""
        return Written([format_predictions(response, by_rows=bool(request.parameters["by_rows"]))])


class _Mixed:
    """Asked in one form and answered in another."""

    def __init__(self, reader: Form, writer: Form) -> None:
        self._reader = reader
        self._writer = writer

    def read(self, body: Buffer, call: Call) -> InferRequest:
        return self._reader.read(body, call)

    def write(self, response: InferResponse, request: InferRequest, /) -> Written:
        return self._writer.write(response, request)


_FORMS: dict[str, Form] = {NPY: Npy(), SAFETENSORS: Safetensors(), RAW: Raw()}
_OWN: Form = OpenInference()


def infer_form(headers: Headers) -> Form:
    """The form of a call to /infer: the protocol's own, unless the content type names another one.

    Clients of the protocol send no content type, or a misleading one; so only types that they never send count. The
    answer comes in the form that Accept names, else in that of the request.
    """
    reader = _named(headers.get("content-type", ""))
    accepted = [_plain(part) for part in headers.get("accept", "").split(",")]
    writer = next((_FORMS[kind] for kind in accepted if kind in (NPY, SAFETENSORS)), None)
    if writer is None and "application/json" in accepted:
        writer = _OWN
    return reader if writer is None or writer is reader else _Mixed(reader, writer)


def _named(content_type: str) -> Form:
    kind = _plain(content_type)
    return _FORMS[RAW] if kind.startswith(_MEDIA) else _FORMS.get(kind, _OWN)


def _plain(content_type: str) -> str:
    kind = content_type.partition(";")[0].strip().lower()
    return _SYNONYMS.get(kind, kind)


def _asking(request: InferRequest, call: Call) -> InferRequest:
    """The request with the outputs that the query asks for; forms without JSON have no other place for them."""
    names = call.query.getlist("output")
    outputs = tuple(RequestedOutput(name, binary=True) for name in dict.fromkeys(names))
    parameters: dict[str, Any] = dict(request.parameters)
    if "application/json" in map(_plain, call.headers.get("accept", "").split(",")):
        parameters.pop("binary_data_output", None)
        outputs = tuple(replace(output, binary=False) for output in outputs)
    return replace(request, outputs=outputs, parameters=parameters)
