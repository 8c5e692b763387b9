"""What the design of a workflow is worth: the structure reward of FlowSteer (2026) in three readings. Pure functions.

An episode that ends with a workflow of design S and an answer of correctness c, both in [0, 1], is worth

    R = -1 + S + c * [S >= 1]

so a design that lacks something is worth less than 0 whatever it answers, and one that lacks nothing at least 0. S is
the sum of the weights of the parts that are there: a checker, a formatter, enough operators, a structure (branches in
parallel, a conditional or a loop). What counts as being there is the profile's business:

- `executed`: what the answer needed: an operator counts when leaving it out would have changed the result. So a
  design cannot be padded. But hardly any answer needs all four parts at once, and the formula above would never look
  at c. So a right answer lacks nothing here, and S is for what is not right (`release="answer_first"`):

      R = c + (1 - c) * (S - 1)

  A mistake that is made only to be mended earns nothing more. Only a finished design has its correctness counted.
- `paper`: what the workflow says, at any depth; at least 5 operators.
- `upstream`: as the released code reads the text of the workflow: at least 6 mentions of the twelve operators it
  advertises, and a structure is a pair of square brackets, `?` with `:`, or an x with a number after it. Loops are
  written `* 2`, so they are none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from agentgym_flow.core import check_positive
from agentgym_flow.errors import BadData, BadSetting, UnknownOption

Profile = Literal["executed", "paper", "upstream"]
"""What counts as part of a design: what ran and mattered, what is written, or what the released code reads."""
Release = Literal["conditional", "always", "answer_first"]
"""When correctness counts: for designs that lack nothing, for all, or in place of the design."""
Cost = Literal["calls", "total_calls", "tokens", "cost"]
"""What a cost is taken per: calls of the last run, calls of all runs, tokens, or the executor's own unit of money."""

PARTS = ("checker", "format", "operator", "structure")
"""The parts of a design."""
WEIGHTS: Mapping[str, float] = {"checker": 0.2, "format": 0.2, "operator": 0.2, "structure": 0.4}
"""The published weights."""
EQUAL_WEIGHTS: Mapping[str, float] = dict.fromkeys(PARTS, 0.25)
"""The weights of a reported ablation (and of a draft of the paper)."""
CHECKER_WEIGHTS: Mapping[str, float] = {"checker": 0.4, "format": 0.2, "operator": 0.2, "structure": 0.2}
"""The weights of another one."""
CHECKERS = ("Verify", "Test", "Review")
"""The operators that check, where a workflow does not say which do."""
FORMATTER = "Format"
"""The operator that formats an answer, where a workflow does not say which do."""
MIN_OPERATORS: Mapping[str, int] = {"executed": 5, "paper": 5, "upstream": 6}
"""Profile -> how many operators are enough."""
RELEASE: Mapping[str, Release] = {"executed": "answer_first", "paper": "conditional", "upstream": "conditional"}
"""Profile -> when correctness counts."""

WORKFLOW = "workflow"
"""The key of `info` under which an environment tells its workflow."""
ABLATION = "ablation"
"""The key of `info` under which an environment tells, when asked for it, what the result needs of the workflow."""

_COUNTED = (
    "Plan", "Decompose", "Programmer", "Custom", "AnswerGenerate", "Test", "Review", "Verify", "Revise", "ScEnsemble",
    "Aggregate", "Format",
)  # fmt: skip
_MENTION = re.compile(rf"\b(?:{'|'.join(_COUNTED)})\b", re.ASCII)
_TIMES = re.compile(r"x\s*[0-9]+", re.ASCII)
_DIGITS = 12  # sums of the same weights in another order must be equal, or groups seem to differ


class StructureScore:
    """The settings of the structure reward, checked, and the reward itself.

    Args:
        profile: `"executed"`, `"paper"` or `"upstream"`.
        weights: part -> weight, for all of `PARTS`; at least 0. The published ones by default.
        min_operators: how many operators are enough; 6 for `"upstream"` and 5 for the others by default.
        diversity: False leaves the design out (an ablation): R = -1 + c, whatever `release` says.
        release: `"conditional"` as above, `"always"` for R = -1 + S + c (another ablation), or `"answer_first"`; that
            of the profile by default.
        checkers: the names of the operators that check. None: those that the workflow names in `meets`, or `CHECKERS`
            where it names none.
        formatter: the name of the operator that formats an answer. None: likewise, or `FORMATTER`.
        cost_weight: taken from R per unit of `cost_of`; only for `"executed"`. With it a design that lacks nothing may
            be worth less than 0.
        cost_of: `"calls"`, `"total_calls"`, `"tokens"` or `"cost"`.

    Raises:
        UnknownOption: a word is none of these, or `weights` names another part.
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
        """The keys of `info` that it reads; a recorder has to keep them."""
        return (WORKFLOW, ABLATION) if self.profile == "executed" else (WORKFLOW,)

    def parts(self, workflow: Mapping[str, Any]) -> dict[str, bool]:
        """Return which parts the design has, in the order of `PARTS`.

        Raises `BadData` when `workflow` lacks a field that the profile reads.
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
        """Return S, in [0, 1]. Raises what `parts` raises."""
        worth = math.fsum(self.weights[part] for part, there in self.parts(workflow).items() if there)
        return min(1.0, round(worth, _DIGITS))

    def reward(self, workflow: Mapping[str, Any], correctness: float) -> float:
        """Return R of an episode that ends with `workflow` and an answer of this correctness, in [0, 1].

        In the profile `executed` the correctness of a design that is not finished does not count. Raises what `parts`
        raises.
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
        """Return the operators that count."""
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
