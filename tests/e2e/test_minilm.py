"""Real sentences through a real server, asked by clients that know nothing of tidemill."""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

if TYPE_CHECKING:
    from conftest import Sentence, Served

TOLERANCE = 2e-6
"""The reference is float64; float32 agrees to this."""


def ask_http(client: Any, model: str, inputs: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    return _ask(tritonclient.http, client, model, inputs)


def ask_grpc(client: Any, model: str, inputs: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    return _ask(tritonclient.grpc, client, model, inputs)


def _ask(wire: Any, client: Any, model: str, inputs: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    tensors = []
    for name, array in inputs.items():
        datatype = "BYTES" if array.dtype == np.object_ else "INT64"
        tensor = wire.InferInput(name, list(array.shape), datatype)
        tensor.set_data_from_numpy(array)
        tensors.append(tensor)
    answer: np.ndarray[Any, Any] = client.infer(model, tensors).as_numpy("sentence_embedding")
    return answer


def tokens(ids: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def check(embedding: np.ndarray[Any, Any], sentence: Sentence) -> None:
    np.testing.assert_allclose(embedding[:8], sentence.first, atol=TOLERANCE)
    assert embedding.sum() == pytest.approx(sentence.total, abs=384 * TOLERANCE)


@pytest.mark.parametrize("wire", ["http", "grpc"])
def test_tritonclient_reads_the_metadata(wire: str, served: Served) -> None:
    if wire == "http":
        metadata = tritonclient.http.InferenceServerClient(served.http).get_model_metadata("minilm")
    else:
        client = tritonclient.grpc.InferenceServerClient(served.grpc)
        metadata = client.get_model_metadata("minilm", as_json=True)
    assert (metadata["name"], metadata["versions"]) == ("minilm", ["1"])
    assert [(entry["name"], entry["datatype"]) for entry in metadata["inputs"]] == [
        ("input_ids", "INT64"),
        ("attention_mask", "INT64"),
    ]
    assert [[int(dim) for dim in entry["shape"]] for entry in metadata["outputs"]] == [[-1, 384]]


@pytest.mark.parametrize("wire", ["http", "grpc"])
def test_tritonclient_gets_the_published_embeddings(wire: str, served: Served, sentences: list[Sentence]) -> None:
    client: Any = (
        tritonclient.http.InferenceServerClient(served.http)
        if wire == "http"
        else tritonclient.grpc.InferenceServerClient(served.grpc)
    )
    ask = ask_http if wire == "http" else ask_grpc
    for sentence in sentences:
        text = ask(client, "minilm-text", {"text": np.array([sentence.text.encode()], object)})
        check(text[0], sentence)
        if sentence.ids.size:
            check(ask(client, "minilm", tokens(sentence.ids))[0], sentence)


def test_sentences_of_one_request_do_not_see_each_other(
    served: Served, sentences: list[Sentence], cosines: np.ndarray[Any, Any]
) -> None:
    client = tritonclient.http.InferenceServerClient(served.http)
    texts = np.array([sentence.text.encode() for sentence in sentences], object)
    embeddings = ask_http(client, "minilm-text", {"text": texts})
    for embedding, sentence in zip(embeddings, sentences, strict=True):
        check(embedding, sentence)
    np.testing.assert_allclose(embeddings @ embeddings.T, cosines, atol=2e-6)


def test_curl_gets_an_embedding_for_a_plain_sentence(served: Served, sentences: list[Sentence]) -> None:
    sentence = sentences[3]
    body = {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [sentence.text]}]}
    request = urllib.request.Request(
        f"http://{served.http}/v2/models/minilm-text/infer", json.dumps(body).encode(), method="POST"
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        (output,) = json.loads(answer.read())["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("sentence_embedding", "FP32", [1, 384])
    check(np.array(output["data"]), sentence)


def test_a_crowd_of_good_and_bad_requests(served: Served, sentences: list[Sentence]) -> None:
    """64 callers at once: every good answer right and equal to the single one, every bad request refused by name."""
    good = [sentence for sentence in sentences if sentence.ids.size]

    def ask(number: int) -> str:
        sentence = good[number % len(good)]
        with tritonclient.http.InferenceServerClient(served.http) as client:
            if number % 4 == 3:
                bad = {"input_ids": sentence.ids, "attention_mask": np.ones((1, sentence.ids.shape[1] + 1), np.int64)}
                with pytest.raises(tritonclient.http.InferenceServerException, match="dim 'seq'") as caught:
                    ask_http(client, "minilm", bad)
                return str(caught.value.status())
            if number % 4 == 2:
                with pytest.raises(tritonclient.http.InferenceServerException, match="indices element out") as caught:
                    ask_http(client, "minilm", tokens(sentence.ids + 40_000))
                return str(caught.value.status())
            check(ask_http(client, "minilm", tokens(sentence.ids))[0], sentence)
            return "200"

    with ThreadPoolExecutor(64) as pool:
        statuses = list(pool.map(ask, range(128)))
    assert statuses == ["200", "200", "422", "400"] * 32
