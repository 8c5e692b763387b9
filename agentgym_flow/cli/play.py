"""`agentgym-flow play`: play in the terminal, with single keys if they suffice or by typing, or watch a policy."""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from agentgym_flow._util.files import check_new
from agentgym_flow.cli.console import board, interactive, printed, stdout
from agentgym_flow.cli.options import EnvArgs, EnvName, Force, PolicyArgs, Split
from agentgym_flow.cli.player import guarded_policy, policy_settings
from agentgym_flow.core import TextEnv
from agentgym_flow.envs import make_text_env, text_arguments
from agentgym_flow.episodes import TRUNCATED_BY, Episode, EpisodeRecorder, Turn, write_log
from agentgym_flow.errors import RetrieverFailed
from agentgym_flow.play import EpisodeSpec, data_files, rollout
from agentgym_flow.policies import AsyncPolicy, Policy, PolicyInput, PolicyOutput
from agentgym_flow.policies.base import PolicyWrapper, ask, checked
from agentgym_flow.prompts import PromptTemplate, template_for

QUIT = "q"
_CONTRACT = {"task", "task_key", "goal", "state_key", "success", "score", "action_valid"}
_CONTRACT |= {"admissible_actions", "action_templates"}
_EMPTY = ("", "None", "{}", "[]", "()")
_LISTED = 100
_FIELD = re.compile(r"\{(\w+)\}")
_LONGEST_FACT = 80  # of a mapping
_LONGEST_KEY = 32  # a state key that is a digest tells a person nothing


def play(
    env: EnvName,
    split: Split = "train",
    task: Annotated[int | None, typer.Option(min=0)] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    env_arg: EnvArgs = None,
    log: Path | None = None,
    force: Force = False,
    commands: Annotated[bool, typer.Option("--commands")] = False,
    template: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    policy: Annotated[str | None, typer.Option("--policy", "-p")] = None,
    policy_arg: PolicyArgs = None,
) -> None:
    """Play one episode yourself, or watch a policy play it turn by turn (--policy).

    If the first letters of the actions differ, play with these letters or the arrow keys. Otherwise type the actions.
    q quits.

    Options:
        task: The task number (default: drawn by the seed).
        seed: The seed of the episode.
        log: Write the episode to this file when it ends or you quit.
        commands: Type full commands even if single keys suffice.
        template: Play as a language model does: read its prompt and type its answer. The prompt template is text,
            choice, or NAME:PATH for a published prompt.
        policy: Watch this policy play instead: openai:MODEL@URL, hf:FOLDER, expert or any other that `evaluate`
            accepts.
    """
    env_id = text_arguments.full_id(env)
    prompt = None if template is None or policy is not None else template_for(env_id, template)
    shown = text_arguments.human_settings(env_id) if template is None and policy is None else {}
    settings = shown | text_arguments.env_settings(env_id, env_arg)
    if log is not None:  # before a model is loaded, and before a game that could be lost
        check_new(log, replace=force, inputs=data_files(settings))
    if policy is not None:
        player = guarded_policy(policy, env_id, **policy_settings(policy, policy_arg, template=template, num_envs=1))
        watch(player, make_text_env(env_id, split=split, **settings), seed, task, log)
        return
    made = make_text_env(env_id, split=split, **settings)
    recorder = EpisodeRecorder(made)
    episode = recorder.reset(seed=seed, task=task)
    episode.meta["policy"] = "human"
    console = stdout()
    goal = () if episode.goal == episode.observation else (("  goal ", "dim"), printed(episode.goal))
    console.print(Text.assemble(("Task ", "dim"), str(episode.task), *goal))
    bindings = key_bindings(recorder.info)
    try:
        if prompt is not None:
            _play_by_prompts(recorder, prompt, console)
        elif bindings and not commands and KEYS_AVAILABLE and interactive() and not console.is_dumb_terminal:
            _play_by_keys(recorder, bindings, console)
        else:
            _play_by_lines(recorder, console)
        console.print(_ending(episode))
    finally:
        made.close()
        _keep(episode, log, console)


