from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from tidemill.bundle.config import ModelConfig, load_config
from tidemill.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.yaml"


def test_no_file_and_an_empty_file_are_all_defaults(file: Path) -> None:
    assert load_config(file) == ModelConfig()
    file.write_text("# nothing yet\n")
    assert load_config(file) == ModelConfig()
    assert ModelConfig().providers == ("cpu",)
    assert ModelConfig().max_batch_size is None


def test_reads_every_section(file: Path) -> None:
    file.write_text(
        """
        max_batch_size: 32
        batching: {max_queue_delay_microseconds: 500, max_queue_size: 8, preferred_batch_size: [8, 16]}
        instances: 2
        threads: 4
        providers: [cuda, cpu]
        base: minilm
        adapter:
          text: {tokenizer: tokenizer.json, mask: null, max_length: 256}
        warmup:
          - {batch: 8, seq: 128}
        """
    )
    config = load_config(file)
    assert config.batching.preferred_batch_size == (8, 16)
    assert config.batching.max_queue_delay_microseconds == 500
    assert config.adapter is not None
    assert config.adapter.text is not None
    assert (config.adapter.text.input, config.adapter.text.mask, config.adapter.text.max_length) == ("text", None, 256)
    assert config.warmup == ({"batch": 8, "seq": 128},)
    assert (config.base, config.providers, config.threads) == ("minilm", ("cuda", "cpu"), 4)
    with pytest.raises(ValidationError, match="frozen"):
        config.threads = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("max_batchsize: 4", ["max_batchsize: unknown field, did you mean 'max_batch_size'"]),
        ("batching: {queue: 4}", ["batching.queue: unknown field, known are max_queue_size"]),
        ("adapter: {text: {lenght: 4}}", ["adapter.text.lenght: unknown field"]),
        ("warmup: [{batch: 0}]", ["warmup.0.batch: Input should be greater than 0, given was 0"]),
        ("instances: 0\nthreads: many", ["instances: Input should be greater", "threads: Input should be a valid int"]),
        ("threads: true", ["threads: Input should be a valid integer, given was True"]),
        ("max_batch_size: -1", ["max_batch_size: Input should be greater than or equal to 0, given was -1"]),
        ("providers: []", ["providers: .* at least 1 item"]),
        ("batching: {priorities: {1: {timeout: 4}}}", ["priorities.1.timeout: unknown field, .*timeout_action"]),
        ("batching: {ragged: {pad: {}}}", ["batching.ragged.pad: .* at least 1 item"]),
        ("version_policy: {latest: 1, all: true}", ["version_policy: .*expected one of `latest: 1`"]),
        ("- a", ["the whole: Input should be a valid dictionary"]),
        ("a: [", ["is not YAML"]),
        ("threads: 1\nthreads: 2", ["the key 'threads' stands twice"]),
        ("base: !!python/object/apply:os.getcwd []", ["is not YAML"]),
    ],
)
def test_faults_name_file_and_field(file: Path, text: str, faults: list[str]) -> None:
    file.write_text(text)
    for fault in faults:
        with pytest.raises(ConfigError, match=rf"model\.yaml.*(?s:.*){fault}"):
            load_config(file)


def test_a_file_that_is_not_text(file: Path) -> None:
    file.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="is not YAML"):
        load_config(file)
