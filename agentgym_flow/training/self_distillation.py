"""On-policy self-distillation (OPSD): a policy learns from itself with a hint in its prompts.

The student is the policy that plays. The teacher is the same model with the same weights, but its prompts also hold a
hint. It only scores the answers of the student. For every sampled token, the loss has the additional term

    -opsd_weight * (log p_T - log p_S) * log p_S,    where the difference has no gradient.

Its expected gradient is that of the reverse KL divergence KL(p_S || p_T) of the next token, so a token that the teacher
finds less likely is pushed down. (The gradient of the code released with SDAR, arXiv 2605.15155, pushes every sampled
token up.) The term has the form of an advantage, so the trainer adds the weighted difference to the advantage of the
token. Clipping, merged rows and the correction for older weights then apply to it as to any advantage.

Hints are in no other prompts: a policy in play or in evaluation never gets one, and no log contains one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING

from jinja2 import TemplateError

from agentgym_flow._util.importing import find_modules_here, imported
from agentgym_flow.core import TextEnv
from agentgym_flow.episodes import Episode, Group
from agentgym_flow.errors import BadData, BadSetting, UnknownOption
from agentgym_flow.play import EnvPool
from agentgym_flow.policies import PolicyInput
from agentgym_flow.policies.base import check_expert
from agentgym_flow.prompts import CONVERSATION, Message, PromptContext, PromptTemplate
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.policy import context_of, prompt_text, prompt_tokens
from agentgym_flow.training.rows import TrainingRow

if TYPE_CHECKING:
    from agentgym_flow.training.policy import PromptedPolicy

EXPERT, ATTEMPT = HINTS = ("expert", "attempt")
"""What a hint says: what the environment's expert does, or what another attempt of the group did to succeed."""

_SAYS = {EXPERT: "An expert solves this task with", ATTEMPT: "Another attempt at this task succeeded with"}


def check_hints(args: AgentConfig, template: PromptTemplate, env: TextEnv) -> None:
    """Raise `BadSetting` or `UnknownOption` if a run with these settings cannot have hints in this environment."""
    if args.opsd_hint not in HINTS and ":" not in args.opsd_hint:
        raise UnknownOption.among(args.opsd_hint, [*HINTS, "module:function"], "opsd_hint is what the teacher reads.")
    if args.opsd_hint == EXPERT:
        check_expert(env)
    if args.layout == CONVERSATION and _has_own_words(template):
        raise BadSetting(
            f"a hint in words of template {template.name!r} is one answer, which says nothing about the later turns of "
            "a conversation: set layout to turn, or opsd_weight to 0 and warm_start_hints to false"
        )


@dataclass(frozen=True, slots=True)
class Hinted:
    """A prompt template with a hint in its prompts.

    Attributes:
        template: the prompt template.
        hint: the hint. In a chat it is the system message, or the beginning of the first message; in plain text it
            comes first, and after the last word of a template with its own words.
        as_system: whether the chat template takes a system message.
    """

    template: PromptTemplate
    hint: str
    as_system: bool = True

    def prompt(self, policy_input: PromptContext) -> str:
        """Return the prompt of this turn as one text."""
        said = self.template.prompt(policy_input)
        return f"{said} {self.hint}" if _has_own_words(self.template) else f"{self.hint}\n\n{said}"

    def messages(self, policy_input: PromptContext) -> list[Message]:
        """Return the prompt of this turn as a chat."""
        first, *others = self.template.messages(policy_input)
        if self.as_system and first["role"] != "system":
            return [{"role": "system", "content": self.hint}, first, *others]
        return [{"role": first["role"], "content": f"{self.hint}\n\n{first['content']}"}, *others]


def hint_of(kind: str, actions: Sequence[str]) -> str:
    """Return the hint of `HINTS` for a language model that lists these actions."""
    return "\n".join([f"{_SAYS[kind]}:", *(f"{number}. {action}" for number, action in enumerate(actions, 1))])


def _has_own_words(template: PromptTemplate) -> bool:
    return getattr(template, "vocabulary", None) is not None


