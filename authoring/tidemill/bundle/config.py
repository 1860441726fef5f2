"""How a model wants to be served: model.yaml as data, every field with a default; knows no server."""

from __future__ import annotations

from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import yaml
from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

from tidemill.bundle.ensemble_config import EnsembleConfig, TensorConfig
from tidemill.bundle.generation_config import GenerationConfig
from tidemill.bundle.image_config import ImageAdapterConfig
from tidemill.bundle.pipeline_config import PipelineConfig
from tidemill.bundle.section import Count as _Count
from tidemill.bundle.section import CountOrZero as _CountOrZero
from tidemill.bundle.section import Section as _Section
from tidemill.bundle.sequence_config import SequenceConfig
from tidemill.errors import ConfigError
from tidemill.weights.rename import check_rename

__all__ = [
    "CONFIG_FILE",
    "AdapterConfig",
    "BatchingConfig",
    "ImageAdapterConfig",
    "ModelConfig",
    "QueueConfig",
    "RaggedConfig",
    "TextAdapterConfig",
    "VersionPolicy",
    "load_config",
    "read_config",
]

CONFIG_FILE = "model.yaml"


def _checked_rename(rename: dict[str, str]) -> dict[str, str]:
    check_rename(rename)
    return rename


class QueueConfig(_Section):
    """How requests wait.

    Attributes:
        max_queue_size: How many requests may wait; more are refused. 0 for no limit.
        default_timeout_microseconds: How long a request may wait for its run. 0 for no limit.
        timeout_action: What happens to one that waited for longer: it fails, or stands back behind the others.
        allow_timeout_override: Whether a request's parameter `timeout` may ask for less.
    """

    max_queue_size: _CountOrZero = 1024
    default_timeout_microseconds: _CountOrZero = 0
    timeout_action: Literal["reject", "delay"] = "reject"
    allow_timeout_override: bool = True


class RaggedConfig(_Section):
    """How requests that differ in one symbolic dim, such as their count of tokens, are padded to run together.

    Attributes:
        pad: What each input is filled up with, by name; it must be such that the model ignores it.
        mask: An input that the server makes instead of the caller: 1 for what was sent, 0 for what was filled up.
        dim: The symbolic dim; None if the padded inputs have only one beside the batch.
        buckets: With the fixed policy, only lengths between the same two of these are joined.
        max_padding: With the fixed policy and without buckets, the largest share of a batch that may be padding.
    """

    pad: dict[str, bool | int | float | str] = Field(min_length=1)
    mask: str | None = None
    dim: str | None = None
    buckets: tuple[_Count, ...] = ()
    max_padding: Annotated[float, Field(ge=0, lt=1)] = 0.15


class BatchingConfig(QueueConfig):
    """How requests wait, and how they are joined into batches.

    Attributes:
        policy: "cost" joins requests only where measured run times say that all finish sooner; "fixed" joins as many as
            fit. None is "fixed" for a model with preferred sizes, else "cost".
        max_queue_delay_microseconds: How long a request may wait for company while an instance is idle.
        preferred_batch_size: Row counts at which a batch runs at once.
        preserve_ordering: Whether answers are given in the order of the requests.
        oversize: What happens to a request of more rows than `max_batch_size`: None splits it if the server chose that
            size, and refuses it if this file says it.
        priority_levels: How many levels of urgency there are; 1 is the most urgent.
        default_priority_level: The level of requests without the parameter `priority`.
        priorities: How the requests of single levels wait, where that differs.
        ragged: How requests of different lengths are joined; None joins only equal shapes.
    """

    policy: Literal["cost", "fixed"] | None = None
    max_queue_delay_microseconds: _CountOrZero = 0
    preferred_batch_size: tuple[_Count, ...] = ()
    preserve_ordering: bool = False
    oversize: Literal["split", "refuse"] | None = None
    priority_levels: _Count = 1
    default_priority_level: _Count = 1
    priorities: dict[int, QueueConfig] = Field(default={})
    ragged: RaggedConfig | None = None


