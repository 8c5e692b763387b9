"""State graphs over what was retrieved: the ends, refusals and last steps that the published code gets wrong."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
from search_stand_ins import Shelf, make, write_set

from agentgym_flow.episodes import Episode, EpisodeRecorder, Group
from agentgym_flow.rewards import group_graph, relabel

RIGHT = ("search[Tarn]", "search[Voss engineer]", "answer[Ada Voss]")
WRONG = ("search[Tarn]", "search[Liverpool]", "answer[Bo]")
REFUSED = ("search[Tarn]", "Voss, I think", "search[  voss   ENGINEER]", "answer[A. Voss]")


@pytest.fixture(scope="module")
def bridges(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small published set."""
    return write_set(tmp_path_factory.mktemp("sets") / "bridges")


def played(bridges: Path, *actions: str, max_steps: int = 6) -> Episode:
    recorder = EpisodeRecorder(make(data=bridges, retriever=Shelf(), split="test", max_steps=max_steps))
    episode = recorder.reset(seed=0, task=0)
    for action in actions:
        recorder.step(action)
    return episode


def potentials(*episodes: Episode) -> dict[str, float]:
    """Return state -> potential."""
    relabel(Group(list(episodes)), gamma=0.5)
    return {
        key: value
        for episode in episodes
        for turn in episode.turns
        for key, value in ((turn.state_key, turn.phi), (turn.next_state_key, turn.phi_next))
        if value is not None
    }


def test_a_right_and_a_wrong_end_are_two_states_in_any_order(bridges: Path) -> None:
    """Published: both end in one state, which is worth what the first episode of the group was worth."""
    found = []
    for order in permutations((RIGHT, WRONG)):
        episodes = [played(bridges, *actions) for actions in order]
        found.append(potentials(*episodes))
        right, wrong = (episodes[order.index(actions)] for actions in (RIGHT, WRONG))
        assert [turn.phi_next for turn in right.turns] == [0.25, 0.5, 1.0]
        assert [turn.phi_next for turn in wrong.turns] == [0.25, 0.0, 0.0]
    assert found[0] == found[1]


def test_a_refused_turn_is_neither_an_end_nor_a_new_state(bridges: Path) -> None:
    """Published: it has the key of the end."""
    episode = played(bridges, *REFUSED)
    values = potentials(episode)
    assert [turn.phi for turn in episode.turns] == [0.125, 0.25, 0.25, 0.5]
    assert len(values) == 4
    assert relabel(Group([episode])).unique_states == 4


def test_other_words_for_the_same_passages_are_one_state(bridges: Path) -> None:
    """Two attempts that have brought the same share what is ahead of them, whatever they searched for."""
    right, refused = played(bridges, *RIGHT), played(bridges, *REFUSED)
    assert right.turns[-1].state_key == refused.turns[-1].state_key
    assert len(group_graph(Group([right, refused]))) == 4


def test_a_success_with_the_last_step_counts(bridges: Path) -> None:
    """Published: the last turn of the loop is no step of the graph, so the group has no success at all."""
    last = played(bridges, "search[Tarn]", "hm", "answer[Ada Voss]", max_steps=3)
    assert (last.terminated, last.truncated) == (True, False)
    assert potentials(last)[last.state_key] == 0.25


def test_a_budget_that_runs_out_is_no_end(bridges: Path) -> None:
    short = played(bridges, "search[Tarn]", "search[Voss engineer]", "hm", max_steps=3)
    right = played(bridges, *RIGHT, max_steps=3)
    assert short.truncated
    potentials(short, right)
    assert short.turns[-1].phi_next == 0.5, "from where it stands the answer would be one step away"


def test_the_key_before_a_step_knows_nothing_of_the_step(bridges: Path) -> None:
    """Published elsewhere: what is seen after an action is part of the key before it, so that no two decisions meet."""
    episodes = [played(bridges, "search[Tarn]", action) for action in ("search[Lorne]", "hm", "answer[Bo]")]
    assert len({episode.turns[1].state_key for episode in episodes}) == 1
    assert len({episode.turns[1].next_state_key for episode in episodes}) == 3


def test_no_success_no_potential(bridges: Path) -> None:
    assert set(potentials(played(bridges, *WRONG), played(bridges, "hm")).values()) == {0.0}
