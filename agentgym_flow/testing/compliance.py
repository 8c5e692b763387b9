"""The two suites to inherit: `EnvCompliance` for text environments, `NumericCompliance` for numeric faces.

Each check is one test method. Its failure message says what the environment does wrong and which rule it breaks. The
checks are in one file per topic; this file combines them.
"""

from __future__ import annotations

from agentgym_flow.testing.episodes import DeterminismChecks, LogChecks, ObjectChecks
from agentgym_flow.testing.registration import RegistrationChecks, TaskChecks
from agentgym_flow.testing.states import KeyChecks, StateMachineChecks
from agentgym_flow.testing.steps import ActionChecks, InformationChecks
from agentgym_flow.testing.vectors import FaceChecks, MaskChecks, TextVectorChecks, VectorEntryPointChecks


class EnvCompliance(
    RegistrationChecks,
    DeterminismChecks,
    ObjectChecks,
    InformationChecks,
    ActionChecks,
    StateMachineChecks,
    TaskChecks,
    KeyChecks,
    LogChecks,
    TextVectorChecks,
):
    """All rules for text environments, which derive from `agentgym_flow.core.TextEnv`.

    Inherit it in a test module, name it `Test...`, set `env_id` and, once they are known, the `golden` digests.
    """


class NumericCompliance(
    RegistrationChecks, DeterminismChecks, ObjectChecks, MaskChecks, FaceChecks, VectorEntryPointChecks
):
    """All rules for numeric variants: `Discrete` actions with a mask, and a vector entry point."""
