"""The whole algorithm in one file of plain PyTorch, to be read from top to bottom.

    python -m baselines.plain --algo rewardflow --env Sokoban-v0

Episodes are played in groups of attempts at one task. A credit function maps each group to an advantage for every turn.
It is a pure function in `agentgym_flow.rewards.credit`, the same that the full trainer calls:
    grpo        A = (R - mean R) / std R over the group, the same for all turns of an episode
    rloo        A = R - mean R of the other attempts
    gigpo       A = R - mean R, plus the discounted return of the turn relative to other turns taken in the same state
    rewardflow  A = R - mean R, plus the potential of the next state relative to other turns taken in the same state
    cwrpo       A = (R - mean R) / std R of returns, and all episodes have equal weight in the loss, however long

RewardFlow's potential is gamma ** (fewest observed steps to a success) in the graph of all states that the group
visited. The policy then maximises the clipped objective of PPO, with r the ratio of a turn's probability to that at
sampling:

    loss = - mean min(r A, clip(r, 1 - 0.2, 1 + 0.28) A) - 0.003 mean entropy

The policy is a GPT-2 of 0.25 million weights that reads a prompt of words and answers with one word. It first clones a
few expert episodes, because credit compares outcomes and needs some successes. The full trainer adds: Muon, language
models, several processes, checkpoints, verifiable logs.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import torch

from agentgym_flow._util.intervals import wilson
from agentgym_flow.core import TextEnv
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.text_arguments import env_settings
from agentgym_flow.episodes import Episode, Group
from agentgym_flow.generation.sampling import answer_text
from agentgym_flow.play import EpisodeSpec, rollout, rollout_groups
from agentgym_flow.policies import ExpertPolicy, PolicyInput, PolicyOutput
from agentgym_flow.prompts import PromptTemplate, template_for
from agentgym_flow.rewards.credit import CREDIT, WEIGHTS
from agentgym_flow.rewards.credit.comparison import penalise_invalid
from agentgym_flow.training.tiny import tiny_model, word_tokenizer

ENVIRONMENTS: dict[str, tuple[dict[str, Any], int]] = {  # settings, and number of expert episodes to clone
    "Sokoban-v0": ({"size": 6, "boxes": 1, "min_pushes": 3}, 200),
    "ALFWorld-v0": ({"max_steps": 16}, 300),
    "WebShop-v0": ({"max_steps": 16}, 400),
    "Search-v0": ({"max_steps": 6}, 50),
    "Canvas-v0": ({"max_steps": 12}, 40),
    "Problems-v0": ({"family": "arithmetic", "max_steps": 12}, 600),
}
GROUPS, ATTEMPTS, MINIBATCHES = 32, 8, 4
CLIP_LOW, CLIP_HIGH, ENTROPY, INVALID, MAX_NORM, STEP = 0.2, 0.28, 0.003, 0.1, 1.0, 3e-4


class TrainingTurn(NamedTuple):
    """One turn to train on: prompt tokens, answer token and its log-probability at sampling, advantage, weight."""

    prompt: tuple[int, ...]
    token: int
    logprob: float
    advantage: float
    weight: float


# ---------------------------------------------------------------- the policy
class TinyPolicy:
    """Answers each prompt with one word: sampled, or the most likely one."""

    def __init__(self, template: PromptTemplate, seed: int) -> None:
        self.name = "tiny"
        self.template = template
        self.tokenizer = word_tokenizer(template.vocabulary)  # type: ignore[attr-defined]
        self.model = tiny_model(self.tokenizer, seed=seed)
        self.greedy = False

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a text, one per word."""
        return tuple(self.tokenizer(text, add_special_tokens=False).input_ids)

    def logprobs(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return the log-probabilities of the next token after each prompt, [prompts, vocabulary]."""
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in prompts])  # padded on the left
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        places = (mask.cumsum(-1) - 1).clamp(min=0)
        logits = self.model(input_ids=ids, attention_mask=mask, position_ids=places, logits_to_keep=1).logits
        return torch.log_softmax(logits[:, -1].float(), -1)

    @torch.no_grad()
    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return an output for each running episode, with its token and log-probability."""
        prompts = [self.encode(self.template.prompt(policy_input)) for policy_input in inputs]
        rows = {prompt: row for row, prompt in enumerate(dict.fromkeys(prompts))}  # many prompts are equal
        logprobs = self.logprobs(list(rows))[[rows[prompt] for prompt in prompts]]
        if self.greedy:
            tokens = logprobs.argmax(-1)
        else:  # each episode draws from its own stream
            draws = torch.tensor([[policy_input.rng.uniform()] for policy_input in inputs])
            tokens = (logprobs.exp().cumsum(-1) < draws).sum(-1).clamp(max=logprobs.shape[1] - 1)
        columns = zip(inputs, prompts, tokens.tolist(), logprobs, strict=True)
        return [self.output(one, prompt, token, float(row[token])) for one, prompt, token, row in columns]

    def output(self, policy_input: PolicyInput, prompt: tuple[int, ...], token: int, logprob: float) -> PolicyOutput:
        """Return the policy output for a word."""
        word = answer_text(self.tokenizer, [token])
        return PolicyOutput(self.template.parse_action(word, policy_input), word, prompt, [token], [logprob])


class Demonstrator(ExpertPolicy):
    """The expert, with the prompts and answers of the policy."""

    def __init__(self, policy: TinyPolicy) -> None:
        self.policy = policy

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return the expert's actions."""
        return [self.shown(one, output) for one, output in zip(inputs, super().act(inputs), strict=True)]

    def shown(self, policy_input: PolicyInput, output: PolicyOutput) -> PolicyOutput:
        """Add the prompt and the word that asks for the action."""
        template, answer = self.policy.template, self.policy.template.format_action(output.action, policy_input)
        if answer is None:  # the prompt template cannot express the action
            return output
        prompt, action = self.policy.encode(template.prompt(policy_input)), template.parse_action(answer, policy_input)
        return PolicyOutput(action, None, prompt, self.policy.encode(answer))


# ---------------------------------------------------------------- from episodes to a loss
def with_advantages(algo: str, groups: Sequence[Group]) -> list[TrainingTurn]:
    """Return every turn of the groups with its advantage, reduced by a constant for invalid actions."""
    advantages = penalise_invalid(groups, CREDIT[algo](groups), INVALID)
    weights = WEIGHTS[algo](groups) if algo in WEIGHTS else [[1.0] * len(group.episodes) for group in groups]
    return [
        TrainingTurn(tuple(said.prompt_ids), said.completion_ids[0], said.logprobs[0], advantage, weight)
        for group, of_group, weights_of_group in zip(groups, advantages, weights, strict=True)
        for episode, of_episode, weight in zip(group, of_group, weights_of_group, strict=True)
        for turn, advantage in zip(episode.turns, of_episode, strict=True)
        if (said := turn.output).prompt_ids and said.completion_ids and said.logprobs
    ]


def loss_of(policy: TinyPolicy, turns: Sequence[TrainingTurn]) -> torch.Tensor:
    """Return the loss of a minibatch: minus the clipped objective and the entropy bonus, as means over turns."""
    rows = {prompt: row for row, prompt in enumerate(dict.fromkeys(turn.prompt for turn in turns))}
    logprobs = policy.logprobs(list(rows))[[rows[turn.prompt] for turn in turns]]
    tokens, old, advantages, weights = (torch.tensor(column) for column in list(zip(*turns, strict=True))[1:])
    ratio = (logprobs.gather(1, tokens[:, None])[:, 0] - old).exp()
    objective = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH) * advantages)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    return -(weights * (objective + ENTROPY * entropy)).sum() / weights.sum()


