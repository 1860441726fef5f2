"""The house's walls: which room may import what, and the few rules about files that no linter knows."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOTS = ("proto", "client", "authoring", "modelzoo", "server")
LONGEST_FILE = 400

# Room -> the rooms that it may import, at load or later. CONTRIBUTING.md shows the same as a picture.
ARROWS = {
    "dtype": "",
    "errors": "",
    "driver": "dtype errors",
    "protocol": "dtype errors",
    "tree": "dtype errors",
    "weights": "dtype errors driver",
    "client": "dtype errors protocol",
    "bench": "dtype errors protocol client",
    "bundle": "dtype errors driver protocol tree weights",
    "graph": "dtype errors driver protocol tree weights",
    "nn": "dtype errors driver protocol tree weights bundle graph",
    "engine": "dtype errors driver protocol tree weights bundle",
    "batching": "dtype errors",
    "generation": "dtype errors",
    "adapters": "dtype errors protocol bundle",
    "modelzoo": "dtype errors driver protocol tree weights bundle graph nn",
    "repository": "dtype errors protocol weights bundle engine batching adapters generation",
    "serving": "dtype errors protocol bundle engine batching adapters generation repository",
    "cli": (
        "dtype errors client bench protocol weights bundle engine batching adapters generation modelzoo repository "
        "serving"
    ),
}

# External package -> the modules, with all below them, that may import it. A package without a line is refused.
PACKAGES = {
    "numpy": "tidemill",
    "ml_dtypes": "tidemill",
    "orjson": (
        "tidemill.protocol tidemill.client tidemill.bench tidemill.cli.answers tidemill.weights tidemill.bundle "
        "tidemill.serving"
    ),
    # bundle.foreign names the one error that onnx raises for a file that is not ONNX.
    "google": ("tidemill.protocol.messages tidemill.protocol.rpc tidemill.serving.grpc tidemill.bundle.foreign"),
    "grpc": "tidemill.serving.grpc",
    "grpc_health": "tidemill.serving.grpc",
    "grpc_reflection": "tidemill.serving.grpc",
    "httpx": "tidemill.bench.target tidemill.bench.texts",
    "hpack": "tidemill.client.header_blocks tidemill.bench.http2 tidemill.serving.grpc.fast",
    "matplotlib": "tidemill.bench.plot",
    "PIL": "tidemill.cli.pictures tidemill.adapters.image",
    "safetensors": "tidemill.weights",
    "obstore": "tidemill.weights.objectstore",
    "gguf": "tidemill.weights.gguf_file",
    "rich": "tidemill.weights.progress tidemill.bench.progress",
    "yaml": "tidemill.bundle.config tidemill.serving.config",
    "pydantic": (
        "tidemill.bundle.config tidemill.bundle.ensemble_config tidemill.bundle.generation_config "
        "tidemill.bundle.image_config tidemill.bundle.pipeline_config tidemill.bundle.section "
        "tidemill.bundle.sequence_config tidemill.serving.config tidemill.serving.http"
    ),
    "onnx": (
        "tidemill.graph.check tidemill.graph.export tidemill.graph.function tidemill.bundle "
        "tidemill.repository.inspection"
    ),
    "onnxruntime": "tidemill.engine tidemill.driver",
    "redis": "tidemill.repository.redis_cache",
    "tokenizers": "tidemill.adapters tidemill.generation.tokenizer",
    "jinja2": "tidemill.generation.chat",
    "llguidance": "tidemill.generation.grammar",
    "fastapi": "tidemill.serving",
    "starlette": "tidemill.serving",
    "uvicorn": "tidemill.serving",
    "uvloop": "tidemill.serving tidemill.bench.worker",
    "httptools": "tidemill.serving",
    "prometheus_client": "tidemill.serving",
    "opentelemetry": "tidemill.serving.tracing",
}


@dataclass(frozen=True)
class Module:
    """One source file; `path` is None for the samples of this test."""

    name: str
    source: str
    path: Path | None = None

    @property
    def is_facade(self) -> bool:
        return self.path is not None and self.path.name == "__init__.py"

    @property
    def room(self) -> str:
        return self.name.split(".")[1]

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)


@dataclass(frozen=True)
class Import:
    """One imported module; a name taken from a module counts as that module, unless it is a module itself."""

    importer: str
    target: str
    line: int
    at_load: bool

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


def source_modules() -> dict[str, Module]:
    modules = {}
    for root in ROOTS:
        for path in sorted((ROOT / root).rglob("*.py")):
            parts = path.relative_to(ROOT / root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            modules[name] = Module(name, path.read_text(encoding="utf-8"), path)
    return modules


MODULES = source_modules()
FACADES = [module for module in MODULES.values() if module.is_facade]
PUBLIC = {name: module for name, module in MODULES.items() if not name.rpartition(".")[2].startswith("_")}


def imports_of(module: Module) -> list[Import]:
    return [
        Import(module.name, target, node.lineno, at_load)
        for node, at_load in _import_nodes(module.tree, at_load=True)
        for target in _targets(node)
    ]


def _import_nodes(node: ast.AST, *, at_load: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, at_load
        else:
            deferred = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or _is_type_checking(child)
            yield from _import_nodes(child, at_load=at_load and not deferred)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _targets(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if node.level:
        return ["." * node.level + (node.module or "")]
    dotted = [f"{node.module}.{alias.name}" for alias in node.names]
    return [name if name in MODULES or node.module == "tidemill" else str(node.module) for name in dotted]


def wrong_imports(module: Module) -> list[str]:
    return [f"{found}: {reason}" for found in imports_of(module) if (reason := _fault(module, found))]


def _fault(module: Module, found: Import) -> str | None:
    package, _, rest = found.target.partition(".")
    if not package:
        return "write the whole dotted name"
    if package == "tidemill":
        return _inner_fault(module, found.target, rest.split(".")[0])
    if package in sys.stdlib_module_names:
        return "pickle runs code" if package == "pickle" else None
    allowed = PACKAGES.get(package)
    if allowed is None:
        return f"{package} has no line in PACKAGES"
    return None if any(_within(module.name, owner) for owner in allowed.split()) else f"only in {allowed}"


def _inner_fault(module: Module, target: str, room: str) -> str | None:
    if module.name != target and _within(module.name, target):
        return "a room imports its files, never its own facade"
    if room != module.room and room not in ARROWS[module.room].split():
        return f"{module.room} may import only {ARROWS[module.room] or 'no other room'}"
    if {module.name, target} <= set(MODULES) and {_face(module.name), _face(target)} == {"http", "grpc"}:
        return "the two faces do not know each other"
    return None


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _face(name: str) -> str:
    parts = name.split(".")
    return parts[2] if parts[1:2] == ["serving"] and len(parts) > 2 else ""


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_a_module_imports_only_what_its_room_may(module: Module) -> None:
    assert wrong_imports(module) == []


@pytest.mark.parametrize(
    ("importer", "line", "reason"),
    [
        ("tidemill.serving.run", "import tidemill.nn", "serving may import only"),
        ("tidemill.engine.model", "def f():\n    from tidemill import graph", "engine may import only"),
        ("tidemill.client.http", "from tidemill.weights import safetensors", "client may import only"),
        ("tidemill.batching.queue", "from tidemill.protocol.types import Array", "batching may import only"),
        ("tidemill.dtype", "if TYPE_CHECKING:\n    import tidemill.errors", "dtype may import only no other room"),
        ("tidemill.protocol.rest", "from google.protobuf import message", "only in tidemill.protocol.messages"),
        ("tidemill.bundle.write", "import pydantic", "only in tidemill.bundle.config"),
        ("tidemill.weights.checkpoint", "import torch", "torch has no line in PACKAGES"),
        ("tidemill.weights.checkpoint", "import pickle", "pickle runs code"),
        ("tidemill.protocol.rest", "from tidemill.protocol import anything", "never its own facade"),
        ("tidemill.protocol.rest", "from .types import Array", "write the whole dotted name"),
    ],
)
def test_a_wrong_import_is_caught(importer: str, line: str, reason: str) -> None:
    (fault,) = wrong_imports(Module(importer, line))
    assert reason in fault


def test_no_module_needs_itself_to_load() -> None:
    needs = {
        name: {found.target for found in imports_of(module) if found.at_load and found.target in MODULES}
        for name, module in MODULES.items()
    }
    tuple(TopologicalSorter(needs).static_order())


def test_arrows_have_no_cycle_and_name_every_room() -> None:
    tuple(TopologicalSorter({room: arrows.split() for room, arrows in ARROWS.items()}).static_order())
    assert {module.room for module in MODULES.values()} == set(ARROWS)


def test_every_room_lies_in_one_root_and_none_hides_the_namespace() -> None:
    roots_of: dict[str, set[str]] = {}
    for module in MODULES.values():
        assert module.path is not None
        roots_of.setdefault(module.name.split(".")[1], set()).add(module.path.relative_to(ROOT).parts[0])
    assert {room: roots for room, roots in roots_of.items() if len(roots) > 1} == {}
    assert [root for root in ROOTS if (ROOT / root / "tidemill" / "__init__.py").exists()] == []


def test_every_folder_of_a_room_is_a_package() -> None:
    folders = {module.path.parent for module in MODULES.values() if module.path}
    namespace = {ROOT / root / "tidemill" for root in ROOTS}
    assert [str(folder) for folder in folders - namespace if not (folder / "__init__.py").exists()] == []


def test_the_package_is_marked_as_typed() -> None:
    assert (ROOT / "proto" / "tidemill" / "py.typed").exists()


def _python_files() -> Iterable[Path]:
    for folder in (*ROOTS, "benchmarks", "tests"):
        yield from (ROOT / folder).rglob("*.py")


def test_no_file_is_too_long_to_read_in_one_sitting() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_bytes().splitlines()) for path in _python_files()}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_every_module_says_what_it_is_for() -> None:
    assert [name for name, module in MODULES.items() if not ast.get_docstring(module.tree)] == []


def _listed(module: Module) -> list[str] | None:
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return None


def test_every_public_module_lists_what_it_offers() -> None:
    assert [name for name, module in PUBLIC.items() if _listed(module) is None] == []


@pytest.mark.parametrize("name", PUBLIC)
def test_every_listed_name_exists(name: str) -> None:
    module = importlib.import_module(name)
    assert [listed for listed in _listed(PUBLIC[name]) or [] if not hasattr(module, listed)] == []


@pytest.mark.parametrize("module", FACADES, ids=[module.name for module in FACADES])
def test_a_facade_only_passes_on_what_it_lists(module: Module) -> None:
    defined = {node.name for node in module.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert defined <= {"__getattr__", "__dir__"}
    assert _passed_on(module.tree) == set(_listed(module) or [])


def _passed_on(tree: ast.Module) -> set[str]:
    """What a facade takes from tidemill; one that looks its names up when used imports them for type checkers."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    own = [node for node in imports if ast.unparse(node).split()[1].startswith("tidemill")]
    return {name for node in own for alias in node.names if not (name := alias.asname or alias.name).startswith("_")}


