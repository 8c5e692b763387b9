"""Episodes from workers: an honest one comes out as it was recorded, and nothing else comes out."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest
import torch

pytest.importorskip("trl", reason="training needs the extra train")

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from agentgym_flow.core import TextEnv
from agentgym_flow.dataflow.batches.inbox import Receiver
from agentgym_flow.dataflow.records import LONGEST, Slot
from agentgym_flow.dataflow.stage import turn_router
from agentgym_flow.dataflow.wire import encode
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.search.prompt import AGAIN, SearchText
from agentgym_flow.envs.search.prompt import PROMPT_TEMPLATES as OF_SEARCH
from agentgym_flow.envs.sokoban.prompt import PROMPT_TEMPLATES as OF_SOKOBAN
from agentgym_flow.episodes import Episode, Group, LoggedEpisode
from agentgym_flow.errors import BadSetting, Forged
from agentgym_flow.generation import Completion
from agentgym_flow.play import EnvPool, EpisodeSpec, rollout
from agentgym_flow.policies import PolicyInput, PolicyOutput
from agentgym_flow.prompts import TextTemplate
from agentgym_flow.retrieval.corpus import Hit, Passage
from agentgym_flow.training.conversation import PLAIN
from agentgym_flow.training.models import load_model
from agentgym_flow.training.policy import ModelPolicy
from agentgym_flow.training.rows import rows
from agentgym_flow.training.tiny import word_tokenizer

STEPS = {"one": 7}


@dataclass
class World:
    """An environment and those who play in it."""

    make_env: Callable[[], TextEnv]
    policies: dict[str, ModelPolicy]
    acting: Callable[[PolicyInput], str] = lambda _: "one"
    stop: Callable[[PolicyInput], bool] | None = None
    keep: tuple[str, ...] = ()
    steps: dict[str, int] = field(default_factory=lambda: STEPS)
    name: str = "team"

    def play(self, slots: Sequence[Slot]) -> list[Episode]:
        """What an honest worker records."""
        specs = [EpisodeSpec(slot.seed, slot.task, slot.sample) for slot in slots]
        return rollout(self, EnvPool(self.make_env, self.keep), specs, stop=self.stop)

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Let whoever is to act answer, with the weights that were asked for."""
        outputs = []
        for policy_input in inputs:
            name = self.acting(policy_input)
            policy = self.policies[name]
            policy.generator.version = self.steps[name]
            [output] = policy.act([policy_input])
            outputs.append(replace(output, policy=name) if len(self.policies) > 1 else output)
        return outputs

    def receiver(self) -> Receiver:
        """A receiver whose policies have other weights: it must not need the worker's."""
        return Receiver(EnvPool(self.make_env, self.keep), self.acting, self.policies, self.stop)


def make_sokoban() -> TextEnv:
    return make_text_env("agentgym_flow/Sokoban-v0", size=6, boxes=1, min_pushes=1, split="train", max_steps=12)


def acting_sokoban(seed: int, **settings: Any) -> ModelPolicy:
    model, tokenizer = load_model("tiny", OF_SOKOBAN["compact"], seed=seed)
    with torch.no_grad():  # lift the actions out of the noise of a fresh model
        model.transformer.wte.weight[3:7] *= 30
    return ModelPolicy(model, tokenizer, OF_SOKOBAN["compact"], **settings)


@cache
def sokoban() -> World:
    """Three tokens an answer, so most actions are invalid; `info` is kept; some episodes stop early."""
    return World(
        make_sokoban,
        {"one": acting_sokoban(0, max_new_tokens=3)},
        stop=lambda policy_input: len(policy_input.episode.turns) == 5 + policy_input.episode.attempt,
        keep=("admissible_actions",),
    )


