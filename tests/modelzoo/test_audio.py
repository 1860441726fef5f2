"""Silero VAD, the speaker encoder and CREPE against the numbers of the original implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidemill.dtype import DType
from tidemill.engine import Instance
from tidemill.graph import TensorType
from tidemill.modelzoo.package_files import needed_weights, package_file
from tidemill.modelzoo.silero_vad import CHUNK, SileroVAD, example_inputs
from tidemill.weights import open_checkpoint

RECORDING = Path(__file__).parents[1] / "data" / "models" / "goforward.raw"


def recording() -> np.ndarray[Any, Any]:
    """ "Go forward ten meters" at 16 kHz, in whole chunks: float32 [chunks, 512]."""
    audio = np.fromfile(RECORDING, "<i2").astype(np.float32) / 32768
    return audio[: len(audio) // CHUNK * CHUNK].reshape(-1, CHUNK)


def listen(run: Callable[[Mapping[str, Any]], Any], chunks: np.ndarray[Any, Any]) -> tuple[list[float], Any]:
    """The probability of each chunk, sent one after the other, and the last answer."""
    state, answers = example_inputs(), []
    for chunk in chunks:
        answers.append(run({**state, "audio": chunk[None]}))
        state = {name: answers[-1][f"next_{name}"] for name in ("context", "hidden", "cell")}
    return [float(answer["probability"][0]) for answer in answers], answers[-1]


def test_silero_hears_the_recording(open_model: Callable[..., Any], expected: Callable[[str], Any]) -> None:
    numbers = expected("silero_vad")
    probabilities, last = listen(open_model("silero-vad").run, recording())
    np.testing.assert_allclose(probabilities, numbers["prob"], atol=1e-5)
    np.testing.assert_allclose(last["next_hidden"][0, :8], numbers["final_state_h_first8"], atol=2e-5)
    np.testing.assert_allclose(last["next_cell"][0, :8], numbers["final_state_c_first8"], atol=2e-5)
    heard = np.flatnonzero(np.array(probabilities) > 0.5)
    assert (heard[0], heard[-1]) == (numbers["first_speech_frame"], numbers["last_speech_frame"])


def test_silero_hears_nothing_in_silence(open_model: Callable[..., Any], expected: Callable[[str], Any]) -> None:
    probabilities, _ = listen(open_model("silero-vad").run, np.zeros((3, CHUNK), np.float32))
    np.testing.assert_allclose(probabilities, expected("silero_vad")["zeros_chunk_prob_first3"], atol=1e-5)


def test_silero_with_the_wheels_other_values(tmp_path: Path, expected: Callable[[str], Any]) -> None:
    """The safetensors file of the same wheel holds an older training, under other names."""
    numbers = expected("silero_vad")
    try:
        file = package_file("silero_vad", "data/silero_vad_16k.safetensors")
    except ModuleNotFoundError as missing:
        pytest.skip(str(missing))
    model = SileroVAD()
    names = {scripted.removeprefix("_model."): name for name, scripted in numbers["name_map"].items()}
    types = [TensorType(DType.float32, ["batch", array.shape[1]]) for array in example_inputs().values()]
    bundle = model.bundle(*types, weights=needed_weights(model, open_checkpoint(file, rename=names)))
    probabilities, last = listen(Instance.open(bundle.write(tmp_path / "1")).run, recording())
    np.testing.assert_allclose(probabilities, numbers["safetensors_prob"], atol=1e-5)
    np.testing.assert_allclose(last["next_hidden"][0, :8], numbers["safetensors_final_h_first8"], atol=2e-5)


def test_silero_streams_of_one_batch_do_not_hear_each_other(open_model: Callable[..., Any]) -> None:
    run, chunks = open_model("silero-vad").run, recording()
    streams = np.stack([chunks[20:30], chunks[5:15], chunks[:10] * 0])
    state = {name: np.repeat(array, 3, axis=0) for name, array in example_inputs().items()}
    together = []
    for place in range(10):
        answer = run({**state, "audio": streams[:, place]})
        together.append(answer["probability"])
        state = {name: answer[f"next_{name}"] for name in ("context", "hidden", "cell")}
    alone = [listen(run, stream)[0] for stream in streams]
    np.testing.assert_allclose(np.array(together).T, alone, atol=1e-5)


def test_speaker_encoder_gives_pytorchs_embedding(
    open_model: Callable[..., Any], expected: Callable[[str], Any]
) -> None:
    numbers = expected("resemblyzer")
    mels = np.random.default_rng(0).random((2, 160, 40), dtype=np.float32)
    embedding = open_model("speaker-encoder").run({"mels": mels})["embedding"]
    np.testing.assert_allclose(embedding[:, :16], numbers["output_first16"], atol=2e-6)
    np.testing.assert_allclose(embedding.sum(axis=1), numbers["output_sum"], atol=1e-4)


@pytest.mark.parametrize("pitch", ["110", "220", "440", "880"])
def test_crepe_hears_the_pitch_of_a_sine(
    pitch: str, open_model: Callable[..., Any], expected: Callable[[str], Any]
) -> None:
    numbers = expected("crepe_tiny")["results"][pitch]
    frame = 0.3 * np.sin(2 * np.pi * int(pitch) * np.arange(1024) / 16000)[None].astype(np.float32)
    answer = open_model("crepe-tiny").run({"frame": frame})
    probability = answer["probability"][0]
    best = int(probability.argmax())
    assert best == numbers["argmax_bin"]
    np.testing.assert_allclose(probability[best - 4 : best + 5], numbers["prob_around"], atol=1e-5)
    assert answer["frequency"][0] == pytest.approx(numbers["weighted_hz"], abs=2e-3)
