"""Evaluate a model: the same held-out tasks every time, sampled and greedy, with logs; and real Boxoban levels.

Of several processes each plays its share of the tasks. The main process gathers the episodes and writes the log that
one process alone would write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentgym_flow.core import SPLITS
from agentgym_flow.data import DataSet, resolve
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.sokoban.prompt import BOX_ON_TARGET
from agentgym_flow.envs.sokoban.source import ENV_ID as SOKOBAN
from agentgym_flow.envs.sokoban.source import levels_per_split
from agentgym_flow.episode import Episode
from agentgym_flow.episode_log import LogWriter, read_log
from agentgym_flow.errors import BadData, BadSetting
from agentgym_flow.evaluation import Evaluation
from agentgym_flow.generation import Generator
from agentgym_flow.play_split import play_split
from agentgym_flow.policies import AsyncPolicy, Policy
from agentgym_flow.prompts import Profile
from agentgym_flow.replay import Verdict, verify_log
from agentgym_flow.training.generators import transformers_generator
from agentgym_flow.training.policy import model_policy
from agentgym_flow.training.processes import Together

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from agentgym_flow.training.config import AgentConfig
    from agentgym_flow.training.run_config import RunConfig


@dataclass(frozen=True, slots=True)
class Examined:
    """One evaluation with what it played and where the log is."""

    evaluation: Evaluation
    episodes: list[Episode]
    log: Path

    @property
    def success(self) -> float:
        """The share of tasks achieved."""
        return self.evaluation.success

    @property
    def boxes_on_target(self) -> float:
        """For Sokoban: the mean number of boxes on targets in the last observation of an episode."""
        ends = [episode.turns[-1].next_observation for episode in self.episodes if episode.turns]
        return sum(end.count(BOX_ON_TARGET) for end in ends) / len(ends)


@dataclass(frozen=True, slots=True)
class Examination:
    """A model at one moment.

    Attributes:
        sampled: test tasks, actions drawn at the training temperature.
        greedy: the same tasks, the most likely action.
        boxoban: real Boxoban levels, sampled, of their split `test` or else `valid`; None when none were given.
    """

    sampled: Examined
    greedy: Examined
    boxoban: Examined | None

    @property
    def parts(self) -> list[Examined]:
        """Everything that was played."""
        return [part for part in (self.sampled, self.greedy, self.boxoban) if part is not None]

    def as_dict(self) -> dict[str, Any]:
        """Return all figures as plain data."""
        figures = {"sampled": self.sampled.evaluation.as_dict(), "greedy": self.greedy.evaluation.as_dict()}
        if self.boxoban is not None:
            on_target = self.boxoban.boxes_on_target
            figures["boxoban"] = {**self.boxoban.evaluation.as_dict(), "mean_boxes_on_target": on_target}
        return figures


class Examiner:
    """Evaluates a model while it changes.

    Args:
        run: which environment, how many episodes, which Boxoban levels.
        agent: the temperature and the longest answer.
        model: the model.
        tokenizer: of the model.
        profile: the prompt profile.
        folder: where the logs go.
        together: the processes that share the episodes; by default this one alone.
        generator: what runs the model; it is given the model's weights before every evaluation. None: Transformers.

    Attributes:
        held_out: whether the tasks examined are not those of training.

    Raises:
        BadSetting: Boxoban levels were given for another environment than Sokoban, or the data has no such split.
        BadData: they are levels to train on, or it is not clear which.
        UnknownData: they are neither a path nor registered.
    """

    def __init__(
        self,
        run: RunConfig,
        agent: AgentConfig,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        profile: Profile,
        folder: Path,
        together: Together | None = None,
        generator: Generator | None = None,
    ) -> None:
        if run.boxoban is not None and run.env_id != SOKOBAN:
            raise BadSetting(f"boxoban levels are for {SOKOBAN}, not for {run.env_id}: leave the setting out")
        self._boxoban = None if run.boxoban is None else resolve(run.boxoban)
        self._boxoban_split = "test" if self._boxoban is None else _split_to_play(self._boxoban)
        self.held_out = _held_out(run)
        self._run, self._agent = run, agent
        self._model, self._tokenizer, self._profile = model, tokenizer, profile
        self._folder = folder
        self._together = together or Together()
        self._generator = generator

    def examine(self, moment: str) -> Examination | None:
        """Play the test tasks sampled and greedy, and Boxoban levels sampled; the logs' names begin with `moment`.

        All processes must call this; the main process gets the result, the others None.
        """
        kwargs, count = self._run.env_settings, self._run.eval_episodes
        sampled = self._play(f"{moment}_sampled", kwargs, count, greedy=False)
        greedy = self._play(f"{moment}_greedy", kwargs, count, greedy=True)
        boxoban: Examined | None = None
        if self._boxoban is not None:
            levels = {"data": self._run.boxoban}
            count, split = self._run.boxoban_episodes, self._boxoban_split
            boxoban = self._play(f"{moment}_boxoban", levels, count, greedy=False, split=split)
        return None if sampled is None or greedy is None else Examination(sampled, greedy, boxoban)

    def validate(self, episodes: int) -> float:
        """Return the sampled success on the first `episodes` validation tasks; all processes must call this."""
        played = self._gathered("validation", self._run.env_settings, episodes, greedy=False, split="valid")
        return self._together.alone(lambda: _success(played or []))

    def validate_alone(self, episodes: int) -> float:
        """Return the same, played by this process alone and with Transformers: the weights may change at any time."""
        policy = self._policy("validation", None, greedy=False)
        return _success(self._share(policy, self._run.env_settings, episodes, slice(None), split="valid"))

    def _num_tasks(self, kwargs: Mapping[str, Any], split: str) -> int:
        with closing(make_text_env(self._run.env_id, **kwargs, split=split)) as env:
            return len(env.drawn_tasks)

    def verify(self, log: Path) -> Verdict:
        """Step every episode of a log again."""
        return verify_log(log, self._data, jobs=0)

    @property
    def _data(self) -> dict[str, Path]:
        return {data.name: data.path for data in (self._boxoban, self._run.data) if data is not None}

    def _read(self, log: Path) -> list[Episode]:
        # Lines do not hold observations, so the episodes are stepped again; none is taken from a log that is not true.
        episodes: list[Episode | None] = []
        ok = verify_log(log, self._data, lambda _, episode: episodes.append(episode), jobs=0).ok
        read = [episode for episode in episodes if episode is not None] if ok else []
        for episode, logged in zip(read, read_log(log) if ok else (), strict=True):
            logged.add_remarks(episode)
        return read

    def _policy(self, name: str, generator: Generator | None, *, greedy: bool) -> Policy | AsyncPolicy:
        return model_policy(
            self._model,
            self._tokenizer,
            self._profile,
            generator=generator or transformers_generator(self._agent, self._model, self._tokenizer),
            temperature=self._agent.temperature,
            greedy=greedy,
            max_new_tokens=self._agent.max_completion_length or 1,
            layout=self._agent.layout,
            name=name,
        )

    def _play(
        self, name: str, kwargs: Mapping[str, Any], count: int, *, greedy: bool, split: str = "test"
    ) -> Examined | None:
        log = self._folder / f"{name}.jsonl.gz"
        tasks = self._num_tasks(kwargs, split)
        done: list[Episode] = []  # by a killed run that is resumed

        def is_done() -> bool:
            if log.exists():
                done.extend(self._read(log))
            return len(done) == min(count, tasks)

        if self._together.alone(is_done):
            return Examined(Evaluation.of(done, name, tasks), done, log) if done else None
        episodes = self._gathered(name, kwargs, count, greedy=greedy, split=split)
        if episodes is None:
            return None
        with LogWriter(log, replace=True) as writer:  # of a killed run
            for episode in episodes:
                writer.write(episode)
        return Examined(Evaluation.of(episodes, name, tasks), episodes, log)

    def _gathered(
        self, name: str, kwargs: Mapping[str, Any], count: int, *, greedy: bool, split: str
    ) -> list[Episode] | None:
        """Play the first `count` tasks of a split in all processes; return the episodes in the main one, in order."""
        rank, ranks = self._together.rank, self._together.count
        policy = self._policy(name, self._generator, greedy=greedy)
        share = partial(self._share, policy, kwargs, count, slice(rank, None, ranks), split=split)
        shares = self._together.gather(share)
        if shares is None:
            return None
        episodes: list[Episode | None] = [None] * sum(map(len, shares))
        for number, played in enumerate(shares):
            episodes[number::ranks] = played
        return [episode for episode in episodes if episode is not None]

    def _share(
        self, policy: Policy | AsyncPolicy, kwargs: Mapping[str, Any], count: int, share: slice, *, split: str
    ) -> list[Episode]:
        return play_split(
            policy,
            self._run.env_id,
            split=split,
            num_episodes=min(count, self._num_tasks(kwargs, split)),
            env_kwargs=kwargs,
            num_envs=self._agent.num_envs,
            share=share,
        )


def _success(episodes: Sequence[Episode]) -> float:
    return sum(episode.success for episode in episodes) / len(episodes)


def _split_to_play(levels: DataSet) -> str:
    """Return the split of Boxoban levels to evaluate on: `test`, or else `valid`. Raises `BadData` for neither."""
    has = levels_per_split(levels.path)
    found = next((split for split in ("test", "valid") if split in has), None)
    if found is None:
        raise BadData(f"{levels.path} has levels to train on only, by name: give --boxoban those of test or valid")
    return found


def _held_out(run: RunConfig) -> bool:
    """Return whether the splits differ: levels on disk may be the same in all of them. Raises where one is missing."""
    keys = set()
    for split in SPLITS:
        with closing(run.make_env(split)) as env:
            env.reset(seed=0, options={"task": 0})
            keys.add(env.task_key)
    return len(keys) == len(SPLITS)


def problems(examiner: Examiner, examinations: Sequence[Examination]) -> list[str]:
    """Verify every log of `examinations`; return one sentence per problem, none when all came out as logged."""
    found = []
    for part in (part for examination in examinations for part in examination.parts):
        verdict = examiner.verify(part.log)
        found += [f"{part.log.name}: {problem}" for problem in verdict.problems()]
    return found