RUNTIMES = ("onnx", "onnxruntime", "fastapi", "uvicorn", "grpc", "google.protobuf")
AUTHORING = ("tidemill.graph", "tidemill.nn", "tidemill.modelzoo")


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("tidemill.errors", ("numpy", "ml_dtypes", *RUNTIMES)),
        ("tidemill.dtype", RUNTIMES),
        ("tidemill.protocol.types", RUNTIMES),
        ("tidemill.cli.main", (*AUTHORING, *RUNTIMES, "tidemill.serving")),
        ("tidemill.client", (*AUTHORING, "onnx", "onnxruntime", "fastapi", "pydantic", "tidemill.weights")),
        (
            "tidemill.bench",
            (*AUTHORING, "onnx", "onnxruntime", "fastapi", "pydantic", "tidemill.weights", "matplotlib"),
        ),
        ("tidemill.batching", (*AUTHORING, *RUNTIMES, "tidemill.protocol")),
        ("tidemill.nn", ("onnxruntime", "fastapi", "grpc", "tidemill.engine")),
        ("tidemill.serving.run", AUTHORING),
    ],
)
def test_loading_a_room_leaves_the_others_alone(module: str, absent: tuple[str, ...]) -> None:
    program = f"import sys, {module}; print(*(name for name in {absent!r} if name in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (loaded.stdout.split(), loaded.returncode) == ([], 0), loaded.stderr


def _texts() -> Mapping[str, str]:
    lying_here = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
    below = [path for folder in ("docs", ".ci", "benchmarks", "tests") for path in (ROOT / folder).rglob("*")]
    wanted = {".md", ".toml", ".py", ".yaml", ".yml", ".lock", ""}
    kept = [path for path in (*lying_here, *below) if path.is_file() and path.suffix in wanted]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8", errors="replace") for path in kept}


def test_no_text_names_the_place_where_it_was_written() -> None:
    neighbours = ROOT.parent.iterdir() if ROOT.parent != Path("/") else ()
    places = [str(place) for place in (ROOT, Path.home(), *neighbours) if place != Path("/")]
    texts = {**_texts(), **{name: module.source for name, module in MODULES.items()}}
    assert [(name, place) for name, text in texts.items() for place in places if f"{place}/" in text] == []