@cache
def team() -> World:
    """Two policies that take turns, with different temperatures and versions."""
    return World(
        make_sokoban,
        {"first": acting_sokoban(0), "second": acting_sokoban(1, temperature=0.5)},
        acting=lambda policy_input: "second" if len(policy_input.episode.turns) % 3 == 1 else "first",
        steps={"first": 3, "second": 8},
    )


class Found1:
    """Finds one passage for every query, which is in the recording."""

    name = "found"

    def search(self, queries: list[str], topk: int) -> list[list[Hit]]:
        return [[Hit(Passage(query, "Fjords", f"{query} and fjords"), 1.0)] for query in queries]


def make_search() -> TextEnv:
    return make_text_env("agentgym_flow/Search-v0", retriever=Found1(), max_steps=4, split="valid")


@cache
def search() -> World:
    """One conversation an episode, with passages from outside; nothing may be asked again."""
    said = ("<search>harbour</search>", "<search>lighthouse</search>", "<answer>fjord</answer>", "nothing")
    text = OF_SEARCH["text"]
    assert isinstance(text, SearchText)
    env = make_search()
    words = dict.fromkeys([*said, "<user>", "<assistant>", *AGAIN.split(), *text.rules.split()])
    for task in range(2):
        env.reset(seed=0, options={"task": task})
        for action in ("search[harbour]", "search[lighthouse]", "no"):
            words |= dict.fromkeys(env.step(action)[0].replace("<", "\u2039").replace(">", "\u203a").split())
        words |= dict.fromkeys(env.goal.split())
    tokenizer = word_tokenizer(list(words | dict.fromkeys(["<information>", "</information>"])))
    tokenizer.unk_token = None
    tokenizer.chat_template = (
        "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} <eos> {% endfor %}"
        "{% if add_generation_prompt %}<assistant> {% endif %}"
    )
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"n_positions": 1024, "n_embd": 32, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id, **sizes)).eval()
    with torch.no_grad():
        ids = [*tokenizer.convert_tokens_to_ids(list(said)), tokenizer.eos_token_id]
        weight = model.transformer.wte.weight
        direction = weight[ids].mean(0) / weight[ids].mean(0).norm()
        weight[ids] += 1.5 * direction
        model.transformer.ln_f.bias += 4.0 * direction
    return World(make_search, {"one": ModelPolicy(model, tokenizer, text, layout="conversation")})


@cache
def full() -> World:
    """Conversations that soon fill the context."""
    world = search()
    model = copy.deepcopy(world.policies["one"].model)
    model.config.n_positions = 150
    policy = ModelPolicy(
        model, world.policies["one"].tokenizer, OF_SEARCH["text"], layout="conversation", max_new_tokens=2
    )
    return replace(world, policies={"one": policy})


@cache
def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with a token for each byte, so that it writes any text."""
    bare = Tokenizer(BPE({char: at for at, char in enumerate(sorted(ByteLevel.alphabet()))}, []))
    bare.pre_tokenizer, bare.decoder = ByteLevel(add_prefix_space=False), ByteLevelDecoder()
    made = PreTrainedTokenizerFast(tokenizer_object=bare, eos_token="<eos>", bos_token="<eos>", pad_token="<eos>")
    made.chat_template = PLAIN
    return made


TALKER, MAPPER = "talker", "mapper"


@cache
def mixed() -> World:
    """Two models with nothing in common: one talks in bytes, in a conversation; the other has a word for each cell."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"n_positions": 8192, "n_embd": 16, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=257, eos_token_id=256, **sizes)).eval()
    text = TextTemplate(think=False, history=1, tags_required=False)
    talker = ModelPolicy(model, byte_tokenizer(), text, layout="conversation", max_new_tokens=3, acts_as=TALKER)
    return World(
        make_sokoban,
        {TALKER: talker, MAPPER: acting_sokoban(1, acts_as=MAPPER)},
        acting=turn_router([TALKER, MAPPER, MAPPER, "..."]),
        stop=lambda policy_input: len(policy_input.episode.turns) == 8,
        steps={TALKER: 3, MAPPER: 8},
    )


