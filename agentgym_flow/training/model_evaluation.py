"""Evaluate a model on held-out tasks, sampled and greedy, with logs, and optionally on further tasks.

Each process plays its share of the tasks. The main process gathers the episodes and writes the log, which does not
depend on the number of processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from agentgym_flow.core import SPLITS
from agentgym_flow.envs import make_text_env, text_env_class
from agentgym_flow.episodes import Episode, LogWriter, read_log
from agentgym_flow.errors import BadData
from agentgym_flow.generation import Generator
from agentgym_flow.play import Evaluation, LiveSuccess, Play, play_split
from agentgym_flow.prompts import PromptTemplate
from agentgym_flow.replay import LogVerdict, verify_log
from agentgym_flow.training.policy import model_policy, transformers_generator
from agentgym_flow.training.processes import Processes

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from agentgym_flow.training.config import AgentConfig
    from agentgym_flow.training.run_config import RunConfig


@dataclass(frozen=True, slots=True)
class EvaluationRun:
    """One evaluation with its episodes and the path of its log."""

    evaluation: Evaluation
    episodes: list[Episode]
    log: Path

    @property
    def success(self) -> float:
        """The success rate."""
        return self.evaluation.success

    @property
    def figures(self) -> dict[str, float]:
        """The means of the environment's `EnvCard.end_figures` over the episodes."""
        end_figures = text_env_class(self.evaluation.env_id).card.end_figures
        ends = [end_figures(episode.turns[-1].next_observation) for episode in self.episodes if episode.turns]
        return {name: sum(end[name] for end in ends) / len(ends) for name in (ends[0] if ends else ())}

    def as_dict(self) -> dict[str, Any]:
        """Return all figures as plain data."""
        figures = self.figures
        return self.evaluation.as_dict() | ({"figures": figures} if figures else {})


@dataclass(frozen=True, slots=True)
class ModelEvaluation:
    """The evaluations of a model at one time.

    Attributes:
        sampled: held-out tasks, with actions sampled at the training temperature.
        greedy: the same tasks, with the most likely actions.
        also_on: further tasks, sampled, by their name in the settings.
    """

    sampled: EvaluationRun
    greedy: EvaluationRun
    also_on: Mapping[str, EvaluationRun]

    @property
    def parts(self) -> list[EvaluationRun]:
        """All evaluations."""
        return [self.sampled, self.greedy, *self.also_on.values()]

    def as_dict(self) -> dict[str, Any]:
        """Return all figures as plain data."""
        figures = {"sampled": self.sampled.as_dict(), "greedy": self.greedy.as_dict()}
        also_on = {name: part.as_dict() for name, part in self.also_on.items()}
        return figures | ({"also_on": also_on} if also_on else {})


