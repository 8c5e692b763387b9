"""`agentgym-flow train --dataflow`: worker processes beside the trainer, and settings that are checked first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from short_run import train

SOKOBAN = "agentgym_flow/Sokoban-v0"


ADAPTED = {"lora": "true", "lora_rank": 2, "dtype": "bfloat16", "warm_start_levels": 0, "muon_learning_rate": "null"}


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("more", "file"), [({}, "model.safetensors"), (ADAPTED, "adapter_model.safetensors")], ids=["whole", "adapters"]
)
def test_a_run_with_worker_processes_is_the_plain_run(
    tmp_path: Path, acting_model: Path, more: dict[str, Any], file: str
) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text("{staleness: 0, workers: 2, num_envs: 4, trace: true}", "utf-8")
    settings = {**more, "model": acting_model} if more else {}
    plain = train(SOKOBAN, "grpo", tmp_path / "plain", **settings)
    assert plain.exit_code == 0, plain.output
    leased = train(SOKOBAN, "grpo", tmp_path / "leased", dataflow=flow, **settings)
    assert leased.exit_code == 0, leased.output
    found = [load_file(tmp_path / name / "checkpoint" / file) for name in ("plain", "leased")]
    assert all(found[0][name].equal(found[1][name]) for name in found[0])
    assert (tmp_path / "leased" / "dataflow" / "trace.jsonl").stat().st_size > 0


@pytest.mark.parametrize(
    ("flow", "options", "message"),
    [
        ("{operators: [relabell]}", {}, "Did you mean 'relabel'"),
        ("{tasks: gresso}", {"replay_share": 0}, "Did you mean 'greso'"),
        ("{turns: [solver]}", {}, "takes none of the turns"),
        ("{turns: [solver, verifier]}", {"policy": "solver"}, "the runs of solver, verifier share one: start agentgym"),
        ("{}", {"engine": "rai"}, "Did you mean 'ray'"),
        ("{lockstep: true}", {}, "name them in turns"),
        ("{workers: null}", {}, "set workers to a number"),
        ("{workers: 1}", {"engine": "http://127.0.0.1:9"}, "join by themselves"),
        ("{workers: 2}", {"generator": "http://127.0.0.1:9"}, "2 workers cannot share 1 servers"),
    ],
)
def test_what_cannot_work_is_said_before_any_work(
    tmp_path: Path, flow: str, options: dict[str, str], message: str
) -> None:
    (tmp_path / "flow.yaml").write_text(flow, "utf-8")
    result = train(SOKOBAN, "grpo", tmp_path / "run", dataflow=tmp_path / "flow.yaml", **options)
    assert result.exit_code != 0
    assert message in f"{result.output}{result.exception}"
    assert "Cloned" not in result.output
