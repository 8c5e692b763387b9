"""The contract of every environment: `TextEnv`, its settings and spaces, and seeding."""

from typing import TYPE_CHECKING

from agentgym_flow._util.exports import on_demand

if TYPE_CHECKING:
    from agentgym_flow.core.env import MAX_CANDIDATES, OFFICIAL_KEY, AnswerStore, EnvCard, TextEnv, Transition
    from agentgym_flow.core.seeding import (
        Stream,
        canonical,
        check_task,
        choose_task,
        seasonal,
        stable_hash,
        task_identity,
    )
    from agentgym_flow.core.settings import (
        PRESENTATION,
        SPLITS,
        Argument,
        Flag,
        Integer,
        Items,
        MaxSteps,
        Maybe,
        OneOf,
        Plain,
        Season,
        SeasonSeed,
        Setting,
        Split,
        TaskTypes,
        Text,
        argument_table,
        arguments_of,
        check_info_keys,
        check_integer,
        check_options,
        check_positive,
        check_render_mode,
        check_season,
        check_settings,
        check_split,
    )
    from agentgym_flow.core.spaces import PlainSpec
else:
    __getattr__ = on_demand(__name__)  # hidden from type checkers, which would accept any name

__all__ = [
    "MAX_CANDIDATES",
    "OFFICIAL_KEY",
    "PRESENTATION",
    "SPLITS",
    "AnswerStore",
    "Argument",
    "EnvCard",
    "Flag",
    "Integer",
    "Items",
    "MaxSteps",
    "Maybe",
    "OneOf",
    "Plain",
    "PlainSpec",
    "Season",
    "SeasonSeed",
    "Setting",
    "Split",
    "Stream",
    "TaskTypes",
    "Text",
    "TextEnv",
    "Transition",
    "argument_table",
    "arguments_of",
    "canonical",
    "check_info_keys",
    "check_integer",
    "check_options",
    "check_positive",
    "check_render_mode",
    "check_season",
    "check_settings",
    "check_split",
    "check_task",
    "choose_task",
    "seasonal",
    "stable_hash",
    "task_identity",
]
