"""Digits, MNIST and iris against the numbers of scikit-learn and PyTorch."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pictures import pillow


def digits(path: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """scikit-learn's 1,797 pictures [1797, 64] from 0 to 16, and which digit each is."""
    with gzip.open(path, "rt") as lines:
        table = np.loadtxt(lines, delimiter=",")
    return table[:, :-1].astype(np.float32), table[:, -1].astype(np.int64)


def test_iris_gives_the_fitted_probabilities(open_model: Callable[..., Any], expected: Callable[[str], Any]) -> None:
    numbers = expected("iris")
    answer = open_model("iris").run({"flower": np.array(numbers["inputs"], np.float32)})
    np.testing.assert_allclose(answer["logits"], numbers["logits"], atol=1e-5)
    np.testing.assert_allclose(answer["probability"], numbers["proba"], atol=1e-6)
    assert answer["species"].tolist() == numbers["pred"]


def test_digits_mlp_computes_what_numpy_does(open_model: Callable[..., Any]) -> None:
    weights = np.load(Path(__file__).parents[1] / "data" / "models" / "digits_mlp_weights.npz")
    pixels = np.random.default_rng(0).random((5, 64), np.float32)
    hidden = np.maximum(pixels @ weights["fc1.weight"].T + weights["fc1.bias"], 0)
    logits = hidden @ weights["fc2.weight"].T + weights["fc2.bias"]
    np.testing.assert_allclose(open_model("digits-mlp").run({"pixels": pixels})["logits"], logits, atol=1e-5)


def test_digits_mlp_reads_scikit_learns_digits(
    open_model: Callable[..., Any], expected: Callable[[str], Any], sample: Callable[[str, str], Path]
) -> None:
    numbers = expected("digits_mlp")
    pixels, truth = digits(sample("sklearn", "datasets/data/digits.csv.gz"))
    logits = open_model("digits-mlp").run({"pixels": pixels / 16})["logits"]
    assert (logits.argmax(1) == truth).mean() > 0.97
    for target, wanted in zip(numbers["first5_target"], numbers["first5_logits"], strict=True):
        errors = np.abs(logits - np.array(wanted)).max(axis=1)
        assert errors.min() < 1e-4
        assert truth[errors.argmin()] == target


def test_mnist_cnn_gives_pytorchs_logits(open_model: Callable[..., Any], expected: Callable[[str], Any]) -> None:
    image = np.random.default_rng(0).standard_normal((2, 1, 28, 28)).astype(np.float32)
    logits = open_model("mnist-cnn").run({"image": image})["logits"]
    np.testing.assert_allclose(logits, expected("mnist_cnn")["synthetic_logits"], atol=1e-5)


def test_mnist_cnn_reads_scikit_learns_digits(
    open_model: Callable[..., Any], expected: Callable[[str], Any], sample: Callable[[str, str], Path]
) -> None:
    image = pillow()
    numbers = expected("mnist_cnn")
    pictures, truth = digits(sample("sklearn", "datasets/data/digits.csv.gz"))
    ink = np.zeros((len(pictures), 1, 28, 28), np.float32)
    for place, picture in enumerate(pictures):
        small = image.fromarray((picture.reshape(8, 8) * (255 / 16)).astype(np.uint8))
        ink[place, 0, 4:24, 4:24] = np.asarray(small.resize((20, 20), image.Resampling.BILINEAR)) / np.float32(255)
    logits = open_model("mnist-cnn").run({"image": (ink - np.float32(0.1307)) / np.float32(0.3081)})["logits"]
    np.testing.assert_allclose(logits[:3], numbers["first3_logits"], atol=1e-4)
    assert logits[:10].argmax(1).tolist() == numbers["first10_argmax"]
    assert (logits.argmax(1) == truth).sum() == numbers["correct"]
