"""How much harm each cause of a run that does not learn does, computed from what its folder holds.

The function of a cause returns its harm, in [0, 1]: about the share of the learning signal that is lost; None if it
cannot be judged. `causes.toml` says what a cause means, and from which harm on it is reported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentgym_flow.report.explain import RunRecord

SEVERE = 0.5
"""The harm from which a cause is listed before all lesser ones."""

BY_STATE = frozenset({"gigpo", "rewardflow", "graphgpo", "g2po", "gagpo", "hgpo"})
"""Credit functions that compare turns by their state keys."""

PARTS = ("sampled", "greedy")
"""The two parts of an evaluation."""

# ---------------------------------------------------------------- how much harm a cause does; None: it cannot be judged
Harm = Callable[["RunRecord"], float | None]

HARMS: dict[str, Harm] = {}
"""Cause -> the function that computes its harm."""


def _harm(function: Harm) -> Harm:
    HARMS[function.__name__.removeprefix("_")] = function
    return function


def _errors_apart(high: float, low: float, *counts: float) -> float:
    """Return how many standard errors lie between two success rates of so many independent episodes each."""
    number = sum(counts)
    share = (counts[0] * high + counts[1] * low + 1) / (number + 2)  # Laplace's, so that 0 and 1 have an error, too
    return (high - low) / math.sqrt(share * (1 - share) * sum(1 / max(1.0, one) for one in counts))


def _independent(run: RunRecord) -> float:
    """Return about how many independent episodes a third of the run is worth: attempts at a task are alike."""
    played = max(run.values("episodes"), default=0.0)
    return max(1.0, played / 3 / math.sqrt(max(1.0, run.mean("group_size") or 1.0)))


def _rises(run: RunRecord) -> float | None:
    """Return by how many standard errors success in training rose from the first to the last third of the run."""
    success, number = run.ends("success"), _independent(run)
    return None if success is None else _errors_apart(success[1], success[0], number, number)


@_harm
def _lost(run: RunRecord) -> float | None:
    if "raised in all" in str(run.summary.get("error", "")):  # the trainer ends a run without any episode
        return 1.0
    lost, played = run.values("lost_episodes"), run.values("episodes")
    return lost[-1] / max(1.0, played[-1]) if lost and played else None


@_harm
def _temperature(run: RunRecord) -> float | None:
    if run.number("temperature", 1.0) < 1.5:
        return 0.0
    pairs = [[run.evaluated("before", name, part) for part in PARTS] for name in ("success", "invalid_rate")]
    gaps = [abs(sampled - greedy) for sampled, greedy in pairs if sampled is not None and greedy is not None]
    return max([*gaps, run.mean("invalid_actions") or 0.0])


@_harm
def _cut(run: RunRecord) -> float | None:
    cut, invalid, entropy = (run.mean(name) for name in ("completions/clipped_ratio", "invalid_actions", "entropy"))
    if cut is None or invalid is None:
        return None
    knows_what_to_write = entropy is None or entropy < 3  # random text has no end that could be cut
    # Where any text is an answer, as in Problems, the beginning of one is valid and wrong.
    useless = max(invalid, 1 - success if (success := run.mean("success")) is not None else 0.0)
    return min(cut, useless) if knows_what_to_write else 0.0


@_harm
def _out_of_context(run: RunRecord) -> float | None:
    return run.mean("out_of_context")


@_harm
def _warm_start(run: RunRecord) -> float | None:
    losses = list(run.cloned["losses"]) if run.cloned else []
    if not losses:
        return 0.0
    few = max(1, len(losses) // 10)
    fell = 1 - sum(losses[-few:]) / max(1e-9, sum(losses[:few]))
    success = run.values("success")[:1]
    helpless = max(
        [*run.values("invalid_actions")[:1], *(1 - value for value in success if value < 0.05)], default=None
    )
    return 0.0 if fell >= 0.5 else helpless  # NaN did not fall


@_harm
def _unparsed(run: RunRecord) -> float | None:
    return run.start("invalid_actions")  # what only becomes so has another cause


@_harm
def _stops_early(run: RunRecord) -> float | None:
    length, success = run.values("length"), run.values("success")
    usual, before, count = (run.evaluated("before", name) for name in ("mean_length", "success", "episodes"))
    if not run.settings.get("stop_when") or not length or not usual or before is None or count is None:
        return 0.0
    first = max(1, len(success) // 3)
    trained = sum(success[:first]) / first
    fewer = trained < 0.7 * before and _errors_apart(before, trained, count, _independent(run)) >= 2
    return max(0.0, 1 - sum(length[:first]) / first / usual) if fewer else 0.0


@_harm
def _truncated(run: RunRecord) -> float | None:
    share, success = run.mean("truncated"), run.mean("success")
    if share is None or success is None or (run.expert is None and max(share, 1 - success) >= SEVERE):
        return None
    return min(share if success > 0.05 else 1.0, 1 - run.expert.success) if run.expert is not None else 0.0


@_harm
def _lone(run: RunRecord) -> float | None:
    size = run.mean("group_size")
    return None if size is None else max(0.0, 2 - size)


@_harm
def _few_tasks(run: RunRecord) -> float | None:
    trained, tested = run.ends("success"), run.evaluated("after", "success")
    before = run.evaluated("before", "success")
    if tested is None:
        tested = next(iter(run.values("valid_success")[-1:]), None)
    if trained is None or tested is None:
        return None
    different, groups = run.mean("distinct_tasks"), run.number("groups_per_batch", 1.0)
    passes = max(run.values("epoch"), default=0.0)
    played = max(run.values("batches"), default=0.0) * groups
    if different is not None and different < 0.9 * groups:
        passes = played / different
    gain = 0.0 if before is None else tested - before
    apart = _errors_apart(trained[1], tested, _independent(run), run.evaluated("after", "episodes") or 1.0)
    # What is learnt in training and not in tests; and even if it was known before, so few tasks teach nothing.
    gap = max(trained[1] - tested if apart >= 2 else 0.0, 0.0 if before is None else trained[1] - trained[0] - gain)
    is_few = passes >= 10 and played / passes <= 16 and not _improved(run)
    return max(gap, 0.6 * is_few) if passes >= 5 else 0.0


def _improved(run: RunRecord) -> bool:
    """Whether success in tests rose, by its paired interval."""
    gain = (run.summary.get("improvement") or {}).get("sampled") or {}
    return float(gain.get("low") or 0.0) > 0


@_harm
def _too_hard(run: RunRecord) -> float | None:
    alike, success = run.mean("frac_reward_zero_std"), run.values("success")
    if alike is None or not success:
        return None
    first, last = run.ends("success") or (success[0], success[-1])
    return alike if max(success[0], first, last) <= 0.05 else 0.0  # what succeeds at first has another cause


@_harm
def _too_easy(run: RunRecord) -> float | None:
    alike, success = run.mean("frac_reward_zero_std"), run.mean("success")
    if alike is None or success is None:
        return None
    further = [one for moment in ("before", "after") for one in run.part(moment, "also_on").values()]
    goals = [float(one["success"]) for one in (*further, run.part("after", "sampled")) if "success" in one]
    before, after = (run.evaluated(moment, "success") for moment in ("before", "after"))
    gained = before is not None and after is not None and after >= before + 0.05
    learnt = gained and ("improvement" not in run.summary or _improved(run))
    return alike if success >= 0.8 and min(goals, default=1.0) < success - 0.25 and not learnt else 0.0


def _disagreement(run: RunRecord) -> float | None:
    agreement, silent = run.mean("credit/agreement"), run.mean("credit/silent")
    if agreement is None and silent is None:
        return None
    nothing = silent is not None and silent >= 0.9  # a half is usual where turns are compared by state
    if nothing and (_key_splits(run) or 0.0) >= 0.9:
        return 0.0  # no two attempts meet in a state, so there is nothing to compare
    return max(0.0 if agreement is None else (1 - agreement) / 2, float(nothing))


@_harm
def _reward(run: RunRecord) -> float | None:
    return _disagreement(run) if run.compares_returns else 0.0


@_harm
def _credit(run: RunRecord) -> float | None:
    return 0.0 if run.compares_returns else _disagreement(run)


@_harm
def _key_merges(run: RunRecord) -> float | None:
    if run.settings.get("credit") not in BY_STATE:
        return 0.0
    conflicts, keys, length = (run.mean(name) for name in ("states/conflicts", "states/keys", "length"))
    if keys is not None and length is not None and keys <= 1 and length >= 1.5:
        return 1.0
    if conflicts is None:
        return None if keys is None else 0.0
    return min(1.0, 25 * conflicts)  # a state that contradicts itself proves it; repeats from the same past dilute it


@_harm
def _key_splits(run: RunRecord) -> float | None:
    if run.settings.get("credit") not in BY_STATE:
        return 0.0
    shared = run.mean("states/shared")
    return None if shared is None else 1 - shared


@_harm
def _audit(run: RunRecord) -> float | None:
    credit, shares = str(run.settings.get("credit")), []
    for cosines in run.cosines.values():
        best = max(cosines.values(), default=0.0)
        own = [value for name, value in cosines.items() if name.partition("{")[0] == credit]
        shares += [max(own) / best] if own and best > 0 else []
    return 1 - min(shares) if shares else None


@_harm
def _stale(run: RunRecord) -> float | None:
    if not any(run.values("staleness_max")):
        return 0.0
    gap, size = run.thirds("sampling_gap"), run.thirds("importance/effective_sample_size")
    return None if not gap else 1 - min(size) if size else min(1.0, 4 * max(gap))


@_harm
def _drift(run: RunRecord) -> float | None:
    if any(run.values("staleness_max")):
        return 0.0
    gap, kl = run.mean("sampling_gap"), run.mean("importance/kl")
    # Without a correction, sampler and trainer are one program in float32, so their difference is rounding, about 1e-7.
    full = run.settings.get("dtype") in (None, "float32") and not run.settings.get("bf16")
    is_exact = "staleness" not in run.metrics and not run.number("lora_dropout") and full
    if kl is not None:  # a correction weighs the gap away
        return min(1.0, 20 * kl)
    return None if gap is None else min(1.0, (50 if is_exact else 5) * gap)


@_harm
def _failed(run: RunRecord) -> float | None:
    known = _not_a_number(run) or _lost(run) == 1
    return float(run.summary.get("status") == "failed" and not known)


@_harm
def _schedule(run: RunRecord) -> float | None:
    steps, rates = run.values("step"), run.values("learning_rate")
    if not rates:
        return None
    total, muon = run.number("max_steps", 1.0), run.settings.get("muon_learning_rate")
    wanted = run.number("learning_rate") if muon is None else float(muon)
    warms_up = steps[-1] < 0.5 * total and run.number("warmup_steps") < 0.5 * total
    return 0.0 if warms_up else 1 - max(rates) / wanted if wanted else 1.0


def _is_adapter(run: RunRecord) -> bool:
    return bool(run.settings.get("lora")) or (Path(str(run.settings.get("model"))) / "adapter_config.json").exists()


@_harm
def _frozen(run: RunRecord) -> float | None:
    changed, trained = run.values("weights/changed"), run.mean("weights/trained")
    if not changed or trained is None:
        return None
    rounds_away = max(run.values("learning_rate"), default=1.0) < 1e-7  # even in 32 bits
    still = float(max(changed) < 0.01 and not run.mean("weights/half") and not rounds_away)
    return max(still, 0.0 if _is_adapter(run) else 1 - trained)


@_harm
def _rounding(run: RunRecord) -> float | None:
    changed, half = run.mean("weights/changed"), run.mean("weights/half")
    return None if changed is None else (1 - changed) * (half or 0.0)


@_harm
def _grad_clip(run: RunRecord) -> float | None:
    norm, step, limit = run.mean("grad_norm"), run.values("weights/step"), run.number("max_grad_norm")
    if norm is None or not step:
        return None
    # Steps of Adam are about the learning rate, however small gradients are, until these are near its epsilon.
    still = max(step) < 0.5 * max(run.values("learning_rate"), default=0.0)
    return 1 - 20 * limit / norm if limit and norm > 20 * limit and still else 0.0


@_harm
def _small_steps(run: RunRecord) -> float | None:
    step = run.values("weights/step")
    if _is_adapter(run):  # half of the weights of new adapters are 0; the first step, theirs, has no relative size
        step = step[1:]
    return float(max(step) < 1e-5 or max(step) * run.number("max_steps", 1e9) < 5e-4) if step else None


def _not_a_number(run: RunRecord) -> bool:
    said = re.search(r"the loss is (nan|-?inf)", str(run.summary.get("error", "")))
    return bool(said) or any(math.isnan(one) for name in ("loss", "grad_norm") for _, one in run.metrics.get(name, ()))


@_harm
def _large_steps(run: RunRecord) -> float | None:
    if _not_a_number(run):
        return 1.0
    # Half of the weights of new adapters are 0, so their first steps are large by any measure.
    step, clipped = [] if _is_adapter(run) else run.values("weights/step"), run.mean("clip_fraction")
    clipped = run.mean("clip_ratio/region_mean") if clipped is None else clipped
    if not step and clipped is None:
        return None
    return max(min(1.0, 5 * max(step, default=0.0)), min(1.0, 2 * (clipped or 0.0)))


@_harm
def _kl(run: RunRecord) -> float | None:
    kl = run.mean("kl") if run.number("beta") else 0.0
    return None if kl is None else float(run.number("beta") >= 0.3 and kl < 0.1)


@_harm
def _entropy_collapse(run: RunRecord) -> float | None:
    entropy, alike, success = run.ends("entropy"), run.ends("frac_reward_zero_std"), run.ends("success")
    first, length, rises = run.start("entropy"), run.ends("length"), _rises(run)
    if entropy is None or alike is None or success is None or length is None or first is None or rises is None:
        return None
    if success[1] >= 0.8:
        return 0.0
    if run.number("entropy_coef") < 0 and entropy[1] < 0.5 * first:
        return max(0.7, alike[1])
    falls = entropy[1] < 0.35 * first and rises < 2
    low = falls or entropy[1] < 0.05 or run.number("temperature", 1.0) < 0.3
    same = math.exp(-entropy[1] * length[1])  # about the share of attempts with the most likely actions only
    return max(alike[1], same) if low else 0.0


@_harm
def _entropy_rises(run: RunRecord) -> float | None:
    entropy, first, rises = run.ends("entropy"), run.start("entropy"), _rises(run)
    if entropy is None or first is None or rises is None:
        return None
    more, bonus = entropy[1] - first, run.number("entropy_coef")
    by_bonus = bonus >= 0.02 or (bonus > 0 and rises <= -2)
    return min(1.0, more / max(first, 0.3)) if more > 0.3 and rises < 2 and by_bonus else 0.0


@_harm
def _prompt_collapse(run: RunRecord) -> float | None:
    known, entropy = run.ends("prompt_information"), run.ends("entropy")
    if known is None or entropy is None:
        return None
    bonus = run.number("entropy_coef") >= 0.05  # it makes a policy random, which then reads no prompts either
    return 1 - known[1] / known[0] if known[0] > 0.05 and entropy[1] > 0.3 and not bonus else 0.0


@_harm
def _evaluation(run: RunRecord) -> float | None:
    return None if run.other is None or run.own is None else float(bool(run.differences))
