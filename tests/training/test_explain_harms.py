"""Figures that look like a cause, and are none: what the functions of `agentgym_flow.report.causes` return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from agentgym_flow.report.causes import HARMS
from agentgym_flow.report.explain import RunRecord


def harm(
    cause: str, metrics: Mapping[str, Sequence[float]], summary: dict[str, Any] | None = None, **settings: Any
) -> Any:
    """The harm of a cause in a run with these figures, one for each batch of 64 episodes in groups of 8."""
    count = max(map(len, metrics.values()))
    whole = {"episodes": [64.0 * (n + 1) for n in range(count)], "group_size": [8.0] * count, **metrics}
    points = {name: list(enumerate(map(float, values), 1)) for name, values in whole.items()}
    return HARMS[cause](RunRecord(settings, summary or {}, points))


def evaluated(success: float, **others: float) -> dict[str, Any]:
    return {"sampled": {"success": success, "episodes": 48, **others}}


def test_tasks_at_which_the_policy_succeeded_at_first_are_not_too_hard() -> None:
    alike = [0.1, *[1.0] * 19]
    assert harm("too_hard", {"success": [0.45, *[0.0] * 19], "frac_reward_zero_std": alike}) == 0
    assert harm("too_hard", {"success": [0.02, *[0.0] * 19], "frac_reward_zero_std": alike}) > 0.8
    learns = [0.02] * 17 + [0.3] * 3  # a mean of 0.06, of 0.045 without the last batch
    assert harm("too_hard", {"success": learns[:-1], "frac_reward_zero_std": alike[:-1]}) == 0


def test_episodes_that_are_stopped_are_compared_by_more_than_chance() -> None:
    figures = {"success": [0.06, 0.08, 0.05], "length": [8.0] * 3}
    before = {"before": evaluated(0.1, mean_length=16)}
    assert harm("stops_early", figures, before, stop_when="deadlock") == 0
    before = {"before": evaluated(0.5, mean_length=16)}
    assert harm("stops_early", figures, before, stop_when="deadlock") == 0.5


def test_cut_answers_do_harm_although_any_text_is_an_answer() -> None:
    figures = {"completions/clipped_ratio": [1.0] * 3, "invalid_actions": [0.0] * 3, "entropy": [1.0] * 3}
    assert harm("cut", {**figures, "success": [0.0] * 3}) == 1
    assert harm("cut", {**figures, "success": [0.9] * 3}) == pytest.approx(0.1)  # the action came before the cut
    assert harm("cut", figures) == 0


def test_few_tasks_that_were_known_before_are_few() -> None:
    metrics = {"success": [0.6] * 20, "distinct_tasks": [3.0] * 20, "batches": range(1, 21), "epoch": [0.0] * 20}
    summary = {"before": evaluated(0.5), "after": evaluated(0.5), "improvement": {"sampled": {"low": -0.1}}}
    settings = {"groups_per_batch": 8}
    assert harm("few_tasks", metrics, summary, **settings) == 0.6
    assert harm("few_tasks", metrics, {**summary, "improvement": {"sampled": {"low": 0.1}}}, **settings) == 0
    assert harm("few_tasks", {**metrics, "distinct_tasks": [8.0] * 20}, summary, **settings) == 0


@pytest.mark.parametrize(("dtype", "least"), [("float32", 0.5), ("bfloat16", 0.0)])
def test_rounding_of_bfloat16_is_no_drift(dtype: str, least: float) -> None:
    found = harm("drift", {"sampling_gap": [0.015] * 3}, dtype=dtype)
    assert least <= found <= least + 0.25
    corrected = {"sampling_gap": [0.045] * 3, "importance/kl": [0.001] * 3, "staleness": [0.0] * 3}
    assert harm("drift", corrected, dtype=dtype) == pytest.approx(0.02)


def test_weights_are_too_old_if_they_were_in_any_third_of_the_run() -> None:
    sizes = [0.9, 0.7, 0.6, 0.2, 0.2, 0.3, 0.7, 0.8, 0.9]
    assert (
        harm("stale", {"staleness_max": [9] * 9, "sampling_gap": [0.0] * 9, "importance/effective_sample_size": sizes})
        > 0.7
    )
    assert harm("stale", {"staleness_max": [9] * 9, "sampling_gap": [0.1] * 3 + [0.3] * 3 + [0.1] * 3}) == 1
    assert harm("stale", {"staleness_max": [1] * 9, "sampling_gap": [0.01] * 9}) < 0.1


def test_steps_are_judged_by_the_learning_rate_and_the_length_of_the_run() -> None:
    tiny = {"weights/changed": [0.0], "weights/trained": [1.0], "weights/step": [0.0], "learning_rate": [1e-10]}
    assert (harm("frozen", tiny), harm("small_steps", tiny, max_steps=16)) == (0, 1)
    assert harm("frozen", {**tiny, "learning_rate": [1e-4]}) == 1
    step = {"weights/step": [2e-5]}
    assert (harm("small_steps", step, max_steps=10), harm("small_steps", step, max_steps=1000)) == (1, 0)
    clipped = {"grad_norm": [50.0], "weights/step": [2e-5]}
    assert harm("grad_clip", {**clipped, "learning_rate": [1e-6]}, max_grad_norm=1) == 0
    assert harm("grad_clip", {**clipped, "learning_rate": [5e-4]}, max_grad_norm=1) > 0.5


def test_the_first_step_of_new_adapters_is_not_measured() -> None:
    assert harm("small_steps", {"weights/step": [1e-6]}, max_steps=1, lora=True) is None  # the weights that move were 0
    assert harm("small_steps", {"weights/step": [1e-6, 0.3]}, max_steps=2, lora=True) == 0
    assert harm("small_steps", {"weights/step": [1e-6, 1e-6]}, max_steps=2, lora=True) == 1
    assert harm("small_steps", {"weights/step": [1e-6]}, max_steps=1) == 1


def test_a_policy_that_explores_more_while_success_stays_is_not_becoming_random() -> None:
    metrics = {"entropy": [0.2, 0.4, 0.7], "success": [0.5, 0.5, 0.5]}
    assert harm("entropy_rises", metrics, entropy_coef=0.001) == 0
    assert harm("entropy_rises", metrics, entropy_coef=0.3) == 1
    assert harm("entropy_rises", {**metrics, "success": [0.5, 0.1, 0.0]}, entropy_coef=0.001) == 1


def test_answers_that_become_invalid_as_the_policy_becomes_random_are_a_consequence() -> None:
    figures = {"entropy": [2.0, 2.3, 3.1, 4.2, 4.9, *[5.1] * 15], "success": [0.4, 0.3, 0.1, *[0.0] * 17]}
    assert harm("entropy_rises", figures, entropy_coef=1.0) == 1
    assert harm("unparsed", {"invalid_actions": [0.07, 0.07, 0.3, 0.6, 0.8, *[0.95] * 15]}) < 0.1


def test_attempts_with_the_same_actions_are_alike_even_if_chance_decides_their_outcome() -> None:
    metrics = {"entropy": [0.01] * 3, "frac_reward_zero_std": [0.3] * 3, "success": [0.5] * 3, "length": [4.0] * 3}
    assert harm("entropy_collapse", metrics, temperature=0.1) > 0.9
    assert harm("entropy_collapse", {**metrics, "entropy": [0.3] * 3}, temperature=1.0) == 0


def test_cloning_that_did_not_halve_its_loss_has_failed() -> None:
    run = RunRecord({}, {}, {"invalid_actions": [(1, 0.9)], "success": [(1, 0.0)]})
    for last, found in ((4.0, 1.0), (float("nan"), 1.0), (1.0, 0.0)):
        assert HARMS["warm_start"](replace(run, cloned={"losses": [6.0, last]})) == found


def test_a_key_that_contradicts_itself_is_named_however_seldom() -> None:
    found = {"states/keys": [9.0], "length": [5.0], "states/conflicts": [0.03]}
    assert harm("key_merges", found, credit="gigpo") > 0.5
    assert harm("key_merges", found, credit="grpo") == 0
    assert harm("key_merges", {**found, "states/conflicts": [0.0]}, credit="gigpo") == 0
    assert harm("key_merges", {"states/keys": [1.0], "length": [5.0]}, credit="gigpo") == 1
    assert harm("key_merges", {"length": [5.0]}, credit="gigpo") is None


def test_credit_without_a_state_to_compare_is_no_fault_of_the_credit_function() -> None:
    silent = {"credit/agreement": [0.0], "credit/silent": [1.0], "states/shared": [0.0]}
    assert (harm("credit", silent, credit="hgpo"), harm("key_splits", silent, credit="hgpo")) == (0, 1)
    assert harm("credit", silent, credit="grpo") == 1
    assert harm("credit", {**silent, "states/shared": [0.6]}, credit="hgpo") == 1
