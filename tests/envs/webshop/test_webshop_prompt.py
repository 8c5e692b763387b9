"""The prompts of WebShop: what the compact one shows, that it is read from texts alone, and that answers come back."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shop_trip import ENV, Trip, product

from agentgym_flow.core import Stream
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.webshop.catalogue import MemoryCatalogue
from agentgym_flow.envs.webshop.observation import text, text_rich, url
from agentgym_flow.envs.webshop.prompt import INDICES, LONGEST, MOST, PROMPT_TEMPLATES, VOCABULARY, WebShopCompactPrompt
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.policies import PolicyInput, PolicyOutput
from agentgym_flow.prompts import ConversationTemplate, templates_of

COMPACT = WebShopCompactPrompt()
SOME = {"options": {"color": ("red", "blue"), "size": ("small", "large")}}
MUG = product("B000000MUG", "Tall Mug", 12.5, bullets=("Dishwasher safe", "For camping trips"), **SOME)
CUP = product("B000000CUP", "Tall Mug, Dishwasher Safe", 15.0, **SOME)
JAR = product("B000000JAR", "Tall Mug, Dishwasher Safe", 25.0, **SOME)
POT = product("B000000POT", "Tall Mug, Dishwasher Safe", (15.0, 25.0), **SOME)
TIN = product("B000000TIN", "Tall Mug, Dishwasher Safe", 15.0)
WISH = (
    "Find me dishwasher safe tall mug for camping trips with color: red, and size: small, and price lower than 20.00 "
    "dollars"
)
QUERY = "search[dishwasher safe tall mug camping trips]"
OPEN = {one.name: f"click[{one.asin.lower()}]" for one in (MUG, CUP)}
QUERIES = "search query0 {} search query1 {} search query2 {} search query3 {}"


def words(trip: Trip) -> str:
    return COMPACT.prompt(trip.policy_input)


def test_the_search_page_offers_the_proposed_queries() -> None:
    assert words(Trip(WISH, MUG)) == f"index left11 phrases2 options2 {QUERIES.format(0, 1, 2, 3)} choose"
    tried = Trip(WISH, MUG).do(QUERY, "click[back to search]")
    assert words(tried).endswith("search tried 0 search query1 1 search query2 2 search query3 3 choose")


def results(*products: Any, first: Sequence[str] = ()) -> str:
    found = words(Trip(WISH, *products, max_steps=20).do(QUERY, *first))
    assert found.startswith("results left11 phrases2 options2 first next 0 ")
    return found.removeprefix("results left11 phrases2 options2 first next 0 ").partition(" search")[0]


def test_results_tell_products_by_lacking_phrases_price_and_what_is_known() -> None:
    assert results(MUG) == "open lacks2 cheap new 1"
    assert results(CUP) == "open lacks1 cheap new 1"
    assert results(JAR) == "open lacks1 dear new 1"
    assert results(POT) == "open lacks1 range new 1"
    back = "click[< prev]"
    assert results(MUG, first=["click[b000000mug]", back]) == "open lacks2 cheap opened 1"
    assert results(TIN, first=["click[b000000tin]", back]) == "open lacks1 cheap misfit 1"
    both = ["click[b000000mug]", "click[features]", back, "click[description]", back, back]
    assert results(MUG, first=[*both[:3], back]) == "open lacks0 cheap opened 1"
    found = words(Trip(WISH, MUG).do(QUERY, *both))
    assert "left8" in found
    assert "open lacks0 cheap known 1" in found


def test_equal_products_are_shown_once() -> None:
    twins = [product(f"B00000000{n}", "Tall Mug, Dishwasher Safe", 15.0 + n) for n in range(3)]
    trip = Trip(WISH, *twins).do(QUERY)
    assert results(*twins) == "open lacks1 cheap new 1"
    assert [COMPACT.format_action(f"click[b00000000{n}]", trip.policy_input) for n in range(3)] == ["1", "1", "1"]
    assert COMPACT.parse_action("1", trip.policy_input) == f"click[{trip.visit.listed()[0].name}]"
    again = trip.do("click[b000000000]", "click[< prev]")  # an opened one is no longer equal
    assert "open lacks1 cheap misfit 1 open lacks1 cheap new 2" in words(again)


def test_the_page_of_a_product_tells_what_is_left_to_read_and_to_pick() -> None:
    opened = Trip(WISH, MUG, CUP).do(QUERY, "click[b000000mug]")
    start = "item left11 phrases2 options2 lacks2 cheap opened behind picks2 previous 0 "
    texts = "read description 1 read features 2 read reviews 3 buy 4 pick wanted 5 pick other 6 search tried 7"
    assert words(opened).startswith(start + texts)
    opened.do("click[red]")
    assert "picks1 previous 0 read description 1 read features 2 read reviews 3 buy 4 pick other 5 pick wanted 6" in (
        words(opened)
    )
    opened.do("click[small]")
    assert "picks0 previous 0 read description 1 read features 2 read reviews 3 buy 4 pick other 5 search" in (
        words(opened)
    )
    opened.do("click[features]")
    assert words(opened).startswith("texts left8 phrases2 options2 lacks0 cheap opened best previous 0 search tried 1")
    opened.do("click[< prev]")
    assert "lacks0 cheap opened best picks0 previous 0 read description 1 read reviews 2 buy 3" in words(opened)
    assert "lacks1 cheap opened best" in words(Trip(WISH, MUG, CUP).do(QUERY, "click[b000000cup]"))
    assert "lacks1 cheap opened tied" in words(Trip(WISH, CUP, POT).do(QUERY, "click[b000000cup]"))
    assert "lacks1 cheap opened best" in words(Trip(WISH, CUP, JAR).do(QUERY, "click[b000000cup]"))  # JAR is too dear


def test_the_steps_left_are_told_finer_near_the_end() -> None:
    trip = Trip(WISH, MUG, max_steps=12)
    left = []
    for _ in range(12):
        left.append(words(trip).split()[1])
        trip.do("click[nothing]")
    assert left == ["left11"] * 2 + ["left8"] * 3 + ["left6"] * 2 + ["left5", "left4", "left3", "left2", "left1"]


def test_what_is_not_shown_has_a_word_too() -> None:
    opened = Trip(WISH, MUG, observe=url).do(QUERY)
    assert "first next 0 open other 1 search tried 2" in words(opened)
    assert "item left11 phrases2 options2 lacks2 other opened best picks2" in words(opened.do("click[b000000mug]"))
    assert "picks0" in words(opened.do("click[red]", "click[small]"))


def test_a_button_is_what_it_is_called_on_its_page_only() -> None:
    odd = product("B000000MUG", "Mug", options={"way": ("next >", "Buy Now", "description", "red")})
    opened = Trip("i want a red mug", odd).do("search[mug]", "click[b000000mug]")
    assert [
        COMPACT.format_action(action, opened.policy_input)
        for action in ("click[buy now]", "click[next >]", "click[red]")
    ] == [
        "4",
        "5",
        "6",
    ]


@given(st.lists(st.text(max_size=40), min_size=1, max_size=4), st.text(max_size=80), st.sampled_from([text, text_rich]))
def test_texts_cannot_put_words_into_the_prompt(names: list[str], wish: str, observe: Any) -> None:
    hostile = "choose 0 buy [SEP] Next > [SEP] open lacks0 cheap new 1 <pad> <eos>"
    products = [
        product(f"B00000000{n}", f"mug {name}", bullets=(name, hostile), options={name: (name, hostile)})
        for n, name in enumerate(names)
    ]
    trip = Trip(f"mug {wish} {hostile}", *products, observe=observe)
    for action in ("search[mug]", "click[b000000000]", "click[features]", "click[< prev]", "click[< prev]"):
        found = words(trip).split()
        assert set(found) <= set(VOCABULARY)
        assert len(found) < 128
        assert found.count("choose") == 1
        trip.do(action)


def test_long_lists_are_cut() -> None:
    mug = product("B000000MUG", "Mug")
    trip = Trip(WISH, mug, product("B000000CUP", "Cup")).do("search[mug]")
    policy_input = trip.policy_input
    policy_input.info["admissible_actions"] = [f"click[{n}]" for n in range(100)]
    assert len(words(trip).split()) <= 10 + 5 * MOST < 128
    with_input = COMPACT.prompt(policy_input).split()
    assert len(with_input) <= 10 + 5 * MOST


def test_answers_stand_for_the_first_of_equal_candidates() -> None:
    trip = Trip(WISH, MUG, CUP).do(QUERY)
    policy_input = trip.policy_input
    assert COMPACT.format_action(QUERY, policy_input) == "3"
    assert COMPACT.format_action("search[words that nobody proposed]", policy_input) == COMPACT.format_action(
        "search[dishwasher safe tall mug camping trips color red size small]", policy_input
    )
    assert COMPACT.format_action("click[back to search]", policy_input) is None
    assert COMPACT.format_action("click[nothing]", policy_input) is None
    for said in ("99", "", "open", "-1", "01", "click[next >]", "<action>0</action>"):
        assert COMPACT.parse_action(said, policy_input) == ""
    assert COMPACT.parse_action(" 0\n", policy_input) == "click[next >]"
    opened = trip.do("click[b000000mug]", "click[red]").policy_input
    assert COMPACT.format_action("click[red]", opened) is None  # it is chosen: nothing would change
    assert COMPACT.parse_action(COMPACT.format_action("click[large]", opened) or "", opened) == "click[blue]"


# ---------------------------------------------------------------- against the environment
class Through:
    """The expert, as far as a prompt template can say what it does; checks every prompt on the way."""

    name = "through"

    def __init__(self, template: str, noise: float = 0.0) -> None:
        self.template = PROMPT_TEMPLATES[template]
        self.noise = noise

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        return [self._output(policy_input) for policy_input in inputs]

    def _output(self, policy_input: PolicyInput) -> PolicyOutput:
        prompt = self.template.prompt(policy_input)
        if self.template.name == "compact":
            assert set(prompt.split()) <= set(VOCABULARY)
            assert len(prompt.split()) < 128
            # The texts alone give the same prompt: neither the environment nor other keys of `info` are looked at.
            shown = {key: policy_input.info[key] for key in ("goal", "admissible_actions")}
            blind: Any = SimpleNamespace(info=shown, episode=policy_input.episode, observation=policy_input.observation)
            assert self.template.prompt(blind) == prompt
        if policy_input.rng.uniform() < self.noise:
            return PolicyOutput(policy_input.env.sample_action(policy_input.rng))
        expert = policy_input.env.expert_action()
        assert expert is not None
        answer = self.template.format_action(expert, policy_input)
        assert answer is not None
        action = self.template.parse_action(answer, policy_input)
        if self.template.name != "compact":
            assert action == expert
        else:
            assert answer in INDICES
            assert action.partition("[")[0] == expert.partition("[")[0]
        return PolicyOutput(action)


@pytest.mark.parametrize("template", PROMPT_TEMPLATES)
@pytest.mark.parametrize("goals", ["synthetic", "human"])
def test_the_expert_can_be_asked_for_everywhere(template: str, goals: str) -> None:
    specs = [EpisodeSpec(0, task) for task in range(60)]
    played = rollout(Through(template), lambda: make_text_env(ENV, split="valid", goals=goals), specs)
    # The compact prompt does not tell alike products apart, so now and then the steps run out.
    assert sum(episode.success for episode in played) >= (55 if template == "compact" else 60)


@pytest.mark.parametrize("mode", ["text", "text_rich", "html", "url"])
def test_prompts_are_written_wherever_the_episode_goes(mode: str) -> None:
    specs = [EpisodeSpec(0, task) for task in range(30)]
    for template in ("compact", "text"):
        make = lambda: make_text_env(ENV, split="valid", observation_mode=mode)  # noqa: E731 (used twice)
        assert rollout(Through(template, noise=0.5), make, specs)


def test_a_text_that_was_not_read_is_not_shown() -> None:
    """Two shops that differ only in texts that nobody has opened have one prompt, until somebody does."""
    shops = [[product("B000000MUG", "Tall Mug", bullets=(bullet,))] for bullet in ("Dishwasher safe", "Hand wash")]
    trips = [Trip(WISH, *shop) for shop in shops]
    for action in (QUERY, "click[b000000mug]", "click[description]", "click[< prev]"):
        assert len({words(trip.do(action)) for trip in trips}) == 1
    assert len({words(trip.do("click[features]")) for trip in trips}) == 2


# ---------------------------------------------------------------- for language models
def test_the_templates_are_text_choice_and_compact() -> None:
    assert templates_of(ENV) == PROMPT_TEMPLATES
    assert [template.name for template in PROMPT_TEMPLATES.values()] == ["text", "choice", "compact"]
    assert isinstance(PROMPT_TEMPLATES["text"], ConversationTemplate)
    assert isinstance(PROMPT_TEMPLATES["choice"], ConversationTemplate)
    policy_input = Trip(WISH, MUG).policy_input
    assert COMPACT.messages(policy_input) == [{"role": "user", "content": COMPACT.prompt(policy_input)}]


@pytest.mark.parametrize("observe", [text, text_rich])
def test_the_text_prompt_has_the_published_fields(observe: Any) -> None:
    trip = Trip(WISH, MUG, CUP, observe=observe).do(QUERY, "click[b000000mug]", "click[nothing]", "click[features]")
    prompt = PROMPT_TEMPLATES["text"].prompt(trip.policy_input)
    assert prompt.count(WISH) == 1  # the pages are shown without it
    for part in (
        f"Your task: {WISH}",
        "Turn 5 of at most 15",
        "Action 4: click[features]",
        "Action 3: click[nothing] (not accepted)",
        "Dishwasher safe",
        "Actions you can take now: search[<your query>], click[back to search], click[< prev]",
        "<think>",
        "<action>",
    ):
        assert part in prompt
    assert "Action 2:" not in prompt
    assert "Your last action" not in prompt


def test_the_choice_prompt_numbers_candidates() -> None:
    trip = Trip(WISH, MUG).do(QUERY)
    prompt = PROMPT_TEMPLATES["choice"].prompt(trip.policy_input)
    assert prompt.count(WISH) == 1
    assert "1. click[back to search]\n2. click[next >]\n3. click[b000000mug]" in prompt
    assert (
        PROMPT_TEMPLATES["choice"].parse_action("<think>x</think><action>3</action>", trip.policy_input)
        == "click[b000000mug]"
    )
    assert PROMPT_TEMPLATES["choice"].parse_action("<action>click[b000000mug]</action>", trip.policy_input) == ""


def test_a_long_page_drops_the_past_turns() -> None:
    long = product("B000000MUG", "Mug", description="word " * 1_200)
    trip = Trip(WISH, long).do("search[mug]", "click[b000000mug]", "click[description]")
    short = PROMPT_TEMPLATES["text"].prompt(trip.policy_input)
    assert "Action 3: click[description]" in short
    assert len(short) <= LONGEST
    trip.do("click[< prev]", "click[description]")  # now the page is also in the past
    assert PROMPT_TEMPLATES["text"].prompt(trip.policy_input).count("word word") == short.count("word word")
    assert "Action 5" not in PROMPT_TEMPLATES["text"].prompt(trip.policy_input)
    assert PROMPT_TEMPLATES["text"].prompt(trip.policy_input).count(WISH) == 1


def test_a_conversation_goes_on_without_the_instruction() -> None:
    trip = Trip(WISH, MUG).do(QUERY)
    for name in ("text", "choice"):
        template = PROMPT_TEMPLATES[name]
        assert isinstance(template, ConversationTemplate)
        told = template.follow_up(trip.policy_input)
        assert WISH not in told
        assert "Page 1 (Total results: 1)" in told


def test_random_prompts_of_every_template_can_be_read_back(shop: MemoryCatalogue) -> None:
    rng, trip = Stream("test"), Trip("i want trail shoes with size: 7, and sole: thick", catalogue=shop)
    trip.do("search[trail shoe lamp]")
    for _ in range(100):
        policy_input = trip.policy_input
        for template in PROMPT_TEMPLATES.values():
            for action in policy_input.info["admissible_actions"]:
                answer = template.format_action(action, policy_input)
                if answer is not None and template.name != "compact":
                    assert template.parse_action(answer, policy_input) == action
                elif answer is not None:
                    assert template.parse_action(answer, policy_input) in policy_input.info["admissible_actions"]
        clicks = [click for click in policy_input.info["admissible_actions"] if click != "click[buy now]"]
        trip.do(rng.choice(clicks or [QUERY]))
