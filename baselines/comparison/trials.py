"""Trials of settings: the same for every estimator, each a training run that is evaluated on validation tasks.

Trial *i* multiplies the environment's entropy weight and learning rates by the same factors for every estimator.
Estimators with a weight of the comparison within a state, or a norm, get those of the trial as well. The factors are
point *i* of a low-discrepancy sequence (an additive recurrence), which covers the ranges evenly for any number of
trials, so more trials never change earlier ones. Trial 0 has the unchanged settings.

Short runs favour high learning rates, so trials that are shorter than the runs of a comparison only select finalists:
trial 0 and the best other trials of every estimator are trained again for the full length, and those runs decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, get_args

import yaml  # type: ignore[import-untyped]

from agentgym_flow._util.files import write_atomically
from agentgym_flow.errors import BadData, BadSetting
from agentgym_flow.rewards.credit import CREDIT, settings_of
from agentgym_flow.rewards.credit.comparison import Norm
from baselines.comparison.plan import Cell, Plan, Setting

ENTROPY, STEP, WEIGHT = 5.0, 3.0, 4.0
"""Entropy weight, learning rates and weight are divided or multiplied by up to these factors."""

TRIED_OF_CREDIT = ("weight", "norm")
"""The settings of a credit function that trials vary, if it has them."""

_ROOT = 1.1673039782614187  # root of x**5 = x + 1: powers of its inverse give the best even cover in four dimensions


class Trials(Plan):
    """The runs of a tuning: warm starts, and trials instead of algorithms, all without test tasks."""

    split: ClassVar[str] = "valid"

    def references(self) -> list[Cell]:
        """Return nothing: untrained policies have no settings."""
        return []

    def controls(self) -> list[Cell]:
        """Return nothing: trials are compared only with each other."""
        return []


def trials(setting: Setting, algos: Sequence[str], count: int, batches: int, seed: int) -> Trials:
    """Return the plan of `count` trials of each algorithm, of `batches` batches, in one setting and with one seed.

    Raises `UnknownOption` for an unknown algorithm, and `BadSetting` for a repeated one.
    """
    Plan(setting.env_id, algos, [seed], [setting])  # checks the names
    variants = {trial(algo, i): settings_of_trial(setting, algo, i) for i in range(count) for algo in algos}
    cost = setting.core_seconds * batches / setting.batches
    # Trials need no learning curves, so validations would waste time.
    others = {**setting.others, "validations": 0}
    tried = replace(setting, batches=batches, core_seconds=cost, others=others, variants=variants)
    return Trials(setting.env_id, list(variants), [seed], [tried])


def finals(plan: Trials, setting: Setting, chosen: Mapping[str, Sequence[int]]) -> Trials:
    """Return the plan that trains the finalists, given by number per algorithm, for all batches of `setting`."""
    [short] = plan.settings
    variants = {final(algo, i): short.variants[trial(algo, i)] for algo, numbers in chosen.items() for i in numbers}
    whole_runs = replace(short, batches=setting.batches, core_seconds=setting.core_seconds, variants=variants)
    return Trials(plan.env_id, list(variants), plan.seeds, [whole_runs])


def trial(algo: str, number: int) -> str:
    """Return the name of a trial."""
    return f"{algo} trial {number}"


def final(algo: str, number: int) -> str:
    """Return the name of the final run of a trial."""
    return f"{algo} final {number}"


def settings_of_trial(setting: Setting, algo: str, number: int) -> dict[str, Any]:
    """Return an algorithm's own settings in a trial, for `Setting.variants`.

    Raises `BadSetting` or `UnknownOption` if a setting has a wrong value.
    """
    agent = setting.configs(algo, 0, Path("runs"))[2]
    _ = agent.credit_function  # checks the settings that are scaled here
    entropy, step, weight, norm = (_coordinate(number, axis) for axis in range(4))
    chosen = {
        **setting.own(algo),
        "entropy_coef": _scaled(agent.entropy_coef, ENTROPY, entropy),
        "learning_rate": _scaled(agent.learning_rate, STEP, step),
    }
    if agent.muon_learning_rate is not None:
        chosen["muon_learning_rate"] = _scaled(agent.muon_learning_rate, STEP, step)
    usual = settings_of(agent.credit) | agent.credit_keywords
    credit = dict(chosen.get("credit_settings", {}))
    if "weight" in usual:
        credit["weight"] = _scaled(usual["weight"], WEIGHT, weight)
    if "norm" in usual:
        credit["norm"] = usual["norm"] if norm <= 0.5 else next(n for n in get_args(Norm) if n != usual["norm"])
    return {**chosen, "credit_settings": credit} if credit else chosen


def _coordinate(number: int, axis: int) -> float:
    """Return one coordinate, in [0, 1), of a point of the sequence; point 0 is the centre."""
    return (0.5 + number * _ROOT ** -(axis + 1)) % 1.0


def _scaled(usual: float, factor: float, coordinate: float) -> float:
    return float(f"{usual * factor ** (2 * coordinate - 1):.3g}")


# ---------------------------------------------------------------- the file of selected settings
def write_tuned(path: Path, header: Mapping[str, Any], algos: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the selected settings of each algorithm, and the header's `note` if any, as YAML. Raises `OSError`."""
    about = {name: header[name] for name in ("command", "env_id", "setting", "note") if name in header}
    text = yaml.safe_dump({**about, "algos": {name: dict(own) for name, own in algos.items()}}, sort_keys=False)
    with write_atomically(path) as partial:
        partial.write_text(
            "# Chosen on validation tasks by baselines.tune, to be used as baselines.compare --tuned FILE.\n" + text,
            "utf-8",
        )


