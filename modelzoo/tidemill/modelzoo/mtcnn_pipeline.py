"""What a caller of MTCNN does between its three networks; they run wherever `infer` has them run.

The steps are those of facenet-pytorch's `detect_face`, in numpy; boxes are x1, y1, x2, y2 in pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Faces", "Infer", "find_faces"]

Floats = NDArray[np.floating[Any]]
Infer = Callable[[str, dict[str, Floats]], Mapping[str, Floats]]
"""Runs a served model, by name, on inputs by name: `client.infer` is one."""

_SMALLEST, _SHRINK = 20, 0.709
_THRESHOLDS = (0.6, 0.7, 0.7)
_STRIDE, _WINDOW = 2, 12


@dataclass(frozen=True)
class Faces:
    """What was found, the surest first.

    Attributes:
        boxes: [faces, 4].
        probability: [faces].
        landmarks: [faces, 5, 2]: eyes, nose, corners of the mouth; x, y.
    """

    boxes: Floats
    probability: Floats
    landmarks: Floats


def find_faces(picture: NDArray[np.uint8], infer: Infer) -> Faces:
    """Find the faces of a picture.

    Args:
        picture: [height, width, 3], red, green, blue.
        infer: How to run mtcnn-pnet, mtcnn-rnet and mtcnn-onet.
    """
    pixels = picture.transpose(2, 0, 1).astype(np.float64)
    boxes = _square(_propose(pixels, infer))
    if len(boxes):
        boxes = _square(_refine(pixels, boxes, infer))
    if not len(boxes):
        return Faces(np.zeros((0, 4)), np.zeros(0), np.zeros((0, 5, 2)))
    return _finish(pixels, boxes, infer)


def _propose(pixels: Floats, infer: Infer) -> Floats:
    """P-Net on ever smaller pictures: boxes [n, 4]."""
    found = [np.zeros((0, 9))]
    for scale in _scales(min(pixels.shape[1:])):
        height, width = (int(size * scale + 1) for size in pixels.shape[1:])
        answer = infer("mtcnn-pnet", {"image": _prepared([_shrunk(pixels, height, width)])})
        score, offsets = answer["probability"][0, 1], answer["offsets"][0]
        row, column = np.nonzero(score >= _THRESHOLDS[0])
        corner = np.stack([column, row, column, row], 1) * _STRIDE + np.array([1, 1, _WINDOW, _WINDOW])
        boxes = np.floor(corner.astype(np.float32) / scale)
        candidates = np.column_stack([boxes, score[row, column], offsets[:, row, column].T])
        found.append(candidates[_suppress(boxes, candidates[:, 4], 0.5)])
    every = np.concatenate(found)
    kept = every[_suppress(every[:, :4], every[:, 4], 0.7)]
    sizes = np.tile(kept[:, 2:4] - kept[:, :2], 2)
    moved: Floats = kept[:, :4] + kept[:, 5:] * sizes
    return moved


def _refine(pixels: Floats, boxes: Floats, infer: Infer) -> Floats:
    """R-Net on each box: those that are left, moved."""
    answer = infer("mtcnn-rnet", {"image": _prepared(list(_crops(pixels, boxes, 24)))})
    score = answer["probability"][:, 1]
    passed = score > _THRESHOLDS[1]
    boxes, offsets, score = boxes[passed], answer["offsets"][passed], score[passed]
    kept = _suppress(boxes, score, 0.7)
    return _moved(boxes[kept], offsets[kept])


def _finish(pixels: Floats, boxes: Floats, infer: Infer) -> Faces:
    """O-Net on each box."""
    answer = infer("mtcnn-onet", {"image": _prepared(list(_crops(pixels, boxes, 48)))})
    score = answer["probability"][:, 1]
    passed = score > _THRESHOLDS[2]
    boxes, score = boxes[passed], score[passed]
    places = answer["landmarks"][passed].reshape(-1, 2, 5).transpose(0, 2, 1)
    landmarks = places * (boxes[:, None, 2:] - boxes[:, None, :2] + 1) + boxes[:, None, :2] - 1
    boxes = _moved(boxes, answer["offsets"][passed])
    kept = _suppress(boxes, score, 0.7, border=1, of_smaller=True)
    return Faces(boxes[kept], score[kept], landmarks[kept])


def _scales(shorter: int) -> Iterator[float]:
    scale = _WINDOW / _SMALLEST
    while shorter * scale >= _WINDOW:
        yield scale
        scale *= _SHRINK


def _prepared(pictures: list[Floats]) -> Floats:
    return ((np.stack(pictures) - 127.5) / 128).astype(np.float32)


def _crops(pixels: Floats, boxes: Floats, size: int) -> Iterator[Floats]:
    height, width = pixels.shape[1:]
    for left, top, right, bottom in np.trunc(boxes).astype(int):
        part = pixels[:, max(top, 1) - 1 : min(bottom, height), max(left, 1) - 1 : min(right, width)]
        yield _shrunk(part, size, size)


def _shrunk(pixels: Floats, height: int, width: int) -> Floats:
    """Each new pixel is the mean of the old ones that it covers, even in part."""
    sums = np.pad(pixels.cumsum(1).cumsum(2), ((0, 0), (1, 0), (1, 0)))
    top, bottom = _spans(pixels.shape[1], height)
    left, right = _spans(pixels.shape[2], width)
    rows = sums[:, bottom] - sums[:, top]
    areas = (bottom - top)[:, None] * (right - left)
    means: Floats = (rows[:, :, right] - rows[:, :, left]) / areas
    return means


def _spans(old: int, new: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    places = np.arange(new)
    return places * old // new, -(-(places + 1) * old // new)


def _square(boxes: Floats) -> Floats:
    """Boxes made as wide as they are high, around the same middle."""
    sizes = boxes[:, 2:] - boxes[:, :2]
    longer = sizes.max(axis=1, keepdims=True)
    corner = boxes[:, :2] + sizes * 0.5 - longer * 0.5
    return np.concatenate([corner, corner + longer], axis=1)


def _moved(boxes: Floats, offsets: Floats) -> Floats:
    return boxes + offsets * np.tile(boxes[:, 2:] - boxes[:, :2] + 1, 2)


def _suppress(boxes: Floats, scores: Floats, threshold: float, border: int = 0, of_smaller: bool = False) -> list[int]:
    """The boxes that overlap no surer one too much, the surest first.

    The overlap is a share of both boxes' union, or of the smaller box; `border` is what sizes count more than the
    difference of corners.
    """
    areas = np.prod(boxes[:, 2:] - boxes[:, :2] + border, axis=1)
    waiting, kept = np.argsort(-scores, kind="stable"), []
    while len(waiting):
        best, rest = waiting[0], waiting[1:]
        kept.append(int(best))
        low, high = np.maximum(boxes[best, :2], boxes[rest, :2]), np.minimum(boxes[best, 2:], boxes[rest, 2:])
        shared = np.prod(np.maximum(high - low + border, 0), axis=1)
        whole = np.minimum(areas[best], areas[rest]) if of_smaller else areas[best] + areas[rest] - shared
        waiting = rest[shared <= threshold * whole]
    return kept
