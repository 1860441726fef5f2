"""Dynamic batching: requests that arrive together run together."""

from tidemill.batching.batcher import Batcher
from tidemill.batching.cancel import Cancel
from tidemill.batching.cost import CostTable
from tidemill.batching.cost_policy import CostPolicy
from tidemill.batching.options import BatchingOptions, LevelOptions
from tidemill.batching.policy import FixedPolicy, Policy
from tidemill.batching.ragged import Ragged
from tidemill.batching.record import BatchRecord, Observer
from tidemill.batching.urgency import Urgency

__all__ = [
    "BatchRecord",
    "Batcher",
    "BatchingOptions",
    "Cancel",
    "CostPolicy",
    "CostTable",
    "FixedPolicy",
    "LevelOptions",
    "Observer",
    "Policy",
    "Ragged",
    "Urgency",
]
