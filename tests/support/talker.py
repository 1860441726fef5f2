"""A small model that makes text: random weights over bytes, with all that a large one has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from byte_tokenizer import SIZE, byte_tokenizer, byte_tokenizer_file

from tidemill.bundle import open_bundle
from tidemill.engine import Instance
from tidemill.modelzoo.smollm2 import Config
from tidemill.modelzoo.smollm2_chat import SmolLM2Chat, input_names, input_types

__all__ = ["CONFIG", "TEMPLATE", "Oracle", "write_talker"]

CONFIG = Config(
    vocab_size=SIZE,
    hidden_size=48,
    intermediate_size=64,
    layers=2,
    heads=3,
    kv_heads=1,
    head_dim=16,
    max_length=512,
)
TEMPLATE = (
    "{% for m in messages %}{{ '<talk>' + m['role'] + ':' + m['content'] + '<end>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<talk>assistant:' }}{% endif %}"
)


def write_talker(folder: Path, settings: str = "") -> None:
    """Write a model's folder.

    Args:
        folder: What to make.
        settings: More lines of the section `generation`.
    """
    model, random = SmolLM2Chat(CONFIG), np.random.default_rng(5)
    weights = {name: random.standard_normal(value.shape, np.float32) for name, value in model.state_dict().items()}
    bundle = model.bundle(*input_types(CONFIG), weights=weights, name="talker", input_names=input_names(CONFIG))
    bundle.write(folder / "1")
    (folder / "tokenizer.json").write_text(byte_tokenizer_file())
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    lines = ["generation:", "  slots: 4", "  capacity: 256", '  ends: ["<end>"]', *settings.splitlines()]
    (folder / "model.yaml").write_text("\n".join(lines) + "\n")


class Oracle:
    """What the model says, token by token from the beginning: nothing is kept from run to run."""

    def __init__(self, folder: Path) -> None:
        self._instance = Instance.open(open_bundle(folder / "1"))
        self.tokenizer = byte_tokenizer()
        self.logits = cache(self._logits)

    def _logits(self, tokens: tuple[int, ...]) -> np.ndarray:
        feed = {spec.name: np.zeros((1, 1, len(tokens), 16), np.float32) for spec in self._instance.inputs[2:]}
        ids = np.array([tokens], np.int64)
        answer = self._instance.run({"input_ids": ids, "ends": np.array([len(tokens) - 1], np.int32), **feed})
        logits: np.ndarray = answer["logits"][0]
        return logits

    def greedy(self, prompt: str | Sequence[int], count: int, ends: Sequence[int] = ()) -> list[int]:
        """The most probable tokens, the one that ends the text included."""
        tokens = list(self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt)
        made: list[int] = []
        while len(made) < count and not (made and made[-1] in ends):
            made.append(int(self.logits((*tokens, *made)).argmax()))
        return made

    def text(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        return self.tokenizer.decode(tokens)
