"""What is to be measured and for how long, as plain data; knows no wire and no process."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemill.errors import ConfigError

__all__ = ["WIRES", "Load", "Settings", "Windows"]

WIRES = ("json", "binary", "grpc", "shm")
_ARRIVALS = ("poisson", "constant")


@dataclass(frozen=True, slots=True)
class Load:
    """One way of asking: either so many callers who ask again once answered, or so many requests a second.

    Attributes:
        wire: "json" and "binary" are REST, "grpc" is gRPC, "shm" is REST with tensors in shared memory.
        concurrency: Callers of a closed loop; 0 for an open loop.
        rate: Requests a second of an open loop, whatever the server does; 0 for a closed loop.
        arrivals: How an open loop spreads its requests: "poisson" as independent callers would, or "constant".
    """

    wire: str
    concurrency: int = 0
    rate: float = 0.0
    arrivals: str = "poisson"

    def __post_init__(self) -> None:
        if self.wire not in WIRES:
            raise ConfigError(f"wire {self.wire!r} is unknown; known are {', '.join(WIRES)}")
        if self.arrivals not in _ARRIVALS:
            raise ConfigError(f"arrivals {self.arrivals!r} are unknown; known are {', '.join(_ARRIVALS)}")
        if (self.concurrency > 0) == (self.rate > 0) or min(self.concurrency, self.rate) < 0:
            raise ConfigError(
                f"a load has either callers or a rate above 0; given were {self.concurrency} and {self.rate:g}/s"
            )

    @property
    def level(self) -> str:
        """The callers or the rate, to be read by people."""
        return f"{self.concurrency} callers" if self.concurrency else f"{self.rate:g}/s {self.arrivals}"

    def __str__(self) -> str:
        return f"{self.wire}, {self.level}"


@dataclass(frozen=True, slots=True)
class Windows:
    """When a measurement is long enough.

    Attributes:
        seconds: Length of one window.
        warmup_seconds: What goes before and does not count.
        needed: How many windows in a row must agree; they are what is reported.
        most: How many windows are measured before giving up; the last ones are reported then, as unsteady.
        tolerance: How far throughput and mean latency of a window may lie from the mean of the windows, as a share.
    """

    seconds: float = 2.0
    warmup_seconds: float = 1.0
    needed: int = 3
    most: int = 10
    tolerance: float = 0.10

    def __post_init__(self) -> None:
        if self.seconds <= 0 or self.warmup_seconds < 0 or self.tolerance <= 0:
            raise ConfigError("windows and their tolerance must be above 0, the warm-up not below")
        if not 1 <= self.needed <= self.most:
            raise ConfigError(f"of at most {self.most} windows, {self.needed} cannot be needed")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything about a measurement but its loads and its data.

    Attributes:
        model: The model's name.
        version: Its version; "" for the newest.
        http_url: Where REST is answered, "http://host:port"; "" if it is not asked.
        grpc_url: Where gRPC is answered, "grpc://host:port"; "" if it is not asked.
        headers: Sent with every request, for example an API key.
        windows: When a measurement is long enough.
        processes: That make the load; 0 to take as many as it needs.
        most_inflight: Requests that an open loop has in flight at most; more wait on this side, and their wait counts.
        timeout_seconds: After which a request counts as failed.
        seed: Of arrivals and data.
    """

    model: str
    version: str = ""
    http_url: str = ""
    grpc_url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    windows: Windows = field(default_factory=Windows)
    processes: int = 0
    most_inflight: int = 256
    timeout_seconds: float = 60.0
    seed: int = 0

    def url(self, wire: str) -> str:
        """Where a wire is answered.

        Raises:
            ConfigError: No address was given for it.
        """
        found = self.grpc_url if wire == "grpc" else self.http_url
        if not found:
            kind = "gRPC" if wire == "grpc" else "REST"
            raise ConfigError(f"wire {wire!r} needs the address of {kind}, and none was given")
        return found
