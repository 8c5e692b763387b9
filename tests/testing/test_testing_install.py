"""What `agentgym_flow.testing` needs, and when."""

import subprocess
import sys

import pytest

import agentgym_flow.testing


def run(program: str) -> str:
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert not finished.returncode, finished.stderr
    return finished.stdout


@pytest.mark.parametrize("package", ["pytest", "hypothesis"])
def test_a_missing_package_is_named_with_its_extra(package: str) -> None:
    said = run(f"""
import sys
sys.modules[{package!r}] = None
import agentgym_flow.testing, agentgym_flow.errors
try:
    agentgym_flow.testing.EnvCompliance
except agentgym_flow.errors.MissingExtra as error:
    print(error)
""")
    assert package in said
    assert "agentgym_flow[test]" in said


def test_the_example_works_without_the_extra() -> None:
    loaded = run("""
import sys
import gymnasium
import agentgym_flow.testing.example
gymnasium.make("example/Cave-v0").reset(seed=0)
print(sorted({"pytest", "hypothesis"} & sys.modules.keys()))
""")
    assert loaded.strip() == "[]"


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no_such_suite"):
        _ = agentgym_flow.testing.no_such_suite
