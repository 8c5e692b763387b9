"""Run a policy for a command: show progress, and handle exceptions of the policy and of the environment."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from agentgym_flow._util.files import check_new
from agentgym_flow._util.importing import what_raised
from agentgym_flow._util.intervals import wilson
from agentgym_flow.cli.console import note, share, stderr
from agentgym_flow.cli.options import Attempts, EnvArgs, Force, PolicyArgs, PolicyName, Seed, Split
from agentgym_flow.envs import text_arguments
from agentgym_flow.episodes import Episode
from agentgym_flow.errors import AgentGymFlowError, BadPolicy, BadResume, BadSetting, ExecutorFailed, ServerDown
from agentgym_flow.play import ERROR, TRAIN_TASKS, EpisodePlan, Evaluation, LiveSuccess, Play, path_of
from agentgym_flow.policies import AsyncPolicy, Policy, PolicyInput, PolicyOutput, make_policy
from agentgym_flow.policies.base import PolicyWrapper
from agentgym_flow.policies.openai_chat import FAILED_REQUESTS


@dataclass(frozen=True, kw_only=True)
class PlayOptions:
    """The options of commands that let a policy play the tasks of a split and write a file.

    Options:
        task_type: Only tasks of this type, as in info['task_type']. Repeatable.
        patience: How long to retry when a model server stops answering in the middle of a run, such as 10m (the
            default). 0: record failed requests immediately, without waiting.
        num_envs: Episodes played in parallel. It changes only the speed, not the results; below 16, also the last bits
            of what an hf: policy computes on a CPU.
        resume: Continue a stopped run that was writing this file, if there is one.
    """

    policy: PolicyName
    split: Split
    episodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Play only the first N tasks. By default all tasks of the split are played, or the first "
            f"{TRAIN_TASKS} of train.",
        ),
    ] = None
    attempts: Attempts = 1
    task_type: Annotated[list[str] | None, typer.Option("--task-type", metavar="TYPE")] = None
    seed: Seed = 0
    env_arg: EnvArgs = None
    policy_arg: PolicyArgs = None
    patience: Annotated[str | None, typer.Option(metavar="DURATION")] = None
    num_envs: Annotated[int, typer.Option(min=1)] = 64
    resume: Annotated[bool, typer.Option("--resume")] = False
    force: Force = False

    def is_complete(self, file: Path | None) -> bool:
        """Return whether there is nothing to resume: the file exists, without the journal of a stopped run beside it.

        Raises `FileExistsError` if the file may not be written.
        """
        if file is None:
            return False
        if self.resume and not self.force and file.is_file() and not path_of(file).exists():
            return True
        check_new(file, replace=self.force or (self.resume and path_of(file).exists()))
        return False

    def play(
        self, policy: Policy | AsyncPolicy, env_id: str, env_kwargs: Mapping[str, Any], file: Path | None, live: Live
    ) -> Play:
        """Return what these options let a policy play."""
        return Play(
            policy,
            env_id,
            self.split,
            self.episodes,
            self.attempts,
            self.task_type,
            self.seed,
            env_kwargs,
            self.num_envs,
            file=file,
            replace=self.force,
            resume=self.resume,
            on_plan=live.begin,
            on_episode=live.add,
        )


def leave(file: Path) -> NoReturn:
    """Exit with status 0: the file is complete."""
    note(f"{file} is complete, so nothing was played; --force replaces it")
    raise typer.Exit


def say_how_to_resume(file: Path | None) -> None:
    """Print how to resume a stopped run, if it left a journal."""
    if file is not None and path_of(file).exists():
        note(f"the results so far are in {path_of(file)}; run the same command with --resume to continue")


@contextmanager
def explained_failure(file: Path | None, live: Live, *, name: str) -> Iterator[None]:
    """If the run fails, print what `file`, called `name`, contains, and how to resume the run."""
    try:
        yield
    except BadResume:  # its message says what to do
        raise
    except (BadPolicy, BadSetting, ExecutorFailed, ServerDown):
        if file is not None and live.finished:
            note(f"{name} holds {live.kept}")
        say_how_to_resume(file)
        raise


@contextmanager
def _code_of(policy: str) -> Iterator[None]:
    """Convert exceptions of a policy's code into a `BadPolicy` that names the exception and the line."""
    try:
        yield
    except AgentGymFlowError:
        raise
    except (Exception, SystemExit) as error:  # a user's script may exit when it is imported
        rest = "agentgym-flow --traceback COMMAND ... shows the traceback"
        raise BadPolicy(f"policy {policy!r} raised {what_raised(error)}; {rest}") from error


