"""What callers of a model send and get, found without a server; knows no requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from tidemill.engine.instance import Instance
    from tidemill.repository.plan import Plan
    from tidemill.repository.wiring import Member

__all__ = ["ensemble_signature", "model_signature"]


def model_signature(plan: Plan, instance: Instance, batch: str) -> Member:
    """What stands around a loaded graph.

    Args:
        plan: The model.
        instance: Its graph, or its base's.
        batch: The symbol of the batch axis; "" if the model is not batched.

    Raises:
        ConfigError: An adapter or the section `sequence` does not fit the graph.
    """
    from tidemill.adapters.adapter import open_adapter
    from tidemill.repository.states import declare_states
    from tidemill.repository.wiring import Member

    adapter = open_adapter(plan.config.adapter, plan.folder, instance.inputs)
    if plan.config.sequence:
        states = declare_states(plan.config.sequence, instance.inputs, instance.outputs, batch, plan.folder)
        return Member(states.inputs, states.outputs)
    return Member(adapter.inputs if adapter else instance.inputs, instance.outputs)


def ensemble_signature(plan: Plan, plans: Mapping[str, Plan]) -> Member:
    """What an ensemble's members make of it.

    Args:
        plan: The ensemble; without a fault.
        plans: The newest version of every model by name.

    Raises:
        TidemillError: A member cannot be loaded, or they do not fit each other.
    """
    from tidemill.repository.wiring import Member, wire

    ensemble = plan.config.ensemble
    if plan.fault or ensemble is None:
        raise ConfigError(plan.fault)
    wiring = wire(ensemble, [_member(plans[step.model], plans) for step in ensemble.steps])
    return Member(wiring.inputs, wiring.outputs)


def _member(plan: Plan, plans: Mapping[str, Plan]) -> Member:
    from tidemill.repository.loading import open_instance, warm

    if plan.config.ensemble:
        return ensemble_signature(plan, plans)
    source = plan.base or plan
    if source.bundle is None:
        raise ConfigError(plan.fault)
    instance = open_instance(source.bundle, source.config)
    proof = warm(instance, source.config)
    return model_signature(plan, instance, (proof.symbol or "") if proof.batchable else "")