class VersionPolicy(_Section):
    """Which versions of a model are served; one of the three.

    Attributes:
        latest: So many of the newest that can be loaded.
        all: Every one.
        specific: These.
    """

    latest: _Count | None = None
    all: bool = False
    specific: tuple[_Count, ...] = ()

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if sum(map(bool, (self.latest, self.all, self.specific))) != 1:
            raise ValueError("expected one of `latest: 1`, `all: true` or `specific: [1, 3]`")
        return self


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


class DimConfig(_Section):
    """The sizes that a symbolic dim takes: min <= opt <= max, opt being the one to be fast for."""

    min: _Count = 1
    opt: _Count
    max: _Count


class DeclaredConfig(_Section):
    """What is said of inputs and outputs; a graph that has others is not served."""

    inputs: tuple[TensorConfig, ...] = ()
    outputs: tuple[TensorConfig, ...] = ()


class ReshapeConfig(_Section):
    """A tensor that callers see in another shape than the model has it; -1 for sizes that vary, in the same order.

    Attributes:
        seen: What callers see.
        model: What the model has.
        batched: Whether both are without the batch axis.
    """

    seen: tuple[int, ...]
    model: tuple[int, ...]
    batched: bool = True


class ResponseCacheConfig(_Section):
    """Whether answers are kept for requests that come again, where the server has a cache."""

    enable: bool = False


class AdapterConfig(_Section):
    """What turns a caller's input into the model's tensors."""

    text: TextAdapterConfig | None = None
    image: ImageAdapterConfig | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if self.text is not None and self.image is not None:
            raise ValueError("expected one of `text` and `image`, not both")
        return self


_NOT_OF_TEXTS = (
    *("sequence", "ensemble", "adapter", "base", "reshape", "declared"),
    *("max_batch_size", "batching", "isolation"),
)
"""Fields of model.yaml that a model which takes and gives text by itself has no use for."""


