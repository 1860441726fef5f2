"""How a model wants to be served: model.yaml as data, every field with a default; knows no server."""

from __future__ import annotations

from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, get_args

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from tidemill.errors import ConfigError
from tidemill.weights.rename import check_rename

__all__ = ["CONFIG_FILE", "AdapterConfig", "BatchingConfig", "ModelConfig", "TextAdapterConfig", "load_config"]

CONFIG_FILE = "model.yaml"

_Count = Annotated[int, Field(strict=True, gt=0)]
_CountOrZero = Annotated[int, Field(strict=True, ge=0)]


def _checked_rename(rename: dict[str, str]) -> dict[str, str]:
    check_rename(rename)
    return rename


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BatchingConfig(_Section):
    """How requests are joined into batches.

    Attributes:
        max_queue_delay_microseconds: How long a request may wait for company while an instance is idle.
        max_queue_size: How many requests may wait; more are refused. 0 for no limit.
        preferred_batch_size: Row counts at which a batch runs at once.
    """

    max_queue_delay_microseconds: _CountOrZero = 0
    max_queue_size: _CountOrZero = 1024
    preferred_batch_size: tuple[_Count, ...] = ()


class TextAdapterConfig(_Section):
    """Text in, token ids out.

    Attributes:
        tokenizer: The tokenizer.json, relative to model.yaml.
        input: The name of the BYTES input that callers send.
        ids: The model's input that takes the token ids.
        mask: The model's input that takes the attention mask; None if it has none.
        max_length: Tokens kept of one text; None for as many as the tokenizer file says.
    """

    tokenizer: str = "tokenizer.json"
    input: str = "text"
    ids: str = "input_ids"
    mask: str | None = "attention_mask"
    max_length: _Count | None = None


class AdapterConfig(_Section):
    """What turns a caller's input into the model's tensors."""

    text: TextAdapterConfig | None = None


class ModelConfig(_Section):
    """The content of model.yaml.

    Attributes:
        max_batch_size: Rows of one run at most; 0 never joins requests; None lets the server choose.
        batching: How requests are joined.
        instances: How many runs of the model may go on at once.
        threads: Threads of one run; None shares the machine's cores.
        providers: What executes the model, in order of preference: "cpu", "cuda", "tensorrt".
        base: Another model of the repository whose instances run this one; None to load an own graph.
        adapter: The conversion of inputs; None to take tensors as they are.
        warmup: Sizes of symbolic dims, one mapping a run made before the model is ready; with none, one run with every
            dim 1.
        rename: Weight name to the key in a checkpoint, with patterns as in `tidemill.weights.rename`; heeded when a
            bundle is written below this file.
    """

    max_batch_size: _CountOrZero | None = None
    batching: BatchingConfig = BatchingConfig()
    instances: _Count = 1
    threads: _Count | None = None
    providers: tuple[str, ...] = Field(default=("cpu",), min_length=1)
    base: str | None = None
    adapter: AdapterConfig | None = None
    warmup: tuple[dict[str, _Count], ...] = ()
    rename: Annotated[dict[str, str], AfterValidator(_checked_rename)] = {}


def load_config(path: str | PathLike[str]) -> ModelConfig:
    """Read a model.yaml.

    Args:
        path: The file; it need not exist.

    Returns:
        The configuration; all defaults if there is no such file or it is empty.

    Raises:
        ConfigError: It is not YAML, or fields are unknown or wrong; the message names the file and every such field.
    """
    file = Path(path)
    if not file.exists():
        return ModelConfig()
    try:
        given = yaml.load(file.read_bytes(), Loader=_UniqueKeyLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not YAML: {error}") from None
    try:
        return ModelConfig.model_validate({} if given is None else given)
    except ValidationError as error:
        faults = "; ".join(_describe(fault) for fault in error.errors())
        raise ConfigError(f"{file}: {faults}") from None


class _UniqueKeyLoader(yaml.SafeLoader):
    """PyYAML lets the last of two equal keys win in silence; here that is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _describe(fault: Any) -> str:
    where = ".".join(map(str, fault["loc"])) or "the whole"
    if fault["type"] != "extra_forbidden":
        return f"{where}: {fault['msg']}, given was {fault['input']!r}"
    *parents, name = fault["loc"]
    known = list(_section_at(parents).model_fields)
    close = get_close_matches(str(name), known, n=1)
    return f"{where}: unknown field, " + (f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}")


def _section_at(path: list[Any]) -> type[BaseModel]:
    section: type[BaseModel] = ModelConfig
    for step in path:
        kind: Any = section.model_fields[step].annotation
        section = next(arg for arg in (kind, *get_args(kind)) if isinstance(arg, type) and issubclass(arg, BaseModel))
    return section
