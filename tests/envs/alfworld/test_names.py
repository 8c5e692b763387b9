"""The names of things and receptacles: ALFWorld's own numbering."""

from agentgym_flow.envs.alfworld.compiled_game import display_names


def test_the_first_id_of_a_kind_has_the_highest_number() -> None:
    names = display_names(
        ["cabinet_bar__plus_02", "cabinet_bar__plus_01", "cabinet_bar__plus_03", "fridge_bar__plus_09"]
    )
    assert names == {
        "cabinet_bar__plus_01": "cabinet 3",
        "cabinet_bar__plus_02": "cabinet 2",
        "cabinet_bar__plus_03": "cabinet 1",
        "fridge_bar__plus_09": "fridge 1",
    }


def test_a_basin_is_no_sink() -> None:
    names = display_names(
        ["sink_bar__plus_01", "sink_bar__plus_01_bar_sinkbasin", "bathtub_bar__plus_02_bar_bathtubbasin"]
    )
    assert sorted(names.values()) == ["bathtubbasin 1", "sink 1", "sinkbasin 1"]


def test_an_id_without_a_place_is_followed_by_a_space() -> None:
    assert display_names(["table", "salt_plus_pepper"]) == {"table": "table ", "salt_plus_pepper": "salt+pepper "}


def test_every_mention_counts_once() -> None:
    assert display_names(["mug_bar_1", "mug_bar_1", "mug_bar_2"]) == {"mug_bar_1": "mug 2", "mug_bar_2": "mug 1"}