class HintWriter:
    """Writes the prompts of episodes again, with hints, in a replay.

    For a language model, a hint is a system message with all actions of the expert or of the attempt; in layout `turn`
    with the expert's next action. In a prompt template with its own words, a hint is the answer that means the next
    action, after the last word of the prompt; of attempts, only one that was in the same state can give it.

    Args:
        policy: the policy in training.
        make_env: makes environments for the replays.
        kind: what a hint says: the setting `opsd_hint`.
        acts_as: the policy to train if several share the episodes.

    Raises `UnknownOption` if the function that `kind` names does not exist.
    """

    def __init__(
        self, policy: PromptedPolicy, make_env: Callable[[], TextEnv], kind: str, acts_as: str | None = None
    ) -> None:
        find_modules_here()
        own = None if kind in HINTS else imported(kind, UnknownOption)
        self._own: Callable[[PolicyInput], str | None] | None = own
        self._policy, self._kind, self._acts_as = policy, kind, acts_as
        self._in_words = _has_own_words(policy.template)
        self._envs = EnvPool(make_env)
        self._plans: dict[tuple[str, str], list[str]] = {}
        self._steps = 0

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()

    def hinted(
        self, batch: Sequence[TrainingRow], groups: Sequence[Group], share: slice, *, demonstrated: bool = False
    ) -> list[TrainingRow | None]:
        """Return the rows of some episodes with hints; None without one, or if the prompt does not fit the context.

        Args:
            batch: the rows, as `rows` returns them.
            groups: the groups of all processes.
            share: selects the episodes of the rows.
            demonstrated: take each episode's own actions for those of the expert, or of the other attempt.

        Raises `BadData` if a replay leads to another state than the episode.
        """
        return teacher_rows(
            batch, self.prompts(groups, share, demonstrated=demonstrated), context_of(self._policy.model)
        )

    def prompts(
        self, groups: Sequence[Group], share: slice, *, demonstrated: bool = False
    ) -> list[tuple[int, ...] | None]:
        """Return the prompt with a hint of every row of these episodes, in the order of `rows`; None: no hint."""
        self._steps = 0
        self._plans.clear()  # they would fill the memory, and few tasks come back soon
        told = [(one, None if demonstrated else _successes_beside(one, group)) for group in groups for one in group]
        return [prompt for episode, successes in told[share] for prompt in self._of_episode(episode, successes)]

    def _of_episode(self, episode: Episode, successes: Sequence[Episode] | None) -> list[tuple[int, ...] | None]:
        """Return the prompts of an episode; without `successes`, hints say what it does itself."""
        own = [at for at, turn in enumerate(episode.turns) if turn.is_by(self._acts_as)]
        own = own if self._policy.conversation is None else own[:1]  # a conversation is one row
        if not own or (self._kind == ATTEMPT and successes == []):
            return [None] * len(own)
        done = _done_in_states(successes) if self._in_words and successes else {}
        shows_all = not self._in_words and (self._kind == ATTEMPT or self._policy.conversation is not None)
        found: list[tuple[int, ...] | None] = []
        for at, policy_input in enumerate(self._replayed(episode, own[-1])):
            if at not in own:
                continue
            if self._own is not None:
                hint = self._own(policy_input)
            elif successes is None:
                shown = episode.turns if shows_all else episode.turns[at : at + 1]
                hint = self._said([turn.action for turn in shown], policy_input)
            else:
                hint = self._said(self._actions(policy_input, successes, done), policy_input)
            found.append(None if hint is None else self._prompt(policy_input, hint))
        return found

    def _replayed(self, episode: Episode, last: int) -> Iterator[PolicyInput]:
        """Yield the policy inputs of an episode up to turn number `last`."""
        recorder = self._envs.take()
        recorder.env.external.use_recording([episode.recording, *(turn.recording for turn in episode.turns)])
        recorder.reset(seed=episode.seed, task=episode.task, attempt=episode.attempt)
        for at, turn in enumerate(episode.turns[: last + 1]):
            if recorder.info["state_key"] != turn.state_key:
                raise BadData(
                    f"task {episode.task_key}, attempt {episode.attempt}: a replay leads to another state at turn "
                    f"{at}, so the environment does not depend on seed and actions alone, as hints demand: set "
                    "opsd_weight to 0 and warm_start_hints to false"
                )
            yield PolicyInput.of(recorder)
            if at < last:
                recorder.step(turn.output)
                self._steps += 1
        self._envs.give_back(recorder)

    def _prompt(self, policy_input: PolicyInput, hint: str) -> tuple[int, ...]:
        tokenizer, hinted = self._policy.tokenizer, Hinted(self._policy.template, hint)
        try:
            text = prompt_text(tokenizer, hinted, policy_input)  # type: ignore[arg-type]
        except TemplateError:  # the chat template takes no system message
            text = prompt_text(tokenizer, replace(hinted, as_system=False), policy_input)  # type: ignore[arg-type]
        return prompt_tokens(tokenizer, text)

    def _actions(
        self, policy_input: PolicyInput, successes: Sequence[Episode], done: Mapping[str, list[str]]
    ) -> list[str]:
        """Return the actions that a hint of `HINTS` says."""
        if self._kind == EXPERT:
            return self._expert_actions(policy_input)
        if self._in_words:
            return done.get(policy_input.info["state_key"], [])
        return [turn.action for turn in successes[0].turns]

    def _said(self, actions: Sequence[str], policy_input: PolicyInput) -> str | None:
        """Return the hint of `HINTS` that says these actions; None if there are none."""
        if not actions:
            return None
        if self._in_words:
            return self._policy.template.format_action(actions[0], policy_input)
        if self._kind == EXPERT and self._policy.conversation is None:
            return f"The next action of an expert is: {actions[0]}"
        return hint_of(self._kind, actions)

    def _expert_actions(self, policy_input: PolicyInput) -> list[str]:
        """Return the expert's next action, or in a conversation its whole solution; nothing if there is none."""
        key = policy_input.info["task_key"], policy_input.info["state_key"]
        if key not in self._plans:
            env, self._plans[key] = policy_input.env, []
            if self._policy.conversation is not None:
                env = copy.deepcopy(env)
                env.external.recording = None  # the expert's requests are not those of the episode
            while env.playing and (action := env.expert_action()) is not None:
                self._plans[key].append(action)
                if env is policy_input.env:
                    break
                env.advance(action)
                self._steps += 1
        return self._plans[key]


