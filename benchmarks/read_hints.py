"""Does a language model follow a hint? It plays test tasks without one, and with one in its first prompt.

    python benchmarks/read_hints.py FOLDER [--env Search-v0] [--env-kwargs JSON] [--episodes 70] [--dtype bfloat16]

FOLDER is a model that plays in conversations, such as `warm_start` or `checkpoint` of a run. A hint is worded as that
of `opsd_hint: expert`. It has the expert's solution of the task itself, or as a control that of the task before it: a
model that reads hints does what they say, and fails. Answers are greedy. The table has success, and how many episodes
did in their first and in their last turn what the hint says.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentgym_flow.envs.text_arguments import full_id
from agentgym_flow.episodes import Episode
from agentgym_flow.errors import BadSetting
from agentgym_flow.play import evaluate
from agentgym_flow.policies import ExpertPolicy
from agentgym_flow.prompts import CONVERSATION, Message, PromptContext, PromptTemplate
from agentgym_flow.training.local_policy import local_policy
from agentgym_flow.training.self_distillation import EXPERT, Hinted, hint_of


@dataclass(frozen=True)
class WithHints:
    """A prompt template with a hint in the first prompt of each episode.

    Attributes:
        template: the prompt template.
        solutions: by key of a task, the actions that its hint lists.
    """

    template: PromptTemplate
    solutions: Mapping[str, Sequence[str]]

    def _hinted(self, policy_input: PromptContext) -> Hinted:
        return Hinted(self.template, hint_of(EXPERT, self.solutions[policy_input.info["task_key"]]))

    def prompt(self, policy_input: PromptContext) -> str:
        """Return the prompt as one text."""
        return self._hinted(policy_input).prompt(policy_input)

    def messages(self, policy_input: PromptContext) -> list[Message]:
        """Return the prompt as a chat."""
        return self._hinted(policy_input).messages(policy_input)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.template, name)


def followed(episodes: Sequence[Episode], solutions: Mapping[str, Sequence[str]], turn: int) -> int:
    """Return how many episodes did in this turn, 0 or -1, what the solution of their task says."""
    return sum(one.turns[turn].action == solutions[one.task_key][turn] for one in episodes)


def main() -> None:
    """Play all three ways, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("folder")
    parser.add_argument("--env", default="Search-v0", type=full_id)
    parser.add_argument("--env-kwargs", default={}, type=json.loads, metavar="JSON")
    parser.add_argument("--episodes", default=70, type=int)
    parser.add_argument("--dtype", default="bfloat16")
    chosen = parser.parse_args()
    plays: dict[str, Any] = {"env_kwargs": chosen.env_kwargs, "num_episodes": chosen.episodes}
    _, solved = evaluate(ExpertPolicy(), chosen.env, **plays)
    actions = [[turn.action for turn in one.turns] for one in solved]
    keys = [one.task_key for one in solved]
    hints = {
        "its solution": dict(zip(keys, actions, strict=True)),
        "the solution of another task": dict(zip(keys, actions[-1:] + actions[:-1], strict=True)),
    }
    policy = local_policy(chosen.folder, chosen.env, greedy=True, dtype=chosen.dtype)
    if policy.conversation is None:
        raise BadSetting(f"{chosen.folder} plays in layout turn, and these hints are for layout {CONVERSATION}")
    template = policy.template
    print("| Hint | Success | First action as hinted | Last action as hinted |\n|---|---|---|---|")
    for name in ("none", *hints):
        said = hints.get(name, hints["its solution"])
        policy.template = template if name == "none" else WithHints(template, said)  # type: ignore[assignment]
        result, episodes = evaluate(policy, chosen.env, **plays)
        first, last = followed(episodes, said, 0), followed(episodes, said, -1)
        print(f"| {name} | {result.success:.1%} | {first} of {len(episodes)} | {last} of {len(episodes)} |", flush=True)


if __name__ == "__main__":
    main()
