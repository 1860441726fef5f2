"""`tidemill check`: what a server would find out about a model, before a server does."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.errors import ConfigError, TidemillError

if TYPE_CHECKING:
    from tidemill.repository.layout import ModelFolder
    from tidemill.repository.plan import Plan

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
    plans = make_plans(list(_with_base(model)))
    return max(_report(plan) for plan in plans if plan.name == model.name)


def _with_base(model: Path) -> Iterator[ModelFolder]:
    """The model's folder, and beside it that of the base which its model.yaml may name."""
    from tidemill.bundle.config import load_config
    from tidemill.repository.layout import name_fault, scan_model

    folder = scan_model(model)
    yield folder
    base = load_config(folder.config_path).base
    if base and not name_fault(base) and base != model.name and (model.parent / base).is_dir():
        yield scan_model(model.parent / base)


def _report(plan: Plan) -> int:
    title = f"{plan.name} version {plan.version}" if plan.version else plan.name
    try:
        lines = _findings(plan)
    except TidemillError as error:
        print(f"{title}: {error}", file=sys.stderr)
        return 1
    print("\n".join([f"{title}: ok", *(f"  {line}" for line in lines)]))
    return 0


def _findings(plan: Plan) -> list[str]:
    from tidemill.adapters.adapter import open_adapter
    from tidemill.repository.loading import open_instance, open_version, warm

    source = plan.base or plan
    if source.bundle is None:
        raise ConfigError(plan.fault)
    open_version(source.bundle).verify()
    instance = open_instance(source.bundle, source.config)
    proof = warm(instance, source.config)
    adapter = open_adapter(plan.config.adapter, plan.folder, instance.inputs)
    return [
        *(f"input   {spec}" for spec in (adapter.inputs if adapter else instance.inputs)),
        *(f"output  {spec}" for spec in instance.outputs),
        f"runs on {', '.join(instance.providers)}, {instance.threads} thread(s) a run",
        f"batched {'yes' if proof.batchable else 'no'}: {proof.reason}",
    ]