def watch(policy: Policy | AsyncPolicy, env: TextEnv, seed: int, task: int | None, log: Path | None) -> None:
    """Print an episode of a policy turn by turn, and write it to `log`, also after Ctrl-C or an error of the policy."""
    console = stdout()
    console.print(Text.assemble(("Policy ", "dim"), printed(policy.name)), soft_wrap=True)
    narrator = Narrator(console, getattr(policy, "template", None))
    try:
        console.print(_ending(narrator.play(policy, env, seed, task)))
    finally:
        if narrator.episode is not None:
            narrator.episode.meta["policy"] = policy.name
        _keep(narrator.episode, log, console)


def _keep(episode: Episode | None, log: Path | None, console: Console) -> None:
    """Write the episode, which may be unfinished, to `log` if there is one, and print what was done."""
    if log is None:
        return
    if episode is None or not episode.turns:
        console.print(printed(f"No step was taken, so {log} was not written"), soft_wrap=True)
        return
    write_log(log, [episode])
    console.print(printed(f"The episode is in {log}"), soft_wrap=True)


def key_bindings(info: Mapping[str, Any]) -> dict[str, str]:
    """Return key -> action if the action language is closed and its first letters differ; otherwise an empty mapping.

    Arrow keys are included for actions named `up`, `down`, `left` and `right`.
    """
    actions = info["admissible_actions"]
    letters = [action[:1].lower() for action in actions]
    if not actions or info["action_templates"] or len(set(letters)) < len(letters) or QUIT in letters:
        return {}
    arrows = {action: action for action in actions if action in ("up", "down", "left", "right")}
    return dict(zip(letters, actions, strict=True)) | arrows


class Facts:
    """The additional `info` of an environment: all of it at the start, later only keys that have changed since.

    Lists and long mappings are left out: they are meant for programs and can grow long.
    """

    def __init__(self) -> None:
        self._start: dict[str, str] = {}
        self._changed: set[str] = set()

    def of(self, recorder: EpisodeRecorder) -> dict[str, str]:
        """Return the facts to show now, without empty ones."""
        assert recorder.episode is not None  # reset() comes before
        told = {key: value for key, value in recorder.info.items() if key not in _CONTRACT}
        now = {key: str(value) for key, value in told.items() if not isinstance(value, list)}
        for key in [key for key, text in now.items() if isinstance(told[key], Mapping) and len(text) > _LONGEST_FACT]:
            del now[key]
        if not recorder.episode.turns:
            self._start = now
        self._changed |= {key for key, value in now.items() if value != self._start.get(key)}
        shown = self._changed if recorder.episode.turns else set(now)
        return {key: value for key, value in now.items() if key in shown and value not in _EMPTY}


def _play_by_keys(recorder: EpisodeRecorder, bindings: Mapping[str, str], console: Console) -> None:
    letters = ", ".join(f"{key} {action}" for key, action in bindings.items() if key != action)
    help_line = f"{'arrow keys or ' if any(len(key) > 1 for key in bindings) else ''}{letters}, {QUIT} quits"
    facts = Facts()
    with single_keys(), Live(console=console, auto_refresh=False) as live:
        while not recorder.done:
            live.update(Group(_scene(recorder, facts), Text(help_line, "dim")), refresh=True)
            key = read_key()
            if key in (QUIT, END_OF_INPUT, ""):
                break
            action = bindings.get(key) or bindings.get(key.lower())
            if action is not None:
                recorder.step(action)
        live.update(_scene(recorder, facts), refresh=True)


def _play_by_lines(recorder: EpisodeRecorder, console: Console) -> None:
    facts = Facts()
    while not recorder.done:
        console.print(_scene(recorder, facts))
        console.print(_choices(recorder.info, recorder.env.card.typed_forms))
        line = _typed(console)
        if line is None:
            return
        if line.strip():
            _step(recorder, console, meant(line.strip(), recorder.env.card.typed_forms))
    console.print(_scene(recorder, facts))


def _play_by_prompts(recorder: EpisodeRecorder, template: PromptTemplate, console: Console) -> None:
    while not recorder.done:
        policy_input = PolicyInput.of(recorder)
        console.print(printed(template.prompt(policy_input)), soft_wrap=True)
        line = _typed(console)
        if line is None:
            return
        if turn := _step(recorder, console, PolicyOutput(template.parse_action(line, policy_input), completion=line)):
            console.print(Text.assemble(("action ", "dim"), printed(_told(turn))))


