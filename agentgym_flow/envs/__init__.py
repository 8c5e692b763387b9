"""The environments and their Gymnasium ids."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import Any, cast

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from agentgym_flow.core import TextEnv
from agentgym_flow.envs.plugins import load_plugins
from agentgym_flow.errors import UnknownEnvironment, UnknownOption

__all__ = ["make_text_env", "text_env_class"]

DEFAULT_ENV = "agentgym_flow/Sokoban-v0"
"""The default environment for training, used in the quickstart."""


def register_all() -> None:
    """Register all ids of the package. Entry points are strings, so an environment is imported when it is made."""
    gym.register(
        "agentgym_flow/ALFWorld-v0",
        entry_point="agentgym_flow.envs.alfworld.env:ALFWorldEnv",
        vector_entry_point="agentgym_flow.envs.alfworld.vector:ALFWorldVectorEnv",
    )
    gym.register(
        "agentgym_flow/ALFWorldIndex-v0",
        entry_point="agentgym_flow.envs.alfworld.vector:ALFWorldIndexEnv",
        vector_entry_point="agentgym_flow.envs.alfworld.vector:ALFWorldIndexVectorEnv",
    )
    gym.register("agentgym_flow/Canvas-v0", entry_point="agentgym_flow.envs.canvas.env:CanvasEnv")
    gym.register("agentgym_flow/Search-v0", entry_point="agentgym_flow.envs.search.env:SearchEnv")
    gym.register("agentgym_flow/Sokoban-v0", entry_point="agentgym_flow.envs.sokoban.env:SokobanEnv")
    gym.register(
        "agentgym_flow/SokobanGrid-v0",
        entry_point="agentgym_flow.envs.sokoban.grid:SokobanGridEnv",
        vector_entry_point="agentgym_flow.envs.sokoban.vector:SokobanVectorEnv",
    )
    gym.register("agentgym_flow/WebShop-v0", entry_point="agentgym_flow.envs.webshop.env:WebShopEnv")


def make_text_env(env_id: str, **kwargs: Any) -> TextEnv:
    """Make a text environment by its id, without Gymnasium's checking wrappers, which double the time of a step.

    Raises `UnknownEnvironment` if the id is not registered or does not belong to a text environment, `UnknownOption`
    for unknown arguments, and the errors of the constructor.
    """
    kind = text_env_class(env_id)
    known = text_env_parameters(kind)
    for name in kwargs:
        if known is not None and name not in known:
            raise UnknownOption.among(name, known)
    return cast("TextEnv", gym.make(env_id, disable_env_checker=True, **kwargs).unwrapped)


def text_env_class(env_id: str) -> type[TextEnv]:
    """Return the class of a registered text environment. Raises `UnknownEnvironment`."""
    # Only registered ids, because `gym.make("module:Name-v0")` would import any module named in a log or form.
    if env_id not in gym.registry:
        load_plugins()
    if env_id not in gym.registry:
        raise UnknownEnvironment.among(
            env_id,
            sorted(name for name in gym.registry if name.startswith("agentgym_flow/")),
            "The environments of another package are registered by importing it: --import MODULE.",
        )
    creator = gym.registry[env_id].entry_point
    kind = load_env_creator(creator) if isinstance(creator, str) else creator
    if not (isinstance(kind, type) and issubclass(kind, TextEnv)):
        raise UnknownEnvironment(f"{env_id} is not a text environment: its entry point is not a subclass of TextEnv")
    return kind


def text_env_parameters(kind: type[TextEnv]) -> Collection[str] | None:
    """Return the names of the arguments of an environment; None if it accepts any."""
    parameters = inspect.signature(kind).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return None if takes_any else parameters.keys()
