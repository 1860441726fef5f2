"""Loading and unloading models on a caller's word, where the operator allows it; knows no wire."""

from __future__ import annotations

from tidemill.errors import Unsupported
from tidemill.protocol.control import LoadParameters
from tidemill.repository.repository import Repository
from tidemill.serving.config import ServerConfig

__all__ = ["Control"]


class Control:
    """The repository extension of one server."""

    def __init__(self, repository: Repository, config: ServerConfig) -> None:
        self._repository = repository
        self._config = config

    async def load(self, name: str, parameters: LoadParameters) -> None:
        """Load a model and return when it is ready; one that is loaded is replaced, or kept if that fails.

        Raises:
            Unsupported: Callers may not load models here.
            Unavailable: The repositories are watched instead.
            NotFound: No repository holds the model.
            LoadFailed: It cannot be loaded.
            ConfigError: The config that came along is wrong.
        """
        self._check()
        await self._repository.load(name, config=parameters.config, files=parameters.files or None)

    async def unload(self, name: str, *, dependents: bool = False) -> None:
        """Take a model out of service and return; requests in flight finish, new ones are refused.

        Args:
            name: The model.
            dependents: Whether the models that it runs go with it.

        Raises:
            Unsupported: Callers may not unload models here.
            Unavailable: The repositories are watched instead.
            NotFound: There is no such model.
        """
        self._check()
        await self._repository.unload(name, dependents=dependents)

    def _check(self) -> None:
        if self._config.effective_model_control == "none":
            raise Unsupported(
                "callers may not load or unload models here; the operator can allow it (model_control: explicit)"
            )
