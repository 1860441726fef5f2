"""Dynamic batching: requests that arrive together run together."""

from tidemill.batching.batcher import Batcher
from tidemill.batching.options import BatchingOptions
from tidemill.batching.record import BatchRecord, Observer

__all__ = ["BatchRecord", "Batcher", "BatchingOptions", "Observer"]
