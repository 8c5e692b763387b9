"""The structure reward of FlowSteer (2026) for the design of a workflow, in three profiles. Pure functions.

The reward of an episode that ends with a workflow of design S and an answer of correctness c, both in [0, 1], is

    R = -1 + S + c * [S >= 1]

An incomplete design gets less than 0 whatever its answer, and a complete design gets at least 0. S is the sum of the
weights of the parts that are present: a checker, a formatter, enough operators, and a structure (parallel branches, a
conditional or a loop). The profile defines which parts are present:

- `executed`: the parts that the answer needed. An operator counts if the result would have been different without it,
  so padding a design does not help. But few answers need all four parts, and then the formula above would ignore c. For
  this reason a correct answer counts as complete here, and S matters for incorrect answers (`release="answer_first"`):

      R = c + (1 - c) * (S - 1)

  Making a mistake in order to repair it does not increase the reward. Unfinished designs have correctness 0.
- `paper`: the parts that the workflow contains, at any depth; at least 5 operators.
- `upstream`: as in the released code, which reads the text of the workflow. It requires at least 6 mentions of the
  twelve operators that it advertises. A structure is a pair of square brackets, `?` with `:`, or an x with a number
  after it. Loops are written `* 2`, so they do not count.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from agentgym_flow.core import check_positive
from agentgym_flow.errors import BadData, BadSetting, UnknownOption

Profile = Literal["executed", "paper", "upstream"]
"""The parts that count: those that affected the result, all written ones, or those that the released code finds."""
Release = Literal["conditional", "always", "answer_first"]
"""When correctness counts: for complete designs, for all designs, or in place of the design."""
Cost = Literal["calls", "total_calls", "tokens", "cost"]
"""The unit of a cost: calls of the last run, calls of all runs, tokens, or the executor's unit of money."""

PARTS = ("checker", "format", "operator", "structure")
"""The parts of a design."""
WEIGHTS: Mapping[str, float] = {"checker": 0.2, "format": 0.2, "operator": 0.2, "structure": 0.4}
"""The published weights."""
EQUAL_WEIGHTS: Mapping[str, float] = dict.fromkeys(PARTS, 0.25)
"""The weights of a published ablation (and of a draft of the paper)."""
CHECKER_WEIGHTS: Mapping[str, float] = {"checker": 0.4, "format": 0.2, "operator": 0.2, "structure": 0.2}
"""The weights of another published ablation."""
CHECKERS = ("Verify", "Test", "Review")
"""The operators that check, if a workflow does not name them."""
FORMATTER = "Format"
"""The operator that formats an answer, if a workflow does not name it."""
MIN_OPERATORS: Mapping[str, int] = {"executed": 5, "paper": 5, "upstream": 6}
"""Profile -> the number of operators that is enough."""
RELEASE: Mapping[str, Release] = {"executed": "answer_first", "paper": "conditional", "upstream": "conditional"}
"""Profile -> when correctness counts."""

WORKFLOW = "workflow"
"""The key of `info` with the workflow."""
ABLATION = "ablation"
"""The key of `info` with the parts of the workflow that the result needs; present on request."""

_COUNTED = (
    "Plan", "Decompose", "Programmer", "Custom", "AnswerGenerate", "Test", "Review", "Verify", "Revise", "ScEnsemble",
    "Aggregate", "Format",
)  # fmt: skip
_MENTION = re.compile(rf"\b(?:{'|'.join(_COUNTED)})\b", re.ASCII)
_TIMES = re.compile(r"x\s*[0-9]+", re.ASCII)
_DIGITS = 12  # equal weights summed in another order must give equal rewards


