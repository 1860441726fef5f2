from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidemill.adapters import open_adapter
from tidemill.adapters.adapter import Adapter
from tidemill.bundle.config import AdapterConfig, TextAdapterConfig
from tidemill.dtype import DType
from tidemill.errors import ConfigError, InvalidArgument
from tidemill.protocol.types import Array, TensorSpec

VOCABULARY = {"[PAD]": 7, "[UNK]": 1, "the": 2, "tide": 3, "turns": 4}


def tokens(name: str, dtype: DType = DType.int64, shape: tuple[int | str, ...] = ("batch", "seq")) -> TensorSpec:
    return TensorSpec(name, dtype, shape)


INPUTS = (tokens("input_ids"), tokens("attention_mask"))


def write_tokenizer(folder: Path, **sections: Any) -> None:
    document = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": VOCABULARY, "unk_token": "[UNK]"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(document | sections))


def adapter(folder: Path, inputs: tuple[TensorSpec, ...] = INPUTS, **options: Any) -> Adapter:
    opened = open_adapter(AdapterConfig(text=TextAdapterConfig(**options)), folder, inputs)
    assert opened is not None
    return opened


def texts(*values: str | bytes) -> dict[str, Array]:
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    return {"text": np.array(encoded, np.object_)}


def test_no_section_means_no_adapter(tmp_path: Path) -> None:
    assert open_adapter(None, tmp_path, INPUTS) is None
    assert open_adapter(AdapterConfig(), tmp_path, INPUTS) is None


def test_texts_become_ids_and_mask_padded_to_the_longest(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    text = adapter(tmp_path)
    assert text.inputs == (TensorSpec("text", DType.string, ("batch",)),)
    converted = text.convert(texts("the tide turns", "tide", ""))
    np.testing.assert_array_equal(converted["input_ids"], [[2, 3, 4], [3, 7, 7], [7, 7, 7]])
    np.testing.assert_array_equal(converted["attention_mask"], [[1, 1, 1], [1, 0, 0], [0, 0, 0]])
    assert {array.dtype for array in converted.values()} == {np.dtype(np.int64)}


@pytest.mark.parametrize(
    ("values", "shape"), [((), (0, 1)), (("",), (1, 1)), (("tide",), (1, 1)), (("the tide é😀", "tide"), (2, 4))]
)
def test_shapes(tmp_path: Path, values: tuple[str, ...], shape: tuple[int, int]) -> None:
    write_tokenizer(tmp_path)
    converted = adapter(tmp_path).convert(texts(*values))
    assert {array.shape for array in converted.values()} == {shape}


def test_padding_of_the_file_is_turned_off_and_its_pad_id_kept(tmp_path: Path) -> None:
    fixed = {"strategy": {"Fixed": 16}, "direction": "Right", "pad_to_multiple_of": None}
    write_tokenizer(tmp_path, padding=fixed | {"pad_id": 5, "pad_type_id": 0, "pad_token": "x"})
    converted = adapter(tmp_path).convert(texts("the tide", "tide"))
    np.testing.assert_array_equal(converted["input_ids"], [[2, 3], [3, 5]])


def test_texts_are_cut_to_the_configured_length(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    converted = adapter(tmp_path, max_length=2).convert(texts("the tide turns"))
    np.testing.assert_array_equal(converted["input_ids"], [[2, 3]])


def test_the_models_own_names_types_and_fixed_lengths_are_kept(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    inputs = (tokens("ids", DType.int32, ("n", 4)), TensorSpec("scale", DType.float32, ("n",)))
    text = adapter(tmp_path, inputs, input="sentence", ids="ids", mask=None)
    assert [spec.name for spec in text.inputs] == ["sentence", "scale"]
    scale = np.ones(1, np.float32)
    converted = text.convert({"sentence": np.array([b"the tide turns the tide"], np.object_), "scale": scale})
    np.testing.assert_array_equal(converted["ids"], np.array([[2, 3, 4, 2]], np.int32))
    assert converted["ids"].dtype == np.int32
    assert converted["scale"] is scale


def test_text_that_is_not_utf_8_is_refused_by_element(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    with pytest.raises(InvalidArgument, match="input 'text' is not UTF-8 in element 1"):
        adapter(tmp_path).convert(texts("tide", b"\xff\xfe"))


@pytest.mark.parametrize(
    ("inputs", "options", "part"),
    [
        (INPUTS, {"ids": "ids"}, "the model has no input 'ids'; it has input_ids: INT64"),
        ((tokens("input_ids", DType.float32),), {"mask": None}, "cannot take tokens"),
        ((tokens("input_ids", shape=("n",)),), {"mask": None}, "cannot take tokens"),
        (INPUTS, {"tokenizer": "other.json"}, "there is no file"),
        (INPUTS, {"tokenizer": "../tokenizer.json"}, "leads out of the model's folder"),
        (INPUTS, {"tokenizer": "model.yaml"}, "is no tokenizer file"),
    ],
)
def test_what_does_not_fit_is_a_configuration_error(
    tmp_path: Path, inputs: tuple[TensorSpec, ...], options: dict[str, Any], part: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    write_tokenizer(folder)
    (folder / "model.yaml").write_text("adapter: {}")
    with pytest.raises(ConfigError, match=part):
        adapter(folder, inputs, **options)