def _typed(console: Console) -> str | None:
    """Return the next line that the player types; None to quit."""
    try:
        line = console.input("> ")
    except (EOFError, RuntimeError):  # RuntimeError: there is no standard input at all
        return None
    return None if line.strip() == QUIT else line


def _step(recorder: EpisodeRecorder, console: Console, output: str | PolicyOutput) -> Turn | None:
    """Take a step and return its turn. If the retriever fails, print why; the step can be repeated later."""
    try:
        return recorder.step(output)
    except RetrieverFailed as error:
        console.print(Text.assemble(("No step was taken", "bold yellow"), ": ", printed(str(error))))
        return None


def _told(turn: Turn) -> str:
    return f"{turn.action} ({turn.reward:+.1f}{'' if turn.action_valid else ', invalid'})"


def meant(line: str, forms: Mapping[str, str]) -> str:
    """Return the action that a typed line stands for according to the short `forms`, or the line if no form matches."""
    for form, action in forms.items():
        pattern = re.escape(form)
        names = _FIELD.findall(form)
        for name in names:  # each field is a word, but the last has the rest of the line
            pattern = pattern.replace(re.escape(f"{{{name}}}"), f"(?P<{name}>{'.+' if name == names[-1] else '[^ ]+'})")
        found = re.fullmatch(pattern, line, re.IGNORECASE)
        if found is not None:
            fields = found.groupdict()
            return _FIELD.sub(lambda field, fields=fields: fields[field[1]], action)  # type: ignore[misc]
    return line


def _choices(info: Mapping[str, Any], forms: Mapping[str, str]) -> Text:
    actions = list(forms) or [*info["action_templates"], *info["admissible_actions"]]
    more = f" ... ({len(actions) - _LISTED} more)" if len(actions) > _LISTED else ""
    return printed(f"{' | '.join(actions[:_LISTED])}{more} | {QUIT} quits")


def _scene(recorder: EpisodeRecorder, told: Facts) -> RenderableType:
    """Return what the player sees: the observation, the last step, and the additional facts."""
    env = recorder.env
    assert recorder.episode is not None  # reset() comes before
    facts = {
        "step": f"{env.steps} of {env.max_steps}",
        "return": f"{recorder.episode.total_reward:.1f}",
    }
    if len(recorder.info["state_key"]) <= _LONGEST_KEY:
        facts["state"] = recorder.info["state_key"]
    facts |= told.of(recorder)
    if recorder.episode.turns:
        facts["last"] = _told(recorder.episode.turns[-1])
    line = Text("  ").join(Text.assemble((f"{name} ", "dim"), printed(value)) for name, value in facts.items())
    seen = (board(recorder.observation), Text()) if recorder.observation else ()
    return Group(Text(), *seen, line)


def _ending(episode: Episode) -> Text:
    count = len(episode.turns)
    steps = f"{count} step{'' if count == 1 else 's'}, return {episode.total_reward:.1f}, score {episode.score:g}"
    if episode.success:
        return Text.assemble(("Success", "bold green"), f": {steps}")
    if episode.terminated:
        return Text.assemble(("Failed", "bold red"), f": {steps}")
    full = "Out of context" if TRUNCATED_BY in episode.meta else "Left"
    return Text.assemble(("Out of steps" if episode.truncated else full, "bold yellow"), f": {steps}")


try:
    import termios
    import tty
except ImportError:  # Windows: lines are read instead of keys
    termios = None  # type: ignore[assignment]

KEYS_AVAILABLE = termios is not None
"""Whether this system can deliver single key presses."""

END_OF_INPUT = "\x04"
"""Ctrl-D, which a terminal in single-key mode delivers as a key."""

_ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
_REST_OF_SEQUENCE = 0.05  # seconds; the bytes of an arrow key arrive together
_PATIENCE = 0.2  # seconds


