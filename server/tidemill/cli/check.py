"""`tidemill check`: what a server would find out about a model, before a server does."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.errors import ConfigError, TidemillError

if TYPE_CHECKING:
    from tidemill.repository.layout import ModelFolder
    from tidemill.repository.plan import Plan
    from tidemill.repository.wiring import Member

__all__ = ["add_arguments", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", type=Path, help="a model's folder: <repository>/<model>")


def execute(args: argparse.Namespace) -> int:
    """Verify a model's files, load it, and say how it would be served."""
    from tidemill.repository.plan import make_plans

    model = args.model.absolute()
    if not model.is_dir():
        raise ConfigError(f"{args.model} is not a folder")
    plans = make_plans(list(_with_others(model, {})))
    newest = {plan.name: plan for plan in reversed(plans)}
    return max(_report(plan, newest) for plan in plans if plan.name == model.name)


def _with_others(model: Path, seen: dict[str, ModelFolder]) -> Iterable[ModelFolder]:
    """The model's folder, and beside it those of its base or members, and of theirs."""
    from tidemill.repository.layout import name_fault, scan_model
    from tidemill.repository.source import read_source

    seen[model.name] = scan_model(model)
    source = read_source(seen[model.name])
    for name in (source.config.base, *source.members):
        if name and name not in seen and not name_fault(name) and (model.parent / name).is_dir():
            _with_others(model.parent / name, seen)
    return seen.values()


def _report(plan: Plan, newest: Mapping[str, Plan]) -> int:
    title = f"{plan.name} version {plan.version}" if plan.version else plan.name
    try:
        lines = _ensemble_findings(plan, newest) if plan.config.ensemble else _findings(plan)
    except TidemillError as error:
        print(f"{title}: {error}", file=sys.stderr)
        return 1
    print("\n".join([f"{title}: ok", *(f"  {line}" for line in lines)]))
    return 0


def _findings(plan: Plan) -> list[str]:
    from tidemill.cli.signature import model_signature
    from tidemill.repository.loading import open_instance, open_version, warm

    source = plan.base or plan
    if source.bundle is None:
        raise ConfigError(plan.fault)
    open_version(source.bundle).verify()
    instance = open_instance(source.bundle, source.config)
    proof = warm(instance, source.config)
    signature = model_signature(plan, instance, (proof.symbol or "") if proof.batchable else "")
    kept = plan.config.sequence.state if plan.config.sequence else ()
    return [
        *_told(signature),
        *(f"keeps   {state.output} as {state.input} of the next request" for state in kept),
        f"runs on {', '.join(instance.providers)}, {instance.threads} thread(s) a run",
        f"batched {'yes' if proof.batchable else 'no'}: {proof.reason}",
    ]


def _ensemble_findings(plan: Plan, newest: Mapping[str, Plan]) -> list[str]:
    from tidemill.cli.signature import ensemble_signature

    models = [step.model for step in plan.config.ensemble.steps] if plan.config.ensemble else []
    return [*_told(ensemble_signature(plan, newest)), f"runs {', '.join(models)}"]


def _told(signature: Member) -> list[str]:
    return [
        *(f"input   {spec}" for spec in signature.inputs),
        *(f"output  {spec}" for spec in signature.outputs),
    ]
