"""Who may import whom, checked on the source; and what a bare import of the package brings with it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import agentgym_flow

PACKAGE = Path(agentgym_flow.__file__).parent
CORE = {"_util", "core", "errors", "episodes", "data"}
SITE = "envs/webshop/site/"
SERVER = ("retrieval/server.py", "retrieval/batching.py")
SERVERS = tuple(f"agentgym_flow.{part}" for part in ("envs.webshop.site", "retrieval.server", "retrieval.batching"))
LIGHT = {"typing", "typing_extensions", "numpy", "gymnasium", "msgspec", *sys.stdlib_module_names}
OWN = {
    "_util/fast_http.py": {"httptools"},
    "_util/serving.py": {"h11", "starlette", "uvicorn"},
    "_util/http.py": {"certifi"},
    "_util/hub.py": {"huggingface_hub"},
    "_util/values.py": {"yaml"},
}
"""What helpers for packages of others import."""
TORCH_ROOMS = {"generation", "training", "dataflow"}
HEAVY = {"torch", "transformers", "trl", "accelerate", "peft", "datasets", "ray", "deepspeed", "vllm"}


@cache
def imports(name: str) -> set[str]:
    """Return the modules that the file `name` of the package imports anywhere."""
    file, found = PACKAGE / name, set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def short(module: str) -> str:
    """Return `agentgym_flow.room` for a module of ours, and the package of any other."""
    return ".".join(module.split(".")[:2]) if module.startswith("agentgym_flow.") else module.split(".")[0]


FILES = [file.relative_to(PACKAGE).as_posix() for file in sorted(PACKAGE.rglob("*.py"))]


def room(name: str) -> str:
    return name.split("/")[0].removesuffix(".py")


def forbidden(name: str) -> set[str]:
    """Return what the file `name` of the package imports and must not."""
    modules = set(map(short, imports(name)))
    ours = {module.removeprefix("agentgym_flow.") for module in modules if module.startswith("agentgym_flow")}
    others = modules - {f"agentgym_flow.{module}" for module in ours} - {"agentgym_flow"}
    at, stdlib = room(name), set(sys.stdlib_module_names)
    site, statistics = name.startswith(SITE), name in ("leaderboard/statistics.py", "leaderboard/comparison.py")
    # Servers are for people and other programs: nothing else rests on them.
    servers = {module for module in imports(name) if module.startswith(SERVERS)}
    rules = (
        (at in CORE, ours - CORE),
        (at in CORE, others - LIGHT - OWN.get(name, set())),
        (at == "envs" and not site, ours & {"rewards", "training", "dataflow", "report", "cli", "leaderboard"}),
        (at == "retrieval", ours - {"_util", "core", "data", "errors", "retrieval"}),
        (at == "retrieval" and name not in SERVER, others - LIGHT),
        (at == "problems", ours - {"_util", "core", "data", "errors", "problems", "sandbox"}),
        (site, ours - CORE - {"envs", "play", "replay"}),
        (not site and at != "cli" and name not in SERVER, servers),
        (at == "interchange", ours - CORE - {"envs", "interchange", "policies", "prompts", "replay"}),
        (at == "sandbox", ours - {"errors", "sandbox"}),
        (at == "sandbox", others - stdlib),
        (at == "rewards", ours - CORE - {"rewards"}),
        (statistics, ours - {"errors", "_util", "leaderboard"}),
        (statistics, others - LIGHT),
        (at not in TORCH_ROOMS and name != "cli/doctor.py", others & HEAVY),  # which tries torch when it is asked to
        (at == "integrations", ours & {"cli", "dataflow", "leaderboard"}),
        (at not in {*TORCH_ROOMS, "cli", "integrations"}, ours & TORCH_ROOMS),
        (at not in {"integrations", "cli"}, ours & {"integrations"}),
        (at not in {"cli", "__main__"}, ours & {"cli"}),
        (True, others & {"baselines", "leaderboards", "benchmarks", "tests"}),
    )
    return {module for applies, against in rules if applies for module in against}


def test_every_file_keeps_to_its_room() -> None:
    assert {name: found for name in FILES if (found := forbidden(name))} == {}


@pytest.mark.parametrize(
    "module", ["agentgym_flow", "agentgym_flow.play.evaluation", "agentgym_flow.replay", "agentgym_flow.cli"]
)
def test_importing_is_light_and_silent(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(sys.modules), sep='\\n', file=sys.__stderr__)"
    finished = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(finished.stderr.splitlines())
    assert finished.stdout == ""
    assert not loaded & (
        HEAVY | {"openai", "inspect_ai", "huggingface_hub", "matplotlib", "gym_sokoban", "pytest", "hypothesis"}
    )
    assert all(line in sys.modules or line.replace(".", "").replace("_", "").isalnum() for line in loaded), "a warning"
    if module == "agentgym_flow":
        assert not loaded & {
            "agentgym_flow.envs.sokoban",
            "agentgym_flow.rewards",
            "agentgym_flow.policies",
            "rich",
            "jinja2",
        }


@pytest.mark.parametrize("start", [["-m", "user_package.main"], ["main.py"]])
def test_an_import_leaves_the_process_of_another_program_unchanged(tmp_path: Path, start: list[str]) -> None:
    """With `-m`, Python imports the package of a program before the program: then `sys.argv[0]` is `-m`, too."""
    package = tmp_path / "user_package"
    package.mkdir()
    (package / "__init__.py").write_text("import agentgym_flow", "ascii")
    (package / "main.py").write_text("import sys; print(sys.excepthook is sys.__excepthook__)", "ascii")
    (tmp_path / "main.py").write_text("import user_package.main", "ascii")
    finished = subprocess.run([sys.executable, *start], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert finished.stdout == "True\n"


def test_no_two_classes_of_the_package_share_a_name() -> None:
    """One name, one thing: a reader who searches for a class finds it."""
    homes: dict[str, list[str]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(file.relative_to(PACKAGE).as_posix())
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_no_two_modules_import_each_other() -> None:
    """Also not within a function, or through other modules: whoever reads one needs no other one first."""
    known = {"agentgym_flow." + name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in FILES}
    ours: dict[str, set[str]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        found = runtime_imports(file)
        ours[name] = {module if module in known else module.rpartition(".")[0] for module in found} & known - {name}
    while leaves := [name for name, modules in ours.items() if not modules]:  # what is left over lies on a cycle
        for name in leaves:
            del ours[name]
        for modules in ours.values():
            modules.difference_update(leaves)
    on_cycles = {name for name in ours if reaches(name, name, ours)}
    assert not on_cycles


def runtime_imports(file: Path) -> set[str]:
    """Return the modules that `file` imports when it runs, which leaves out those for type checkers."""
    tree = ast.parse(file.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {f"{node.module}.{alias.name}" for node in nodes for alias in node.names}


def reaches(start: str, end: str, graph: dict[str, set[str]]) -> bool:
    """Return whether a way of at least one step leads from `start` to `end`."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for after in graph.get(waiting.pop(), set()) - seen:
            if after == end:
                return True
            seen.add(after)
            waiting.append(after)
    return False