WORLDS = {"sokoban": sokoban, "team": team, "search": search, "full": full, "mixed": mixed}
SLOTS = [Slot(0, task, sample, task, 11) for task in range(2) for sample in range(4)]


@cache
def recorded(name: str) -> list[tuple[Slot, Episode, str]]:
    """Each slot with its episode and its payload."""
    world = WORLDS[name]()
    return [(slot, episode, encode(episode)) for slot, episode in zip(SLOTS, world.play(SLOTS), strict=True)]


# ---------------------------------------------------------------- honest workers
@pytest.mark.parametrize("name", WORLDS)
def test_an_honest_episode_comes_out_as_it_was_recorded(name: str) -> None:
    world, receiver = WORLDS[name](), WORLDS[name]().receiver()
    for slot, episode, payload in reversed(recorded(name)):
        found = receiver.replay(slot, payload, world.steps)
        assert found == episode
        assert repr(found) == repr(episode)  # 1, 1.0 and true are equal, and so are a list and what is like one
        assert encode(found) == payload


def test_the_recorded_worlds_hold_episodes_of_every_kind() -> None:
    """That the test above has seen episodes of all kinds."""
    ends = [episode for _, episode, _ in recorded("sokoban")]
    assert any(not episode.terminated and not episode.truncated for episode in ends)
    assert any(len(turn.output.completion_ids or ()) > 1 for episode in ends for turn in episode.turns)
    assert all(turn.info and turn.output.version == 7 and turn.output.policy is None for turn in ends[0].turns)
    turns = [turn for _, episode, _ in recorded("team") for turn in episode.turns]
    assert {(turn.output.policy, turn.output.version) for turn in turns} == {("first", 3), ("second", 8)}
    found = [turn for _, episode, _ in recorded("search") for turn in episode.turns if turn.recording]
    assert len(found) > 3, "too few searches to tell"
    said = [episode.turns for _, episode, _ in recorded("search") if len(episode.turns) > 1]
    assert said
    full = [episode for _, episode, _ in recorded("full")]
    assert any(episode.meta.get("truncated_by") and len(episode.turns) > 1 for episode in full)
    assert any(turn.output.cut for episode in full for turn in episode.turns)
    for first, second, *_ in said:
        asked = list(first.output.prompt_ids or ())
        assert list(second.output.prompt_ids or ())[: len(asked)] == asked


def test_nothing_is_asked_of_the_outside_world(monkeypatch: pytest.MonkeyPatch) -> None:
    episodes = recorded("search")
    monkeypatch.setattr(Found1, "search", lambda *_: pytest.fail("the retriever was asked"))
    for slot, episode, payload in episodes:
        assert search().receiver().replay(slot, payload, STEPS) == episode


def test_the_text_that_ends_an_answer_is_its_last() -> None:
    """A transcript stops at `</search>`; what follows in the same token belongs to it, a further token does not."""
    tokenizer = search().policies["one"].tokenizer
    policy = ModelPolicy(search().policies["one"].model, tokenizer, OF_SEARCH["text"], max_new_tokens=3)
    policy.sampling = replace(policy.sampling, stops=("</search>",))
    receiver = Receiver(EnvPool(make_search), lambda _: "one", {"one": policy}, lambda _: True)
    slot = Slot(0, 0, 0, 0, 5)
    nothing, asks = tokenizer.convert_tokens_to_ids(["nothing", "<search>harbour</search>"])

    class Scripted(World):
        def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
            said = Completion((nothing, asks), (-0.5, -0.25), 7)
            return [policy.output(policy_input, policy.request(policy_input), said) for policy_input in inputs]

    [episode] = Scripted(make_search, {"one": policy}, stop=lambda _: True).play([slot])
    assert episode.turns[0].output.completion_ids == (nothing, asks)
    payload = encode(episode)
    assert receiver.replay(slot, payload, STEPS) == episode
    line, columns = payload.split("\n")
    longer = json.dumps([[[nothing, asks, nothing]], [[-0.5, -0.25, -0.5]], json.loads(columns)[2]])
    with pytest.raises(Forged, match="tokens follow the text that ends an answer"):
        receiver.replay(slot, f"{line}\n{longer}", STEPS)


