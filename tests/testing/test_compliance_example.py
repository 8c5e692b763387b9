"""The suite on the environment of the manual: two sizes of the cave, all checks."""

from typing import Any, ClassVar

from agentgym_flow.testing import EnvCompliance


class TestCave(EnvCompliance):
    env_id = "example/Cave-v0"
    env_module = "agentgym_flow.testing.example"
    variants: ClassVar[Any] = ({}, {"rooms": 2})
    presentations: ClassVar[Any] = ({"terse": True},)
    golden: ClassVar[Any] = {
        "default/expert/0": "fae2190f11e7edf9",
        "default/expert/1": "dd9f09b20cc38730",
        "default/mixed/0": "cfb7213eca9e4ca6",
        "default/mixed/1": "a93f39e50971bc7c",
        "rooms=2/expert/0": "4b3bcf889d03bf9c",
        "rooms=2/expert/1": "fcb67f1629d754a1",
        "rooms=2/mixed/0": "50e66abba5577135",
        "rooms=2/mixed/1": "9c64b9bc115344ca",
    }
