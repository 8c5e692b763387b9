"""Run `unittest` classes among the tests; imported only if the tests use `unittest`."""

from __future__ import annotations

import types
import unittest
from typing import Any


def run_cases(module: types.ModuleType) -> None:
    """Run the `unittest` classes in `module`; raise the exception of the first failure."""
    suite = unittest.TestSuite()
    for value in list(module.__dict__.values()):
        if isinstance(value, type) and issubclass(value, unittest.TestCase):
            suite.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(value))
    result = _FirstFailure()
    suite.run(result)
    if result.first is not None:
        raise result.first
    if not result.wasSuccessful():
        raise AssertionError("a test case did not pass")


class _FirstFailure(unittest.TestResult):
    first: BaseException | None = None

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addFailure(test, err)
        self.first = self.first or err[1]

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addError(test, err)
        self.first = self.first or err[1]

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.first = self.first or err[1]
