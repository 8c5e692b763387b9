"""The page of a tuning, made from its results: trials, winners, and the differences between trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from agentgym_flow._util.intervals import interval_of_runs
from agentgym_flow.errors import BadData
from baselines.comparison.outcome import Outcome, Raw
from baselines.comparison.plan import WARM_START
from baselines.comparison.rows import markdown
from baselines.comparison.trials import ENTROPY, STEP, TRIED_OF_CREDIT, WEIGHT, final, trial

HOW_TO_READ = f"""\
Every estimator has the same number of trials. Trial *i* has the same entropy weight and learning rates for every
estimator, and all trials start from the same cloned weights. Trials also vary the weight of the comparison within a
state and the norm, for estimators that have them. Trial 0 has the unchanged settings. The other trials divide or
multiply the entropy weight by up to {ENTROPY:g}, the learning rates by up to {STEP:g} and the weight by up to
{WEIGHT:g}.

A trial is a training run with one seed. At its end, the policy plays the validation tasks once with sampled actions and
once with the most likely actions (greedy). The trial with the highest mean of the two success rates wins, and the
earlier trial wins a tie. Sampled success alone would favour settings that make a policy confident early. Greedy success
alone ignores every action other than the most likely one. A comparison reports both, and the mean of two evaluations is
less noisy than one evaluation. Trials never play test tasks.

