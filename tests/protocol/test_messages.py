"""The message classes: made from the committed descriptors, apart from any other library's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from tritonclient.grpc import service_pb2

from tidemill.protocol import messages
from tidemill.protocol.rpc import METHODS, SERVICE, Method

PROTO = Path(__file__).parents[2] / "proto" / "inference.proto"


def test_committed_descriptors_match_the_proto_file(tmp_path: Path) -> None:
    made = tmp_path / "made.binpb"
    arguments = ["-I", str(PROTO.parent), f"--descriptor_set_out={made}", str(PROTO)]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *arguments], check=True)
    committed = FileDescriptorSet.FromString(messages.FILE.read_bytes())
    assert FileDescriptorSet.FromString(made.read_bytes()) == committed, "run `make proto`"


def test_the_default_pool_stays_free_for_other_libraries() -> None:
    default = descriptor_pool.Default()
    assert messages.POOL is not default
    assert messages.ModelInferRequest.DESCRIPTOR is not service_pb2.ModelInferRequest.DESCRIPTOR


@pytest.mark.parametrize("first", ["tidemill.protocol.rpc", "tritonclient.grpc"])
def test_tidemill_and_tritonclient_load_in_either_order(first: str) -> None:
    program = f"import {first}, tidemill.protocol.rpc, tritonclient.grpc"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_unknown_message_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no message 'Nonsense'"):
        _ = messages.Nonsense


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_each_method_has_the_fields_of_tritonclient(method: Method) -> None:
    assert len(METHODS) == 20
    service = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    theirs = service.methods_by_name[method.name]
    assert service.full_name == SERVICE
    assert theirs.server_streaming == method.streaming
    for mine, other in ((method.request, theirs.input_type), (method.response, theirs.output_type)):
        _assert_same(mine.DESCRIPTOR, other, set())


def _assert_same(mine: Descriptor, theirs: Descriptor, seen: set[str]) -> None:
    if mine.full_name in seen:
        return
    seen.add(mine.full_name)
    ours = {field.number: field for field in mine.fields}
    for field in theirs.fields:
        assert (ours[field.number].name, ours[field.number].type) == (field.name, field.type)
        if field.message_type:
            _assert_same(ours[field.number].message_type, field.message_type, seen)