def with_tuned(settings: Sequence[Setting], file: Path, algos: Sequence[str]) -> list[Setting]:
    """Return settings in which every algorithm has the settings from a file of `write_tuned`.

    An algorithm keeps its own settings that the file does not name, such as RewardFlow's potential in ALFWorld.

    Raises:
        BadData: the file cannot be read or is malformed.
        BadSetting: it is of another environment or setting, or lacks an algorithm: either all are tuned, or none is.
    """
    try:
        read = yaml.safe_load(file.read_text("utf-8"))
        env_id, chosen = str(read["env_id"]), {name: dict(own) for name, own in read["algos"].items()}
        tuned_in = read.get("setting")
        credit_of = {name: own["credit"] for name, own in chosen.items()}
    except (OSError, yaml.YAMLError, TypeError, KeyError, ValueError, AttributeError) as error:
        raise BadData(f"{file} has no settings chosen by baselines.tune ({error!r})") from error
    if strange := [name for name, credit in credit_of.items() if not isinstance(credit, str) or credit not in CREDIT]:
        raise BadData(f"{file}: {strange[0]} names no credit function: tune it again")
    if strange := [name for name, own in chosen.items() if not isinstance(own.get("credit_settings", {}), Mapping)]:
        raise BadData(f"{file}: the credit_settings of {strange[0]} are not a mapping: tune it again")
    for setting in settings:
        if setting.env_id != env_id:
            raise BadSetting(f"{file} has settings for {env_id}, not for {setting.env_id}")
        if tuned_in not in (None, setting.name):
            raise BadSetting(
                f"{file} was tuned in setting {tuned_in!r}, not in {setting.name!r}: "
                f"compare with --settings {tuned_in}, or tune again"
            )
    if missing := [algo for algo in algos if algo not in chosen]:
        raise BadSetting(f"{file} has no settings for {', '.join(missing)}: tune every algorithm of a comparison alike")
    return [
        replace(s, variants={**s.variants, **{algo: _merged(s.own(algo), chosen[algo]) for algo in algos}})
        for s in settings
    ]


def _merged(own: Mapping[str, Any], tuned: Mapping[str, Any]) -> dict[str, Any]:
    """Return `tuned` with the settings of `own` that it does not name, unless they are of another credit function."""
    if own["credit"] != tuned["credit"]:
        return dict(tuned)
    credit = {**own.get("credit_settings", {}), **tuned.get("credit_settings", {})}
    return {**own, **tuned, **({"credit_settings": credit} if credit else {})}
