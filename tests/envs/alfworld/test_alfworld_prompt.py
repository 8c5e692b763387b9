"""The prompts of ALFWorld: what the compact one shows, that it is read from texts alone, and that answers come back."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from agentgym_flow.core import Stream
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.alfworld import notes
from agentgym_flow.envs.alfworld.env import ALFWorldEnv
from agentgym_flow.envs.alfworld.notes import notes_of
from agentgym_flow.envs.alfworld.prompt import (
    INDICES,
    MOST,
    PROMPT_TEMPLATES,
    TASK_WORDS,
    VOCABULARY,
    ALFWorldCompactPrompt,
)
from agentgym_flow.envs.alfworld.rooms import FAMILIES
from agentgym_flow.episodes import Episode, PolicyOutput, Turn
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.policies import PolicyInput
from agentgym_flow.prompts import templates_of

ENV = "agentgym_flow/ALFWorld-v0"
COMPACT = ALFWorldCompactPrompt()
Told = tuple[str, str]  # an action and what it led to


def policy_input(goal: str, told: Sequence[Told], commands: Sequence[str], start: str = "You are in a room.") -> Any:
    """Return a situation that has nothing but texts: no state, no environment."""
    turns = []
    for action, text in told:
        before = turns[-1].next_observation if turns else start
        turns.append(Turn(before, "?", PolicyOutput(action), 0.0, text, "?", False, False, True, False, 0.0))
    episode = Episode(ENV, {}, {}, "train", 0, "?", goal, 0, 0, 16, start, "?", turns=turns)
    info = {"goal": goal, "admissible_actions": list(commands), "action_templates": []}
    observation = turns[-1].next_observation if turns else start
    return SimpleNamespace(observation=observation, info=info, episode=episode, candidates=lambda: list(commands))


def words(goal: str, told: Sequence[Told], commands: Sequence[str]) -> str:
    return COMPACT.prompt(policy_input(goal, told, commands))


PUT = "put a clean mug in shelf."
SEEN = ("go to desk 1", "You arrive at desk 1. On the desk 1, you see a mug 2, and a pen 1.")
SHUT = ("go to drawer 1", "You arrive at drawer 1. The drawer 1 is closed.")
OPENED = ("open drawer 1", "You open the drawer 1. The drawer 1 is open. In it, you see nothing.")
TAKEN = ("take mug 2 from desk 1", "You pick up the mug 2 from the desk 1.")
PEN = ("take pen 1 from desk 1", "You pick up the pen 1 from the desk 1.")
CLEANED = ("clean mug 2 with sinkbasin 1", "You clean the mug 2 using the sinkbasin 1.")
PLACED = ("move mug 2 to shelf 1", "You move the mug 2 to the shelf 1.")


def test_at_the_start_every_kind_is_shown_once() -> None:
    walks = ["go to drawer 1", "go to drawer 2", "go to shelf 1", "go to sinkbasin 1", "help", "inventory", "look"]
    assert words(PUT, [], walks) == "clean mug shelf empty nowhere go drawer 0 go goal 1 go tool 2 choose"


@pytest.mark.parametrize(
    ("told", "commands", "expected"),
    [
        ([SEEN], ["take mug 2 from desk 1", "take pen 1 from desk 1", "examine desk 1"],
         "empty wanted take wanted 0 take other 1"),
        ([SEEN, SHUT], ["open drawer 1", "go to desk 1", "go to drawer 2"],
         "empty shut open shut 0 go wanted 1 go drawer 2"),
        ([SHUT, OPENED], ["close drawer 1", "go to desk 1", "go to drawer 2"],
         "empty seen close other 0 go desk 1 go drawer 2"),
        ([SHUT, SEEN], ["go to drawer 1", "examine shelf 1"], "empty wanted examine goal 0 go shut 1"),
        ([SEEN, TAKEN], ["examine mug 2", "move mug 2 to desk 1", "go to sinkbasin 1", "go to shelf 1"],
         "wanted seen put other 0 go tool 1 go goal 2"),
        ([SEEN, TAKEN, CLEANED], ["clean mug 2 with sinkbasin 1", "put mug 2 in/on shelf 1"],
         "ready seen clean tool 0 put goal 1"),
        ([SEEN, TAKEN, CLEANED, PLACED], ["take mug 2 from shelf 1", "go to shelf 2"],
         "empty half take done 0 go goal 1"),
        ([SEEN, TAKEN, PLACED], ["take mug 2 from shelf 1"], "empty wanted take wanted 0"),
        ([PEN], ["go to desk 1", "go to drawer 1"],  # taken from where one stood beside the desk, which is not seen
         "other desk go desk 0 go drawer 1"),
        ([SEEN, PEN], ["go to shelf 1", "heat x 1 with y 1"],
         "other wanted heat other 0 go goal 1"),
        ([SEEN, ("inventory", "You are not carrying anything."), ("x", "Nothing happens.")], ["slice x 1 with y 1"],
         "empty wanted slice other 0"),
    ],
)  # fmt: skip
def test_words_say_what_matters_to_the_task(told: list[Told], commands: list[str], expected: str) -> None:
    assert words(PUT, told, commands) == f"clean mug shelf {expected} choose"


def test_lamps_and_pairs_have_their_words() -> None:
    lamp = ("go to desk 1", "You arrive at desk 1. On the desk 1, you see a desklamp 1, and a mug 1.")
    bare = ("go to bed 1", "You arrive at bed 1. On the bed 1, you see nothing.")
    found = words(
        "look at pen under the desklamp.", [lamp, bare], ["go to desk 1", "use desklamp 1", "use floorlamp 1"]
    )
    assert found == "light pen desklamp empty seen use lamp 0 use other 1 go seen 2 choose"
    one = [SEEN, TAKEN, PLACED]
    found = words("put two mug in shelf.", one, ["go to desk 1", "go to shelf 2", "take mug 2 from shelf 1"])
    assert found == "two mug shelf empty half take done 0 go goal 1 choose"
    assert words("put two mug in shelf.", [*one, bare, SEEN, TAKEN], ["go to shelf 1"]).endswith("go half 0 choose")
    more = ("go to bed 1", "You arrive at bed 1. On the bed 1, you see a mug 4.")
    for told, about in (([more, SEEN], "wanted"), ([more, SEEN, TAKEN], "seen")):  # one thing can be carried
        assert words("put two mug in shelf.", told, ["go to bed 1"]).endswith(f"go {about} 0 choose")


def test_going_back_is_shown_when_there_is_nothing_else_to_go_to() -> None:
    bare = ("go to bed 1", "You arrive at bed 1. On the bed 1, you see nothing.")
    assert words(PUT, [bare, SHUT], ["go to bed 1", "go to drawer 2"]).endswith("shut go drawer 0 choose")
    assert words(PUT, [SEEN, PEN, bare], ["go to desk 1", "go to bed 1"]).endswith("seen go wanted 0 go seen 1 choose")
    assert words(PUT, [bare, SHUT], ["open drawer 1", "go to bed 1"]).endswith("open shut 0 go seen 1 choose")


def test_what_nothing_came_of_is_said_until_something_does() -> None:
    shut = ("go to drawer 2", "You arrive at drawer 2. The drawer 2 is closed.")
    doors = ["open drawer 1", "go to drawer 2", "go to shelf 1"]
    assert words(PUT, [SHUT, shut, SHUT], doors).endswith("shut open shut 0 go shut 1 go goal 2 choose")
    assert words(PUT, [SHUT, shut, SHUT, shut, SHUT], doors).endswith("shut open shut 0 go again 1 go goal 2 choose")
    assert words(PUT, [SHUT, shut, SHUT, shut, SHUT, OPENED], doors[1:]).endswith("seen go shut 0 go goal 1 choose")


def test_heat_undoes_cold() -> None:
    cooled = ("cool mug 2 with fridge 1", "You cool the mug 2 using the fridge 1.")
    heated = ("heat mug 2 with microwave 1", "You heat the mug 2 using the microwave 1.")
    goal = "put a cool mug in shelf."
    hands = [
        words(goal, [SEEN, TAKEN, *told], []).split()[3] for told in ([], [cooled], [cooled, heated], [heated, cooled])
    ]
    assert hands == ["wanted", "ready", "wanted", "ready"]
    assert words(PUT, [SEEN, TAKEN, CLEANED, heated], []).split()[3] == "ready"


def test_what_is_not_in_the_tables_has_a_word_too() -> None:
    assert words("tidy the room, please", [], ["go to gizmo 1"]) == "other other other empty nowhere go other 0 choose"
    assert words("put a gizmo in shelf.", [], []) == "place other shelf empty nowhere choose"


def test_long_lists_are_cut_and_what_can_be_done_here_comes_first() -> None:
    kinds = [word for word in VOCABULARY if word.isalpha()]
    walks = [f"go to {kind} 1" for kind in kinds]
    found = words("put a pen in shelf.", [], [*walks, "take x 1 from y 1"]).split()
    assert len(found) == 6 + 3 * MOST <= 127
    assert found[5:8] == ["take", "other", "0"]


def test_every_task_type_has_a_word() -> None:
    assert set(TASK_WORDS) == set(FAMILIES)
    assert len(set(TASK_WORDS.values())) == 6


def test_answers_stand_for_the_first_of_equal_commands() -> None:
    here = policy_input(PUT, [], ["go to drawer 1", "go to drawer 2", "go to shelf 1", "look"])
    assert [
        COMPACT.format_action(action, here) for action in ("go to drawer 1", "go to drawer 2", "go to shelf 1")
    ] == [
        "0",
        "0",
        "1",
    ]
    assert COMPACT.parse_action("0", here) == "go to drawer 1"
    assert COMPACT.parse_action(" 1\n", here) == "go to shelf 1"
    for said in ("2", "", "go", "-1", "01", "go to drawer 1", "<action>0</action>"):
        assert COMPACT.parse_action(said, here) == ""
    assert COMPACT.format_action("look", here) is None
    assert COMPACT.format_action("go to bed 1", here) is None


def test_equal_prompts_may_mean_different_commands() -> None:
    one, two = (policy_input(PUT, [], [f"go to drawer {number}"]) for number in (1, 2))
    assert COMPACT.prompt(one) == COMPACT.prompt(two)
    assert COMPACT.parse_action("0", one) != COMPACT.parse_action("0", two)


class Through:
    """The expert, as far as a prompt template can say what it does; checks every prompt on the way."""

    name = "through"

    def __init__(self, noise: float = 0.0) -> None:
        self.noise = noise
        self.longest = 0

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        return [self._output(policy_input) for policy_input in inputs]

    def _output(self, policy_input: PolicyInput) -> PolicyOutput:
        prompt = COMPACT.prompt(policy_input)
        self.longest = max(self.longest, len(prompt.split()))
        assert set(prompt.split()) <= set(VOCABULARY)
        # The texts alone give the same prompt: neither the environment nor other keys of `info` are looked at.
        shown = {key: policy_input.info[key] for key in ("goal", "admissible_actions")}
        blind: Any = SimpleNamespace(info=shown, episode=policy_input.episode, observation=policy_input.observation)
        assert COMPACT.prompt(blind) == prompt
        held = notes_of(policy_input).held
        assert isinstance(policy_input.env, ALFWorldEnv)
        assert policy_input.env.game.inventory() == (
            f"You are carrying: a {held}." if held else "You are not carrying anything."
        )
        expert = policy_input.env.expert_action()
        assert expert is not None
        answer = COMPACT.format_action(expert, policy_input)
        assert answer in INDICES
        if policy_input.rng.uniform() < self.noise:
            return PolicyOutput(policy_input.env.sample_action(policy_input.rng))
        return PolicyOutput(COMPACT.parse_action(answer, policy_input))


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_the_expert_can_be_asked_for_everywhere(noise: float) -> None:
    policy = Through(noise)
    specs = [EpisodeSpec(0, task) for task in range(40)]
    episodes = rollout(policy, lambda: make_text_env(ENV, split="valid", max_steps=30), specs)
    assert policy.longest + 1 <= 128
    if not noise:  # it does not say which drawer, yet almost always finds the thing in time
        assert sum(episode.success for episode in episodes) >= 39


def test_a_hidden_difference_is_not_shown() -> None:
    """Two rooms that differ only where nobody has looked have one prompt, until somebody looks."""
    env = make_text_env(ENV, split="valid")
    env.reset(seed=0, options={"task": 0})
    twin = make_text_env(ENV, split="valid")
    twin.reset(seed=0, options={"task": 0})
    assert isinstance(env, ALFWorldEnv)
    assert isinstance(twin, ALFWorldEnv)
    twin.game.inside[:] = [0] * len(twin.game.inside)
    shown = []
    for world in (env, twin):
        episode = Episode(ENV, {}, {}, "valid", 0, "?", world.goal, 0, 0, 50, "?", "?")
        info = {"goal": world.goal, "admissible_actions": world.admissible_actions()}
        shown.append(COMPACT.prompt(PolicyInput(world, "?", info, episode, Stream("test"))))
    assert shown[0] == shown[1]


def test_what_is_remembered_of_episodes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "_MOST_NOTES", 50)
    for number in range(300):
        told = [("open drawer 1", f"You open the drawer 1. The drawer 1 is open. In it, you see a mug {number}.")]
        remembered = notes_of(policy_input("put a mug in shelf.", told, []))
        assert remembered.inside == {"drawer 1": (f"mug {number}",)}
        assert notes._kept[0] <= 51


def test_the_templates_are_text_choice_and_compact() -> None:
    assert templates_of(ENV) == PROMPT_TEMPLATES
    assert set(PROMPT_TEMPLATES) == {"text", "choice", "compact"}
    here = policy_input(PUT, [SEEN], ["take mug 2 from desk 1", "look"])
    text = PROMPT_TEMPLATES["text"].prompt(here)
    for part in (
        "household task",
        PUT,
        "go to desk 1",
        "a pen 1",
        "take mug 2 from desk 1, look",
        "<think>",
        "<action>",
    ):
        assert part in text
    assert "2. look" in PROMPT_TEMPLATES["choice"].prompt(here)
    assert COMPACT.messages(here) == [{"role": "user", "content": COMPACT.prompt(here)}]


def test_no_step_is_spent_on_asking_what_is_held() -> None:
    """Published code plays `inventory` behind the policy's back; here the history is what the policy did."""

    class Once:
        name = "once"

        def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
            for policy_input in inputs:
                for template in PROMPT_TEMPLATES.values():
                    template.prompt(policy_input)
            return [PolicyOutput("look") for _ in inputs]

    [episode] = rollout(Once(), lambda: make_text_env(ENV, max_steps=4), [EpisodeSpec(0, 0)])
    assert [turn.action for turn in episode.turns] == ["look"] * 4
    assert episode.truncated
    assert not episode.success
    assert "success" not in episode.state_keys[-1]
