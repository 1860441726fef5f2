"""Texts made token by token by a model over a cache: requests, sampling, slots, continuous batching."""

from tidemill.generation.generator import Generator, GeneratorOptions, Observers
from tidemill.generation.record import StepRecord, TextRecord
from tidemill.generation.request import Delta, Finish, GenerationRequest, Likely, SamplingOptions, TokenChoice
from tidemill.generation.stepper import Stepper
from tidemill.generation.stream import Stream
from tidemill.generation.tokenizer import TextTokenizer

__all__ = [
    "Delta",
    "Finish",
    "GenerationRequest",
    "Generator",
    "GeneratorOptions",
    "Likely",
    "Observers",
    "SamplingOptions",
    "StepRecord",
    "Stepper",
    "Stream",
    "TextRecord",
    "TextTokenizer",
    "TokenChoice",
]
