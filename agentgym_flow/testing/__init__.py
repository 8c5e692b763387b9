"""The compliance suite: inherit it, name an environment, and pytest checks every rule of the contract.

    from agentgym_flow.testing import EnvCompliance

    class TestCave(EnvCompliance):
        env_id = "example/Cave-v0"
        env_module = "agentgym_flow.testing.example"

Needs the `test` extra (pytest and Hypothesis). The package itself imports neither until a suite is asked for, so that
`agentgym_flow.testing.example` works on the base install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentgym_flow.errors import MissingExtra

if TYPE_CHECKING:
    from agentgym_flow.testing.compliance import EnvCompliance, NumericCompliance

__all__ = ["EnvCompliance", "NumericCompliance"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from agentgym_flow.testing import compliance
    except ModuleNotFoundError as error:
        if error.name in ("pytest", "hypothesis"):
            raise MissingExtra.of(error.name, "test") from None
        raise
    return getattr(compliance, name)