@pytest.mark.parametrize("name", ["__init__.py", "leaderboard/__init__.py", "testing/__init__.py"])
def test_names_on_demand_are_hidden_from_type_checkers(name: str) -> None:
    """A `__getattr__` that a type checker sees makes it accept every name that somebody imports."""
    seen = {name for node in ast.parse((PACKAGE / name).read_text("utf-8")).body for name in defined_by(node)}
    assert "__all__" in seen
    assert "__getattr__" not in seen


def defined_by(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {node.name} if isinstance(node, ast.FunctionDef) else set()


def test_environments_name_the_same_things_alike() -> None:
    folders = [folder for folder in sorted((PACKAGE / "envs").iterdir()) if (folder / "env.py").exists()]
    assert [folder.name for folder in folders] == ["alfworld", "canvas", "problems", "search", "sokoban", "webshop"]
    for folder in folders:
        there = {path.stem for path in folder.iterdir()} | ({"tasks"} if folder.name == "problems" else set())
        assert there >= {"env", "game", "tasks", "prompt"}, folder.name
        assert "policies" in there, folder.name
    page = (PACKAGE.parent / "docs" / "adding_an_environment.md").read_text("utf-8")
    table = page[page.index("| File | Contents |") : page.index("A folder has only the files")]
    named = {name.removesuffix(".py") for name in re.findall(r"`(\w+)(?:\.py|/)`", table)}
    unknown = named - {path.stem for folder in folders for path in folder.iterdir()}
    assert not unknown, "files in the table that no environment has"
