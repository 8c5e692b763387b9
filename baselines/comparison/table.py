"""The page of a comparison, made only from its results: equal results give equal pages.

Intervals select the sentences about the outcome; none is fixed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from baselines.comparison.contrasts import (
    FEWEST_RUNS,
    Contrast,
    SettingComparison,
    contrast,
)
from baselines.comparison.outcome import Raw
from baselines.comparison.plan import CONTROLS, FIXED, FIXED_BY_TYPE, HALF, REFERENCES
from baselines.comparison.rows import (
    BASELINE,
    episodes_said,
    figures_table,
    main_table,
    points,
    reached_by,
    types_table,
)
from baselines.comparison.trials import TRIED_OF_CREDIT

INTERVALS = f"""\
Brackets are 95 % intervals for other runs and other test tasks (crossed random effects, Student's t). The interval of a
row with one run covers other tasks only. Differences are paired by seed and task. One row counts as ahead of another
only if the interval of the difference excludes 0 and there are at least {FEWEST_RUNS} runs. All other comparisons are
inconclusive, which does not mean that the rows are equal."""

HOW_TO_READ = f"""\
Each row is the mean of several runs, one for each seed. All algorithms with the same seed start from the same cloned
weights and play the same number of episodes. Each run plays the test tasks once, at its end, with sampled actions and
with the most likely actions (greedy). Learning curves use validation tasks. Core-seconds of learning include
validations.

{INTERVALS} Numbers of episodes have bootstrap intervals over seeds;
*never* means that the curve does not reach this success.

Control rows: *{CONTROLS[0]}* is the cloned policy from which every run starts. *{CONTROLS[1]}* is more cloning of the
same demonstrations, for as many core-seconds as the median training run. *{CONTROLS[2]}* starts from random weights and
clones the expert's episodes, without noise, on all training tasks, for as many core-seconds as the warm start and the
training together. Both keep the weights with the best validation."""

GRAPH = "rewardflow"
"""The algorithm whose difference to `rows.BASELINE` has its own sentence."""

SAME = (
    "All algorithms have the same settings except for the credit function, unless a setting below lists further "
    "differences."
)
TUNED = (
    "Each algorithm has the learning rates and the entropy weight that won its validation trials, and also the weight "
    "and the norm if it has these settings (`{}`); all algorithms had the same number of trials."
)
ALSO_CHOSEN = (
    "Other settings of credit named below ({}) are not of these trials. They were also chosen on validation tasks, so "
    "algorithms with such settings were selected from more variants than the others."
)

NOT_TRAINED = """\
Untrained policies have one run, which is compared with the runs of all seeds. *random* plays random valid actions,
*script* reads only what the environment shows, and *expert* may use hidden task data. A fixed strategy plays the same
list of actions in every task. The best one has the most successes on validation tasks, over all tasks or separately for
each task type."""


def page(raw: Raw, stem: str) -> str:
    """Return the page as Markdown; `stem` is the prefix of its pictures."""
    compared = {setting: SettingComparison.of(raw, setting) for setting in raw.settings}
    parts = [_head(raw), f"## What the figures say\n\n{_list(_summary(raw, compared))}\n"]
    for setting, found in compared.items():
        further = [("Success by task type", types_table(raw, setting)), ("Designs", figures_table(raw, setting))]
        parts += [
            f"{_title(raw, setting)}\n\n{main_table(raw, setting, found)}\n\n{_list(findings(raw, setting, found))}\n",
            *(f"### {setting}: {title}\n\n{text}\n" for title, text in further if text),
            f"![Learning curves, {setting}]({picture_name(stem, setting)})\n",
        ]
    return "\n".join(parts)


def picture_name(stem: str, setting: str) -> str:
    """Return the file name of a setting's learning curves."""
    return f"{stem}_{setting}.png"


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _head(raw: Raw) -> str:
    outcomes, header = raw.outcomes, raw.header
    references = [outcome for outcome in outcomes if outcome.name in REFERENCES]
    trained = [outcome for outcome in outcomes if outcome.name not in (*CONTROLS, *REFERENCES)]
    controls = len(outcomes) - len(trained) - len(references)
    hours = sum(outcome.core_seconds for outcome in outcomes) / 3600
    training = sum(outcome.core_seconds for outcome in trained) / 3600
    versions = "; ".join(sorted({", ".join(f"{k} {v}" for k, v in o.versions.items()) for o in outcomes}))
    facts = [
        f"- {len(trained)} training runs and {controls} runs of controls: "
        f"{hours:.2f} core-hours, {training:.2f} of them in training runs with their evaluations",
        f"- finished {max(outcome.date for outcome in outcomes)}, with {versions}",
    ]
    if "decision" in header:
        facts.append(
            f"- registered on {header['registered_on']} before the first run (SHA-256 {header['registered'][:16]}): "
            f"**{header['decision']}**"
        )
        facts.append(f"- of a training run, with continuations: {_played(raw)}")
    name = header["env_id"].partition("/")[2]
    command = f"```bash\n{header['command']}\n```"
    settings = SAME
    if any(algo.endswith(HALF) for algo in header["algos"]):
        settings += f" Rows that end in *{HALF}* have the stated share of the batches, with a schedule of that length."
    if "tuned" in header:
        also = _also_chosen(raw)
        settings = " ".join([TUNED.format(header["tuned"]), *([ALSO_CHOSEN.format(also)] if also else [])])
    how_to_read = "\n\n".join([HOW_TO_READ, settings, *([NOT_TRAINED] if references else [])])
    note = f"**{header['note']}**\n\n" if "note" in header else ""
    return f"# {name}: estimators compared\n\n{note}{command}\n\n" + "\n".join(facts) + f"\n\n{how_to_read}\n"


def training_cost(raw: Raw, algo: str) -> tuple[float, float]:
    """Return the mean environment steps and generated tokens of an algorithm's runs; 0 tokens if none were counted."""
    runs = [outcome for outcome in raw.outcomes if outcome.name == algo]
    return fmean(run.curve[-1].env_steps for run in runs), fmean(run.tokens or 0 for run in runs)


def _played(raw: Raw) -> str:
    """Describe the cost of training of every algorithm, also as shares of the first."""
    first, *_ = costs = [training_cost(raw, algo) for algo in raw.header["algos"]]
    told = []
    for algo, cost in zip(raw.header["algos"], costs, strict=True):
        parts = zip(cost, first, ("environment steps", "generated tokens"), strict=True)
        said = [f"{mean:,.0f} {of} ({mean / whole:.1%})" for mean, whole, of in parts if whole]
        told.append(f"{algo} {' and '.join(said)}")
    return ", ".join(told)


def _also_chosen(raw: Raw) -> str:
    """Return the settings of credit functions in the environment, by algorithm, that tuning does not try."""
    found: dict[str, list[str]] = {}
    for shape in raw.settings.values():
        for algo, own in shape.get("variants", {}).items():
            if own.get("credit", algo) != algo:
                continue  # a variant differs on purpose
            if names := [f"`{name}`" for name in own.get("credit_settings", {}) if name not in TRIED_OF_CREDIT]:
                found[algo] = names
    return "; ".join(f"{' and '.join(names)} of {algo}" for algo, names in found.items())


def _title(raw: Raw, setting: str) -> str:
    about: Mapping[str, Any] = raw.settings[setting]
    size, tasks, batches = (about[key] for key in ("num_generations", "tasks", "batches"))
    kwargs = json.dumps(about["settings"]["env_kwargs"]).replace('"', "")
    return (
        f"## {setting}: {about['about']}\n\n{size} attempts x {tasks} tasks x {batches} batches: "
        f"{size * tasks * batches:,} training episodes in a run. Environment: `{kwargs}`; prompt template "
        f"`{about['settings']['template']}`.{_variants(about.get('variants', {}))}"
    )


def _variants(variants: Mapping[str, Mapping[str, Any]]) -> str:
    """Describe the algorithms' own settings, except a credit function with the name of the row."""
    more = {row: {name: v for name, v in own.items() if (name, v) != ("credit", row)} for row, own in variants.items()}
    own = [f"`{row}`: {json.dumps(settings)}".replace('"', "") for row, settings in more.items() if settings]
    return f" Settings of their own: {'; '.join(own)}." if own else ""


# ---------------------------------------------------------------- the sentences
def findings(raw: Raw, setting: str, compared: SettingComparison) -> Iterator[str]:
    """Yield the sentences about a setting's rows."""
    few = any(pair.runs < FEWEST_RUNS for pair in compared.pairs)
    if few or len(raw.runs(setting, raw.header["algos"][0])) < FEWEST_RUNS:
        yield f"Fewer than {FEWEST_RUNS} runs: no order is claimed."
    else:
        yield from _orders(raw, setting, compared)
    yield from _asked(compared)
    yield from _reached(raw, setting)
    yield from _chosen(raw, setting)


def _orders(raw: Raw, setting: str, compared: SettingComparison) -> Iterator[str]:
    """Describe significant orders, with sampled actions unless stated otherwise."""
    algos, dense = raw.header["algos"], compared.dense
    kinds = (("", compared.pairs), (", with the most likely actions", compared.greedy))
    for how, pairs in kinds:
        yield from _verdicts(f"{algos[0]}{how}", [pair for pair in pairs if pair.second == algos[0]])
    for how, pairs in kinds:
        others = [pair for pair in pairs if pair.second != algos[0]]
        orders = [_order(pair) for pair in others if pair.order]
        if others:
            yield f"Among the others{how}: {'; '.join(orders) if orders else 'inconclusive'}."
    if dense is not None:
        yield f"{_dense(raw)}: {_verdict(dense)}, {points(dense)} points."
    for beside in (*CONTROLS, *REFERENCES):
        runs = raw.paired(setting, beside)
        contrasts = [contrast(algo, [raw.runs(setting, algo)], beside, [runs]) for algo in algos]
        yield from _verdicts(beside, [found for found in contrasts if found is not None])


def _asked(compared: SettingComparison) -> Iterator[str]:
    """Describe the difference between credit from state graphs and credit for episodes."""
    sampled, greedy = (compared.between(GRAPH, BASELINE, greedy=greedy) for greedy in (False, True))
    if sampled is not None:
        likely = "" if greedy is None else f", {points(greedy)} greedy"
        yield f"{GRAPH} minus {BASELINE}, paired by seed and task: {points(sampled)} points sampled{likely}."


def _reached(raw: Raw, setting: str) -> Iterator[str]:
    """Describe how many episodes each algorithm needed for the baseline's final success."""
    end = reached_by(raw, setting)
    if end is not None:
        first, success, reached = end
        parts = (f"{name} {episodes_said(found)}" for name, found in reached.items())
        yield (
            f"Training episodes until the mean curve reaches the {success:.1%} validation success that {first} ends "
            f"with: {', '.join(parts)}."
        )


def _chosen(raw: Raw, setting: str) -> Iterator[str]:
    """Describe the selected fixed strategies."""
    for name in (FIXED, FIXED_BY_TYPE):
        for outcome in raw.runs(setting, name).values():
            texts = (f"{of_type}: `{text}`" if of_type else f"`{text}`" for of_type, text in outcome.chosen.items())
            yield f"{name}, chosen on validation tasks: {'; '.join(texts)}."


def _verdicts(against: str, found: Sequence[Contrast]) -> Iterator[str]:
    """Yield one sentence about all rows compared with one row."""
    parts = []
    for order, words in ((1, "ahead"), (-1, "behind"), (0, "inconclusive")):
        names = [f"{c.first} ({points(c)})" for c in found if c.order == order]
        if names:
            parts.append(f"{words}: {', '.join(names)}")
    if parts:
        yield f"Against {against}, in points: {'; '.join(parts)}."


def _order(found: Contrast) -> str:
    ahead = found if found.order > 0 else found.reversed
    return f"{ahead.first} is ahead of {ahead.second} ({points(ahead)} points)"


def _verdict(found: Contrast) -> str:
    return {1: "ahead", -1: "behind", 0: "inconclusive"}[found.order]


def _dense(raw: Raw) -> str:
    dense, episodes = (", ".join(pool) for pool in raw.pools)
    return f"Credit for turns ({dense}) against credit for episodes ({episodes})"


def _summary(raw: Raw, compared: Mapping[str, SettingComparison]) -> Iterator[str]:
    """Summarise significant and inconclusive differences over all settings."""
    dense = {setting: found.dense for setting, found in compared.items() if found.dense is not None}
    of_turns, of_episodes = (", ".join(pool) for pool in raw.pools)
    for order, words in ((1, "is ahead of"), (-1, "is behind"), (0, "is not significantly different from")):
        settings = [f"{s} ({points(found)} points)" for s, found in dense.items() if found.order == order]
        if settings:
            yield f"Credit for turns ({of_turns}) {words} credit for episodes ({of_episodes}) in {', '.join(settings)}."
    orders = [
        f"{setting}, {kind}: {_order(pair)}"
        for setting, found in compared.items()
        for kind, pairs in (("sampled", found.pairs), ("greedy", found.greedy))
        for pair in pairs
        if pair.order
    ]
    yield from (f"{order}." for order in orders)
    sampled = sum(len(found.pairs) for found in compared.values())
    greedy = sum(len(found.greedy) for found in compared.values())
    count = sampled + greedy
    of = f"of {count} comparisons between two algorithms ({sampled} sampled, {greedy} greedy)"
    if not orders:
        yield f"Inconclusive: none {of} has an interval that excludes 0."
        return
    has = "has" if len(orders) == 1 else "have"
    yield (
        f"{len(orders)} {of} {has} an interval that excludes 0. If all algorithms were equal, about {0.05 * count:.1f} "
        "would by chance alone, so a single significant difference is only a hint."
    )
