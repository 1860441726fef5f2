"""One request's answer with where its time went; knows nothing of how that is told."""

from __future__ import annotations

from tidemill.batching.pending import Array, Feed
from tidemill.batching.record import BatchRecord

__all__ = ["Timed"]


class Timed(dict[str, Array]):
    """Arrays by output name.

    Attributes:
        queue_seconds: How long the request waited for its run.
        run_seconds: The run that it took part in.
        batch_rows: Rows of that run, its own included.
        record: All about that run.
    """

    __slots__ = ("batch_rows", "queue_seconds", "record", "run_seconds")

    def __init__(self, outputs: Feed, record: BatchRecord, place: int) -> None:
        """Take the outputs of a batch's request.

        Args:
            outputs: Its arrays.
            record: The batch.
            place: Which of the batch's requests it is.
        """
        super().__init__(outputs)
        self.queue_seconds = record.queue_seconds[place]
        self.run_seconds = record.run_seconds
        self.batch_rows = record.rows
        self.record = record
