"""The RPCs that change the server: models, shared memory, settings; knows messages and nothing of sockets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.errors import InvalidArgument, Unsupported
from tidemill.protocol.control import read_load_parameters, read_unload_parameters
from tidemill.serving.grpc.call import Answer, Context, read_message, write_message
from tidemill.serving.service import Service
from tidemill.serving.shared_memory import Region

__all__ = ["ControlAnswers"]

_NO_CUDA = "this server offers no CUDA shared memory; use system shared memory or send the tensors"


class ControlAnswers:
    """Each from the request's bytes to the response message."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def by_name(self) -> dict[str, Answer]:
        """The RPCs by their names."""
        return {
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
            "SystemSharedMemoryStatus": self._memory_status,
            "SystemSharedMemoryRegister": self._memory_register,
            "SystemSharedMemoryUnregister": self._memory_unregister,
            "CudaSharedMemoryStatus": self._cuda_status,
            "CudaSharedMemoryRegister": self._cuda_register,
            "CudaSharedMemoryUnregister": self._cuda_unregister,
            "TraceSetting": self._trace_setting,
            "LogSettings": self._log_settings,
        }

    async def _load(self, data: bytes, _context: Context) -> Any:
        request = read_message("RepositoryModelLoad", data)
        parameters = read_load_parameters(_chosen(request.parameters))
        await self._service.control.load(_model_of(request), parameters)
        return write_message("RepositoryModelLoad")

    async def _unload(self, data: bytes, _context: Context) -> Any:
        request = read_message("RepositoryModelUnload", data)
        dependents = read_unload_parameters(_chosen(request.parameters))
        await self._service.control.unload(_model_of(request), dependents=dependents)
        return write_message("RepositoryModelUnload")

    async def _memory_status(self, data: bytes, _context: Context) -> Any:
        request = read_message("SystemSharedMemoryStatus", data)
        response = write_message("SystemSharedMemoryStatus")
        for region in self._service.memory.regions(request.name):
            _describe(region, response.regions[region.name])
        return response

    async def _memory_register(self, data: bytes, _context: Context) -> Any:
        request = read_message("SystemSharedMemoryRegister", data)
        self._service.memory.register(request.name, request.key, request.byte_size, request.offset)
        return write_message("SystemSharedMemoryRegister")

    async def _memory_unregister(self, data: bytes, _context: Context) -> Any:
        request = read_message("SystemSharedMemoryUnregister", data)
        self._service.memory.unregister(request.name)
        return write_message("SystemSharedMemoryUnregister")

    async def _cuda_status(self, data: bytes, _context: Context) -> Any:
        if read_message("CudaSharedMemoryStatus", data).name:
            raise Unsupported(_NO_CUDA)
        return write_message("CudaSharedMemoryStatus")

    async def _cuda_register(self, _data: bytes, _context: Context) -> Any:
        raise Unsupported(_NO_CUDA)

    async def _cuda_unregister(self, _data: bytes, _context: Context) -> Any:
        return write_message("CudaSharedMemoryUnregister")

    async def _trace_setting(self, data: bytes, _context: Context) -> Any:
        request = read_message("TraceSetting", data)
        changes = {name: tuple(setting.value) for name, setting in request.settings.items()}
        self._service.update_trace_settings(changes, request.model_name)
        response = write_message("TraceSetting")
        for name, values in self._service.trace_settings(request.model_name).items():
            response.settings[name].value.extend(values)
        return response

    async def _log_settings(self, data: bytes, _context: Context) -> Any:
        request = read_message("LogSettings", data)
        self._service.update_log_settings(_chosen(request.settings))
        response = write_message("LogSettings")
        for name, value in self._service.logs.get().items():
            field = {bool: "bool_param", int: "uint32_param", str: "string_param"}[type(value)]
            setattr(response.settings[name], field, value)
        return response


def _model_of(request: Any) -> str:
    # KServe's messages have the model's name in field 1, where Triton's have the repository's.
    if request.repository_name and request.model_name:
        raise Unsupported("repositories have no names here; leave repository_name empty")
    return str(request.model_name or request.repository_name)


def _chosen(parameters: Mapping[str, Any]) -> dict[str, object]:
    """The values of parameters, each of whatever type the caller chose."""
    values: dict[str, object] = {}
    for name, choice in parameters.items():
        field = choice.WhichOneof("parameter_choice")
        if field is None:
            raise InvalidArgument(f"parameter {name!r} has no value")
        values[name] = getattr(choice, field)
    return values


def _describe(region: Region, target: Any) -> None:
    target.name, target.key = region.name, region.key
    target.offset, target.byte_size = region.offset, region.byte_size