class ModelConfig(_Section):
    """The content of model.yaml.

    Attributes:
        max_batch_size: Rows of one run at most; 0 never joins requests; None lets the server choose.
        batching: How requests are joined.
        version_policy: Which versions are served.
        labels: Files that hold one label a line, by output name, relative to this file.
        instances: How many runs of the model may go on at once; "auto" measures at load how many runs, of how many
            threads each, answer most requests a second.
        threads: Threads of one run; None shares the machine's cores.
        providers: What executes the model, in order of preference: "cpu", "cuda", "tensorrt".
        provider_options: Values by option by provider, handed on to ONNX Runtime.
        allow_fallback: Whether a provider that cannot be started is done without, with a warning.
        prepack: Whether weights are copied into the layout that the CPU likes best: batches run faster, at the price of
            a private copy of the weights of matrix products.
        shrink_above_bytes: A run that is fed more than so many bytes gives its memory back afterwards; 0 keeps it.
        dims: Sizes of symbolic dims by name; TensorRT builds for these.
        isolation: "process" runs the model in a process of its own: if it crashes, its own requests fail and it is
            started again. It costs a copy of inputs and outputs, and about a tenth of a millisecond a run.
        base: Another model of the repository whose instances run this one; None to load an own graph.
        sequence: What is kept from one request to the next; None if requests have nothing to do with each other.
        ensemble: The served models that this one is made of; None to load an own graph.
        generation: How texts are generated; None for a model that answers once.
        pipeline: Python code that asks served models; None to load an own graph.
        response_cache: Whether answers are kept for requests that come again.
        adapter: The conversion of inputs; None to take tensors as they are.
        declared: What inputs and outputs are to be; the graph says it by itself.
        reshape: Tensors that callers see in other shapes, by name.
        warmup: Sizes of symbolic dims or whole shapes of inputs, one mapping a run made before the model is ready; with
            none, one run with every dim 1.
        rename: Weight name to the key in a checkpoint, with patterns as in `tidemill.weights.rename`; heeded when a
            bundle is written below this file.
    """

    max_batch_size: _CountOrZero | None = None
    batching: BatchingConfig = BatchingConfig()
    version_policy: VersionPolicy = VersionPolicy(latest=1)
    labels: dict[str, str] = Field(default={})
    instances: _Count | Literal["auto"] = 1
    threads: _Count | None = None
    providers: tuple[str, ...] = Field(default=("cpu",), min_length=1)
    provider_options: dict[str, dict[str, bool | int | float | str]] = Field(default={})
    allow_fallback: bool = False
    prepack: bool = True
    shrink_above_bytes: _CountOrZero = 0
    dims: dict[str, DimConfig] = Field(default={})
    isolation: Literal["none", "process"] = "none"
    base: str | None = None
    sequence: SequenceConfig | None = None
    ensemble: EnsembleConfig | None = None
    generation: GenerationConfig | None = None
    pipeline: PipelineConfig | None = None
    response_cache: ResponseCacheConfig = ResponseCacheConfig()
    adapter: AdapterConfig | None = None
    declared: DeclaredConfig = DeclaredConfig()
    reshape: dict[str, ReshapeConfig] = Field(default={})
    warmup: tuple[dict[str, _Count | tuple[_CountOrZero, ...]], ...] = ()
    rename: Annotated[dict[str, str], AfterValidator(_checked_rename)] = Field(default={})

    @property
    def fixed_instances(self) -> int:
        """`instances`, or 1 as long as it is to be found out."""
        return 1 if self.instances == "auto" else self.instances

    @model_validator(mode="after")
    def _check_generation(self) -> Self:
        for name in _NOT_OF_TEXTS:
            if self.generation and name in self.model_fields_set:
                raise ValueError(f"{name} contradicts generation, which takes and gives text by itself")
        return self

    @model_validator(mode="after")
    def _check_cache(self) -> Self:
        if self.sequence and self.response_cache.enable:
            raise ValueError("response_cache contradicts sequence: an answer follows from what came before it")
        return self


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
    return read_config({} if given is None else given, str(file))


def read_config(given: Any, source: str) -> ModelConfig:
    """Check a configuration that was read already.

    Args:
        given: The fields by name.
        source: Where they come from, for the message.

    Raises:
        ConfigError: Fields are unknown or wrong; the message names every such field.
    """
    try:
        return ModelConfig.model_validate(given)
    except ValidationError as error:
        # Of the faults of a field that may have one of several forms, the first form's is told.
        faults = {_place(fault): _describe(fault) for fault in reversed(error.errors())}
        raise ConfigError(f"{source}: {'; '.join(reversed(faults.values()))}") from None


class _UniqueKeyLoader(yaml.SafeLoader):
    """PyYAML lets the last of two equal keys win in silence; here that is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _place(fault: Any) -> str:
    """The field by its path, without the names that pydantic gives to the forms that a field may have."""
    steps = (str(step) for step in fault["loc"])
    return ".".join(step for step in steps if step != "constrained-int" and "[" not in step) or "the whole"


def _describe(fault: Any) -> str:
    where = _place(fault)
    if fault["type"] != "extra_forbidden":
        return f"{where}: {fault['msg']}, given was {fault['input']!r}"
    *parents, name = fault["loc"]
    known = list(_section_at(parents).model_fields)
    close = get_close_matches(str(name), known, n=1)
    return f"{where}: unknown field, " + (f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}")


def _section_at(path: list[Any]) -> type[BaseModel]:
    section: type[BaseModel] = ModelConfig
    for step in path:
        if step not in section.model_fields:  # the key of a mapping of sections
            continue
        kind: Any = section.model_fields[step].annotation
        section = next(arg for arg in (kind, *get_args(kind)) if isinstance(arg, type) and issubclass(arg, BaseModel))
    return section
