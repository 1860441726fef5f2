"""g2p: the letters of an English word to its sounds, one GRU to read and one to speak (weights of g2p-en, Apache-2.0).

The loop that speaks, one sound after the other, is in the graph. A word ends with `</s>`; what follows is padding.
"""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from pathlib import Path

import numpy as np

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType, TensorValue, ops
from tidemill.modelzoo.package_files import package_file
from tidemill.modelzoo.settings import write_settings
from tidemill.modelzoo.zoo_model import Inputs

__all__ = ["G2P", "MAX_PHONEMES", "NAMES", "build", "example_inputs", "pronounce", "spell"]

GRAPHEMES = ("<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz")
_VOWELS = ("AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW")
_CONSONANTS = (*"BDFGKLMNPRSTVWYZ", "CH", "DH", "HH", "JH", "NG", "SH", "TH", "ZH")
_STRESSED = (vowel + stress for vowel in _VOWELS for stress in "012")
PHONEMES = ("<pad>", "<unk>", "<s>", "</s>", *sorted((*_STRESSED, *_CONSONANTS, "UW")))
"""ARPAbet, vowels with their stress."""
MAX_PHONEMES = 20

_SIZE = 256
_PAD, _UNKNOWN, _END = 0, 1, 2
_START_SPEAKING, _STOP_SPEAKING = 2, 3
NAMES = {
    "encoder.embedding.weight": "enc_emb",
    "decoder.embedding.weight": "dec_emb",
    "decoder.head.weight": "fc_w",
    "decoder.head.bias": "fc_b",
    **{f"encoder.gru.{part}_{end}_l0": f"enc_{part[0]}_{end}" for part in ("weight", "bias") for end in ("ih", "hh")},
    **{f"decoder.cell.{part}_{end}": f"dec_{part[0]}_{end}" for part in ("weight", "bias") for end in ("ih", "hh")},
}


class Encoder(nn.Module):
    """Reads the letters; what it remembers at the end is the word."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(GRAPHEMES), _SIZE, DType.float32)
        self.gru = nn.GRU(_SIZE, _SIZE, batch_first=True)

    def __call__(self, letters: TensorValue) -> TensorValue:
        """int64 [batch, letters] -> [batch, 256], the state after the first `</s>`."""
        states, _ = self.gru(self.embedding(letters))
        end = ops.argmax(ops.equal(letters, _END).cast(DType.int32))
        return ops.squeeze(ops.gather_nd(states, ops.unsqueeze(end, -1), batch_dims=1), 1)


class Decoder(nn.Module):
    """Speaks: each sound follows from the one before and the state."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(PHONEMES), _SIZE, DType.float32)
        self.cell = nn.GRUCell(_SIZE, _SIZE)
        self.head = nn.Linear(_SIZE, len(PHONEMES), DType.float32, has_bias=True)

    def __call__(self, sound: TensorValue, state: TensorValue) -> tuple[TensorValue, TensorValue]:
        """int64 [batch, 1] and the state [batch, 256] -> logits of the next sound [batch, 74] and the next state."""
        following = self.cell(ops.squeeze(self.embedding(sound), 1), state)
        return self.head(following), following


class G2P(nn.Module):
    """The encoder once, the decoder until every word of the batch is spoken."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder()

    def __call__(self, letters: TensorValue) -> dict[str, TensorValue]:
        """int64 [batch, letters], each with `</s>` after its word -> phonemes [batch, 20], 0 after the last."""
        batch = letters.shape[0]
        places = ops.constant(np.arange(MAX_PHONEMES)[None])
        speaking = ops.broadcast_to(ops.constant(np.array([[True]])), (batch, 1))
        sound = ops.broadcast_to(ops.constant(np.array([[_START_SPEAKING]])), (batch, 1))
        spoken = ops.broadcast_to(ops.constant(np.array([[_PAD]])), (batch, MAX_PHONEMES))

        def more(step: TensorValue, speaking: TensorValue, *_: TensorValue) -> TensorValue:
            anybody = ops.reshape(ops.max(ops.flatten(speaking.cast(DType.int32)), axis=0), [])
            return ops.logical_and(step < MAX_PHONEMES, anybody > 0)

        def speak(
            step: TensorValue, speaking: TensorValue, sound: TensorValue, spoken: TensorValue, state: TensorValue
        ) -> tuple[TensorValue, ...]:
            logits, following = self.decoder(sound, state)
            chosen = ops.argmax(logits)
            goes_on = ops.logical_and(speaking, ops.not_equal(chosen, _STOP_SPEAKING))
            here = ops.logical_and(goes_on, ops.equal(places, step))
            return step + 1, goes_on, chosen, ops.where(here, chosen, spoken), following

        begin = ops.constant(np.array(0))
        *_, phonemes, _ = ops.while_loop([begin, speaking, sound, spoken, self.encoder(letters)], more, speak)
        return {"phonemes": phonemes}


def spell(word: str, length: int = 0) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """A word as the model reads it: int64 [1, letters + 1], or [1, length] with padding."""
    known = {letter: place for place, letter in enumerate(GRAPHEMES)}
    ids = [*(known.get(letter, _UNKNOWN) for letter in word.lower()), _END]
    return np.array([ids + [_PAD] * (length - len(ids))], np.int64)


def pronounce(phonemes: Iterable[int]) -> list[str]:
    """One row of the model's answer as names of sounds."""
    return [PHONEMES[place] for place in phonemes if place != _PAD]


def build(repository: Path, weights: str | PathLike[str] | None = None) -> None:
    """Write `repository/g2p/1`, and that words of different lengths may be padded to run together.

    Raises:
        ModuleNotFoundError: The package that carries the trained weights is not installed.
    """
    letters = TensorType(DType.int64, ["batch", "letters"], DeviceRef.CPU())
    trained = weights or package_file("g2p_en", "checkpoint20.npz")
    G2P().bundle(letters, weights=trained, name="g2p", rename=NAMES).write(repository / "g2p" / "1")
    write_settings(repository / "g2p" / "model.yaml", f"batching:\n  ragged:\n    pad: {{letters: {_PAD}}}\n")


def example_inputs() -> Inputs:
    """A word that no dictionary has."""
    return {"letters": spell("onnxruntime")}
