"""The script that shops by keywords: what it does, that it knows nothing hidden, and where it stands."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from shop_trip import ENV, Trip, product

from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.webshop.game import Page
from agentgym_flow.envs.webshop.policies import KeywordShopper
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.policies import RandomPolicy, make_policy

WISH = "Find me tall mug with color: red, and size: small, and price lower than 20.00 dollars"
BOTH = {"color": ("blue", "red"), "size": ("small", "large")}


def shop(trip: Trip) -> list[str]:
    policy, done = KeywordShopper(), []
    while trip.visit.page is not Page.DONE and len(trip.episode.turns) < trip.episode.max_steps:
        [output] = policy.act([trip.policy_input])
        done.append(output.action)
        trip.do(output.action)
    return done


def test_it_opens_the_first_that_it_can_pay_picks_what_is_named_and_buys() -> None:
    dear = product("B00000DEAR", "Tall Mug Tall Mug", 25.0, options=BOTH)
    fine = product("B00000FINE", "Tall Mug of Clay", 15.0, options=BOTH)
    done = shop(Trip(WISH, fine, dear))
    assert done == ["search[tall mug]", "click[b00000fine]", "click[red]", "click[small]", "click[buy now]"]


def test_it_goes_back_when_a_named_option_is_missing() -> None:
    bare = product("B00000BARE", "Tall Mug", 10.0)
    fine = product("B00000FINE", "Tall Mug of Clay for Tea or Coffee", 15.0, options=BOTH)
    done = shop(Trip(WISH, fine, bare))
    assert done[:4] == ["search[tall mug]", "click[b00000bare]", "click[< prev]", "click[b00000fine]"]
    assert done[-1] == "click[buy now]"


def test_it_buys_something_before_the_steps_run_out() -> None:
    fine = product("B00000FINE", "Tall Mug of Clay", 15.0, options=BOTH)
    assert shop(Trip(WISH, fine, max_steps=4))[-2:] == ["click[red]", "click[buy now]"]
    only = product("B00000DEAR", "Tall Mug", 95.0)
    assert shop(Trip("Find me tall mug, and price lower than 20.00 dollars", only))[-1] == "click[buy now]"


@pytest.mark.parametrize("instruction", ["", "[]", "find me [SEP] that", "zzz"])
def test_any_instruction_leads_to_a_purchase(instruction: str) -> None:
    trip = Trip(instruction, product("B00000FINE", "Product for zzz or sep"))
    assert shop(trip)[-1] == "click[buy now]"
    assert trip.visit.bought


def test_it_looks_at_nothing_hidden() -> None:
    class Blind(KeywordShopper):
        def act(self, inputs: Any) -> Any:
            shown = ("goal", "admissible_actions")
            blind: Any = [
                SimpleNamespace(
                    observation=policy_input.observation,
                    info={key: policy_input.info[key] for key in shown},
                    episode=policy_input.episode,
                )
                for policy_input in inputs
            ]
            return super().act(blind)

    assert rollout(Blind(), lambda: make_text_env(ENV, split="valid"), [EpisodeSpec(0, task) for task in range(20)])


@pytest.mark.parametrize("goals", ["synthetic", "human"])
def test_it_stays_well_below_the_expert_and_above_random_play(goals: str) -> None:
    specs = [EpisodeSpec(0, task) for task in range(100)]
    success = {}
    for policy in (make_policy("scripted", ENV), RandomPolicy()):
        played = rollout(policy, lambda: make_text_env(ENV, split="valid", goals=goals), specs)
        success[policy.name] = sum(episode.success for episode in played) / len(played)
    assert success["random"] < 0.1 < 0.25 < success["scripted"] < 0.85
