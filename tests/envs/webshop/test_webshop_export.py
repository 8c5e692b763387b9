"""The generated shop as official files: written by the command, and read back as the same shop."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentgym_flow.cli.app import app
from agentgym_flow.envs.webshop import tasks
from agentgym_flow.envs.webshop.catalogue import MemoryCatalogue
from agentgym_flow.envs.webshop.env import WebShopEnv
from agentgym_flow.envs.webshop.official import official_files, read_listings


@pytest.mark.heavy
def test_the_written_shop_is_the_generated_one(tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["data", "export", "webshop", str(tmp_path)])
    assert run.exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "items_human_ins.json",
        "items_ins_v2.json",
        "items_shuffle.json",
    ]
    assert all(str(path.name) in run.output for path in tmp_path.iterdir())
    assert MemoryCatalogue(read_listings(*official_files(tmp_path))).digest == tasks.DIGEST
    env = WebShopEnv(data=tmp_path, split="test", goals="human")
    assert env.num_tasks == 500
    env.reset(seed=0)
    assert env.expert_action() is not None


@pytest.mark.parametrize("option", [["--split", "test"], ["--tasks", "3"]])
def test_the_shop_has_no_parts(tmp_path: Path, option: list[str]) -> None:
    run = CliRunner().invoke(app, ["data", "export", "webshop", str(tmp_path), *option])
    assert run.exit_code == 2
    assert "exported completely" in run.stderr
    assert not list(tmp_path.iterdir())
