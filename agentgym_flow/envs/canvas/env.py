"""Canvas as text: a task, edits of a workflow that is run after each of them, and a score when it is handed in."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from agentgym_flow.core import AnswerStore, TextEnv, Transition
from agentgym_flow.data import DataSet
from agentgym_flow.envs.canvas.actions.drafting import PROMPTINGS, TurnResult, drafting_of
from agentgym_flow.envs.canvas.actions.edits import Action, Finish
from agentgym_flow.envs.canvas.actions.fields import TEMPLATES, TYPED_FORMS
from agentgym_flow.envs.canvas.actions.reading import write_action
from agentgym_flow.envs.canvas.backends.executors import executor_of
from agentgym_flow.envs.canvas.backends.replay import ReplayBackend, ResponseRecorder
from agentgym_flow.envs.canvas.game import CanvasGame
from agentgym_flow.envs.canvas.look_ahead import LookAhead, take_ahead
from agentgym_flow.envs.canvas.operators import Operator
from agentgym_flow.envs.canvas.operators.calls import Backend, KeepsAnswers
from agentgym_flow.envs.canvas.operators.offer import Descriptions
from agentgym_flow.envs.canvas.operators.registry import OperatorNames, logged_name, operators_of
from agentgym_flow.envs.canvas.policies import next_action
from agentgym_flow.envs.canvas.proposals import prompts, proposals, written_deletions
from agentgym_flow.envs.canvas.tasks.assignment import Assignment
from agentgym_flow.envs.canvas.tasks.sets.load import SETS
from agentgym_flow.envs.canvas.tasks.source import FAMILIES, tasks_of
from agentgym_flow.envs.canvas.workflow.graph import OperatorNode
from agentgym_flow.envs.canvas.workflow.rules import FINISH_RULES, LANGUAGES
from agentgym_flow.errors import BadSetting, ResetNeeded
from agentgym_flow.sandbox import default
from agentgym_flow.seeding import Stream
from agentgym_flow.settings import Flag, Maybe, OneOf, Plain, SeasonSeed, Setting, Text, check_settings

ENV_ID = "agentgym_flow/Canvas-v0"
"""The id of the environment."""

DEFAULT_MAX_STEPS = 20
"""Turns of an episode unless told otherwise, as published."""


class CanvasEnv(TextEnv):
    """Canvas, played by a language model: design an agentic workflow for a task, edit by edit, and hand it in.

    ## Description
    FlowSteer's workflow canvas (2026): the agent does not solve the task, it builds a workflow of operators (solvers,
    checkers, a reviser, ensembles) that does. After every edit the workflow is run and the agent is shown what came of
    it. The work of the operators is done by a simulator, in which the design decides what is right, or by a real model
    (`executor`).

    ```python
    >>> import gymnasium as gym
    >>> import agentgym_flow
    >>> env = gym.make("agentgym_flow/Canvas-v0", split="valid")
    >>> observation, info = env.reset(seed=0, options={"task": 18})
    >>> print(info["goal"])
    Nils builds a straight fence of 100 metres with a post every 5 metres, from one end to the other. A post costs $12. How many dollars do the posts cost? 12 may seem strange, but it has been checked.
    >>> observation, *_ = env.step("<action>add</action><operator>Programmer</operator>")
    >>> print(observation)
    Done.
    Workflow: Programmer
    Nodes:
      node_1: Programmer
    Counts: 1 operators (Programmer 1); parallel 0, conditional 0, loop 0; depth 1; at most 1 calls
    Result: 240
    Needed before finish: nothing more
    Hint: have the solution checked, by Verify for instance
    Turns left: 19
    >>> observation, *_, info = env.step(
    ...     "<action>add</action><structure>conditional</structure>"
    ...     "<condition>Review</condition><true>done</true><false>Revise</false>"
    ... )
    >>> info["workflow"]["text"]
    'Programmer -> Review ? done : Revise'
    >>> info["workflow"]["checks"]
    [['node_2_cond', 'Review', False, 'The gaps are counted where the posts are asked for.']]
    >>> info["workflow"]["result"]
    '252'
    >>> observation, reward, terminated, truncated, info = env.step("<action>finish</action>")
    >>> reward, terminated, info["success"]
    (1.0, True, True)

    ```

    ## Action Space
    `UnicodeText`: one action, as a row of tags or as one JSON object with the same fields,
    `{"action": "add", "operator": "Plan", "prompt": "Name the unknowns first."}`.

    | action | fields it needs | fields it may have |
    |---|---|---|
    | `add` | `operator` | `prompt`, `position` (from 0; the end if left out) |
    | `add`, `structure` is `parallel` | `operators`, one branch each | a `prompt` for each operator, `position` |
    | `add`, `structure` is `conditional` | `condition` | `true`, `false` (one of them may be `done`), `prompt`, `position` |
    | `add`, `structure` is `loop` | `operators`, one step each | `count` (1 to 10, else 3), `prompt`, `position` |
    | `delete` | `target`, the id of a node | |
    | `modify` | `target`, `operator` | `prompt` |
    | `set_prompt` | `target`, `prompt` | |
    | `finish` | | `answer`, which nothing is scored by |

    Branches, cases and steps are written as workflows are, so that structures nest:
    `<operators>Plan -> Custom, Programmer</operators>`. What models write around an action and instead of it is read
    where it can be, and told in `info["repairs"]`; with `strict=True` it is refused. Whatever is refused changes
    nothing, is counted as a step, and `info["action_valid"]` is False. An edit is applied whole or not at all.

    With `prompting="two_phase"` an action that brings operators without a prompt waits until each of them has got one,
    a turn for each. Then a text that is an action and nothing else takes the place of the waiting one; any other
    text is the prompt: a text without tags, or what is in one pair of `<prompt>` tags. Thinking, other tags and text
    around these are overlooked and told in `info["repairs"]`; with `strict=True` they are refused, and the action
    goes on waiting.

    ## Observation Space
    `UnicodeText`. At first the task; after each action what came of it, the workflow with the id of every node, its
    counts, verdicts and notes of its checks, what failed, the result, what `finish` still needs, a hint (`hints`), and
    the turns left. What operators wrote is shown cut and in one line, so that it cannot pass for a line of ours.

    ## Starting State
    An empty workflow, and the task that the seed draws from the split, or number k with `options={"task": k}`. Without
    `data` and `dataset` tasks are generated: word problems, functions to write and questions about passages, in turn.
    The seed is part of the task: with another one the same workflow can have another result.

    ## Rewards
    With an accepted `finish` the correctness of the result: 1 or 0 for mathematics and for programs (by hidden tests),
    the F1 of words for questions. Otherwise 0. What a design is worth is not rewarded here; the wrapper
    `agentgym_flow.rewards.StructureReward` does that.

    ## Episode End
    - Termination: `finish` was accepted.
    - Truncation: `max_steps` steps without that. The two never come together.

    A step after the end raises `ResetNeeded`. A server that is not there raises `ExecutorFailed` in `step`, and a
    sandbox that is not there `SandboxUnavailable`: the state is as before, and the same step may be taken again.

    ## Information
    The contract keys of `agentgym_flow.core.TextEnv` (`task`, `task_key`, `task_type`, `goal`, `state_key`, `success`,
    `score`, `action_valid`, `admissible_actions`, `action_templates`), and:

    | key | meaning |
    |---|---|
    | `task_type` (str) | the family of a generated task (`arithmetic`, `code`, `qa`), or the set of a published one |
    | `kind` (str) | what makes a generated task hard, such as `trap`; of a published one `math`, `qa` or `code`. Empty until the episode has ended, because it would tell what to mind |
    | `workflow` (dict) | the workflow and its last run, see below |
    | `scorer` (str) | what decides the score: `number`, `choice`, `f1`, `tests` or, with its version, `math-verify 0.9.0`; the log's `meta` has it, too |
    | `repairs` (list of str) | what had to be overlooked to read the last action or prompt |
    | `sandbox` (str) | the level of the sandbox in which programs run, `strong`, `limited` or `none`; `unused` where none is needed |

    Only where it was asked for (`env.unwrapped.request_info(["ablation"])`, `ResponseRecorder(env, keep=["ablation"])`), because
    the workflow is run again for it:

    | key | meaning |
    |---|---|
    | `ablation` (dict) | what the last result needs: the operators `needed`, each as often as places of it count, and these `places`; how many `structures` of each kind count; the places `undecided`, of which an executor other than the simulator has not said enough, so that they count if data flowed from them into the result. See `agentgym_flow.envs.canvas.workflow.ablation` |

    `info["workflow"]` is plain data, fresh at every step, without the right answer:

    | key | meaning |
    |---|---|
    | `text` (str) | the workflow in one line, without instructions |
    | `graph` (list of dict) | its nodes with ids, roles and instructions, see `agentgym_flow.envs.canvas.workflow.plain.plain_graph` |
    | `run` (list of dict) | the calls of its last run: place, attempt, status, verdict, influence, notes |
    | `operators` (list of str) | the operators it names, at any depth; `counts` (dict) has how often |
    | `structures` (dict) | how many of `parallel`, `conditional` and `loop` it has, at any depth |
    | `depth` (int) | 0 when empty, 1 without structures, one more for each structure around an operator |
    | `finished` (bool) | whether it was handed in |
    | `missing` (list of str) | what `finish` still asks for |
    | `usable` (list of str) | the operators that can be used; with `nesting` (bool) and `first_case` (str) the rules of the language |
    | `descriptions` (dict) | usable operator -> what it does, one line |
    | `meets` (dict) | `solver`, `checker`, `tests`, `code` and `format` -> the usable operators that count as one for `finish="published"` and for the structure reward |
    | `prompting` (str) | the argument `prompting`, which says how to write prompts |
    | `ran` (list of str) | the operators that ran and did not fail, as often as they did |
    | `checks` (list) | `[place, operator, passed, notes]` for each check that ran |
    | `failed` (list) | `[place, operator, why]` for each call that failed |
    | `results` (int) | how many results there are: 0, 1, or those of branches that nothing has gathered |
    | `result` (str) | the result in one line, at most 300 characters |
    | `calls` (int) | calls of the last run; `total_calls` (int): those of the whole episode that were not taken from its cache |
    | `tokens` (int), `cost` (float) | of all runs so far, without what came from the cache; the simulator's tokens are an estimate |
    | `correctness` (float) | at the end of an episode what the last result is worth, handed in or not; 0.0 before |
    | `asked` (str) | the operator whose prompt is asked for, in two phases; else empty |

    `state_key` is a digest of the workflow, instructions included, and of an action that waits for a prompt; with an
    executor other than the simulator also of what every call of the last run came to, failures included, and of all
    results that the episode keeps: a later edit can bring each of them back. After `finish` it is the outcome alone.

    ## Arguments
    | argument | default | meaning |
    |---|---|---|
    | `data` | `None` | a file or a folder of a published set, or the name of registered data; None for generated tasks |
    | `dataset` | `None` | the name of the published set, such as `"gsm8k"`; None where names of files tell it. Without `data` it comes through the Hub (extra `canvas`) |
    | `split` | `"train"` | `"train"`, `"valid"` or `"test"` |
    | `season` | `""` | the seed of a season: other generated test tasks of the same kind, see "Seasons" in the docs |
    | `family` | `None` | only generated tasks of `"arithmetic"`, `"code"` or `"qa"` |
    | `executor` | `"simulated"` | who does the work of the operators: `"simulated"`, `"openai"`, or an object with the method `run` of `agentgym_flow.envs.canvas.operators.calls.Backend` |
    | `model`, `base_url` | `None` | of `"openai"`: the model's name and the server's base URL, or a list of URLs of servers that take turns, or model -> its URLs; without `base_url` only tapes can be played |
    | `executor_settings` | `None` | further arguments of `OpenAIBackend`, plain data, such as `{"temperature": 0.7, "models": {"Verify": "other-model"}}` |
    | `language` | `"full"` | `"full"`, or `"published"`: the twelve operators that are advertised, no nesting, and of `Verify ? A : B` A runs when the check fails |
    | `operators` | `None` | the only operators that can be used, a list of names, classes and `"module:Class"`; None for all of the language. See "Operators of your own" in the docs |
    | `descriptions` | `None` | name of an operator -> its description, in place of its own one; changes the words only, so it is no part of the task |
    | `finish` | `"lax"` | what `finish` asks for: `"lax"` (one operator) or `"published"` (five, a structure, a solver, a checker; Test where there are tests; Programmer or Test for code; Format where the result is long) |
    | `prompting` | `"inline"` | instructions come with the action, or are asked for in turns of their own: `"two_phase"` |
    | `strict` | `False` | refuse actions and prompts that have to be repaired |
    | `hints` | `True` | feedback says what to do next; changes the words only, so it is no part of the task |
    | `skip_damaged` | `False` | leave out rows of a published set that cannot be read, with a warning that counts them; the log's `meta` has the number as `skipped_rows`. Tasks are numbered without them |
    | `task_types` | `None` | `reset(seed=...)` draws only tasks of these types, a list; None for all |
    | `max_steps` | `20` | the step budget |
    | `render_mode` | `None` | `"ansi"`: the task, the graph and the result |

    What an executor other than the simulator gave goes on the tape of the episode: its log can be checked without it.
    The key of a server is read from the environment variable `OPENAI_API_KEY`.

    There is an expert where the simulator does the work: `expert_action()` tries workflows out on it. With every other
    executor it is None, and `has_expert` is False.

    ## References
    - FlowSteer: beita6969/FlowSteer on GitHub, 2026.

    ## Version History
    - v0: first version.

    Raises:
        BadSetting, UnknownSplit, UnknownOption, UnknownData, BadData: as their names say.
        MissingExtra: a server, the Hub, a Parquet file or a formula needs a package that is not installed.
    """  # noqa: E501 (a table's row is one line)

    env_id: ClassVar[str] = ENV_ID
    train_config = "canvas_tiny"
    algorithm_settings: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cwrpo": {"reward": "structure", "layout": "conversation"}
    }
    script = "agentgym_flow.envs.canvas.policies:Designer"
    outside_requests: ClassVar[Literal["none", "own", "shared"]] = "own"
    presentation_settings: ClassVar[frozenset[str]] = frozenset({"hints", "descriptions"})
    typed_forms: ClassVar[Mapping[str, str]] = TYPED_FORMS
    optional_info: ClassVar[tuple[str, ...]] = ("ablation",)
    logged_settings: ClassVar[Mapping[str, Setting]] = {
        "dataset": Maybe(OneOf(*SETS)),
        "family": Maybe(OneOf(*FAMILIES)),
        "executor": Text(r"simulated|openai|custom:\w+", 200),
        "model": Maybe(Text(longest=200)),
        "executor_settings": Plain(),  # without an address they are settings of nobody
        "language": OneOf(*LANGUAGES),
        "operators": Maybe(OperatorNames()),
        "descriptions": Maybe(Descriptions()),
        "finish": OneOf(*FINISH_RULES),
        "prompting": OneOf(*PROMPTINGS),
        "strict": Flag(),
        "hints": Flag(),
        "skip_damaged": Flag(),
        "season": SeasonSeed(),
    }
    max_action_length: ClassVar[int] = 1 << 15
    """Eight of the longest instructions."""

    def __init__(
        self,
        *,
        data: str | os.PathLike[str] | DataSet | None = None,
        dataset: str | None = None,
        split: str = "train",
        season: str = "",
        family: str | None = None,
        executor: str | Backend = "simulated",
        model: str | None = None,
        base_url: str | Sequence[str] | Mapping[str, Any] | None = None,
        executor_settings: Mapping[str, Any] | None = None,
        language: str = "full",
        operators: Sequence[str | type[Operator]] | None = None,
        descriptions: Mapping[str, str] | None = None,
        finish: str = "lax",
        prompting: str = "inline",
        strict: bool = False,
        hints: bool = True,
        skip_damaged: bool = False,
        task_types: Sequence[str] | None = None,
        max_steps: int = DEFAULT_MAX_STEPS,
        render_mode: str | None = None,
    ) -> None:
        used = None if operators is None else operators_of(operators)
        rules = {
            "language": language,
            "operators": None if used is None else [logged_name(one) for one in used],
            "finish": finish,
            "prompting": prompting,
            "strict": strict,
            "hints": hints,
            **({} if descriptions is None else {"descriptions": descriptions}),
        }
        check_settings(self.logged_settings, {"family": family, "model": model, "skip_damaged": skip_damaged, **rules})
        check_settings({"dataset": Maybe(Text())}, {"dataset": dataset})  # an unknown one is reported with the data
        self._executor = executor_of(executor, model, base_url, executor_settings)
        simulated = self._executor.settled
        if used is not None:
            used, without = self._executor.offered(used)
            if without:
                warnings.warn(without, stacklevel=2)
        self._drafting = drafting_of(language, used, finish, prompting, strict, descriptions)
        self._tasks = tasks_of(
            data, dataset, split, family, simulated=simulated, skip_damaged=skip_damaged, season=season
        )
        if self._tasks.skipped:
            warnings.warn(_told(self._tasks.skipped), stacklevel=2)
        super().__init__(
            split=split,
            max_steps=max_steps,
            settings={
                "dataset": self._tasks.dataset,
                "family": family,
                "executor": self._executor.name,
                "model": model,
                "executor_settings": dict(self._executor.settings),
                **rules,
                **({} if descriptions is None else {"descriptions": dict(descriptions)}),
                **({"skip_damaged": True} if skip_damaged else {}),
            },
            data=self._tasks.data,
            season=season,
            render_mode=render_mode,
        )
        self._hints = hints
        self._game: CanvasGame | None = None
        self._recorder: ResponseRecorder | None = None
        self._entry: list[Any] | None = None
        self._next_tape: Sequence[Any] | None = None
        self._ahead: LookAhead | None = None
        self.draw_only(task_types)

    @property
    def _sandbox(self) -> str:
        """The level of the sandbox in which programs are run; `"unused"` where none is."""
        return "unused" if self._executor.settled and not self._tasks.data else default().probe().level

    @property
    def num_tasks(self) -> int:
        """The number of tasks in this split."""
        return len(self._tasks)

    def task_type_of(self, task: int) -> str:
        """Return the family of a generated task (`arithmetic`, `code`, `qa`), or the set of a published one."""
        return self._tasks.family_of(task)

    @property
    def game(self) -> CanvasGame:
        """The present episode. For looking at; `step` is the way to change it. `ResetNeeded` before the first."""
        if self._game is None:
            raise ResetNeeded("call reset() first: there is no episode yet")
        return self._game

    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        assignment = self._tasks[task]
        # The noise is part of the problem: another seed is another outcome of the same workflow.
        seed = noise.word()
        tape, self._next_tape = self._next_tape, None
        backend = self._backend(assignment, tape)
        problem = assignment.problem
        self.task_key = self.make_task_key([problem.key, problem.shown(), list(problem.answers), seed])
        self.goal = problem.shown()
        self._game = CanvasGame.of(
            assignment, self._drafting, backend, seed=seed, hints=self._hints, settled=self._executor.settled
        )
        self._entry = self._ahead = None
        return self._game.opening(self.max_steps)

    def _backend(self, assignment: Assignment, tape: Sequence[Any] | None) -> Backend:
        """Return what does the work in the next episode: the simulator, or a recorder before the executor or a tape."""
        self._recorder = None
        backend = (
            self._executor.for_task(assignment) if tape is None else ReplayBackend(c for e in tape if e for c in e)
        )
        if backend is None:
            advice = "name the base_url of a server, or give an object; without one only tapes can be played"
            raise BadSetting(f"executor={self._executor.name!r} has nobody to do the work: {advice}")
        if self._executor.settled:
            return backend
        self._recorder = ResponseRecorder(backend)  # a tape is recorded again: it is part of what replay compares
        return self._recorder

    def _apply(self, action: str) -> Transition:
        ahead, self._ahead = self._ahead, None  # it is for this step or for none
        if ahead is not None and ahead.action == action:
            turn = ahead.turn()
            self._game, self._recorder = ahead.game, ahead.recorder
        else:
            turn = self._turn(action)
        game = self.game
        if self._recorder is not None:
            self._entry = self._recorder.take() or None
        reward = game.score if turn.finished else 0.0
        return Transition(game.feedback(self.max_steps - self.steps - 1), reward, turn.finished, turn.accepted)

    def _turn(self, action: str) -> TurnResult:
        try:
            return self.game.turn(action)
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
        starts: list[tuple[CanvasGame, ResponseRecorder, str]] = []
        for env, action in zip(envs, actions, strict=True):
            fits = len(action) <= cls.max_action_length
            if fits and isinstance(env, CanvasEnv) and env.playing and env._recorder is not None:
                waiting.append(env)
                starts.append((env.game, env._recorder, action))
        if len(waiting) > 1:
            for env, ahead in zip(waiting, take_ahead(starts), strict=True):
                env._ahead = ahead

    # ---------------------------------------------------------------- what an executor gave (the tape)
    def keep_answers(self, store: AnswerStore | None) -> None:
        """Let the executor take answers from `store` and give it every new one, if it asks a server."""
        if isinstance(self._executor.backend, KeepsAnswers):
            self._executor.backend.keep_answers(store)

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
        """Return a digest of the workflow; with an executor that is not settled, also of its run and what is kept."""
        return self.game.state_key()

    def describe_state(self) -> str:
        """Return the task, the graph and the result, for a person to read."""
        return self.game.described()

    def score(self) -> float:
        """Return what the result handed in is worth; 0.0 before that."""
        return self.game.score

    def admissible_actions(self) -> list[str]:
        """Return the closed part of the language: `finish` where it is accepted, and the deletion of the last nodes."""
        game = self.game
        if game.finished or game.draft.waiting is not None:
            return []
        finish = [self._written(Finish())] if self._may_finish else []
        return [*finish, *written_deletions(len(game.draft.workflow.nodes), self._drafting.language)]

    def action_templates(self) -> list[str]:
        """Return the actions of the language with what can be filled in; a prompt where one is asked for."""
        if self.game.finished:
            return []
        return ["{prompt}"] if self.game.draft.waiting is not None else list(TEMPLATES)

    def candidates(self) -> list[str]:
        """Return edits that make sense in most workflows, in a fixed order; see `proposals`."""
        game = self.game
        if game.finished:
            return []
        if game.draft.waiting is not None:
            return list(prompts(self.goal))
        workflow, language = game.draft.workflow, self._drafting.language
        actions = proposals(self.goal, workflow, language, may_finish=self._may_finish)
        return [self._written(action) for action in actions]

    @property
    def _may_finish(self) -> bool:
        game = self.game
        return not self._drafting.finish.missing(game.draft.workflow.statistics, game.circumstances)

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
        if not self._executor.settled or self.game.finished:
            return None
        return next_action(self.game, self.max_steps - self.steps)

    @property
    def has_expert(self) -> bool:
        """Whether the simulator does the work, on which plans can be tried out."""
        return self._executor.settled

    def log_meta(self) -> dict[str, Any]:
        """Return what the log's `meta` says of the present task: its type, and what decides its score."""
        skipped = len(self._tasks.skipped)
        told = {"skipped_rows": skipped} if skipped else {}
        return {**super().log_meta(), "scorer": self.game.task.scorer, **told}

    def _requested_info(self, key: str) -> dict[str, Any]:
        found, places = self.game.ablation(), self.game.draft.workflow.places
        nodes = [places[place].node for place in found.needed]
        return {
            "needed": [node.name for node in nodes if isinstance(node, OperatorNode)],
            "structures": dict(found.structures),
            "places": list(found.needed),
            "undecided": list(found.undecided),
        }

    def _extra_info(self) -> dict[str, Any]:
        game = self.game
        last = game.last
        return {
            "kind": "" if self.playing else game.task.kind,  # during an episode it would tell what to mind
            "workflow": {**game.told(), "correctness": 0.0 if self.playing else game.correctness},
            "scorer": game.task.scorer,
            "repairs": [repair.kind for repair in last.repairs] if last is not None else [],
            "sandbox": self._sandbox,
        }


def _told(skipped: Sequence[str]) -> str:
    which = "`agentgym-flow data check --env canvas` names them all"
    return f"{len(skipped)} damaged rows are skipped, the first: {skipped[0]} {which}."