def test_a_conversation_has_what_others_did_as_text_in_its_own_tokens() -> None:
    for _, episode, _ in recorded("mixed"):
        assert [turn.output.policy for turn in episode.turns] == ([TALKER, MAPPER, MAPPER] * 3)[: len(episode.turns)]
        said: list[int] = []
        for number, turn in enumerate(episode.turns):
            prompt, answer = turn.output.prompt_ids or (), turn.output.completion_ids or ()
            if turn.output.policy == MAPPER:
                assert "left" not in byte_tokenizer().decode(prompt), "a word for each cell"
                continue
            assert list(prompt[: len(said)]) == said
            new = byte_tokenizer().decode(prompt[len(said) :])
            between = episode.turns[max(0, number - 2) : number]
            assert new.count("What others did since your last answer:") == bool(between)
            for at, other in enumerate(between, number - 1):
                assert f"Observation {at}:\n{other.observation}\nAction {at}: {other.action}" in new
            assert turn.observation in new
            said = [*prompt, *answer]
    group = Group([episode for slot, episode, _ in recorded("mixed") if slot.task == 0])
    ones = [[[1.0] * len(episode.turns) for episode in group]]
    for name, layout in ((TALKER, "conversation"), (MAPPER, "turn")):
        words = mixed().policies[name].model.config.vocab_size
        found = rows([group], ones, layout=layout, policy=name)
        assert max(max(*row.prompt, *row.completion) for row in found) < words
        own = [turn for turn in group.turns if turn.output.policy == name]
        assert sum(row.trained_tokens for row in found) == sum(len(turn.output.completion_ids or ()) for turn in own)


# ---------------------------------------------------------------- forgers
def forged(slot: Slot, payload: str, match: str, world: World | None = None) -> None:
    with pytest.raises(Forged, match=match):
        (world or sokoban()).receiver().replay(slot, payload, (world or sokoban()).steps)


def edited(payload: str, name: str, value: Any) -> str:
    line, columns = payload.split("\n")
    row = json.loads(line)
    row[name] = value(row.get(name)) if callable(value) else value
    return f"{json.dumps(row)}\n{columns}"


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("env_id", "agentgym_flow/Search-v0", "env_id: the log has .*Search.* but .*Sokoban.* was requested"),
        ("kwargs", lambda old: {**old, "boxes": 2}, "kwargs"),
        ("data", {"boxoban": "0" * 64}, "data"),
        ("split", "test", "split"),
        ("task", 5, "task: the log has 5, but 0 was requested"),
        ("seed", 12, "seed"),
        ("attempt", 3, "attempt"),
        ("max_steps", 13, "max_steps"),
        ("task_key", "sokoban:0", "task_key"),
        ("actions", lambda old: ["", *old[1:]], "turn 1: the tokens say .*, the log has ''"),
        ("rewards", lambda old: [old[0], 10.0, *old[2:]], "rewards number 1: the log has .10.0., replay has"),
        ("terminated", True, "terminated"),
        ("truncated", True, "truncated"),
        ("success", True, "success"),
        ("score", 1.0, "score"),
        ("digests", lambda old: [*old[:2], "0" * 16, *old[3:]], "digests number 2"),
        ("digest", "0" * 64, "digest"),
        ("recording", [None] * 6, "recording: the log has"),
        ("completions", ["up"] * 5, "completions: the log has"),
        ("meta", {"note": "trust me"}, "meta"),
        ("schema", "agentgym_flow.episode/3", "schema"),
    ],
)
def test_a_line_that_says_something_else_is_refused(name: str, value: Any, match: str) -> None:
    slot, episode, payload = recorded("sokoban")[0]
    assert len(episode.turns) == 5
    forged(slot, edited(payload, name, value), match)


