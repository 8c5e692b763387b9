"""Canvas as text: a task, edits of a workflow that is run after each of them, and a score when it is handed in."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from agentgym_flow.core import TextEnv, Transition
from agentgym_flow.data import DataSet
from agentgym_flow.envs.canvas.actions.kinds import Action, Delete, Finish
from agentgym_flow.envs.canvas.actions.reading import write_action
from agentgym_flow.envs.canvas.ahead import Ahead, take_ahead
from agentgym_flow.envs.canvas.assignment import Assignment
from agentgym_flow.envs.canvas.backends.replay import Recorder, Replay
from agentgym_flow.envs.canvas.calls import Backend
from agentgym_flow.envs.canvas.drafting import Turn
from agentgym_flow.envs.canvas.executors import executor_of
from agentgym_flow.envs.canvas.expert import next_action
from agentgym_flow.envs.canvas.proposals import prompts, proposals
from agentgym_flow.envs.canvas.session import Session
from agentgym_flow.envs.canvas.settings import drafting_of
from agentgym_flow.envs.canvas.source import tasks_of
from agentgym_flow.errors import BadSetting, ResetNeeded
from agentgym_flow.sandbox import default
from agentgym_flow.seeding import Stream

ENV_ID = "agentgym_flow/Canvas-v0"
"""The id of the environment."""

DEFAULT_MAX_STEPS = 20
"""Turns of an episode unless told otherwise, as published."""

TEMPLATES = (
    "<action>add</action><operator>{operator}</operator><prompt>{prompt}</prompt>",
    "<action>add</action><structure>parallel</structure><operators>{operators}</operators>",
    "<action>add</action><structure>conditional</structure><condition>{operator}</condition><true>{operators}</true>"
    "<false>{operators}</false>",
    "<action>add</action><structure>loop</structure><operators>{operators}</operators><count>{number}</count>",
    "<action>delete</action><target>{node}</target>",
    "<action>modify</action><target>{node}</target><operator>{operator}</operator><prompt>{prompt}</prompt>",
    "<action>set_prompt</action><target>{node}</target><prompt>{prompt}</prompt>",
    "<action>finish</action>",
)
"""The actions with what can be filled in."""


class CanvasEnv(TextEnv):
    """Canvas, played by a language model: design an agentic workflow for a task, edit by edit, and hand it in.

    TODO manual
    """

    env_id: ClassVar[str] = ENV_ID
    presentation_settings: ClassVar[frozenset[str]] = frozenset({"hints"})

    def __init__(
        self,
        *,
        data: str | os.PathLike[str] | DataSet | None = None,
        dataset: str | None = None,
        split: str = "train",
        family: str | None = None,
        executor: str | Backend = "simulated",
        model: str | None = None,
        base_url: str | None = None,
        executor_settings: Mapping[str, Any] | None = None,
        language: str = "full",
        operators: Sequence[str] | None = None,
        finish: str = "lax",
        prompting: str = "inline",
        strict: bool = False,
        hints: bool = True,
        max_steps: int = DEFAULT_MAX_STEPS,
        render_mode: str | None = None,
    ) -> None:
        self._drafting = drafting_of(language, operators, finish, prompting, strict)
        self._executor = executor_of(executor, model, base_url, executor_settings)
        self._tasks = tasks_of(data, dataset, split, family, simulated=self._executor.settled)
        super().__init__(
            split=split,
            max_steps=max_steps,
            settings={
                "dataset": self._tasks.dataset,
                "family": family,
                "executor": self._executor.name,
                "model": model,
                "executor_settings": dict(self._executor.settings),
                "language": language,
                "operators": None if operators is None else list(operators),
                "finish": finish,
                "prompting": prompting,
                "strict": strict,
                "hints": hints,
            },
            data=self._tasks.data,
            render_mode=render_mode,
        )
        self._hints = hints
        self._session: Session | None = None
        self._recorder: Recorder | None = None
        self._entry: list[Any] | None = None
        self._next_tape: Sequence[Any] | None = None
        self._ahead: Ahead | None = None

    @property
    def _sandbox(self) -> str:
        """The level of the sandbox in which programs are run; `"unused"` where none is."""
        return "unused" if self._executor.settled and not self._tasks.data else default().probe().level

    @property
    def num_tasks(self) -> int:
        """The number of tasks in this split."""
        return len(self._tasks)

    @property
    def session(self) -> Session:
        """The present episode. For looking at; `step` is the way to change it. `ResetNeeded` before the first."""
        if self._session is None:
            raise ResetNeeded("call reset() first: there is no episode yet")
        return self._session

    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        assignment = self._tasks[task]
        # The noise is part of the problem: another seed is another outcome of the same workflow.
        seed = noise.word()
        tape, self._next_tape = self._next_tape, None
        backend = self._backend(assignment, tape)
        problem = assignment.problem
        self.task_key = self.make_task_key([problem.key, problem.shown(), list(problem.answers), seed])
        self.goal = problem.shown()
        self._session = Session.of(
            assignment, self._drafting, backend, seed=seed, hints=self._hints, settled=self._executor.settled
        )
        self._entry = self._ahead = None
        return self._session.opening(self.max_steps)

    def _backend(self, assignment: Assignment, tape: Sequence[Any] | None) -> Backend:
        """Return what does the work in the next episode: the simulator, or a recorder before the executor or a tape."""
        self._recorder = None
        backend = self._executor.for_task(assignment) if tape is None else Replay(c for e in tape if e for c in e)
        if backend is None:
            raise BadSetting("executor='openai' needs base_url to ask a server; without it only tapes can be played")
        if self._executor.settled:
            return backend
        self._recorder = Recorder(backend)  # a tape is recorded again: it is part of what replay compares
        return self._recorder

    def _apply(self, action: str) -> Transition:
        ahead, self._ahead = self._ahead, None  # it is for this step or for none
        if ahead is not None and ahead.action == action:
            turn = ahead.turn()
            self._session, self._recorder = ahead.session, ahead.recorder
        else:
            turn = self._turn(action)
        session = self.session
        if self._recorder is not None:
            self._entry = self._recorder.take() or None
        reward = session.score if turn.finished else 0.0
        return Transition(session.feedback(self.max_steps - self.steps - 1), reward, turn.finished, turn.accepted)

    def _turn(self, action: str) -> Turn:
        try:
            return self.session.turn(action)
        except BaseException:
            if self._recorder is not None:
                self._recorder.drop()  # what an interrupted run left is of no step
            raise

    @classmethod
    def prepare_steps(cls, envs: Sequence[TextEnv], actions: Sequence[str]) -> None:
        """Run the workflows that the next steps of `envs` will run at the same time, where a real executor does.

        What a run raises is raised by its step.
        """
        waiting: list[CanvasEnv] = []
        starts: list[tuple[Session, Recorder, str]] = []
        for env, action in zip(envs, actions, strict=True):
            if isinstance(env, CanvasEnv) and env.playing and env._recorder is not None:
                waiting.append(env)
                starts.append((env.session, env._recorder, action))
        if len(waiting) > 1:
            for env, ahead in zip(waiting, take_ahead(starts), strict=True):
                env._ahead = ahead

    # ---------------------------------------------------------------- what an executor gave (the tape)
    @property
    def tape_entry(self) -> list[Any] | None:
        """The calls of operators that the last step made, with their results; None for the simulator."""
        return None if self._entry is None else copy.deepcopy(self._entry)

    def use_tape(self, entries: Sequence[Any] | None) -> None:
        """Take the results of the next episode's calls from `entries`, as `tape_entry` gave them.

        Raises `BadSetting` for the simulator, which needs none, and a tape that is not empty.
        """
        if self._executor.settled:
            super().use_tape(entries)
            return
        self._next_tape = None if entries is None else list(entries)

    # ---------------------------------------------------------------- state
    def state_key(self) -> str:
        """Return a digest of the workflow; with an executor that is not settled, also of what its run came to."""
        return self.session.state_key()

    def describe_state(self) -> str:
        """Return the task, the graph and the result, for a person to read."""
        return self.session.described()

    def score(self) -> float:
        """Return what the result handed in is worth; 0.0 before that."""
        return self.session.score

    def admissible_actions(self) -> list[str]:
        """Return the closed part of the language: `finish` where it is accepted, and the deletion of each node."""
        session = self.session
        if session.finished or session.draft.waiting is not None:
            return []
        workflow = session.draft.workflow
        actions = [Delete(f"node_{number}") for number in range(1, len(workflow.nodes) + 1)]
        return [self._written(action) for action in ([Finish()] if self._may_finish else []) + actions]

    def action_templates(self) -> list[str]:
        """Return the actions of the language with what can be filled in; a prompt where one is asked for."""
        if self.session.finished:
            return []
        return ["{prompt}"] if self.session.draft.waiting is not None else list(TEMPLATES)

    def candidates(self) -> list[str]:
        """Return edits that make sense in most workflows, in a fixed order; see `proposals`."""
        session = self.session
        if session.finished:
            return []
        if session.draft.waiting is not None:
            return list(prompts(self.goal))
        workflow, language = session.draft.workflow, self._drafting.language
        actions = proposals(self.goal, workflow, language, may_finish=self._may_finish)
        return [self._written(action) for action in actions]

    @property
    def _may_finish(self) -> bool:
        session = self.session
        return not self._drafting.finish.missing(session.draft.workflow.statistics, session.circumstances)

    def _written(self, action: Action) -> str:
        return write_action(action, self._drafting.language)

    def sample_action(self, rng: Stream) -> str:
        """Return one of the candidates, all alike. Raises `ResetNeeded` at the end, when there are none."""
        proposed = self.candidates()
        if not proposed:
            raise ResetNeeded("the workflow has been handed in, so there is no action to draw: call reset()")
        return proposed[rng.below(len(proposed))]

    def expert_action(self) -> str | None:
        """Return the next edit on the way to a workflow that solves the task, tried out on the simulator.

        None when no way was found in the steps that are left, and with every other executor.
        """
        if not self._executor.settled or self.session.finished:
            return None
        return next_action(self.session, self.max_steps - self.steps)

    @property
    def has_expert(self) -> bool:
        """Whether the simulator does the work, on which plans can be tried out."""
        return self._executor.settled

    def _extra_info(self) -> dict[str, Any]:
        session = self.session
        last = session.last
        return {
            "source": session.task.family,
            "kind": session.task.kind,
            "workflow": session.told(),
            "repairs": [repair.kind for repair in last.repairs] if last is not None else [],
            "sandbox": self._sandbox,
        }