def step(policy: TinyPolicy, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """Take one optimizer step."""
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(policy.model.parameters(), MAX_NORM)
    optimizer.step()


# ---------------------------------------------------------------- the parts of a run
def clone(policy: TinyPolicy, env: TextEnv, make: Any, episodes: int, updates: int, rng: random.Random) -> None:
    """Imitate the expert on a few training tasks."""
    specs = [EpisodeSpec(task, task, 0) for task in rng.sample(range(env.num_tasks), min(episodes, env.num_tasks))]
    shown = rollout(Demonstrator(policy), make, specs, num_envs=256)
    outputs = [turn.output for one in shown for turn in one.turns]
    pairs = [(said.prompt_ids, said.completion_ids[0]) for said in outputs if said.completion_ids]
    optimizer = torch.optim.AdamW(policy.model.parameters(), 2e-3)
    for _ in range(updates):
        prompts, answers = zip(*rng.sample(pairs, min(256, len(pairs))), strict=True)
        chosen = policy.logprobs(prompts).gather(1, torch.tensor(answers)[:, None])
        step(policy, optimizer, -chosen.mean())


def train(
    policy: TinyPolicy, env: TextEnv, make: Any, algo: str, batches: int, rng: random.Random
) -> Iterator[list[Episode]]:
    """Play, compute advantages, update the policy; yield the episodes of each batch."""
    optimizer = torch.optim.AdamW(policy.model.parameters(), STEP, weight_decay=0.0)
    for batch in range(batches):
        for group in optimizer.param_groups:  # linear decay to a tenth
            group["lr"] = STEP * (1 - 0.9 * batch / batches)
        drawn = rng.sample(range(env.num_tasks), min(GROUPS, env.num_tasks))
        tasks = [EpisodeSpec(rng.randrange(1 << 30), task, 0) for task in drawn]
        groups = rollout_groups(policy, make, tasks, ATTEMPTS, num_envs=GROUPS * ATTEMPTS)
        turns = with_advantages(algo, groups)
        rng.shuffle(turns)
        for first in range(MINIBATCHES):
            step(policy, optimizer, loss_of(policy, turns[first::MINIBATCHES]))
        yield [episode for group in groups for episode in group]


def success_rate(policy: TinyPolicy, make: Any, tasks: int, greedy: bool) -> str:
    """Return the success rate on test tasks with its 95 % interval."""
    policy.greedy = greedy
    specs = [EpisodeSpec(task, task, 0) for task in range(min(tasks, make().num_tasks))]
    wins = [one.success for one in rollout(policy, make, specs, num_envs=256)]
    policy.greedy = False
    low, high = wilson(sum(wins), len(wins))
    return f"{'greedy' if greedy else 'sampled'} {sum(wins) / len(wins):.1%} [{low:.1%}, {high:.1%}]"


def show(line: str) -> None:
    """Print a line without buffering."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Clone, evaluate, train, evaluate."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.partition("\n")[0])
    parser.add_argument("--algo", default="rewardflow", choices=list(CREDIT))
    parser.add_argument("--env", default="Sokoban-v0", choices=ENVIRONMENTS)
    parser.add_argument("--env-arg", "--env_kwargs", action="append", metavar="KEY=VALUE", help="instead of the usual")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batches", type=int, default=40, help=f"batches of {GROUPS} tasks with {ATTEMPTS} attempts")
    parser.add_argument("--updates", type=int, default=300, help="updates of cloning")
    parser.add_argument("--tasks", type=int, default=500, help="test tasks to evaluate on, at most")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(asked.seed)
    rng = random.Random(asked.seed)
    env_id, (usual, shown) = f"agentgym_flow/{asked.env}", ENVIRONMENTS[asked.env]
    chosen = env_settings(env_id, asked.env_arg) or usual
    policy = TinyPolicy(template_for(env_id, "compact"), asked.seed)

    def make(split: str = "train") -> TextEnv:
        return make_text_env(env_id, **{**chosen, "split": split})

    def say(when: str) -> None:
        figures = ", ".join(success_rate(policy, lambda: make("test"), asked.tasks, greedy) for greedy in (False, True))
        show(f"{when}: {figures}")

    with closing(make()) as env:
        clone(policy, env, make, shown, asked.updates, rng)
        say("cloned")
        for number, episodes in enumerate(train(policy, env, make, asked.algo, asked.batches, rng), 1):
            success = sum(one.success for one in episodes) / len(episodes)
            show(f"batch {number}: success {success:.1%}")
        say("trained")
    return 0


if __name__ == "__main__":
    sys.exit(main())
