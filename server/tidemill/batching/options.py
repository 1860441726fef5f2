"""How a model's requests are queued and batched, as plain numbers; knows no config files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemill.batching.pending import Feed
from tidemill.batching.ragged import Ragged
from tidemill.errors import ConfigError

__all__ = ["BatchingOptions", "LevelOptions"]


def _check_not_negative(options: object, *names: str) -> None:
    for name in names:
        if not getattr(options, name) >= 0:
            raise ConfigError(f"{name} is {getattr(options, name)}, expected 0 or more")


@dataclass(frozen=True, slots=True)
class LevelOptions:
    """What holds for the waiting requests of one priority level.

    Attributes:
        max_queue_size: Requests that may wait at most; 0 means no limit.
        timeout: Seconds that a request may wait for its run; 0 means no limit.
        delays: What happens to a request that waited for longer: True lets it stand back behind the others of its
            level, False fails it.
        overridable: Whether a request may ask for a shorter timeout.
    """

    max_queue_size: int = 4096
    timeout: float = 0.0
    delays: bool = False
    overridable: bool = True

    def __post_init__(self) -> None:
        _check_not_negative(self, "max_queue_size", "timeout")


@dataclass(frozen=True, slots=True)
class BatchingOptions:
    """The limits within which requests wait and are joined.

    Attributes:
        max_batch_size: Rows of one run at most; 0 means that requests are never joined.
        max_queue_delay: Seconds that a request may wait for others although an instance is idle.
        preferred_batch_sizes: Row counts at which a batch is sent without waiting for more; empty means only when full.
        inline_below: Runs whose model takes fewer seconds than this are made on the event loop, as a thread would
            cost more than it frees; 0 means never, infinity always.
        instances: Runs that may be under way at once.
        level: What holds for the requests that wait.
        priority_levels: How many levels there are; 1 is the most urgent.
        default_level: The level of requests that name none.
        levels: What holds for single levels instead of `level`.
        preserve_ordering: Whether answers are given in the order in which requests came.
        split_oversize: Whether a request of more than `max_batch_size` rows is run in parts instead of refused.
        most_parts: Into how many parts at most; they then may have more rows than `max_batch_size`. 0 for any number.
        ragged: How requests of different lengths are padded together; None if only equal shapes are joined.
        sized_by: Without `ragged`: the input whose values per row are a request's length; "" if all are of one size.
    """

    max_batch_size: int = 32
    max_queue_delay: float = 0.0
    preferred_batch_sizes: tuple[int, ...] = ()
    inline_below: float = 200e-6
    instances: int = 1
    level: LevelOptions = LevelOptions()
    priority_levels: int = 1
    default_level: int = 1
    levels: Mapping[int, LevelOptions] = field(default_factory=dict)
    preserve_ordering: bool = False
    split_oversize: bool = False
    most_parts: int = 0
    ragged: Ragged | None = None
    sized_by: str = ""

    def __post_init__(self) -> None:
        _check_not_negative(self, "max_batch_size", "max_queue_delay", "inline_below")
        for size in self.preferred_batch_sizes:
            if not 1 <= size <= self.max_batch_size:
                raise ConfigError(f"preferred batch size {size} is not in 1..{self.max_batch_size} (max_batch_size)")
        for level in (self.default_level, *self.levels):
            if not 1 <= level <= self.priority_levels:
                raise ConfigError(f"priority level {level} is not in 1..{self.priority_levels} (priority_levels)")
        self._check_order()

    def of_level(self, level: int) -> LevelOptions:
        """What holds for the requests of a level."""
        return self.levels.get(level, self.level)

    def effective_level(self, priority: int) -> int:
        """The level that a request's `priority` means; 0 and numbers out of range mean the default one."""
        return priority if 1 <= priority <= self.priority_levels else self.default_level

    def length(self, feed: Feed) -> int:
        """What a request's run time depends on beside its rows."""
        if self.ragged:
            return self.ragged.length(feed)
        return math.prod(feed[self.sized_by].shape[1:]) if self.sized_by else 0

    def _check_order(self) -> None:
        if not self.preserve_ordering:
            return
        if self.priority_levels > 1:
            raise ConfigError("preserve_ordering contradicts priority_levels: urgent requests overtake others")
        if any(options.delays and options.timeout for options in (self.level, *self.levels.values())):
            raise ConfigError("preserve_ordering contradicts a timeout that delays: others overtake the late ones")