class Teacher(HintWriter):
    """Scores the answers of the policy in training with hints in its prompts.

    Args:
        policy: the policy in training.
        make_env: makes environments for the replays.
        args: the settings `opsd_hint`, `opsd_weight`, `opsd_clip` and `credit_weight`.
        score: returns the log-probabilities of the completions of rows by the present weights.
        acts_as: the policy to train if several share the episodes.

    Raises `UnknownOption` if the function that `opsd_hint` names does not exist.
    """

    def __init__(
        self,
        policy: PromptedPolicy,
        make_env: Callable[[], TextEnv],
        args: AgentConfig,
        score: Callable[[Sequence[TrainingRow]], list[list[float]]],
        acts_as: str | None = None,
    ) -> None:
        super().__init__(policy, make_env, args.opsd_hint, acts_as)
        self._args, self._score = args, score

    def taught(
        self, batch: Sequence[TrainingRow], groups: Sequence[Group], share: slice, *, rescores: bool
    ) -> tuple[list[TrainingRow], Distillation]:
        """Return the rows of some episodes with the teacher's opinion in their advantages, see `distilled`.

        Args:
            batch: the rows, as `rows` returns them.
            groups: the groups of all processes.
            share: selects the episodes of the rows.
            rescores: whether the log-probabilities of sampling are not those of the present weights.

        Raises `BadData` if a replay leads to another state than the episode.
        """
        hinted = self.hinted(batch, groups, share)
        informed = [at for at, row in enumerate(hinted) if row is not None]
        teacher = dict(zip(informed, self._score([row for row in hinted if row is not None]), strict=True))
        student = {}
        if rescores:
            student = dict(zip(informed, self._score([batch[at] for at in informed]), strict=True))
        found, sums = distilled(
            batch,
            [student.get(at, row.logprobs) for at, row in enumerate(batch)],
            [teacher.get(at) for at in range(len(batch))],
            weight=self._args.opsd_weight,
            clip=self._args.opsd_clip,
            credit_weight=self._args.credit_weight,
        )
        return found, replace(sums, steps=self._steps)