The success rates of winners are biased upwards, because each winner is the best of several noisy trials. They are not
results. The interval of the gain over trial 0 covers other validation tasks, not other seeds."""

ABOUT_FINALS = """\
Short runs favour large steps, so the trials only choose finalists. Trial 0 and the best other trials of every estimator
are trained again for as many batches as in a comparison, and these runs decide."""


def merit(outcome: Outcome) -> float:
    """Return the criterion of selection: the mean of sampled and greedy success, in [0, 1]."""
    both = outcome.sampled + outcome.greedy  # counted together, so that rounding cannot break ties
    return both.count("1") / len(both)


def trials_of(raw: Raw, algo: str) -> list[Outcome]:
    """Return the trials of an algorithm in order. Raises `BadData` if one is missing."""
    by_name = {outcome.name: outcome for outcome in raw.outcomes}
    names = [trial(algo, number) for number in range(raw.header["count"])]
    if missing := [name for name in names if name not in by_name]:
        raise BadData(f"the results have no {missing[0]}: run the tuning again")
    return [by_name[name] for name in names]


def finalists(raw: Raw, count: int) -> dict[str, list[int]]:
    """Return algorithm -> numbers of the trials to train in full: trial 0, and the best others."""
    found = {}
    for algo in raw.header["algos"]:
        merits = [merit(outcome) for outcome in trials_of(raw, algo)]
        others = sorted(range(1, len(merits)), key=lambda number: -merits[number])
        found[algo] = sorted([0, *others[: count - 1]]) if count else []
    return found


def decisive(raw: Raw, algo: str) -> dict[int, Outcome]:
    """Return number -> outcome of the deciding runs: the finals, or the trials if there are no finals."""
    by_name = {outcome.name: outcome for outcome in raw.outcomes}
    numbers = raw.header.get("finals", {}).get(algo)  # older results have no finals
    return {i: by_name[final(algo, i)] for i in numbers} if numbers else dict(enumerate(trials_of(raw, algo)))


def winners(raw: Raw) -> dict[str, int]:
    """Return algorithm -> the number of its best trial."""
    found = {}
    for algo in raw.header["algos"]:
        runs = decisive(raw, algo)
        found[algo] = max(runs, key=lambda number: (merit(runs[number]), -number))
    return found


def tuning_page(raw: Raw) -> str:
    """Return the page as Markdown."""
    header, best = raw.header, winners(raw)
    hours = sum(outcome.core_seconds for outcome in raw.outcomes) / 3600
    versions = "; ".join(sorted({", ".join(f"{k} {v}" for k, v in o.versions.items()) for o in raw.outcomes}))
    start = next(outcome for outcome in raw.outcomes if outcome.name == WARM_START)
    facts = [
        f"- {header['count']} trials for each of {len(header['algos'])} estimators, {header['episodes']:,} training "
        f"episodes each, in setting {header['setting']}: {hours:.2f} core-hours",
        f"- {len(start.sampled)} validation tasks; the warm start has {start.success:.1%} sampled and "
        f"{start.greedy_success or 0:.1%} greedy",
        f"- finished {max(outcome.date for outcome in raw.outcomes)}, with {versions}",
    ]
    finals = any(header.get("finals", {}).values())
    how = [HOW_TO_READ, *([ABOUT_FINALS] if finals else [])]
    if finals:
        facts.insert(1, f"- finals of {header['final_episodes']:,} training episodes each")
    parts = [
        f"# {header['env_id'].partition('/')[2]}: every estimator tuned alike\n",
        *([f"**{header['note']}**\n"] if "note" in header else []),
        f"```bash\n{header['command']}\n```\n",
        "\n".join(facts) + "\n",
        "\n\n".join(how) + "\n",
        f"## What won\n\n{_winners_table(raw, best)}\n",
        *([f"## Finals\n\n{_table(raw, best, {a: decisive(raw, a) for a in best})}\n"] if finals else []),
        f"## All trials\n\n{_table(raw, best, {a: dict(enumerate(trials_of(raw, a))) for a in best})}\n",
    ]
    return "\n".join(parts)


def _winners_table(raw: Raw, best: Mapping[str, int]) -> str:
    columns = ["", "Trial", "Mean", "Sampled", "Greedy", "Gain over trial 0, points", "Settings"]
    rows = []
    for algo, number in best.items():
        runs = decisive(raw, algo)
        won = runs[number]
        rows.append(
            [
                algo,
                str(number),
                *(f"{share:.1%}" for share in (merit(won), won.success, won.greedy_success or 0.0)),
                _gain(won, runs[0]),
                f"`{_said(_tried(raw.header['trials'][trial(algo, number)]))}`",
            ]
        )
    return markdown(columns, rows)


def _gain(won: Outcome, usual: Outcome) -> str:
    if won is usual:
        return ""
    differences = _merits(won) - _merits(usual)
    low, high = interval_of_runs([differences], (-1, 1))
    return f"{100 * differences.mean():+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def _merits(outcome: Outcome) -> npt.NDArray[np.float64]:
    """Return the mean of sampled and greedy success on each task."""
    return (outcome.successes() + outcome.successes(greedy=True)) / 2


def _table(raw: Raw, best: Mapping[str, int], runs: Mapping[str, Mapping[int, Outcome]]) -> str:
    names = dict.fromkeys(name for own in raw.header["trials"].values() for name in _tried(own))
    columns = ["", "Trial", "Mean", "Sampled", "Greedy", *(f"`{name}`" for name in names), "Core-seconds of learning"]
    rows = []
    for algo, number in best.items():
        for place, outcome in runs[algo].items():
            own = _tried(raw.header["trials"][trial(algo, place)])
            mean = f"{merit(outcome):.1%}"
            rows.append(
                [
                    algo,
                    str(place),
                    f"**{mean}**" if place == number else mean,
                    f"{outcome.success:.1%}",
                    f"{outcome.greedy_success or 0.0:.1%}",
                    *(str(own.get(name, "")) for name in names),
                    f"{outcome.learning_seconds:.0f}",
                ]
            )
    return markdown(columns, rows)


def _tried(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tuned settings, flat."""
    credit = own.get("credit_settings", {})
    flat = {name: own[name] for name in ("entropy_coef", "learning_rate", "muon_learning_rate") if name in own}
    return flat | {name: credit[name] for name in TRIED_OF_CREDIT if name in credit}


def _said(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in settings.items())
