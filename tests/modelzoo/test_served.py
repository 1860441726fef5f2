"""The zoo behind a real server, asked over REST and gRPC by Triton's client."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http
from pictures import open_picture
from tritonclient.utils import InferenceServerException
from zoo_server import Ask, ask_over, hear, serving

from tidemill.modelzoo import ZOO
from tidemill.modelzoo.g2p import pronounce, spell
from tidemill.modelzoo.mtcnn_pipeline import find_faces
from tidemill.modelzoo.silero_vad import CHUNK, example_inputs
from tidemill.modelzoo.smollm2 import Config, SmolLM2, empty_past, generate, input_types

SMALL = Config(vocab_size=64, hidden_size=24, intermediate_size=32, layers=3, heads=3, kv_heads=1, head_dim=8)

Built = Callable[[str], Path]

_DATA = Path(__file__).parents[1] / "data" / "models"


@pytest.fixture(scope="session")
def addresses(built: Built) -> Iterator[dict[str, str]]:
    """A server over every model of the zoo whose weights are installed."""
    for name in ZOO:
        with suppress(pytest.skip.Exception):
            repository = built(name)
    with serving(repository) as ready:
        yield ready


@pytest.fixture(params=["http", "grpc"])
def ask(request: pytest.FixtureRequest, addresses: dict[str, str]) -> Ask:
    return ask_over(request.param, addresses)


def test_small_models(ask: Ask, expected: Callable[[str], Any]) -> None:
    numbers = expected("iris")
    answer = ask("iris", {"flower": np.array(numbers["inputs"], np.float32)})
    np.testing.assert_allclose(answer["logits"], numbers["logits"], atol=1e-5)
    assert answer["species"].tolist() == numbers["pred"]
    image = np.random.default_rng(0).standard_normal((2, 1, 28, 28)).astype(np.float32)
    logits = ask("mnist-cnn", {"image": image})["logits"]
    np.testing.assert_allclose(logits, expected("mnist_cnn")["synthetic_logits"], atol=1e-5)


@pytest.mark.parametrize("wire", ["http", "grpc"])
def test_a_recording_as_a_sequence_alone_and_beside_others(
    wire: str, addresses: dict[str, str], expected: Callable[[str], Any]
) -> None:
    """The server keeps the state: each recording is heard as if it were alone, though they run in one batch."""
    audio = np.fromfile(_DATA / "goforward.raw", "<i2").astype(np.float32) / 32768
    chunks = audio[: len(audio) // CHUNK * CHUNK].reshape(-1, CHUNK)
    numbers = expected("silero_vad")["prob"]
    np.testing.assert_allclose(hear(wire, addresses[wire], 1, chunks), numbers, atol=1e-4)
    recordings = {2: chunks, "quiet": chunks * 0, "loud": np.clip(chunks * 2, -1, 1), 3: chunks}
    with ThreadPoolExecutor(len(recordings)) as pool:
        waiting = [pool.submit(hear, wire, addresses[wire], name, sound) for name, sound in recordings.items()]
    heard = [future.result() for future in waiting]
    np.testing.assert_allclose(heard[0], numbers, atol=1e-4)
    np.testing.assert_allclose(heard[3], numbers, atol=1e-4)
    np.testing.assert_allclose(heard[1], hear(wire, addresses[wire], 4, chunks * 0), atol=1e-5)
    np.testing.assert_allclose(heard[2], hear(wire, addresses[wire], 5, np.clip(chunks * 2, -1, 1)), atol=1e-5)


def test_a_recording_sent_chunk_by_chunk(ask: Ask, expected: Callable[[str], Any]) -> None:
    audio = np.fromfile(_DATA / "goforward.raw", "<i2").astype(np.float32) / 32768
    state, heard = example_inputs(), []
    for chunk in audio[: len(audio) // CHUNK * CHUNK].reshape(-1, 1, CHUNK):
        answer = ask("silero-vad", {**state, "audio": chunk})
        state = {name: answer[f"next_{name}"] for name in ("context", "hidden", "cell")}
        heard.append(answer["probability"][0])
    np.testing.assert_allclose(heard, expected("silero_vad")["prob"], atol=1e-4)


def test_words_of_all_lengths_at_once(ask: Ask, expected: Callable[[str], Any]) -> None:
    cases = expected("g2p_gru")["cases"]
    for case in cases:
        assert pronounce(ask("g2p", {"letters": spell(case["word"])})["phonemes"][0]) == case["phonemes"]


def test_a_crowd_of_words_is_padded_together_and_equal(
    addresses: dict[str, str], expected: Callable[[str], Any]
) -> None:
    cases = expected("g2p_gru")["cases"]

    def say(number: int) -> bool:
        case = cases[number % len(cases)]
        answer = ask_over("http", addresses)("g2p", {"letters": spell(case["word"])})
        return pronounce(answer["phonemes"][0]) == case["phonemes"]

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(say, range(56)))


def test_speaker_encoder(ask: Ask, built: Built, expected: Callable[[str], Any]) -> None:
    built("speaker-encoder")
    mels = np.random.default_rng(0).random((2, 160, 40), dtype=np.float32)
    embedding = ask("speaker-encoder", {"mels": mels})["embedding"]
    np.testing.assert_allclose(embedding[:, :16], expected("resemblyzer")["output_first16"], atol=2e-5)


def test_crepe_and_efficientnet(ask: Ask, built: Built, expected: Callable[[str], Any]) -> None:
    built("crepe-tiny")
    answer = ask("crepe-tiny", ZOO["crepe-tiny"].example_inputs())
    assert answer["frequency"][0] == pytest.approx(expected("crepe_tiny")["results"]["440"]["weighted_hz"], abs=1e-2)
    built("efficientnet-lite0")
    logits = ask("efficientnet-lite0", ZOO["efficientnet-lite0"].example_inputs())["logits"][0]
    np.testing.assert_allclose(logits[:16], expected("efficientnet_lite0")["synthetic"]["logits_first16"], atol=1e-4)


@pytest.mark.parametrize("photo", ["chelsea.png", "rocket.jpg"])
def test_a_photos_file_in_and_its_classes_out(
    photo: str, ask: Ask, built: Built, expected: Callable[[str], Any], sample: Callable[[str, str], Path]
) -> None:
    pytest.importorskip("PIL.Image", reason="needs the package pillow; run: pip install 'tidemill[image]'")
    built("efficientnet-lite0")
    (numbers,) = [case for case in expected("efficientnet_lite0")["cases"] if case["image"].endswith(photo)]
    file = sample(*numbers["image"].split("/", 1)).read_bytes()
    logits = ask("efficientnet-lite0-photo", {"image": np.array([file, file], dtype=object)})["logits"]
    np.testing.assert_allclose(logits[0, :8], numbers["logits_first8"], atol=1e-4)
    np.testing.assert_allclose(logits[1], logits[0], atol=1e-4)
    assert logits[0].argsort()[::-1][:5].tolist() == numbers["top5_ids"]
    with pytest.raises(InferenceServerException, match="element 1 is no readable picture"):
        ask("efficientnet-lite0-photo", {"image": np.array([file, b"\xff\xd8 no picture"], dtype=object)})


def test_a_photos_classes_have_names(
    addresses: dict[str, str], built: Built, expected: Callable[[str], Any], sample: Callable[[str, str], Path]
) -> None:
    names = built("efficientnet-lite0") / "efficientnet-lite0-photo" / "classes.txt"
    if not names.exists():
        pytest.skip("needs the package timm; run: make serve")
    (numbers,) = [case for case in expected("efficientnet_lite0")["cases"] if case["image"].endswith("chelsea.png")]
    client = tritonclient.http.InferenceServerClient(addresses["http"])
    photo = tritonclient.http.InferInput("image", [1], "BYTES")
    photo.set_data_from_numpy(np.array([sample(*numbers["image"].split("/", 1)).read_bytes()], dtype=object))
    wanted = [tritonclient.http.InferRequestedOutput("logits", class_count=5)]
    told = client.infer("efficientnet-lite0-photo", [photo], outputs=wanted).as_numpy("logits")
    classes = [one.decode().split(":", 2) for one in told.ravel()]
    assert [int(number) for _, number, _ in classes] == numbers["top5_ids"]
    assert all("cat" in name or "lynx" in name or "screen" in name for _, _, name in classes)


def test_faces_through_three_served_models(
    ask: Ask, expected: Callable[[str], Any], sample: Callable[[str, str], Path]
) -> None:
    faces = find_faces(np.asarray(open_picture(sample("skimage", "data/astronaut.png"))), ask)
    np.testing.assert_allclose(faces.boxes, expected("mtcnn")["boxes_xyxy"], atol=2e-3)
    np.testing.assert_allclose(faces.landmarks, expected("mtcnn")["landmarks_le_re_n_lm_rm"], atol=1e-2)


def test_the_greedy_tokens_of_a_prompt(ask: Ask, built: Built, expected: Callable[[str], Any]) -> None:
    built("smollm2")
    case = expected("smollm2")["cases"][0]
    tokens = generate(lambda inputs: ask("smollm2", inputs), case["input_ids"], 24)
    assert list(tokens) == case["greedy_new_ids"]


@pytest.mark.parametrize("name", ["smollm2-chat", "smollm2-int4"])
def test_text_goes_on_as_transformers_does(name: str, ask: Ask, built: Built, expected: Callable[[str], Any]) -> None:
    """Four bits are exact for the last case only: its tokens are the surest."""
    built(name)
    cases = expected("smollm2")["cases"]
    for case in cases if name == "smollm2-chat" else cases[-1:]:
        asked = {"max_tokens": 24, "temperature": 0.0, "ignore_eos": True}
        answer = ask(name, {"text_input": np.array([case["prompt"].encode()], dtype=object)}, asked)
        assert answer["text_output"][0].decode() == case["greedy_text"]


def test_imported_models(ask: Ask, built: Built) -> None:
    built("magika")
    names = (built("magika") / "magika" / "kinds.txt").read_text().splitlines()
    assert names[ask("magika", ZOO["magika"].example_inputs())["target_label"].argmax()] == "csv"


def test_prompts_of_mixed_lengths_run_as_one_batch_and_are_equal(tmp_path: Path) -> None:
    """A small model of SmolLM2's kind, joined whenever requests wait together."""
    model, random = SmolLM2(SMALL), np.random.default_rng(0)
    weights = {name: random.standard_normal(value.shape, np.float32) for name, value in model.state_dict().items()}
    model.bundle(*input_types(SMALL), weights=weights, name="small").write(tmp_path / "small" / "1")
    (tmp_path / "small" / "model.yaml").write_text(
        "batching: {policy: fixed, max_queue_delay_microseconds: 500000,"
        " ragged: {dim: seq, max_padding: 0.9, pad: {input_ids: 0, attention_mask: 0}}}"
    )
    prompts = [random.integers(0, SMALL.vocab_size, (1, length)) for length in (3, 9, 5, 12, 7, 4)]
    with serving(tmp_path) as addresses:
        callers = [ask_over("grpc", addresses) for _ in prompts]

        def ask(number: int) -> dict[str, Any]:
            ids = prompts[number]
            mask = np.ones_like(ids)
            return callers[number]("small", {"input_ids": ids, "attention_mask": mask, **empty_past(SMALL)})

        alone = [ask(number) for number in range(len(prompts))]
        with ThreadPoolExecutor(len(prompts)) as pool:
            together = list(pool.map(ask, range(len(prompts))))
        with urllib.request.urlopen(f"http://{addresses['http']}/metrics", timeout=30) as answer:
            metrics = answer.read().decode()
    runs = re.search(r'^nv_inference_exec_count{model="small",version="1"} (\d+)', metrics, re.MULTILINE)
    assert runs
    assert int(runs[1]) < 2 * len(prompts)
    for one, other in zip(alone, together, strict=True):
        for name, values in one.items():
            np.testing.assert_allclose(other[name], values, rtol=1e-4, atol=1e-3, err_msg=name)
