"""MTCNN's three networks, and the whole, against the package's own class in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import open_picture

from tidemill.modelzoo.mtcnn_pipeline import find_faces

SIZES = {"pnet": (1, 3, 24, 24), "rnet": (2, 3, 24, 24), "onet": (2, 3, 48, 48)}
OUTPUTS = {"pnet": ["offsets", "probability"], "rnet": ["offsets", "probability"]}
OUTPUTS["onet"] = ["offsets", "landmarks", "probability"]


def test_each_network_gives_pytorchs_numbers(open_model: Callable[..., Any], expected: Callable[[str], Any]) -> None:
    random = np.random.default_rng(0)
    for net, shape in SIZES.items():
        image = random.standard_normal(shape).astype(np.float32)
        answer = open_model("mtcnn", f"mtcnn-{net}").run({"image": image})
        for name, wanted in zip(OUTPUTS[net], expected("mtcnn")["net_outputs"][net]["outputs"], strict=True):
            assert list(answer[name].shape) == wanted["shape"]
            np.testing.assert_allclose(answer[name].ravel()[:8], wanted["first8"], atol=2e-6)
            assert answer[name].sum() == pytest.approx(wanted["sum"], abs=1e-4)


@pytest.mark.parametrize("size", [(12, 12), (13, 29), (64, 37)])
def test_pnet_takes_pictures_of_any_size(size: tuple[int, int], open_model: Callable[..., Any]) -> None:
    image = np.random.default_rng(1).standard_normal((2, 3, *size)).astype(np.float32)
    run = open_model("mtcnn", "mtcnn-pnet").run
    together = run({"image": image})["probability"]
    assert together.shape[2:] == tuple(-(-(length - 2) // 2) - 4 for length in size)
    for place in range(2):
        np.testing.assert_allclose(
            run({"image": image[place : place + 1]})["probability"][0], together[place], atol=1e-6
        )


def test_the_astronaut_has_a_face_and_coffee_none(
    open_model: Callable[..., Any], expected: Callable[[str], Any], sample: Callable[[str, str], Path]
) -> None:
    numbers = expected("mtcnn")

    def infer(model: str, inputs: dict[str, Any]) -> Any:
        return open_model("mtcnn", model).run(inputs)

    faces = find_faces(np.asarray(open_picture(sample("skimage", "data/astronaut.png"))), infer)
    np.testing.assert_allclose(faces.boxes, numbers["boxes_xyxy"], atol=2e-3)
    np.testing.assert_allclose(faces.probability, numbers["prob"], atol=2e-6)
    np.testing.assert_allclose(faces.landmarks, numbers["landmarks_le_re_n_lm_rm"], atol=1e-2)
    assert len(find_faces(np.asarray(open_picture(sample("skimage", "data/coffee.png"))), infer).boxes) == 0