def _successes_beside(episode: Episode, group: Group) -> list[Episode]:
    """Return the other successful attempts of a group, the shortest first."""
    return sorted((one for one in group if one.success and one is not episode), key=lambda one: len(one.turns))


def _done_in_states(successes: Sequence[Episode]) -> dict[str, list[str]]:
    """Return for each state that these attempts visited what the one did that was then closest to its end."""
    visits = [
        (len(one.turns) - at, turn.state_key, turn.action) for one in successes for at, turn in enumerate(one.turns)
    ]
    return {key: [action] for _, key, action in sorted(visits, reverse=True)}


@dataclass(slots=True)
class Distillation:
    """Counts and sums over rows and the sampled tokens of rows with a hint.

    Attributes:
        rows: the number of rows.
        hints: those with a hint.
        tokens: the sampled tokens of these.
        log_ratio: the sum of log p_T - log p_S, before `opsd_clip`.
        lower: the number of tokens that the teacher finds less likely.
        judged: the number of tokens to which both the credit function and the teacher give an advantage.
        agreed: those of `judged` to which both give the same sign.
        steps: the environment steps of replays and of the expert's solutions.
    """

    rows: float = 0.0
    hints: float = 0.0
    tokens: float = 0.0
    log_ratio: float = 0.0
    lower: float = 0.0
    judged: float = 0.0
    agreed: float = 0.0
    steps: float = 0.0

    def metrics(self, summed: Callable[[Sequence[float]], Sequence[float]]) -> dict[str, float]:
        """Return shares and means over all processes, whose sums `summed` returns."""
        rows, hints, tokens, log_ratio, lower, judged, agreed, steps = summed(astuple(self))
        found = {"opsd/hints": hints / max(1.0, rows), "opsd/steps": steps}
        if tokens:
            found |= {"opsd/log_ratio": log_ratio / tokens, "opsd/pushed_down": lower / tokens}
        return found | ({"opsd/agreement": agreed / judged} if judged else {})


def teacher_rows(
    batch: Sequence[TrainingRow], prompts: Sequence[Sequence[int] | None], context: int
) -> list[TrainingRow | None]:
    """Return the rows with the prompts of the teacher; None without a hint, or if it does not fit into the context."""
    return [
        None if prompt is None or len(prompt) + len(row.completion) > context else replace(row, prompt=prompt)
        for row, prompt in zip(batch, prompts, strict=True)
    ]


def distilled(
    batch: Sequence[TrainingRow],
    student: Sequence[Sequence[float]],
    teacher: Sequence[Sequence[float] | None],
    *,
    weight: float,
    clip: float | None = None,
    credit_weight: float = 1.0,
) -> tuple[list[TrainingRow], Distillation]:
    """Return the rows with the opinion of the teacher in the advantages of their sampled tokens.

    The advantage of a token becomes `credit_weight * A + weight * (log p_T - log p_S)`. Rows without a hint have no
    second term.

    Args:
        batch: the rows, with the advantages A of the credit function.
        student: for each row, the log-probabilities p_S of its tokens, by the model in training.
        teacher: the same for p_T, by the same model after the prompt with the hint; None without a hint.
        weight: see above.
        clip: the largest absolute difference; None for no limit.
        credit_weight: see above.
    """
    sums, found = Distillation(rows=len(batch)), []
    for row, own, hinted in zip(batch, student, teacher, strict=True):
        advantages = [credit_weight * a for a in row.advantages]
        sums.hints += hinted is not None
        for at, wanted in enumerate(row.sampled or [1] * len(advantages)):
            if hinted is None or not wanted:
                continue
            difference, credit = hinted[at] - own[at], row.advantages[at]
            sums.tokens += 1
            sums.log_ratio += difference
            sums.lower += difference < 0
            sums.judged += bool(difference and credit)
            sums.agreed += difference * credit > 0
            bounded = difference if clip is None else max(-clip, min(clip, difference))
            advantages[at] += weight * bounded
        found.append(replace(row, advantages=advantages))
    return found, sums