class StructureScore:
    """The structure reward with its checked settings.

    Args:
        profile: `"executed"`, `"paper"` or `"upstream"`.
        weights: part -> weight, for all of `PARTS`; at least 0. By default the published weights.
        min_operators: the number of operators that is enough; by default 6 for `"upstream"` and 5 for the others.
        diversity: False ignores the design (an ablation): R = -1 + c, for any `release`.
        release: `"conditional"` as above, `"always"` for R = -1 + S + c (another ablation), or `"answer_first"`; by
            default that of the profile.
        checkers: the names of operators that check. None for those that the workflow names in `meets`, or for
            `CHECKERS` if it names none.
        formatter: the name of the operator that formats an answer. None for the one in `meets`, or for `FORMATTER`.
        cost_weight: subtracted from R per unit of `cost_of`; only for `"executed"`. A complete design can then get
            less than 0.
        cost_of: `"calls"`, `"total_calls"`, `"tokens"` or `"cost"`.

    Raises:
        UnknownOption: a word or a part in `weights` is unknown.
        BadSetting: a number is out of its range, a weight is missing, or a cost is given for another profile.
    """

    def __init__(
        self,
        profile: Profile = "executed",
        *,
        weights: Mapping[str, float] | None = None,
        min_operators: int | None = None,
        diversity: bool = True,
        release: Release | None = None,
        checkers: Sequence[str] | None = None,
        formatter: str | None = None,
        cost_weight: float = 0.0,
        cost_of: Cost = "calls",
    ) -> None:
        for word, known in ((profile, Profile), (release, Release), (cost_of, Cost)):
            if word is not None and word not in get_args(known):
                raise UnknownOption.among(word, get_args(known))
        if not (math.isfinite(cost_weight) and cost_weight >= 0):
            raise BadSetting(f"cost_weight must be a finite number, at least 0, got {cost_weight!r}")
        if cost_weight and profile != "executed":
            raise BadSetting(f"cost_weight belongs to profile executed: leave it at 0 for profile {profile}")
        if isinstance(checkers, str) or (checkers is not None and not checkers):
            raise BadSetting(f"checkers must be a list of names, got {checkers!r}")
        self.profile = profile
        self.weights = _checked(WEIGHTS if weights is None else weights)
        enough = MIN_OPERATORS[profile] if min_operators is None else min_operators
        self.min_operators = check_positive("min_operators", enough)
        self.diversity = diversity
        self.release = RELEASE[profile] if release is None else release
        self.checkers = None if checkers is None else tuple(checkers)
        self.formatters = None if formatter is None else (formatter,)
        self.cost_weight = cost_weight
        self.cost_of = cost_of

    @property
    def reads(self) -> tuple[str, ...]:
        """The keys of `info` that the reward needs; a recorder must keep them."""
        return (WORKFLOW, ABLATION) if self.profile == "executed" else (WORKFLOW,)

    def parts(self, workflow: Mapping[str, Any]) -> dict[str, bool]:
        """Return whether the design has each of `PARTS`, in this order.

        Raises `BadData` if `workflow` lacks a field that the profile needs.
        """
        names = self._names(workflow)
        meets = {} if self.profile == "upstream" else workflow.get("meets", {})
        checkers = self.checkers or meets.get("checker", CHECKERS)
        formatters = self.formatters or meets.get("format", (FORMATTER,))
        found = (
            any(name in checkers for name in names),
            any(name in formatters for name in names),
            len(names) >= self.min_operators,
            self._has_structure(workflow),
        )
        return dict(zip(PARTS, found, strict=True))

    def design(self, workflow: Mapping[str, Any]) -> float:
        """Return S, in [0, 1]. Raises the errors of `parts`."""
        worth = math.fsum(self.weights[part] for part, there in self.parts(workflow).items() if there)
        return min(1.0, round(worth, _DIGITS))

    def reward(self, workflow: Mapping[str, Any], correctness: float) -> float:
        """Return R of an episode that ends with `workflow` and an answer of this correctness, in [0, 1].

        In the profile `executed`, unfinished designs have correctness 0. Raises the errors of `parts`.
        """
        design = self.design(workflow) if self.diversity else 0.0
        if self.profile == "executed" and not _field(workflow, "finished"):
            correctness = 0.0
        if self.diversity and self.release == "answer_first":
            worth = correctness + (1.0 - correctness) * (design - 1.0)
        else:
            released = not self.diversity or self.release == "always" or design >= 1.0
            worth = -1.0 + design + (correctness if released else 0.0)
        cost = self.cost_weight * float(_field(workflow, self.cost_of)) if self.cost_weight else 0.0
        return round(worth - cost, _DIGITS)

    def _names(self, workflow: Mapping[str, Any]) -> list[str]:
        """Return the names of the operators that count."""
        if self.profile == "upstream":
            return _MENTION.findall(_field(workflow, "text"))
        if self.profile == "paper":
            return list(_field(workflow, "operators"))
        return list(_field(_field(workflow, ABLATION), "needed"))

    def _has_structure(self, workflow: Mapping[str, Any]) -> bool:
        if self.profile == "upstream":
            text = _field(workflow, "text")
            pairs = ("[" in text and "]" in text) or ("?" in text and ":" in text)
            return pairs or _TIMES.search(text) is not None
        told = workflow if self.profile == "paper" else _field(workflow, ABLATION)
        structures = _field(told, "structures")
        return any(count > 0 for count in structures.values())


def _checked(weights: Mapping[str, float]) -> dict[str, float]:
    for part in weights:
        if part not in PARTS:
            raise UnknownOption.among(part, PARTS, "These are the parts of a design.")
    for part in PARTS:
        if part not in weights:
            raise BadSetting(f"weights has no {part!r}: name all of {', '.join(PARTS)}")
        if not (math.isfinite(weights[part]) and weights[part] >= 0):
            raise BadSetting(f"the weight of {part!r} must be a finite number, at least 0, got {weights[part]!r}")
    return {part: float(weights[part]) for part in PARTS}


def _field(workflow: Mapping[str, Any], name: str) -> Any:
    if name not in workflow:
        asking = f"; ask for it: EpisodeRecorder(env, keep=['{WORKFLOW}', '{ABLATION}'])" if name == ABLATION else ""
        raise BadData(f"the workflow in info has no {name!r}, which the structure reward reads{asking}")
    return workflow[name]
