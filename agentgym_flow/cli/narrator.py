"""Print an episode of a policy while it plays: prompt, answer, action and reward of every turn."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from agentgym_flow.cli.console import board, printed
from agentgym_flow.core import TextEnv
from agentgym_flow.episodes import Episode
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.policies import AsyncPolicy, Policy, PolicyInput, PolicyOutput
from agentgym_flow.policies.base import PolicyWrapper, ask, checked
from agentgym_flow.prompts import PromptTemplate


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
            refused = "" if turn.action_valid else ", the action was invalid"
            self._console.print(Text.assemble(("reward  ", "dim"), f"{turn.reward:+.2f}{refused}"))
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
