"""g2p against the numbers of the package's own numpy code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tidemill.dtype import DType
from tidemill.engine import InferenceSession
from tidemill.graph import TensorType
from tidemill.modelzoo.g2p import G2P, GRAPHEMES, NAMES, PHONEMES, pronounce, spell
from tidemill.weights import open_checkpoint


def test_the_alphabets_are_the_packages(expected: Callable[[str], Any]) -> None:
    assert list(GRAPHEMES) == expected("g2p_gru")["graphemes"]
    assert list(PHONEMES) == expected("g2p_gru")["phonemes"]


def test_every_word_sounds_as_in_the_package(open_model: Callable[..., Any], expected: Callable[[str], Any]) -> None:
    run = open_model("g2p").run
    for case in expected("g2p_gru")["cases"]:
        (row,) = run({"letters": spell(case["word"])})["phonemes"]
        assert pronounce(row) == case["phonemes"], case["word"]


def test_words_of_a_padded_batch_sound_as_alone(open_model: Callable[..., Any], expected: Callable[[str], Any]) -> None:
    cases = expected("g2p_gru")["cases"]
    letters = np.concatenate([spell(case["word"], length=18) for case in cases])
    rows = open_model("g2p").run({"letters": letters})["phonemes"]
    assert [pronounce(row) for row in rows] == [case["phonemes"] for case in cases]


def test_state_and_first_step_are_the_packages(built: Callable[[str], Path], expected: Callable[[str], Any]) -> None:
    values = open_checkpoint(built("g2p") / "g2p" / "1" / "weights.safetensors", rename=NAMES)
    model, session = G2P(), InferenceSession()

    def part(name: str, *types: TensorType) -> Any:
        module = model.sublayers[name]
        module.load_state_dict({local: values[f"{name}.{local}"] for local in module.raw_state_dict()})
        return module.compile(*types, session=session)

    encode = part("encoder", TensorType(DType.int64, ["batch", "letters"]))
    speak = part("decoder", TensorType(DType.int64, ["batch", 1]), TensorType(DType.float32, ["batch", 256]))
    for case in expected("g2p_gru")["cases"]:
        (state,) = encode(spell(case["word"]))
        np.testing.assert_allclose(state.to_numpy()[0, :8], case["encoder_state_first8"], atol=1e-5)
        logits, _ = speak(np.array([[2]]), state)
        np.testing.assert_allclose(logits.to_numpy()[0, :8], case["first_step_logits_first8"], atol=1e-4)