class ModelEvaluator:
    """Evaluates a model during a run.

    Args:
        run: the environment, numbers of episodes, and further tasks.
        agent: the temperature and the longest answer.
        model: the model.
        tokenizer: the model's tokenizer.
        template: the prompt template.
        folder: the folder of the logs.
        processes: the processes that share the episodes; None: created here.
        generator: the backend that samples; callers update its weights before every evaluation. None: Transformers.
        console: shows the progress of evaluations; None: nothing is shown.

    Attributes:
        held_out: whether the evaluation tasks differ from those of training.

    Raises:
        BadSetting, UnknownOption: a setting of the environment is invalid.
        BadData: the data has no split to evaluate on.
        UnknownData: the data is neither a path nor registered.
    """

    def __init__(
        self,
        run: RunConfig,
        agent: AgentConfig,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        template: PromptTemplate,
        folder: Path,
        processes: Processes | None = None,
        generator: Generator | None = None,
        console: Console | None = None,
    ) -> None:
        self._also_on = {name: _with_split(run.env_id, kwargs) for name, kwargs in run.also_settings.items()}
        self.held_out = _held_out(run)
        self._run, self._agent = run, agent
        self._model, self._tokenizer, self._template = model, tokenizer, template
        self._folder = folder
        self._processes = processes or Processes()
        self._generator = generator
        self._console = console or Console(quiet=True)

    def evaluate(self, moment: str, split: str = "test") -> ModelEvaluation | None:
        """Play the tasks of `split` sampled and greedy, and further tasks sampled; log names begin with `moment`.

        All processes must call this; the main process gets the result, the others None.
        """
        kwargs, count = self._run.env_settings, self._run.eval_episodes
        sampled = self._play(f"{moment}_sampled", kwargs, count, greedy=False, split=split)
        greedy = self._play(f"{moment}_greedy", kwargs, count, greedy=True, split=split)
        also_on: dict[str, EvaluationRun | None] = {}
        for name, further in self._also_on.items():
            others = {key: value for key, value in further.items() if key != "split"}
            log, count = f"{moment}_{name}", self._run.also_on_episodes
            also_on[name] = self._play(log, others, count, greedy=False, split=further["split"])
        if sampled is None or greedy is None:
            return None
        return ModelEvaluation(sampled, greedy, {name: part for name, part in also_on.items() if part is not None})

    def validate(self, episodes: int) -> float:
        """Return the sampled success rate on the first `episodes` validation tasks; all processes must call this."""
        play, _ = self._plan("validation", self._run.env_settings, episodes, "valid", self._generator)
        return self._processes.on_main_process(partial(_success, self._gathered(play) or []))

    def validate_on_main_process(self, episodes: int) -> float:
        """Return the same, played by this process alone with Transformers, so that weights may change between calls."""
        return _success(self.play_on_main_process("valid", episodes))

    def play_on_main_process(self, split: str, episodes: int, share: slice = slice(None)) -> list[Episode]:
        """Play `share` of the first `episodes` tasks of a split, sampled, as `validate_on_main_process` does."""
        play, _ = self._plan("validation", self._run.env_settings, episodes, split)
        return play_split(replace(play, share=share))

    def verify(self, log: Path) -> LogVerdict:
        """Replay every episode of a log."""
        return verify_log(log, self._data, jobs=0)

    @property
    def _data(self) -> dict[str, Path]:
        used = [kwargs.get("data") for kwargs in (self._run.env_settings, *self._also_on.values())]
        return {data.name: data.path for data in used if data is not None}

    def _read(self, log: Path) -> list[Episode]:
        # Logs do not contain observations, so episodes are replayed. A log that fails verification is ignored.
        episodes: list[Episode | None] = []
        ok = verify_log(log, self._data, lambda _, episode: episodes.append(episode), jobs=0).ok
        read = [episode for episode in episodes if episode is not None] if ok else []
        for episode, logged in zip(read, read_log(log) if ok else (), strict=True):
            logged.add_remarks(episode)
        return read

    def _plan(
        self,
        name: str,
        kwargs: Mapping[str, Any],
        count: int,
        split: str,
        generator: Generator | None = None,
        *,
        greedy: bool = False,
    ) -> tuple[Play, int]:
        """Return what to play, the first `count` tasks of a split or all if they are fewer, and the number of tasks."""
        with closing(make_text_env(self._run.env_id, **kwargs, split=split)) as env:
            tasks = len(env.drawn_tasks)
        made_with = self._agent, self._model, self._tokenizer
        generator = generator or transformers_generator(*made_with)
        policy = model_policy(*made_with, self._template, generator=generator, name=name, greedy=greedy)
        env_id, num_envs = self._run.env_id, self._agent.num_envs
        return Play(policy, env_id, split, min(count, tasks), env_kwargs=kwargs, num_envs=num_envs), tasks

    def _play(
        self, name: str, kwargs: Mapping[str, Any], count: int, *, greedy: bool, split: str
    ) -> EvaluationRun | None:
        log = self._folder / f"{name}.jsonl.gz"
        play, tasks = self._plan(name, kwargs, count, split, self._generator, greedy=greedy)
        count = min(count, tasks)
        done: list[Episode] = []  # played before a killed run was resumed

        def is_done() -> bool:
            if log.exists():
                done.extend(self._read(log))
            return len(done) == count

        if self._processes.on_main_process(is_done):
            return EvaluationRun(Evaluation.of(done, name, tasks), done, log) if done else None
        own = len(range(self._processes.rank, count, self._processes.count))
        what = f"Evaluating {name.replace('_', ' training, ', 1)}"
        with LiveSuccess(self._console, what, own, parallel=play.num_envs) as progress:
            episodes = self._gathered(replace(play, on_episode=progress.add))
        if episodes is None:
            return None
        with LogWriter(log, replace=True) as writer:  # replaces that of a killed run
            for episode in episodes:
                writer.write(episode)
        return EvaluationRun(Evaluation.of(episodes, name, tasks), episodes, log)

    def _gathered(self, play: Play) -> list[Episode] | None:
        """Play in all processes, each its share; return the ordered episodes in the main one."""
        rank, ranks = self._processes.rank, self._processes.count
        shares = self._processes.gather(partial(play_split, replace(play, share=slice(rank, None, ranks))))
        if shares is None:
            return None
        episodes: list[Episode | None] = [None] * sum(map(len, shares))
        for number, played in enumerate(shares):
            episodes[number::ranks] = played
        return [episode for episode in episodes if episode is not None]


def _success(episodes: Sequence[Episode]) -> float:
    return sum(episode.success for episode in episodes) / len(episodes)


def _with_split(env_id: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Add the split to evaluate on to the arguments: their own, or `test`, or else `valid`.

    Raises `BadData` if the data has neither, and what the environment's constructor raises.
    """
    if "split" in kwargs:
        return dict(kwargs)
    problems = []
    for split in ("test", "valid"):
        try:
            make_text_env(env_id, **kwargs, split=split).close()
        except BadData as error:
            problems.append(str(error))
        else:
            return {**kwargs, "split": split}
    raise BadData(f"also_on: the data has no tasks to evaluate on. {problems[0]}")


def _held_out(run: RunConfig) -> bool:
    """Return whether the splits have different tasks; data on disk may share them. Raises if a split is missing."""
    keys = set()
    for split in SPLITS:
        with closing(run.make_env(split)) as env:
            env.reset(seed=0, options={"task": 0})
            keys.add(env.task_key)
    return len(keys) == len(SPLITS)


def problems(evaluator: ModelEvaluator, evaluations: Sequence[ModelEvaluation]) -> list[str]:
    """Verify every log of `evaluations`; return one sentence per problem."""
    found = []
    for part in (part for evaluation in evaluations for part in evaluation.parts):
        verdict = evaluator.verify(part.log)
        found += [f"{part.log.name}: {problem}" for problem in verdict.problems()]
    return found
