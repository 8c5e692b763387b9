"""Canvas under random treatment: hostile texts, edits in both forms, prompts. No state is a trap, and no refusal leaves
anything behind.

The general state machine of the compliance suite plays candidates; this one writes actions of its own, under every
setting of the language, and knows what each of them should come to.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import pytest
from canvas_graphs import flat_nodes, instructions, nodes, operators
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agentgym_flow.core import Stream
from agentgym_flow.envs.canvas.actions import Action, Add, Delete, Finish, Modify, SetPrompt
from agentgym_flow.envs.canvas.drafting import CanvasDraft, drafting_of
from agentgym_flow.envs.canvas.env import CanvasEnv
from agentgym_flow.envs.canvas.operators import operators_of
from agentgym_flow.envs.canvas.reading import write_action
from agentgym_flow.envs.canvas.workflow import OperatorNode
from agentgym_flow.envs.canvas.workflow.rules import LANGUAGES
from agentgym_flow.errors import ResetNeeded
from agentgym_flow.testing import play

HOSTILE = (
    *play.NONSENSE[:-1],
    "<action>finish",
    "do not finish yet",
    "<think><action>finish</action>",
    "<action>finish</action><action>finish</action>",
    "<action>add</action><operator>Verifier</operator>",
    "<action>add</action><operator>Custom</operator><prompt>a\r\nb\x00\u2028c</prompt>",
    "<action>add</action><operator>Custom</operator><prompt>no</prompt>",
    "<action>add</action><operator>Custom</operator><position>99999999999999999999</position>",
    "<action>add</action><structure>loop</structure><operators>Custom</operators><count>10000000</count>",
    "<action>add</action><structure>parallel</structure><operators>ScEnsemble, Custom</operators>",
    "<action>add</action><structure>conditional</structure><condition>Custom</condition><true>Plan</true>",
    "<action>modify</action><target>node_1_p0</target><operator>Plan</operator>",
    "<action>delete</action><target>node_0</target>",
    "<action>set_prompt</action><target>node_1</target><prompt></prompt>",
    '{"action": "add", "operator": ["Custom"]}',
    '{"action": "finish", "action": "add"}',
    '{"action": null}',
    '{"action": "add", "operator": "Custom", "position": 1e400}',
    "[" * 5000,
    '{"a":' * 5000,
    "Custom",
    "finish",
    "the prompt for it: be exact",
)
"""What no reader should fall for; some of it is an action all the same."""

targets = st.builds(
    "node_{}{}".format,
    st.integers(1, 4),
    st.sampled_from(["", "", "", "_p0", "_p1_s0", "_cond", "_pass", "_fail", "_l0"]),
)
positions = st.one_of(st.none(), st.integers(0, 3))
edits: st.SearchStrategy[Action] = st.one_of(
    st.builds(Add, operators(), positions),
    st.builds(Add, flat_nodes, positions),
    st.builds(Add, nodes, positions),
    st.builds(Delete, targets),
    st.builds(Modify, targets, operators()),
    st.builds(SetPrompt, targets, instructions),
)
words = st.text(st.characters(), max_size=40)
setups = st.fixed_dictionaries(
    {
        "language": st.sampled_from(["full", "published"]),
        "finish": st.sampled_from(["lax", "published"]),
        "prompting": st.sampled_from(["inline", "two_phase"]),
        "strict": st.booleans(),
        "hints": st.booleans(),
        "operators": st.sampled_from([None, ["Custom", "Programmer", "Verify", "Test", "Revise", "Format"]]),
        "family": st.sampled_from(["arithmetic", "code", "qa"]),
        "max_steps": st.sampled_from([2, 12, 1 << 30]),
    }
)
_IDS = re.compile(r"^ +(node_\w+): ", re.MULTILINE)


def shape(value: Any) -> Any:
    """Return which types stand where, by the names of the fields; what lists hold may vary."""
    return {key: shape(item) for key, item in value.items()} if isinstance(value, dict) else type(value)


def info_shape(info: Mapping[str, Any]) -> Any:
    """Return the types of everything in `info`; how often which operator occurs is free, but always a count."""
    told = copy.deepcopy(dict(info))
    assert all(type(count) is int for count in told["workflow"]["counts"].values())
    told["workflow"]["counts"] = {}
    return shape(told)


def ways_out(env: CanvasEnv, drafting: Any) -> Iterator[str]:
    """Yield actions that end in an accepted `finish` from wherever `env` stands, as few as that takes."""
    for node in reversed(env.game.draft.workflow.nodes[1:]):
        del node
        yield write_action(Delete(f"node_{len(env.game.draft.workflow.nodes)}"), drafting.language)
    kept = len(env.game.draft.workflow.nodes)
    for node in drafting.finish.simplest(drafting.language):
        yield write_action(Add(node), drafting.language)
        while env.game.draft.waiting is not None:
            yield "do it well"
    for _ in range(kept):
        yield write_action(Delete("node_1"), drafting.language)
    yield write_action(Finish(), drafting.language)


class CanvasMachine(RuleBasedStateMachine):
    """An environment under one setting, with clones of the states that it has been in."""

    @initialize(setup=setups, task=st.integers(0, 20), seed=st.integers(0, 3))
    def make(self, setup: dict[str, Any], task: int, seed: int) -> None:
        self.drafting = drafting_of(
            setup["language"],
            None if setup["operators"] is None else operators_of(setup["operators"]),
            setup["finish"],
            setup["prompting"],
            setup["strict"],
        )
        self.env: CanvasEnv = gym.make("agentgym_flow/Canvas-v0", disable_env_checker=True, **setup).unwrapped  # type: ignore[assignment]
        self.last = play.start(self.env, seed, task)
        self.shape = info_shape(self.last.info)
        self.met: dict[str, tuple[CanvasEnv, CanvasDraft]] = {}
        self.steps = 0

    @property
    def playing(self) -> bool:
        return not self.last.over

    def say(self, text: str) -> None:
        before, session = self.last, copy.deepcopy(self.env.game)
        self.last = now = play.advance(self.env, text)
        self.steps += 1
        assert now.truncated is (self.steps == self.env.max_steps and not now.terminated)
        assert now.terminated is (now.info["action_valid"] and now.info["workflow"]["finished"])
        assert now.reward == (now.info["score"] if now.terminated else 0.0)
        assert now.info["score"] == 0.0 or now.terminated
        if not now.info["action_valid"]:
            assert self.env.game.draft == session.draft
            assert self.env.game.run == session.run
            told = {**now.info["workflow"], "correctness": 0.0}  # what it is worth is told when turns have run out
            assert told == before.info["workflow"], f"the workflow changes with the refused {text!r:.80}"
            for key in ("state_key", "score", "admissible_actions", "action_templates", "task_key"):
                assert now.info[key] == before.info[key], f"{key} changes with the refused {text!r:.80}"
            assert now.observation.startswith("Refused: ")

    @precondition(lambda self: self.playing)
    @rule(action=edits, form=st.sampled_from(["tags", "json"]))
    def edit(self, action: Action, form: Any) -> None:
        """Write an edit, which may or may not fit."""
        was = self.env.game.draft
        self.say(write_action(action, LANGUAGES["full" if self.drafting.language.nesting else "published"], form))
        now = self.env.game.draft
        if self.last.info["action_valid"] and now.waiting is None and was.waiting is None:
            self.drafting.language.check(now.workflow.nodes)

    @precondition(lambda self: self.playing and self.env.game.draft.workflow.nodes)
    @rule(number=st.integers(0, 30), operator=operators(), told=instructions, verb=st.sampled_from("dmmss"))
    def edit_what_is_there(self, number: int, operator: OperatorNode, told: str, verb: str) -> None:
        """Delete, replace or tell something to a node that exists; what is shown then is not what was shown before."""
        places = list(self.env.game.draft.workflow.places)
        target = places[number % len(places)]
        edits = {"d": Delete(target), "m": Modify(target, operator), "s": SetPrompt(target, told)}
        self.say(write_action(edits[verb], self.drafting.language))

    @precondition(lambda self: self.playing)
    @rule(text=st.one_of(words, st.integers(0, len(HOSTILE) - 1).map(HOSTILE.__getitem__)))
    def text(self, text: str) -> None:
        """Write anything."""
        self.say(text)

    @precondition(lambda self: self.playing)
    @rule(text=st.one_of(instructions, words.map("do it well: {}".format)))
    def prompt(self, text: str) -> None:
        """Write what may be a prompt."""
        self.say(text)

    @precondition(lambda self: self.playing)
    @rule(number=st.integers(0, 63))
    def candidate(self, number: int) -> None:
        """Take a proposed action, which is always accepted."""
        offered = self.env.candidates()
        self.say(offered[number % len(offered)])
        assert self.last.info["action_valid"], f"the candidate {self.last.action!r} is refused"

    @precondition(lambda self: self.playing)
    @rule()
    def finish(self) -> None:
        """Hand in: exactly where that is said to be possible."""
        missing, waiting = self.last.info["workflow"]["missing"], self.env.game.draft.waiting
        listed = "<action>finish</action>" in self.last.info["admissible_actions"]
        assert listed is (not missing and waiting is None)
        self.say("<action>finish</action>")
        assert self.last.terminated is (not missing)
        if self.last.terminated:
            told, task = self.last.info["workflow"], self.env.game.task
            run = self.env.game.run
            assert told["finished"]
            assert run is not None
            outcome = "success" if self.last.info["score"] == 1.0 else "fail"
            assert self.last.info["state_key"].startswith(f"end:{outcome}:")
            value = run.value
            texts = (run.answer, "") if value is None else (value.text, value.code)
            together = task.problem.kind == "code" and value is None  # programs side by side are no program
            assert self.last.reward == (task.score(*texts) if run.results and not together else 0.0)

    @rule(number=st.integers(0, 3))
    def clone(self, number: int) -> None:
        """Go on with a copy; what is done to the original is not seen."""
        original, self.env = self.env, copy.deepcopy(self.env)
        if self.playing:
            play.advance(original, original.candidates()[number])

    @invariant()
    def ends_are_ends(self) -> None:
        if not self.playing:
            with pytest.raises(ResetNeeded):
                self.env.step("<action>finish</action>")
            assert self.env.state_key() == self.last.info["state_key"]

    @invariant()
    def info_keeps_its_types(self) -> None:
        assert info_shape(self.last.info) == self.shape

    @invariant()
    def every_id_is_listed_once(self) -> None:
        if not self.last.terminated:
            listed = _IDS.findall(self.last.observation)
            assert listed == list(self.env.game.draft.workflow.places)
            assert len(set(listed)) == len(listed)

    @invariant()
    def the_run_is_that_of_the_workflow(self) -> None:
        """What is shown is what a fresh run of the same workflow gives: nothing of how it was built is left in it."""
        session = self.env.game
        fresh = session.runs(session.draft)
        if fresh is None:
            assert session.run is None
        else:
            assert session.run is not None
            assert (fresh.results, fresh.made_by) == (session.run.results, session.run.made_by)
            assert [step.operator for step in fresh.steps] == [step.operator for step in session.run.steps]

    @invariant()
    def equal_keys_are_equal_states(self) -> None:
        """Keys are equal exactly where drafts are, and then the same texts lead to the same."""
        if not self.playing:
            return
        key, draft = self.env.state_key(), self.env.game.draft
        clone = copy.deepcopy(self.env)
        clone.max_steps = 1 << 30
        for other_key, (_, other) in self.met.items():
            assert (key == other_key) is (draft == other)
        if key not in self.met:
            self.met[key] = clone, draft
            return
        first, second = copy.deepcopy(self.met[key][0]), clone
        rng = Stream("continuation", self.steps)
        for _ in range(3):
            text = rng.choice([*first.candidates()[:20], "<action>finish</action>", "be exact here"])
            one, other_one = play.advance(first, text), play.advance(second, text)
            for part in ("reward", "terminated"):
                assert getattr(one, part) == getattr(other_one, part)
            for part in ("state_key", "score", "success", "admissible_actions", "action_valid"):
                assert one.info[part] == other_one.info[part]
            if one.over:
                return

    @invariant()
    def there_is_a_way_out(self) -> None:
        """From every state the workflow can be handed in, in not many more steps than it has nodes."""
        if not self.playing:
            return
        env = copy.deepcopy(self.env)
        env.max_steps = 1 << 30
        before = env.steps
        at_hand = play.advance(copy.deepcopy(env), "<action>finish</action>")
        if not self.last.info["workflow"]["missing"]:
            assert at_hand.terminated
            return
        most = 2 * len(env.game.draft.workflow.nodes) + 20
        moment = at_hand
        for action in ways_out(env, self.drafting):
            moment = play.advance(env, action)
            assert moment.info["action_valid"], f"{action!r} is refused: {moment.observation:.200}"
        assert moment.terminated
        assert env.steps - before <= most


def _run(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        CanvasMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            phases=(Phase.generate, Phase.shrink),
        ),
    )


@pytest.mark.heavy
def test_no_order_of_texts_leads_into_a_trap() -> None:
    _run(15, 15)


@pytest.mark.nightly
def test_no_order_of_very_many_texts_leads_into_a_trap() -> None:
    _run(600, 30)


def test_a_megabyte_is_a_step() -> None:
    env = gym.make("agentgym_flow/Canvas-v0").unwrapped
    play.start(env, 0)
    for text in ("x" * 10**6, "<action>" * 10**5, json.dumps({"action": "add", "operator": "y" * 10**6})):
        assert play.advance(env, text).info["action_valid"] is False
