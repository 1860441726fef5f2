"""Writes docs/ops.md from the operators' sources: `python docs/generate_ops.py`, or `--check` to compare only.

What an operator becomes is read off its source: the ONNX operators that it and the private functions of its file name,
and the other operators that it calls.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx  # noqa: TID251  (the page shows what ONNX takes)

from tidemill.dtype import DType
from tidemill.graph import ops
from tidemill.graph.ops import kernels, random

PAGE = Path(__file__).with_name("ops.md")
OLDER, OPSET = 21, 23  # what is exported, and what a few operators need

GROUPS = {
    "all": list(DType),
    "numbers": [one for one in DType if one.is_integral() or (one.is_float() and one.size_in_bytes > 1)],
    "floats": [one for one in DType if one.is_float() and one.size_in_bytes > 1],
    "integers": [one for one in DType if one.is_integral()],
}

HEADER = """\
# The operators

Written by `docs/generate_ops.py` from the docstrings and the sources of `tidemill.graph.ops`; edit those.

- *ONNX*: the operators that it becomes; in parentheses other operators of this page that it is made of.
- *dtypes*: those in which its ONNX operators are emitted. Others are computed in a wider one and cast back where one
  holds all values, and refused when the operator is called where none does. bfloat16 needs an accelerator for most.
- Promotion: two tensors meet in the dtype of one of them if it holds every value of the other, else an explicit cast
  is asked for. Python numbers and numpy arrays take the tensor's dtype, if they fit.
- Shapes and dtypes are inferred at the call; what does not fit is an error there, with the operator and the dims.
"""


@cache
def syntax(module: ModuleType) -> dict[str, ast.FunctionDef]:
    """The functions of a module by name."""
    tree = ast.parse(inspect.getsource(module))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def reached(module: ModuleType, name: str, seen: set[str]) -> Iterator[ast.AST]:
    """The nodes of a function and of the private functions of its module that it calls."""
    seen.add(name)
    for node in ast.walk(syntax(module)[name]):
        yield node
        if isinstance(node, ast.Name) and node.id.startswith("_") and node.id in syntax(module) and node.id not in seen:
            yield from reached(module, node.id, seen)


def lowering(module: ModuleType, name: str) -> tuple[list[str], list[str]]:
    """The ONNX operators that a function names, and the other operators that it calls."""
    nodes = list(reached(module, name, set()))
    literals = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    builtin = {one for one in called if getattr(module, one, None) is None}
    return sorted(filter(is_onnx, literals)), sorted((called & set(ops.__all__)) - builtin - {name})


def is_onnx(name: str) -> bool:
    """Whether ONNX has an operator of that name."""
    return name[:1].isupper() and onnx.defs.has(name, max_inclusive_version=OPSET)


def dtypes(names: list[str]) -> str:
    """The dtypes that all of some ONNX operators take, in words."""
    if not names:
        return "as its parts"
    taken = [set(kernels.kernel_dtypes(name) or schema_dtypes(name)) for name in names]
    common = [one for one in DType if all(one in some for some in taken)]
    for title, members in GROUPS.items():
        missing = [one for one in members if one not in common]
        if set(common) <= set(members) and len(missing) <= 1:
            return title + (f" but {missing[0].name}" if missing else "")
    return ", ".join(one.name for one in common) or "mixed"


def schema_dtypes(name: str) -> list[DType]:
    """The dtypes that ONNX allows for the first input."""
    opset = OLDER if onnx.defs.has(name, max_inclusive_version=OLDER) else OPSET
    schema = onnx.defs.get_schema(name, max_inclusive_version=opset)
    if not schema.inputs:
        return list(DType)
    names = {text.removeprefix("tensor(").removesuffix(")") for text in schema.inputs[0].types}
    onnx_names = {"float": "float32", "double": "float64"}
    plain = {onnx_names.get(one, one.replace("float8e", "float8_e")) for one in names}
    return [one for one in DType if one.name in plain]


def description(op: Any) -> tuple[str, str]:
    """The first sentence of a docstring, and what is said before the arguments."""
    text = inspect.getdoc(op) or ""
    prose = text.split("\n\nArgs:")[0].split("\n\nReturns:")[0].split("\n\nRaises:")[0].split("\n\nAttributes:")[0]
    first, _, rest = prose.partition("\n\n")
    meaning, dot, more = " ".join(first.split()).partition(". ")
    notes = " ".join(f"{more} {rest}".split())
    return (meaning + dot.strip()).rstrip(".") + ".", notes


def row(title: str, module: ModuleType, name: str, op: Any) -> str:
    """One line of the table."""
    meaning, notes = description(op)
    onnx_names, parts = lowering(module, name) if name in syntax(module) else ([], [])
    made_of = f"({', '.join(parts)})" if parts else ""
    cells = [
        f"`{title}`",
        meaning,
        f"{', '.join(onnx_names)} {made_of}".strip() or "nothing",
        dtypes(onnx_names),
        notes,
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def is_refused(op: Any) -> bool:
    """Whether calling it raises."""
    return (getattr(op, "__doc__", "") or "").startswith("Refused")


def families() -> dict[ModuleType, list[tuple[str, str, Any]]]:
    """The functions of the facade, and those of `ops.random`, by the module that defines them."""
    found: dict[ModuleType, list[tuple[str, str, Any]]] = {}
    named = [(name, name, getattr(ops, name)) for name in ops.__all__]
    named += [(f"random.{name}", name, getattr(random, name)) for name in random.__all__]
    for title, _, op in named:
        if inspect.isfunction(op):
            found.setdefault(importlib.import_module(op.__module__), []).append((title, op.__name__, op))
    return dict(sorted(found.items(), key=lambda item: item[0].__name__))


def page() -> str:
    """The whole page."""
    lines = [HEADER]
    for module, members in families().items():
        lines += [
            f"## {module.__name__.rpartition('.')[2]}",
            "",
            " ".join((module.__doc__ or "").split("\n\n")[0].split()),
        ]
        lines += ["", "| op | meaning | ONNX | dtypes | notes |", "|---|---|---|---|---|"]
        lines += [*(row(title, module, name, op) for title, name, op in members), ""]
    refused = [(name, op) for name in ops.__all__ if is_refused(op := getattr(ops, name))]
    lines += ["## refused", "", "These raise NotImplementedError.", "", "| op | why, and what to do |", "|---|---|"]
    lines += [f"| `{name}` | {op.__doc__.removeprefix('Refused: ')} |" for name, op in refused]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Write the page, or compare it; returns the exit status."""
    text = page()
    if arguments == ["--check"]:
        current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        if current != text:
            print(f"{PAGE.name} is not current; run: python docs/generate_ops.py", file=sys.stderr)
        return int(current != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
