"""What may be said to an execution provider, checked before a session is built; knows no session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TypeAlias

from tidemill.engine.providers import (
    CPU_PROVIDER,
    CUDA_PROVIDER,
    TENSORRT_PROVIDER,
    resolve_provider,
    resolve_providers,
)
from tidemill.errors import ConfigError

__all__ = ["OptionValue", "check_provider_options", "place_options"]

OptionValue: TypeAlias = str | int | float | bool

_FLAG = ("0", "1", "true", "false", "True", "False")


def check_provider_options(
    options: Mapping[str, Mapping[str, OptionValue]], providers: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Options as ONNX Runtime takes them: text by option by full provider name.

    Args:
        options: Values by option by provider: `{"cuda": {"gpu_mem_limit": 2 << 30}}`.
        providers: What the model is asked to run on; short or full names.

    Raises:
        ConfigError: A provider is not among these, an option is unknown (the nearest is named), or a value is none
            that the option takes.
    """
    asked = resolve_providers(providers)
    checked: dict[str, dict[str, str]] = {}
    for name, values in options.items():
        provider = resolve_provider(name)
        if provider not in asked:
            raise ConfigError(f"there are options for {name}, but the providers are {', '.join(asked)}")
        checked[provider] = {key: _check(name, provider, key, value) for key, value in values.items()}
    return checked


def place_options(options: Mapping[str, Mapping[str, OptionValue]]) -> list[str]:
    """The options, as `provider.key`, that say where a file is; of a provider without a table, all that are text.

    Raises:
        ConfigError: A provider is unknown.
    """
    return [
        f"{name}.{key}"
        for name, values in options.items()
        for key, value in values.items()
        if _may_be_place(_KNOWN.get(resolve_provider(name)), key, value)
    ]


def _may_be_place(known: Mapping[str, str | tuple[str, ...]] | None, key: str, value: OptionValue) -> bool:
    return isinstance(value, str) if known is None else known.get(key) == "place"


def _check(name: str, provider: str, key: str, value: OptionValue) -> str:
    known = _KNOWN.get(provider)
    text = str(int(value)) if isinstance(value, bool) else str(value)
    if known is None:  # a provider that tidemill has no table for checks by itself, when the session is built
        return text
    if key not in known:
        close = get_close_matches(key, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known) or 'none'}"
        raise ConfigError(f"unknown option {key!r} of provider {name}; {hint}")
    _check_value(f"{name}.{key}", known[key], text)
    return text


def _check_value(where: str, kind: str | tuple[str, ...], text: str) -> None:
    if isinstance(kind, tuple):
        if text not in kind:
            raise ConfigError(f"provider option {where} is {text!r}; it takes {', '.join(kind)}")
    elif kind == "number" and not text.isdecimal():
        raise ConfigError(f"provider option {where} is {text!r}; it takes a whole number, 0 or more")


# Options that take an address in this process (streams, allocators) are left out: a configuration cannot know one.
_CUDA: dict[str, str | tuple[str, ...]] = {
    "device_id": "number",
    "gpu_mem_limit": "number",
    "arena_extend_strategy": ("kNextPowerOfTwo", "kSameAsRequested"),
    "cudnn_conv_algo_search": ("EXHAUSTIVE", "HEURISTIC", "DEFAULT"),
    "cudnn_conv_use_max_workspace": _FLAG,
    "cudnn_conv1d_pad_to_nc1d": _FLAG,
    "do_copy_in_default_stream": _FLAG,
    "enable_cuda_graph": _FLAG,
    "enable_skip_layer_norm_strict_mode": _FLAG,
    "fuse_conv_bias": _FLAG,
    "prefer_nhwc": _FLAG,
    "sdpa_kernel": "number",
    "tunable_op_enable": _FLAG,
    "tunable_op_tuning_enable": _FLAG,
    "tunable_op_max_tuning_duration_ms": "number",
    "use_ep_level_unified_stream": _FLAG,
    "use_tf32": _FLAG,
}
_TENSORRT: dict[str, str | tuple[str, ...]] = {
    "device_id": "number",
    "trt_auxiliary_streams": "number",
    "trt_bf16_enable": _FLAG,
    "trt_build_heuristics_enable": _FLAG,
    "trt_builder_optimization_level": "number",
    "trt_context_memory_sharing_enable": _FLAG,
    "trt_cuda_graph_enable": _FLAG,
    "trt_detailed_build_log": _FLAG,
    "trt_dla_core": "number",
    "trt_dla_enable": _FLAG,
    "trt_dump_ep_context_model": _FLAG,
    "trt_dump_subgraphs": _FLAG,
    "trt_engine_cache_enable": _FLAG,
    "trt_engine_cache_path": "place",
    "trt_engine_cache_prefix": "place",
    "trt_engine_hw_compatible": _FLAG,
    "trt_ep_context_embed_mode": _FLAG,
    "trt_ep_context_file_path": "place",
    "trt_force_sequential_engine_build": _FLAG,
    "trt_force_timing_cache": _FLAG,
    "trt_fp16_enable": _FLAG,
    "trt_int8_calibration_table_name": "place",
    "trt_int8_enable": _FLAG,
    "trt_int8_use_native_calibration_table": _FLAG,
    "trt_layer_norm_fp32_fallback": _FLAG,
    "trt_load_user_initializer": _FLAG,
    "trt_max_partition_iterations": "number",
    "trt_max_workspace_size": "number",
    "trt_min_subgraph_size": "number",
    "trt_op_types_to_exclude": "text",
    "trt_preview_features": "text",
    "trt_profile_max_shapes": "text",
    "trt_profile_min_shapes": "text",
    "trt_profile_opt_shapes": "text",
    "trt_sparsity_enable": _FLAG,
    "trt_tactic_sources": "text",
    "trt_timing_cache_enable": _FLAG,
    "trt_timing_cache_path": "place",
    "trt_weight_stripped_engine_enable": _FLAG,
}
_KNOWN: dict[str, dict[str, str | tuple[str, ...]]] = {
    CPU_PROVIDER: {},
    CUDA_PROVIDER: _CUDA,
    TENSORRT_PROVIDER: _TENSORRT,
}