def test_a_line_without_the_digests_of_steps_is_refused() -> None:
    slot, _, payload = recorded("sokoban")[0]
    line, columns = payload.split("\n")
    small = LoggedEpisode.parse(line).for_board().line()
    forged(slot, f"{small}\n{columns}", "schema: the log has 'agentgym_flow.episode/2'")


def test_a_context_is_full_only_if_the_next_prompt_does_not_fit() -> None:
    slot, episode, _ = next(one for one in recorded("full") if "truncated_by" in one[1].meta)
    assert full().receiver().trust(slot, encode(episode, report=True), STEPS) == episode
    roomy = copy.copy(full().policies["one"])
    roomy._context = 1024
    forged(slot, encode(episode), "stops after . turns without", replace(full(), policies={"one": roomy}))
    slot, episode, _ = next(one for one in recorded("full") if one[1].terminated)
    ended = edited(encode(episode), "meta", {**episode.meta, "truncated_by": "context"})
    forged(slot, ended, "meta: the log has", full())
    report = encode(episode, report=True).split("\n")[2]
    with pytest.raises(Forged, match="after the end of the episode"):
        full().receiver().trust(slot, f"{ended}\n{report}", STEPS)


@pytest.mark.parametrize("wrong", [{"task": 1}, {"seed": 12}, {"sample": 2}])
def test_an_episode_of_another_slot_is_refused(wrong: dict[str, int]) -> None:
    slot, _, payload = recorded("sokoban")[0]
    forged(slot._replace(**wrong), payload, "was requested")


def test_an_episode_of_another_environment_is_refused() -> None:
    slot, _, payload = recorded("team")[0]
    forged(slot, payload, "was requested", search())
    other = replace(team(), make_env=lambda: make_text_env("agentgym_flow/Sokoban-v0", size=6, boxes=2, max_steps=12))
    forged(slot, payload, "kwargs: the log has", other)


Columns = list[list[list[Any]]]


def column(payload: str, change: Callable[[Columns], object]) -> str:
    line, columns = payload.split("\n")
    read = json.loads(columns)
    changed = change(read)
    return f"{line}\n{json.dumps(read if changed is None else changed)}"


def put(which: int, turn: int, value: Any) -> Callable[[Columns], object]:
    return lambda read: read[which].__setitem__(turn, value)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (put(0, 1, []), "turn 2: the tokens are not a list of int"),
        (put(0, 1, [True]), "turn 2: the tokens are not"),
        (put(0, 1, [3.0]), "turn 2: the tokens are not"),
        (put(0, 1, ["3"]), "turn 2: the tokens are not"),
        (put(0, 1, None), "turn 2: the tokens are not"),
        (put(0, 0, [-1]), "turn 1: a token is not in the vocabulary of"),
        (put(0, 0, [1 << 70]), "turn 1: a token is not in the vocabulary"),
        (put(0, 0, [3, 3, 3, 3]), "turn 1: 4 tokens are more than max_new_tokens=3"),
        (put(0, 0, [1, 3]), "turn 1: tokens follow the one that ends an answer"),
        (put(1, 0, [-0.5] * 2), "turn 1: 2 log-probabilities for 3 tokens"),
        (put(1, 0, [-0.5, 0.1, -0.5]), "turn 1: 0.1 is not the log-probability"),
        (put(1, 0, [-0.5, float("nan"), -0.5]), "turn 1: nan"),
        (put(1, 0, [-0.5, float("-inf"), -0.5]), "turn 1: -inf"),
        (put(1, 0, [-0.5, -1e30, -0.5]), "turn 1: -1e[+]30"),
        (put(1, 0, [-0.5, -1, -0.5]), "turn 1: the log-probabilities are not a list of float"),
        (lambda read: [read[0][:-1], *read[1:]], "the line has 5 actions, and the tokens"),
        (lambda read: [read[0], [*read[1], [-0.5]], read[2]], "the line has 5 actions, and the log-probabilities"),
        (lambda read: read[:2], "not a JSON list of three"),
        (lambda read: dict(zip("012", read, strict=True)), "the tokens are not a list"),
        (lambda read: 5, "not a JSON list of three"),
        (lambda read: [None, None, None], "the tokens are not a list"),
        (lambda read: [*read[:2], read[2][:-1]], "the line has 5 actions, and the digests"),
        (lambda read: [*read[:2], None], "the line has 5 actions, and the digests"),
        (put(2, 1, 7), "the line has 5 actions, and the digests"),
        (put(2, 1, "0" * 16), "turn 2: the worker's prompt has other tokens"),
    ],
)
def test_columns_that_nobody_has_sampled_are_refused(change: Callable[[Columns], object], match: str) -> None:
    slot, _, payload = recorded("sokoban")[0]
    forged(slot, column(payload, change), match)


