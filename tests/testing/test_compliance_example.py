"""The suite on the environment of the manual: two sizes of the cave, all checks."""

from typing import Any, ClassVar

from agentgym_flow.testing import EnvCompliance


class TestCave(EnvCompliance):
    env_id = "example/Cave-v0"
    env_module = "agentgym_flow.testing.example"
    variants: ClassVar[Any] = ({}, {"rooms": 2})
    presentations: ClassVar[Any] = ({"terse": True},)
    golden: ClassVar[Any] = {
        "default/expert/0": "8aa35fbadd147a31",
        "default/expert/1": "40f74486ad9347ca",
        "default/mixed/0": "d5e4a63a7ddeba88",
        "default/mixed/1": "eaabacef60d4276f",
        "rooms=2/expert/0": "ac5cf1efe3d02576",
        "rooms=2/expert/1": "5dbf783a911c0f54",
        "rooms=2/mixed/0": "4b04f622cf88c71b",
        "rooms=2/mixed/1": "915012deba9e2fd6",
    }
