"""The two suites to inherit: `EnvCompliance` for text environments, `NumericCompliance` for numeric faces.

Each check is one test method whose failure says what the environment does wrong and which rule that breaks. The checks
live in one file per theme; here they are only put together.
"""

from __future__ import annotations

from agentgym_flow.testing.actions import ActionChecks
from agentgym_flow.testing.determinism import DeterminismChecks
from agentgym_flow.testing.information import InformationChecks
from agentgym_flow.testing.keys import KeyChecks
from agentgym_flow.testing.logs import LogChecks
from agentgym_flow.testing.machine import StateMachineChecks
from agentgym_flow.testing.objects import ObjectChecks
from agentgym_flow.testing.registration import RegistrationChecks
from agentgym_flow.testing.tasks import TaskChecks
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
    """Every rule that a text environment on `agentgym_flow.core.TextEnv` keeps.

    Inherit it in a test module, name it `Test...`, set `env_id` and, once they are known, the `golden` digests.
    """


class NumericCompliance(
    RegistrationChecks, DeterminismChecks, ObjectChecks, MaskChecks, FaceChecks, VectorEntryPointChecks
):
    """Every rule that a numeric face keeps: `Discrete` actions with a mask, and a vector entry point of its own."""