def test_tokens_that_say_another_action_are_refused() -> None:
    slot, episode, payload = recorded("team")[0]
    was = json.loads(payload.split("\n")[1])[0][0][0]
    forged(slot, column(payload, put(0, 0, [next(t for t in range(3, 7) if t != was)])), "turn 1: the tokens say")
    assert len(episode.turns) > 1


def shorter(payload: str, turns: int) -> str:
    line, columns = payload.split("\n")
    row = json.loads(line)
    for name in ("actions", "rewards", "completions"):
        if name in row:
            row[name] = row[name][:turns]
    row["digests"] = row["digests"][: turns + 1]
    return f"{json.dumps(row)}\n{json.dumps([which[:turns] for which in json.loads(columns)])}"


def longer(payload: str, turns: int) -> str:
    line, columns = payload.split("\n")
    row = json.loads(line)
    for name in ("actions", "rewards", "completions", "digests"):
        if name in row:
            row[name] += row[name][-1:] * turns
    return f"{json.dumps(row)}\n{json.dumps([which + which[-1:] * turns for which in json.loads(columns)])}"


def test_an_episode_that_stops_early_or_goes_on_is_refused() -> None:
    slot, _, payload = recorded("sokoban")[0]
    forged(slot, shorter(payload, 4), "stops after 4 turns without having ended")
    forged(slot, shorter(payload, 0), "stops after 0 turns")
    forged(slot, longer(payload, 1), "turn 6: the episode had ended before")
    forged(slot, longer(payload, 20), "25 turns are more than max_steps=12")
    slot, episode, payload = next(one for one in recorded("team") if one[1].terminated or one[1].truncated)
    forged(slot, shorter(payload, len(episode.turns) - 1), "without having ended", team())
    if len(episode.turns) < 12:
        forged(slot, longer(payload, 1), "had ended before", team())


def test_a_recording_that_holds_something_else_is_refused() -> None:
    """What came from outside cannot be proven, but it must be what the environment can play, and of its steps."""
    slot, episode, payload = next(one for one in recorded("search") if any(turn.recording for turn in one[1].turns))
    forged(
        slot,
        edited(payload, "recording", lambda old: [None] * len(old)),
        "BadData: the recording has no passages",
        search(),
    )
    forged(slot, edited(payload, "recording", lambda old: [7] * len(old)), "cannot be played|recording", search())
    forged(slot, edited(payload, "recording", lambda old: [[["x"]]] * len(old)), "cannot be played|recording", search())
    assert search().receiver().replay(slot, payload, STEPS) == episode


@pytest.mark.parametrize(
    "payload",
    ["", "\n", "{}", "{}\n[]", "[" * 100_000, "{}\n" + "[" * 100_000, "\ud800", "é", "null\nnull", "1" * 5000],
    ids=lambda payload: ascii(payload[:8]),
)
def test_what_is_no_payload_is_refused(payload: str) -> None:
    forged(SLOTS[0], payload, ".")