def seconds(text: str) -> float:
    """Return the number of seconds in a duration such as `90`, `90s`, `10m` or `1.5h`. Raises `BadSetting`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if found is None:
        raise BadSetting(f"a duration is a number with s, m or h, such as 90s or 10m, got {text!r:.60}")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def policy_settings(
    policy: str,
    pairs: Sequence[str] | None,
    *,
    template: str | None = None,
    tools: bool = False,
    prices: Path | None = None,
    patience: str | None = None,
    num_envs: int | None = None,
) -> dict[str, Any]:
    """Return the settings of a policy from `--policy-arg` and the options that stand for some of them.

    A policy with local weights also gets `num_envs`, the number of episodes played in parallel.

    Raises `BadSetting` if an option is malformed, a setting is given twice, or the policy uses no prompt template.
    """
    settings = text_arguments.settings(pairs, "--policy-arg")
    options: dict[str, Any] = {}
    if template is not None:
        if not policy.startswith(("openai:", "hf:")):
            raise BadSetting(f"--template is the prompt of a language model; leave it out for policy {policy!r}")
        options["template"] = template
    for name, value in {"tools": tools, "prices": prices}.items():
        if value and not policy.startswith("openai:"):
            raise BadSetting(f"--{name} belongs to an openai: policy; leave it out for policy {policy!r}")
        options |= {name: value} if value else {}
    if patience is not None and policy.startswith("openai:"):
        options["patience"] = seconds(patience)
    for name in options:
        if name in settings:
            raise BadSetting(f"{name} is given twice: by --{name} and by --policy-arg")
    if num_envs is not None and policy.startswith("hf:"):
        options["num_envs"] = num_envs
    return settings | options


def guarded_policy(description: str, env_id: str, **settings: Any) -> Policy | AsyncPolicy:
    """Return the policy that `make_policy` makes, wrapped so that its exceptions are explained.

    If a policy uses a server and the first requests of all episodes fail, the run stops: the URL, the model name or the
    key is probably wrong. Later in a run, failed requests are recorded as data.

    Raises `BadPolicy` if the policy's code raises, now or later, and whatever `make_policy` raises.
    """
    with _code_of(description):
        policy = make_policy(description, env_id, **settings)
    if isinstance(policy, AsyncPolicy):
        return _AsyncGuardedPolicy(policy, description)
    return _GuardedPolicy(policy, description)


class _GuardedPolicy:
    def __init__(self, policy: Policy, description: str) -> None:
        self.name = policy.name
        self.settings: Mapping[str, Any] = getattr(policy, "settings", {})
        self.template = getattr(policy, "template", None)
        self.show = getattr(policy, "show", None)
        self.policy, self._description = policy, description

    def act(self, inputs: Sequence[PolicyInput]) -> Sequence[PolicyOutput]:
        """Return the outputs of the policy."""
        with _code_of(self._description):
            return self.policy.act(inputs)


class _AsyncGuardedPolicy(PolicyWrapper):
    def __init__(self, policy: AsyncPolicy, description: str) -> None:
        super().__init__(policy)
        self.settings: Mapping[str, Any] = getattr(policy, "settings", {})
        self.template = getattr(policy, "template", None)
        self._description = description
        self._answered = False
        self._begun = 0  # episodes
        self._kinds: list[str] = []  # how their first requests failed

    @property
    def remarks(self) -> list[str]:
        """What the user should know about the policy's answers."""
        return list(getattr(self.policy, "remarks", ()))

    async def respond(self, policy_input: PolicyInput) -> PolicyOutput:
        """Return the output of the policy."""
        first = not policy_input.episode.turns
        self._begun += first
        with _code_of(self._description):
            output = await self.policy.respond(policy_input)
        failures = policy_input.episode.meta.get(FAILED_REQUESTS)
        self._answered = self._answered or not failures
        if first and failures:
            self._kinds.append(failures[0]["failure"])
        if not self._answered and len(self._kinds) == self._begun:
            kinds = ", ".join(sorted(set(self._kinds)))
            if refusal := getattr(self.policy, "refusal", ""):
                kinds += f"; its reason: {refusal}"
            key = getattr(self.policy, "key_variable", "its key")
            advice = f"check that the server runs, the URL, the name of the model and {key}"
            raise BadPolicy(f"policy {self._description!r} got no answers ({kinds}); {advice}")
        return output


