"""Who may import whom, checked on the source; and what a bare import of the package brings with it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import agentgym_flow

PACKAGE = Path(agentgym_flow.__file__).parent
CORE = {
    "_exports",
    "importing",
    "core",
    "spaces",
    "seeding",
    "errors",
    "episode",
    "episode_log",
    "data",
    "files",
    "json_stream",
    "settings",
    "sharing",
    "signals",
    "file_state",
    "sqlite_file",
    "strict_json",
    "task_choice",
}
LIGHT = {"typing", "typing_extensions", "numpy", "gymnasium", *sys.stdlib_module_names}
TORCH_ROOMS = {"generation", "training", "dataflow"}
HEAVY = {"torch", "transformers", "trl", "accelerate", "peft", "datasets", "ray", "deepspeed", "vllm"}


def imports(file: Path) -> set[str]:
    """Return the modules that `file` imports anywhere, our own ones as `agentgym_flow.room`."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            ours = node.module == "agentgym_flow"
            names = [f"{node.module}.{alias.name}" for alias in node.names] if ours else [str(node.module)]
        found |= {
            ".".join(name.split(".")[:2]) if name.startswith("agentgym_flow") else name.split(".")[0] for name in names
        }
    return found


FILES = {file.relative_to(PACKAGE).as_posix(): imports(file) for file in sorted(PACKAGE.rglob("*.py"))}


def room(name: str) -> str:
    return name.split("/")[0].removesuffix(".py")


@pytest.mark.parametrize("name", FILES)
def test_every_file_keeps_to_its_room(name: str) -> None:
    ours = {module.removeprefix("agentgym_flow.") for module in FILES[name] if module.startswith("agentgym_flow")}
    others = FILES[name] - {f"agentgym_flow.{module}" for module in ours} - {"agentgym_flow"}
    if room(name) in CORE:
        assert ours <= CORE
        assert others <= LIGHT
    if room(name) == "envs":
        assert not ours & {"rewards", "training", "dataflow", "report", "cli", "leaderboard"}
    if room(name) == "retrieval":
        assert ours <= CORE - {"core", "spaces", "episode", "episode_log", "settings", "signals"} | {"retrieval"}
        assert others <= LIGHT
    if room(name) == "shop":
        assert ours <= CORE | {"envs", "rollout", "replay", "evaluation", "loopback", "shop"}
    if room(name) == "retriever":
        assert ours <= CORE | {"loopback", "retrieval", "retriever"}
    if room(name) == "sandbox":
        assert ours <= {"errors", "sandbox"}
        assert others <= set(sys.stdlib_module_names)
    if room(name) == "rewards":
        assert ours <= CORE | {"rewards"}
    if name in ("leaderboard/statistics.py", "leaderboard/comparison.py"):
        assert ours <= {"errors", "intervals", "leaderboard"}
        assert others <= LIGHT
    if room(name) not in TORCH_ROOMS and name != "cli/doctor.py":  # which tries torch when it is asked to
        assert not others & HEAVY
    if room(name) == "integrations":
        assert not ours & {"cli", "dataflow", "leaderboard", "shop", "retriever"}
    if room(name) not in {*TORCH_ROOMS, "cli", "integrations"}:
        assert not ours & TORCH_ROOMS
    if room(name) != "integrations":
        assert "agentgym_flow.integrations" not in FILES[name]
    assert not others & {"baselines", "leaderboards", "benchmarks", "tests"}


@pytest.mark.parametrize(
    "module", ["agentgym_flow", "agentgym_flow.evaluation", "agentgym_flow.replay", "agentgym_flow.cli"]
)
def test_importing_is_light_and_silent(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(sys.modules), sep='\\n', file=sys.__stderr__)"
    finished = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(finished.stderr.splitlines())
    assert finished.stdout == ""
    assert not loaded & (HEAVY | {"openai", "matplotlib", "gym_sokoban", "pytest", "hypothesis"})
    assert all(line in sys.modules or line.replace(".", "").replace("_", "").isalnum() for line in loaded), "a warning"
    if module == "agentgym_flow":
        assert not loaded & {
            "agentgym_flow.envs.sokoban",
            "agentgym_flow.rewards",
            "agentgym_flow.policies",
            "rich",
            "jinja2",
        }
