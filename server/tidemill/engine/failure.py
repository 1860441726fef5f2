"""What ONNX Runtime's exceptions mean for the caller; knows their texts and nothing else of ONNX Runtime."""

from __future__ import annotations

import re

from tidemill.errors import InferenceFailed, InvalidArgument, TidemillError, UnprocessableInput

__all__ = ["explain_run"]

_KERNEL = re.compile(r"while running (?P<op>\w+) node\. Name:'(?P<node>[^']*)' Status Message: (?P<text>.*)", re.DOTALL)
_PREFIX = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : ")
# "/onnxruntime_src/.../reshape_helper.h:91 onnxruntime::ReshapeHelper::ReshapeHelper(...) condition was false. " and
# "element_wise_ops.cc:703 Compute ": where in ONNX Runtime's sources, of no use to a caller.
_SOURCE = re.compile(
    r"(\S*/)?[\w.-]+\.(cc|h|cu|cuh|cpp|hpp):\d+ (.*?\) \S.*? was false\. |[^()]*\([^()]*\) |[\w:~]+ )?"
)
_OWN_FAULT = re.compile(r"alloc|out of memory|cuda|cudnn|cublas|terminate flag", re.IGNORECASE)


def explain_run(error: Exception) -> TidemillError:
    """The error to raise for what a run raised.

    ONNX Runtime's classes do not tell whose fault it is. A kernel that fails after names, dtypes and shapes were
    checked stumbles over values, unless it ran out of memory or its device broke.
    """
    text = str(error)
    kernel = _KERNEL.search(text)
    if not kernel:
        kind = InvalidArgument if type(error).__name__ == "InvalidArgument" else InferenceFailed
        return kind(f"the model could not be run: {_clean(text)}")
    where = f"{kernel['op']} node {kernel['node']!r}" if kernel["node"] else f"{kernel['op']} node"
    kind = InferenceFailed if _OWN_FAULT.search(kernel["text"]) else UnprocessableInput
    return kind(f"{where} cannot compute with these values: {_clean(kernel['text'])}")


def _clean(text: str) -> str:
    return " ".join(_SOURCE.sub("", _PREFIX.sub("", text)).split())