class Live(LiveSuccess):
    """The progress display, the finished episodes, and their success rate so far.

    Args:
        num_envs: the number of episodes played in parallel.
    """

    def __init__(self, num_envs: int) -> None:
        super().__init__(stderr(), "episodes", parallel=num_envs)
        self.finished: list[Episode] = []
        self.split_tasks: int | None = None
        self.total = 0
        self._at_start = num_envs
        self._one_attempt = True

    def begin(self, plan: EpisodePlan) -> None:
        """Store the number of episodes that will be played."""
        self.split_tasks, self.total = plan.split_tasks, len(plan.tasks) * plan.attempts
        self._one_attempt = plan.attempts == 1
        self._at_start = min(self._at_start, self.total)
        self.begin_at(plan.known, self.total)

    def add(self, episode: Episode) -> None:
        """Count a finished episode.

        Raises `BadSetting` if the environment raised in the first step of all the first episodes: probably its server
        has a wrong address. Later in a run, a server that does not answer is recorded as data.
        """
        self.finished.append(episode)
        super().add(episode)
        count = len(self.finished)
        if count == self._at_start and not any(one.turns or ERROR not in one.meta for one in self.finished):
            reasons = _reasons(self.finished)
            raise BadSetting(f"the environment raised in the first step of all {count} episodes so far ({reasons})")

    def rate(self) -> str:
        """Return the success rate. Wilson's interval of episodes would be too narrow with several attempts."""
        count = self.episodes
        return share(self.successes / count, wilson(self.successes, count) if self._one_attempt else None)

    @property
    def _lost(self) -> list[Episode]:
        return [episode for episode in self.finished if ERROR in episode.meta]

    @property
    def kept(self) -> str:
        """What the file holds after a run that ended early: the finished episodes, and how many of them were lost."""
        finished, lost = len(self.finished), len(self._lost)
        if lost == finished:
            return f"only the {finished} episodes in which the environment raised"
        return f"the {finished} finished episodes" + (f", {lost} of them lost" if lost else "")

    @property
    def loss(self) -> str:
        """One sentence about the episodes in which the environment raised; empty if there are none."""
        lost = self._lost
        if not lost:
            return ""
        count, total = len(lost), len(self.finished)
        how = "these episodes end there and count with the score they had"
        return f"lost: in {count} of {total} episodes the environment raised; {how} ({_reasons(lost)})"


def note_remarks(live: Live, policy: Policy | AsyncPolicy, result: Evaluation) -> None:
    """Print what went wrong in finished episodes: lost ones, each limit that was met with its setting, refusals."""
    said = [live.loss] if live.loss else []
    if result.cut_rate:
        cut = f"{share(result.cut_rate)} of the answers were cut at the token limit"
        said.append(f"{cut}: raise it with --policy-arg max_tokens=N")
    if result.context_rate:
        full = f"{share(result.context_rate)} of the episodes no longer fitted into the model's context and ended there"
        said.append(f"{full}: use a model with a longer context, layout=turn (hf:), or a lower max_steps or max_tokens")
    if result.empty_rate:
        empty = f"{share(result.empty_rate)} of the answers were empty, which no environment accepts"
        said.append(
            f"{empty}: a model that writes only reasoning needs a larger max_tokens, or its reasoning switched off "
            "(chat_template_kwargs)"
        )
    for remark in [*said, *getattr(policy, "remarks", ())]:
        note(remark)


def _reasons(lost: Sequence[Episode]) -> str:
    """Return the most frequent error of the environment, and the number of other errors."""
    errors = Counter(f"{error['class']}: {error['message']}" for episode in lost if (error := episode.meta.get(ERROR)))
    [(first, count)] = errors.most_common(1)
    others = errors.total() - count
    return f"{first}; and {others} more with other messages" if others else first
