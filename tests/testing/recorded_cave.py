"""A cave with wind, which comes from outside and so goes into the recording; its settings have nothing else."""

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium as gym

from agentgym_flow.core import External, OneOf, Setting, Stream, Transition
from agentgym_flow.errors import BadData
from agentgym_flow.testing.example import CaveEnv


class WindyCaveEnv(CaveEnv):
    __doc__ = CaveEnv.__doc__
    env_id = "taped/WindyCave-v0"

    logged_settings: ClassVar[Mapping[str, Setting]] = {**(CaveEnv.logged_settings or {}), "wind": OneOf("taped")}

    def __init__(self, wind: str = "outside", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings = {"wind": "taped"}
        self.wind_is_here = wind == "outside"
        self.external = External(self.env_id, recorded=True)

    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        return super()._begin(task, noise, options) + self.wind(0)

    def _apply(self, action: str) -> Transition:
        after = super()._apply(action)
        return after._replace(observation=after.observation + self.wind(self.steps + 1))

    def wind(self, step: int) -> str:
        own = self.external
        if own.recording is not None:
            own.entry = own.recording[step]
        elif self.wind_is_here:
            own.entry = Stream("wind", self.task, step).choice(["north", "east", "south", "west"])
        else:
            raise BadData("the wind is outside")
        return f" The wind comes from the {own.entry}."


class ForgetsItsRecording(WindyCaveEnv):
    __doc__ = CaveEnv.__doc__
    env_id = "taped/ForgetsItsRecording-v0"

    def wind(self, step: int) -> str:
        own = self.external
        own.recording = own.recording and ["north"] * len(own.recording)
        return super().wind(step)


for kind in (WindyCaveEnv, ForgetsItsRecording):
    gym.register(kind.env_id, entry_point=f"{__name__}:{kind.__name__}")