def test_payloads_are_bounded() -> None:
    slot, _, payload = recorded("sokoban")[0]
    line, columns = payload.split("\n")
    forged(slot, " " * (LONGEST + 1), "at most")
    forged(slot, f"{line}\n{'[' * 100_000}", "not a JSON list|actions")
    forged(slot, f"{line}\n[[{'[],' * (1 << 20)}[]],[]]", "values")
    forged(slot, edited(payload, "meta", [[]] * (1 << 20)), "values")
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    forged(slot, edited(payload, "meta", {"deep": deep}), "deep")
    forged(slot, f"{line}\n{columns}\n{columns}", "the report on the turns, from 0: field")
    forged(slot, f"{line}\n[[[{'9' * 5000}]],[]]", "not a JSON list")


def test_after_a_forgery_honest_episodes_come_out() -> None:
    receiver = search().receiver()
    for slot, episode, payload in recorded("search"):
        turns = len(episode.turns)
        for bad in (edited(payload, "digest", "0" * 64), edited(payload, "recording", [5] * (turns + 1)), payload[:-2]):
            with pytest.raises(Forged):
                receiver.replay(slot, bad, STEPS)
        assert receiver.replay(slot, payload, STEPS) == episode


@settings(max_examples=300)
@given(data=st.data(), name=st.sampled_from(sorted(WORLDS)))
def test_any_edit_is_refused_or_changes_only_what_was_sampled(data: st.DataObject, name: str) -> None:
    """One character is put in, left out or replaced anywhere in the payload."""
    slot, episode, payload = data.draw(st.sampled_from(recorded(name)))
    at = data.draw(st.integers(0, len(payload)))
    new = data.draw(st.sampled_from(["", *'0123456789-.eE"[]{},: ntfux\\\n', "\x00", "\xff"]))
    changed = payload[:at] + new + payload[at + data.draw(st.integers(0, 1)) :]
    try:
        found = receivers(name).replay(slot, changed, WORLDS[name]().steps)
    except Forged:
        assert changed != payload
        return
    for turn, known in zip(found.turns, episode.turns, strict=True):
        if at > payload.index("\n"):  # another token with the same text, or another log-probability
            assert len(turn.output.completion_ids or ()) == len(known.output.completion_ids or ())
            turn.output.completion_ids, turn.output.logprobs = known.output.completion_ids, known.output.logprobs
            turn.output.prompt_ids = known.output.prompt_ids  # in a conversation they hold what was said
    assert found == episode


@cache
def receivers(name: str) -> Receiver:
    return WORLDS[name]().receiver()


# ---------------------------------------------------------------- what is no forgery
def test_lost_episodes_are_not_sent() -> None:
    _, episode, _ = recorded("sokoban")[0]
    with pytest.raises(BadSetting, match="give its lease back"):
        encode(replace(episode, meta={"error": {"class": "OSError", "message": ""}}))
    with pytest.raises(BadSetting, match="tokens"):
        encode(replace(episode, turns=[replace(episode.turns[0], output=PolicyOutput("go"))]))


def test_a_policy_without_weights_is_no_forgery() -> None:
    slot, _, payload = recorded("sokoban")[0]
    with pytest.raises(BadSetting, match="'one' has no optimizer step"):
        sokoban().receiver().replay(slot, payload, {})


def test_a_fault_of_this_machine_is_no_forgery(monkeypatch: pytest.MonkeyPatch) -> None:
    slot, episode, payload = recorded("sokoban")[0]
    receiver = sokoban().receiver()

    def fail(self: TextEnv, action: str) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as broken:
        broken.setattr(type(make_sokoban()), "advance", fail)
        with pytest.raises(OSError, match="no space left"):
            receiver.replay(slot, payload, STEPS)
    assert receiver.replay(slot, payload, STEPS) == episode
