"""Callers and versions for the tests of models that change while they are used."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tidemill.errors import TidemillError
from tidemill.protocol.types import InferRequest
from tidemill.repository import Repository

WriteModel = Callable[..., Path]

X = np.zeros((1, 1), np.float32)


async def value(repository: Repository, name: str = "v", version: str = "") -> float:
    response = await repository.get(name, version).infer(InferRequest(name, {"x": X}, version))
    return float(response.outputs["y"].item())


async def loaded(root: Path, **options: object) -> Repository:
    repository = Repository.open([root], **options)
    await repository.load_all()
    return repository


def put_version(write_model: WriteModel, root: Path, number: int, k: float | None = None) -> None:
    """A version that appears at once, as a careful deployment makes it."""
    aside = write_model("value", "v", version=number, k=number if k is None else k, repository=root / ".aside")
    shutil.rmtree(root / "v" / str(number), ignore_errors=True)
    (aside / "v" / str(number)).rename(root / "v" / str(number))


def states(repository: Repository) -> dict[str, str]:
    return {entry.version: entry.state for entry in repository.index()}


class Crowd:
    """Callers in a loop; every answer and every failure is kept."""

    def __init__(self, repository: Repository, size: int) -> None:
        self.answers: list[float] = []
        self.failures: list[TidemillError] = []
        self._repository = repository
        self._open = True
        self._callers = [asyncio.ensure_future(self._call()) for _ in range(size)]

    async def leave(self) -> None:
        self._open = False
        await asyncio.gather(*self._callers)

    async def answered(self, more: int) -> None:
        """Return after so many more answers."""
        goal = len(self.answers) + more
        while len(self.answers) < goal and not self.failures:
            await asyncio.sleep(0)

    async def _call(self) -> None:
        while self._open:
            try:
                self.answers.append(await value(self._repository))
            except TidemillError as error:
                self.failures.append(error)
            await asyncio.sleep(0)
