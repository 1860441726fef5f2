"""Options of providers are right before a session is built, or name what was meant."""

from __future__ import annotations

import pytest

from tidemill.dtype import DType
from tidemill.engine import DimRange, Instance, InstanceOptions
from tidemill.engine.preload import tensorrt_libraries
from tidemill.engine.profiles import tensorrt_profiles
from tidemill.engine.provider_options import check_provider_options
from tidemill.errors import ConfigError
from tidemill.protocol.types import TensorSpec

CUDA, TENSORRT = "CUDAExecutionProvider", "TensorrtExecutionProvider"
GIB = 1 << 30


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {}),
        (
            {"cuda": {"gpu_mem_limit": 2 * GIB, "use_tf32": False, "cudnn_conv_algo_search": "HEURISTIC"}},
            {CUDA: {"gpu_mem_limit": "2147483648", "use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}},
        ),
        ({CUDA: {"device_id": "1"}}, {CUDA: {"device_id": "1"}}),
        (
            {"tensorrt": {"trt_fp16_enable": True, "trt_engine_cache_path": "engines"}, "cuda": {}},
            {TENSORRT: {"trt_fp16_enable": "1", "trt_engine_cache_path": "engines"}, CUDA: {}},
        ),
        ({"openvino": {"anything": 1}}, {"OpenVINOExecutionProvider": {"anything": "1"}}),
    ],
)
def test_options_become_text_by_full_name(options, expected):
    assert check_provider_options(options, ["tensorrt", "cuda", "openvino"]) == expected


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cuda": {"gpu_mem_limt": 1}}, "unknown option 'gpu_mem_limt' of provider cuda; did you mean 'gpu_mem_limit'"),
        ({"cuda": {"zzz": 1}}, "known are device_id, gpu_mem_limit"),
        ({"cuda": {"user_compute_stream": "140"}}, "unknown option 'user_compute_stream'"),
        ({"cuda": {"gpu_mem_limit": "2GB"}}, "cuda.gpu_mem_limit is '2GB'; it takes a whole number"),
        ({"cuda": {"gpu_mem_limit": -1}}, "it takes a whole number, 0 or more"),
        ({"cuda": {"use_tf32": "maybe"}}, "cuda.use_tf32 is 'maybe'; it takes 0, 1, true"),
        ({"cuda": {"arena_extend_strategy": "kNext"}}, "it takes kNextPowerOfTwo, kSameAsRequested"),
        ({"cpu": {"use_arena": 1}}, "unknown option 'use_arena' of provider cpu; known are none"),
        ({"tensorrt": {}}, "options for tensorrt, but the providers are CUDAExecutionProvider, CPUExecutionProvider"),
        ({"cudaa": {}}, "unknown provider 'cudaa', did you mean 'cuda'"),
    ],
)
def test_wrong_options_are_config_errors(options, text):
    with pytest.raises(ConfigError) as caught:
        check_provider_options(options, ["cuda", "cpu"])
    assert text in str(caught.value)


def test_a_typo_is_found_before_anything_is_loaded(stack):
    stack.graph_path.write_bytes(b"no model")

    with pytest.raises(ConfigError, match="did you mean 'gpu_mem_limit'"):
        Instance.open(stack, InstanceOptions(("cuda",), provider_options={"cuda": {"gpu_memlimit": 1}}))


INPUTS = [
    TensorSpec("ids", DType.int64, ("batch", "seq")),
    TensorSpec("image", DType.float32, ("batch", 3, 224, 224)),
    TensorSpec("scale", DType.float32, (1,)),
]
RANGES = {"batch": DimRange(1, 8, 32), "seq": DimRange(1, 128, 512)}


def test_profiles_follow_from_declared_ranges():
    assert tensorrt_profiles(INPUTS, RANGES) == {
        "trt_profile_min_shapes": "ids:1x1,image:1x3x224x224",
        "trt_profile_opt_shapes": "ids:8x128,image:8x3x224x224",
        "trt_profile_max_shapes": "ids:32x512,image:32x3x224x224",
    }
    assert tensorrt_profiles(INPUTS, {}) == {}
    assert tensorrt_profiles(INPUTS[2:], RANGES) == {}


@pytest.mark.parametrize(
    ("inputs", "ranges", "text"),
    [
        (INPUTS, {"batch": DimRange(1, 1, 1)}, r"ids: INT64\[batch, seq\] has seq, declared are batch"),
        ([TensorSpec("x", DType.float32, ("",))], RANGES, "has a nameless one"),
    ],
)
def test_a_profile_needs_every_dim(inputs, ranges, text):
    with pytest.raises(ConfigError, match=text):
        tensorrt_profiles(inputs, ranges)


@pytest.mark.parametrize("sizes", [(0, 1, 2), (2, 1, 3), (1, 4, 3), (-1, 1, 1)])
def test_ranges_are_in_order(sizes):
    with pytest.raises(ConfigError, match="least <= usual <= greatest"):
        DimRange(*sizes)


def test_tensorrts_libraries_are_found_in_order(tmp_path):
    for name in ("libnvonnxparser.so.10", "libnvinfer.so.10", "libnvinfer.so.11", "other.so"):
        (tmp_path / name).touch()

    found = tensorrt_libraries([tmp_path / "nowhere", tmp_path])

    assert [path.name for path in found] == ["libnvinfer.so.10", "libnvonnxparser.so.10"]
