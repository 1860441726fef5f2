from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tidemill.batching import BatchRecord
from tidemill.protocol.types import InferRequest
from tidemill.repository import Events, ModelState, Repository

WriteModel = Callable[..., Path]


def write_derived(root: Path, name: str, base: str) -> None:
    folder = root / name
    folder.mkdir()
    (folder / "model.yaml").write_text(json.dumps({"base": base, "adapter": {"text": {}}}))
    model = {"type": "WordLevel", "vocab": {"[PAD]": 99, "[UNK]": 50, "a": 1, "b": 2}, "unk_token": "[UNK]"}
    document = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(document))


async def test_text_is_served_through_the_batches_of_its_base(write_model: WriteModel) -> None:
    root = write_model("tokens")
    write_derived(root, "tokens-text", "tokens")
    batches: list[tuple[str, BatchRecord]] = []
    events = Events(observer=lambda served: lambda batch: batches.append((served.name, batch)))
    repository = Repository.open([root], events)
    await repository.load_all()
    text, base = repository.get("tokens-text"), repository.get("tokens")
    assert [str(spec) for spec in text.inputs] == ["text: BYTES[n]"]
    assert text.running is base.running

    text_request = InferRequest("tokens-text", {"text": np.array([b"a b", b"b"], np.object_)})
    ids = np.array([[5, 5]], np.int64)
    answers = await asyncio.gather(
        text.infer(text_request), base.infer(InferRequest("tokens", {"input_ids": ids, "attention_mask": ids}))
    )
    np.testing.assert_array_equal(answers[0].outputs["y"], [3, 2])
    np.testing.assert_array_equal(answers[1].outputs["y"], [50])
    assert answers[0].model_name == "tokens-text"
    assert {name for name, _ in batches} == {"tokens"}
    repository.close()


async def test_a_failed_base_fails_what_it_runs(write_model: WriteModel) -> None:
    root = write_model("tokens")
    write_derived(root, "tokens-text", "tokens")
    (root / "tokens" / "1" / "model.onnx").write_bytes(b"")
    repository = Repository.open([root])
    await repository.load_all()
    derived = repository.find("tokens-text")
    assert derived.state is ModelState.FAILED
    assert "'tokens' version 1 is FAILED" in derived.reason
