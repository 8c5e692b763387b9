"""The two suites to inherit: `EnvCompliance` for text environments, `NumericCompliance` for numeric faces.

Each check is one test method. Its failure message says what the environment does wrong and which rule it breaks. The
checks are in one file per topic; this file combines them.
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
    """All rules for text environments, which derive from `agentgym_flow.core.TextEnv`.

    Inherit it in a test module, name it `Test...`, set `env_id` and, once they are known, the `golden` digests.
    """


class NumericCompliance(
    RegistrationChecks, DeterminismChecks, ObjectChecks, MaskChecks, FaceChecks, VectorEntryPointChecks
):
    """All rules for numeric variants: `Discrete` actions with a mask, and a vector entry point."""
