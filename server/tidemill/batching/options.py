"""How a model's requests are batched, as plain numbers; knows neither config files nor where the numbers come from."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.errors import ConfigError

__all__ = ["BatchingOptions"]


@dataclass(frozen=True, slots=True)
class BatchingOptions:
    """The limits within which requests are joined.

    Attributes:
        max_batch_size: Rows of one run at most; 0 means that requests are never joined.
        max_queue_delay: Seconds that a request may wait for others although an instance is idle.
        max_queue_size: Requests that may wait at most; 0 means no limit.
        preferred_batch_sizes: Row counts at which a batch is sent without waiting for more; empty means only when full.
        inline_below: Runs that take fewer seconds than this are made on the event loop, as a thread would cost more
            than it frees; 0 means never, infinity always.
    """

    max_batch_size: int = 32
    max_queue_delay: float = 0.0
    max_queue_size: int = 4096
    preferred_batch_sizes: tuple[int, ...] = ()
    inline_below: float = 200e-6

    def __post_init__(self) -> None:
        for name in ("max_batch_size", "max_queue_delay", "max_queue_size", "inline_below"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected 0 or more")
        for size in self.preferred_batch_sizes:
            if not 1 <= size <= self.max_batch_size:
                raise ConfigError(f"preferred batch size {size} is not in 1..{self.max_batch_size} (max_batch_size)")
