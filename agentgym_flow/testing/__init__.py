"""The compliance suite: inherit it, name an environment, and pytest checks all rules of the contract.

    from agentgym_flow.testing import EnvCompliance

    class TestCave(EnvCompliance):
        env_id = "example/Cave-v0"
        env_module = "agentgym_flow.testing.example"

Needs the extra `test` (pytest and Hypothesis). Both are imported only with a suite, so `agentgym_flow.testing.example`
works on the base install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentgym_flow._util.importing import on_demand
from agentgym_flow.errors import MissingExtra

if TYPE_CHECKING:
    from agentgym_flow.testing.compliance import EnvCompliance, NumericCompliance
else:  # hidden from type checkers, which would accept any name

    def __getattr__(name: str) -> Any:
        try:
            return _lookup(name)
        except ModuleNotFoundError as error:
            if error.name in ("pytest", "hypothesis"):
                raise MissingExtra.of(error.name, "test") from None
            raise


__all__ = ["EnvCompliance", "NumericCompliance"]
_lookup = on_demand(__name__)
