"""The rooms of the house: who may import whom. CONTRIBUTING.md has the map."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "shortlist"
# the ground floor: small modules that every room may use, private ones too
GROUND = (
    *("_beta", "_bounds", "_checks", "_components", "_languages", "_memory", "_messages", "_named_code"),
    *(
        "_names",
        "_precision",
        "_progress",
        "_recent",
        "_row_facts",
        "_sheets",
        "_spoken",
        "_store",
        "_tables",
        "_text",
        "_timed_bytes",
    ),
    *("checklist", "class_table", "coverage_law", "name_search", "palette", "place", "preprocessing"),
    *("priors", "promise", "sentences", "taxonomy"),
)
# each room may import those before it, never those after it
ROOMS = (
    *(
        "ops",
        "losses",
        "models",
        "scores",
        "predictors",
        "metrics",
        "inputs",
        "datasets",
        "curation",
        "model",
    ),
    *(
        "recipes",
        "runs",
        "passes",
        "index",
        "feedback",
        "releases",
        "serve",
        "app",
        "training",
        "compare",
        "suites",
        "demo",
        "papers",
        "report",
        "sklearn",
        "cli",
    ),
)
# what only some rooms may know of
ONLY_IN = {
    "lightning": ("training",),
    "sklearn": ("sklearn",),
    "typer": ("cli",),
    "matplotlib": ("datasets", "curation", "demo", "papers"),
    "jinja2": ("report", "serve"),
    "fastapi": ("serve",),
    "starlette": ("serve",),
    "uvicorn": ("serve",),
    "orjson": ("serve",),
    "prometheus_client": ("serve",),
    "ray": ("passes", "serve"),
    "python_multipart": ("serve",),
}
# metrics alone need no torchmetrics: its modules are a door of their own
NEEDS_TORCHMETRICS = "shortlist.metrics.modules"


def _is_exported(path: list[str], name: str) -> bool:
    """Whether a room hands out a name: its ``__init__`` has it, or the stub beside it."""
    room, *inner = path
    door = SOURCE / room / "__init__.pyi"
    door = door if door.exists() else door.with_suffix(".py")
    names = {(SOURCE / room / f"{name}.py").exists() and name}
    for node in ast.parse(door.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return not inner and name in names


def imports_of(code: str, module: str = "") -> list[tuple[str, str]]:
    """Every import in some code, wherever it stands: the module, and the name taken from it or nothing."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            found += [(node.module or "", alias.name) for alias in node.names]
    return found


def faults_of(module: str, code: str) -> list[str]:
    """What a module (dotted, without the package's own name) imports that it may not."""
    room, faults = module.split(".")[0], []
    for imported, name in imports_of(code, module):
        package, *path = imported.split(".")
        if package in ONLY_IN and room not in ONLY_IN[package]:
            faults.append(f"{module} imports {package}, which only {', '.join(ONLY_IN[package])} may")
        if package != "shortlist":
            continue
        path = path or [name]  # from shortlist import losses
        other = path[0]
        if other == room or other in GROUND or other == "__version__":
            continue
        if room in GROUND or (room != "__init__" and _place(other) > _place(room)):
            faults.append(f"{module} imports {imported}, a later room")
        elif any(part.startswith("_") for part in (*path, name)):
            faults.append(f"{module} imports {imported}.{name}, which is private there")
        elif (
            path != [name]
            and name
            and room != "__init__"
            and imported != NEEDS_TORCHMETRICS
            and not _is_exported(path, name)
        ):
            faults.append(f"{module} imports {imported}.{name}, which the room {other} does not export")
    return faults


def _place(room: str) -> int:
    # a name of the package itself (Model, ClassTable) is that of a later room: rooms import from rooms
    return ROOMS.index(room) if room in ROOMS else len(ROOMS)


def modules() -> dict[str, str]:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        name = "cli.__main__" if name == "__main__" else name  # it only calls the command
        found[name.removesuffix(".__init__") or name] = path.read_text(encoding="utf-8")
    return found


def test_every_module_is_in_a_room():
    rooms = {name.split(".")[0] for name in modules()}
    assert rooms - {"__init__"} == {*GROUND, *ROOMS}


@pytest.mark.parametrize("room", ["__init__", *GROUND, *ROOMS])
def test_rooms_import_only_public_names_of_earlier_rooms(room):
    faults = [
        fault
        for name, code in modules().items()
        if name.split(".")[0] == room
        for fault in faults_of(name, code)
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("module", "code", "fault"),
    [
        ("losses.focal", "from shortlist.runs.run import Run", "a later room"),
        ("runs.run", "def f():\n    from shortlist.training import fit", "a later room"),
        ("losses.focal", "from shortlist.ops._select import largest", "is private there"),
        ("report.page", "from shortlist.metrics.rows import _block", "is private there"),
        ("predictors.topk", "import shortlist.model", "a later room"),
        ("scores.tau", "from shortlist import metrics", "a later room"),
        ("priors", "from shortlist.losses import LOSSES", "a later room"),
        ("report.page", "from shortlist.metrics.rows import block_rows", "does not export"),
        ("report.page", "from shortlist.metrics import nobody", "does not export"),
        ("runs.run", "import lightning.pytorch as pl", "which only training may"),
    ],
)
def test_a_wrong_import_is_found(module, code, fault):
    (found,) = faults_of(module, code)
    assert fault in found


def test_right_imports_are_no_faults():
    code = "import torch\nfrom shortlist._checks import check_k\nfrom shortlist.ops import log_esp\n"
    assert faults_of("losses.smooth_topk", code) == []
    assert faults_of("training.fit", "import lightning.pytorch as pl\nfrom shortlist.runs import Run") == []


def test_each_manifest_is_read_in_one_place():
    """Of a run in ``_store.manifest``, of a model in ``model.files``, of an index in its own.

    Thresholds that learn from replies are sealed files too, the lists of embeddings and of scored rows, and
    leases.
    """
    readers = {name for name, code in modules().items() if "read_sealed(" in code}
    assert readers == {
        "_store.lease",
        "_store.manifest",
        "model.files",
        "index.manifest",
        "predictors._sealed_rule",
        "datasets.embeddings",
        "feedback._sqlite",
        "passes.reading",
        "releases.releases",
    }
    assert {name for name, code in modules().items() if "read_run_manifest(" in code} == {
        *("_store.manifest", "model.files", "runs.run"),
    }


@pytest.mark.parametrize("module", ["feedback", "promise", "sentences"])
def test_what_needs_no_tensors_imports_no_torch(module):
    code = f"import sys, shortlist.{module}; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def test_no_module_imports_in_a_circle():
    """At import time: what is imported inside functions, or for types only, does not count."""
    graph = {name: _at_import(code) for name, code in modules().items()}
    graph = {name: {other for other in found if other in graph} for name, found in graph.items()}
    left = dict(graph)
    while left:
        ready = [name for name, found in left.items() if not (found - {name}) & left.keys()]
        assert ready, f"a circle among {sorted(left)}"
        for name in ready:
            del left[name]


def _at_import(code: str) -> set[str]:
    found = set()
    for node in ast.parse(code).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for imported, name in imports_of(ast.unparse(node)):
                if imported.startswith("shortlist."):
                    path = imported.removeprefix("shortlist.")
                    found |= {path, f"{path}.{name}"}
    return found
