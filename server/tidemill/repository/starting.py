"""How a loaded model is to be batched, by its configuration and by what its runs show; and the batcher that does so."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from tidemill.batching.batcher import Batcher
from tidemill.batching.cost import CostTable
from tidemill.batching.cost_policy import CostPolicy
from tidemill.batching.options import BatchingOptions, LevelOptions
from tidemill.batching.policy import FixedPolicy, Policy, buckets, little_padding
from tidemill.batching.ragged import Ragged
from tidemill.batching.record import BatchRecord, Observer
from tidemill.bundle.config import BatchingConfig, ModelConfig, QueueConfig
from tidemill.engine.batchability import BatchProof
from tidemill.engine.instance import Instance
from tidemill.engine.samples import sample_feed
from tidemill.engine.threads import available_threads
from tidemill.protocol.types import Array, TensorSpec
from tidemill.repository.kept_costs import KeptCosts, Measured
from tidemill.repository.measuring import LENGTHS, best_rows, measure
from tidemill.repository.padding import declare_ragged, prove_padding
from tidemill.repository.running import RunningModel

__all__ = ["BatchPlan", "plan_batching", "start"]

_LAYOUT = 1  # of what is measured; raised when it is measured otherwise
_MOST_PARTS = 8
_MOST_ROWS = 128
_FEWEST_ROWS = 4
"""What the server chooses as `max_batch_size` lies between; measurements at load may mislead."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """How a model is batched, and why.

    Attributes:
        proof: Whether requests may be joined.
        options: The limits.
        costs: Run times, by which requests are joined; None if they are joined as they come.
        padding: What was found out about joining different lengths; "" if it was not asked for.
    """

    proof: BatchProof
    options: BatchingOptions
    costs: CostTable | None = None
    padding: str = ""


def plan_batching(
    instance: Instance, proof: BatchProof, config: ModelConfig, kept: KeptCosts | None = None
) -> BatchPlan:
    """Find out how to batch a warm model; takes up to a second where run times are not known yet.

    Args:
        instance: The model.
        proof: Whether requests may be joined.
        config: How it is to be served.
        kept: Where run times are kept; None to measure them.

    Raises:
        ConfigError: The batching section contradicts itself or the model.
    """
    options = _options(config)
    if not proof.batchable or not proof.symbol:
        return BatchPlan(proof, replace(options, max_batch_size=0, preferred_batch_sizes=()))
    dim, ragged, finding = _ragged(instance, proof.symbol, config.batching)
    options = replace(options, ragged=ragged, sized_by="" if ragged else _sized_by(instance.inputs))
    if config.batching.policy == "fixed" or (config.batching.preferred_batch_size and not config.batching.policy):
        return BatchPlan(proof, options, padding=finding)
    measured = _measured(instance, (proof.symbol, dim), options, kept)
    if config.max_batch_size is None and measured:
        most = min(max(best_rows(measured), _FEWEST_ROWS, *options.preferred_batch_sizes), _MOST_ROWS)
        options = replace(options, max_batch_size=most)
    # Where a run costs less than planning would, what is there is sent.
    pays = bool(measured) and (config.batching.policy == "cost" or min(measured.values()) >= options.inline_below)
    return BatchPlan(proof, options, CostTable(measured) if pays else None, finding)


def start(
    instance: Instance,
    plan: BatchPlan,
    config: ModelConfig,
    observer: Observer | None,
    clock: Callable[[], float],
) -> RunningModel:
    """Put a warm instance behind a batcher on the running event loop."""
    policy = _policy(plan, config.batching)
    batcher = Batcher(instance.run, plan.options, policy=policy, clock=clock, observer=_observer(plan.costs, observer))
    return RunningModel(instance, plan, batcher)


def _options(config: ModelConfig) -> BatchingOptions:
    batching = config.batching
    splits = batching.oversize == "split" or (batching.oversize is None and config.max_batch_size is None)
    default = max(BatchingOptions().max_batch_size, *batching.preferred_batch_size, 0)
    return BatchingOptions(
        max_batch_size=default if config.max_batch_size is None else config.max_batch_size,
        max_queue_delay=batching.max_queue_delay_microseconds / 1e6,
        preferred_batch_sizes=batching.preferred_batch_size if config.max_batch_size != 0 else (),
        # What runs elsewhere would keep the event loop waiting.
        inline_below=BatchingOptions().inline_below if config.isolation == "none" else 0.0,
        instances=config.fixed_instances,
        level=_level(batching),
        priority_levels=batching.priority_levels,
        default_level=batching.default_priority_level,
        levels={level: _level(queue) for level, queue in batching.priorities.items()},
        preserve_ordering=batching.preserve_ordering,
        split_oversize=splits,
        # A limit that nobody set says how far requests are joined, not in how many runs a large one is made.
        most_parts=_MOST_PARTS if config.max_batch_size is None else 0,
    )


def _level(queue: QueueConfig) -> LevelOptions:
    return LevelOptions(
        max_queue_size=queue.max_queue_size,
        timeout=queue.default_timeout_microseconds / 1e6,
        delays=queue.timeout_action == "delay",
        overridable=queue.allow_timeout_override,
    )


def _ragged(instance: Instance, batch: str, config: BatchingConfig) -> tuple[str, Ragged | None, str]:
    """The varying dim, how it is padded, and what was found out; no padding if it changes answers."""
    if config.ragged is None:
        return "", None, ""
    dim, ragged = declare_ragged(config.ragged, instance.inputs, instance.outputs, batch)
    specs = {"inputs": instance.inputs, "outputs": instance.outputs}
    fault = prove_padding(instance.run, ragged, dim, specs)
    if not fault:
        return dim, ragged, f"requests that differ in {dim!r} are padded together"
    # Without padding the mask is nothing but ones; callers need not learn of that.
    alone = replace(ragged, joins=False)
    return dim, alone, f"requests that differ in {dim!r} are not joined: {fault}"


def _sized_by(inputs: tuple[TensorSpec, ...]) -> str:
    return next((spec.name for spec in inputs if any(isinstance(size, str) for size in spec.shape[1:])), "")


def _measured(instance: Instance, dims: tuple[str, str], options: BatchingOptions, kept: KeptCosts | None) -> Measured:
    """Run times, of an earlier start if they are kept."""
    measure_now = partial(_measure, instance, *dims, options)
    if kept is None or not instance.key:
        return measure_now()
    facts = {
        "layout": _LAYOUT,
        "graph": instance.key,
        "threads": [instance.threads, available_threads()],
        "isolated": type(instance).__name__,
        "dims": dims,
        "sized_by": options.sized_by,
        "mask": options.ragged.mask[0] if options.ragged and options.ragged.mask else "",
    }
    return kept.recall(facts, measure_now)


def _measure(instance: Instance, batch: str, dim: str, options: BatchingOptions) -> Measured:
    """Seconds by rows and what `BatchingOptions.length` says of the feed."""

    def make_feed(rows: int, length: int) -> Mapping[str, Array]:
        sizes = {batch: rows} | ({dim: length} if dim else {})
        return sample_feed(instance.inputs, sizes, size=length or 1)

    varies = bool(dim or options.sized_by)
    measured = measure(instance.run, make_feed, LENGTHS if varies else (0,))
    lengths = {length: options.length(make_feed(1, length)) for _, length in measured}
    return {(rows, lengths[length]): seconds for (rows, length), seconds in measured.items()}


def _policy(plan: BatchPlan, config: BatchingConfig) -> Policy:
    if plan.costs:
        return CostPolicy(plan.costs, plan.options)
    if not plan.options.ragged or not config.ragged:
        return FixedPolicy(plan.options)
    edges = config.ragged.buckets
    return FixedPolicy(plan.options, buckets(edges) if edges else little_padding(config.ragged.max_padding))


def _observer(costs: CostTable | None, observer: Observer | None) -> Observer | None:
    """Lets the cost table learn from what is served."""
    if costs is None:
        return observer

    def learn(record: BatchRecord) -> None:
        if record.executions == 1 and not record.failures and math.isfinite(record.run_seconds):
            costs.record(record.rows, record.length, record.run_seconds)
        if observer:
            observer(record)

    return learn