@contextlib.contextmanager
def single_keys() -> Iterator[None]:
    """Make the terminal deliver keys immediately and without echo. Ctrl-C still interrupts. Restores it at the end."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def read_key() -> str:
    """Wait for a key and return it: a character; `up`, `down`, `left` or `right` for arrows; `""` at end of input."""
    descriptor = sys.stdin.fileno()
    # A Ctrl-C between two instructions does not interrupt a read that begins right after it, so no wait is a long one.
    while not select.select([descriptor], [], [], _PATIENCE)[0]:
        pass
    first = os.read(descriptor, 1)
    if first != b"\x1b":
        return first.decode("latin-1")
    rest = ""
    while len(rest) < 2 and select.select([descriptor], [], [], _REST_OF_SEQUENCE)[0]:
        rest += os.read(descriptor, 1).decode("latin-1")
    return _ARROWS.get(rest[1:], "\x1b") if rest[:1] in ("[", "O") else "\x1b"


class Narrator:
    """Prints every turn of an episode as it happens, and the answer of a model in this process while it is generated.

    Args:
        console: where to print.
        template: the prompt template of a language model, whose first prompt is printed completely; None for other
            policies.

    Attributes:
        episode: the episode so far, which remains here after an interruption; None before the first turn.
    """

    def __init__(self, console: Console, template: PromptTemplate | None) -> None:
        self.episode: Episode | None = None
        self._console, self._template = console, template
        self._told = 0  # turns whose outcome is printed
        self._answering = False

    def play(self, policy: Policy | AsyncPolicy, env: TextEnv, seed: int, task: int | None) -> Episode:
        """Let `policy` play one episode, close the environment, and return the episode. Raises as `rollout` does."""
        show = getattr(policy, "show", None)
        if show is not None:
            show(self._tell_piece)
        if isinstance(policy, AsyncPolicy):
            policy = _AsyncPrintingPolicy(policy, self)
        else:
            policy = _PrintingPolicy(policy, self)
        [episode] = rollout(policy, lambda: env, [EpisodeSpec(seed, task)], num_envs=1)
        self._tell_outcome(episode)
        return episode

    def tell_prompt(self, policy_input: PolicyInput) -> None:
        """Print the outcome of the last turn and the present policy input."""
        self.episode = policy_input.episode
        self._tell_outcome(policy_input.episode)
        if not policy_input.episode.turns and self._template is not None:
            messages = self._template.messages(policy_input)  # solved turns come before the prompt
            self._block("prompt", printed("\n\n".join(message["content"] for message in messages)))
        else:
            self._block(f"turn {len(policy_input.episode.turns) + 1}", board(policy_input.observation))

    def tell_output(self, output: PolicyOutput) -> None:
        """Print the answer of the policy and the action in it."""
        if self._answering:
            self._console.print()
            self._answering = False
        elif output.completion is not None and output.completion != output.action:
            self._block("answer", printed(output.completion))
        self._console.print(Text.assemble(("action  ", "dim"), printed(output.action)), soft_wrap=True)

    def _tell_piece(self, piece: str) -> None:
        """Print a piece of an answer that is being generated."""
        if not self._answering:
            self._block("answer", Text(), end="")
            self._answering = True
        self._console.print(printed(piece), end="", soft_wrap=True)

    def _tell_outcome(self, episode: Episode) -> None:
        """Print the reward of turns that have not been printed yet."""
        for turn in episode.turns[self._told :]:
            cut = ", the answer was cut at the token limit" if turn.output.cut else ""
            refused = "" if turn.action_valid else ", the action was invalid"
            self._console.print(Text.assemble(("reward  ", "dim"), f"{turn.reward:+.2f}{cut}{refused}"), soft_wrap=True)
        self._told = len(episode.turns)

    def _block(self, name: str, text: Text, end: str = "\n") -> None:
        self._console.print(Text.assemble("\n", (f"── {name}", "dim")))
        self._console.print(text, end=end, soft_wrap=True)


class _PrintingPolicy:
    def __init__(self, policy: Policy, narrator: Narrator) -> None:
        self.name = policy.name
        self._policy, self._narrator = policy, narrator

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Print and return the output of the policy for the only running episode."""
        [policy_input] = inputs
        self._narrator.tell_prompt(policy_input)
        outputs = ask(self._policy, inputs)
        self._narrator.tell_output(outputs[0])
        return outputs


class _AsyncPrintingPolicy(PolicyWrapper):
    def __init__(self, policy: AsyncPolicy, narrator: Narrator) -> None:
        super().__init__(policy)
        self._narrator = narrator

    async def respond(self, policy_input: PolicyInput) -> PolicyOutput:
        """Print and return the output of the policy."""
        self._narrator.tell_prompt(policy_input)
        output = checked(self.policy, await self.policy.respond(policy_input))
        self._narrator.tell_output(output)
        return output
