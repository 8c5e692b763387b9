"""Evaluate policies that share episodes, each trained by a run of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml  # type: ignore[import-untyped]

from agentgym_flow.dataflow.run import POLICY, SETTINGS
from agentgym_flow.dataflow.stage import turn_router
from agentgym_flow.episodes import Episode
from agentgym_flow.errors import BadSetting
from agentgym_flow.play import Evaluation, evaluation
from agentgym_flow.policies import PolicyInput, PolicyOutput
from agentgym_flow.training.chat_template import checked_date, write_date, write_settings
from agentgym_flow.training.config import Configs
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.models import load_model
from agentgym_flow.training.policy import ModelPolicy, transformers_generator
from agentgym_flow.training.run_config import mapping, template_of
from agentgym_flow.training.run_folder import CONFIG, VOCABULARY

BEFORE, AFTER = MOMENTS = ("before", "after")
"""With the weights before and after training."""


@dataclass(frozen=True)
class TeamMember:
    """A run that trained one policy of a team.

    Attributes:
        path: its folder.
        policy: the name of the policy.
        turns: the policy that acts in each turn.
        configs: its settings.
    """

    path: Path
    policy: str
    turns: tuple[str, ...]
    configs: Configs

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the run in a folder. Raises `BadSetting` if it did not train a policy of a team."""
        try:
            flow: Any = yaml.safe_load((path / SETTINGS).read_text("utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise BadSetting(f"{path} is not a run with a dataflow ({error})") from error
        if not isinstance(flow, dict) or len(set(flow.get("turns") or ())) < 2 or POLICY not in flow:
            raise BadSetting(f"{path} trained a policy that does not share its episodes: see its report")
        return cls(path, flow[POLICY], tuple(flow["turns"]), parse_configs(["--config", str(path / CONFIG)]))

    def model_at(self, moment: str) -> str:
        """Return the path of the weights at one of `MOMENTS`. Raises `BadSetting` if they do not exist yet."""
        if moment == BEFORE:
            cloned = self.path / "warm_start"
            return str(cloned) if cloned.is_dir() else self.configs[0].model
        if not (self.path / "checkpoint").is_dir():
            raise BadSetting(f"{self.path} has no checkpoint yet: wait for its end, or resume it")
        return str(self.path / "checkpoint")


class Team:
    """Policies that share episodes.

    Args:
        runs: the folders of the runs, one for each policy.

    Raises:
        BadSetting: a policy is missing or occurs twice, or the runs differ in turns or environment.
    """

    def __init__(self, runs: Sequence[Path]) -> None:
        self.members = [TeamMember.read(Path(run)) for run in runs]
        first = self.members[0]
        for other in self.members[1:]:
            for what, own, found in (
                ("order of turns", first.turns, other.turns),
                ("environment", _environment(first), _environment(other)),
            ):
                if own != found:
                    raise BadSetting(f"{other.path} has a different {what} from {first.path}: give runs of one team")
        names = [member.policy for member in self.members]
        if sorted(names) != sorted(set(first.turns)):
            raise BadSetting(
                f"the turns belong to {', '.join(dict.fromkeys(first.turns))}, but the runs trained "
                f"{', '.join(names)}: give one run for each"
            )

    def evaluate(
        self,
        moment: str,
        *,
        greedy: bool,
        num_episodes: int | None = None,
        log: Path | None = None,
        on_episode: Callable[[Episode], None] | None = None,
    ) -> tuple[Evaluation, list[Episode]]:
        """Play the test tasks, and return the evaluation and the episodes.

        Args:
            moment: one of `MOMENTS`.
            greedy: take the most likely token instead of sampling.
            num_episodes: how many tasks to play, from the first on; None for all.
            log: where to write the episode log; an existing one is replaced.
            on_episode: called with every finished episode.

        Raises:
            BadSetting: there are no such weights, or fewer tasks.
        """
        name = f"{moment}_{'greedy' if greedy else 'sampled'}"
        run, _, agent = self.members[0].configs
        return evaluation.evaluate(
            _TeamPolicy(name, self.members, moment, greedy=greedy),
            run.env_id,
            num_episodes=num_episodes,
            env_kwargs=run.env_settings,
            num_envs=agent.num_envs,
            log=log,
            replace=True,
            on_episode=on_episode,
        )


def _environment(member: TeamMember) -> tuple[str, Mapping[str, Any]]:
    run = member.configs[0]
    return run.env_id, run.env_settings


class _TeamPolicy:
    """The policies of a team as one policy. Outputs carry the name of the policy that acted."""

    def __init__(self, name: str, members: Sequence[TeamMember], moment: str, *, greedy: bool) -> None:
        self.name = name
        self._route = turn_router(members[0].turns)
        self._policies = {member.policy: _policy(member, moment, greedy=greedy) for member in members}

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        names = [self._route(policy_input) for policy_input in inputs]
        outputs: dict[int, PolicyOutput] = {}
        for name, policy in self._policies.items():
            places = [place for place, own in enumerate(names) if own == name]
            if not places:
                continue
            for place, output in zip(places, policy.act([inputs[place] for place in places]), strict=True):
                output.policy = name
                outputs[place] = output
        return [outputs[place] for place in range(len(inputs))]


def _policy(member: TeamMember, moment: str, *, greedy: bool) -> ModelPolicy:
    run, _, agent = member.configs
    template = template_of(run, member.path / VOCABULARY)
    model, tokenizer = load_model(
        member.model_at(moment), template, seed=agent.seed, dtype=run.dtype, chat_template=run.chat_template
    )
    write_settings(tokenizer, mapping("chat_template_kwargs", agent.chat_template_kwargs))
    write_date(tokenizer, checked_date(agent.date))
    model.eval()
    return ModelPolicy(
        model,
        tokenizer,
        template,
        generator=transformers_generator(agent, model, tokenizer),
        temperature=agent.temperature,
        greedy=greedy,
        max_new_tokens=agent.max_completion_length or 1,
        layout=agent.layout,
        name=member.policy,
    )
