"""Decides which names tests take from the program under test.

If a program could supply every name that its tests read, it could supply a helper that always succeeds. So helpers,
imports and constants come from the problem and its reference solution. From the program come only the function to
write, and names that the solution also defines and tests use for arguments: MBPP 601 passes objects of a class `Pair`,
which every program defines itself.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from itertools import pairwise

from agentgym_flow.envs.canvas.scoring.problem import CodeTests
from agentgym_flow.sandbox.harness.test_side import free_names

_LINE_END = re.compile(r"\r\n?|\n")


def definition(program: str, name: str) -> re.Match[str] | None:
    """Return the match of the first top-level definition of the function `name`, or None."""
    return re.search(rf"^(?:async\s+)?def\s+{re.escape(name)}\s*\(", program, re.MULTILINE) if name else None


def before(prefix: str, name: str) -> str | None:
    """Return the part of `prefix` above the function `name`, or None if there is no such function.

    Decorators belong to the function, because a complete function replaces it.
    """
    for source in (prefix, f"{prefix.rstrip()}\n    pass\n"):  # the prefix may end with the line of the `def`
        tree = _parsed(source)
        for last, one in pairwise((None, *tree.body)) if tree else ():
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name == name:
                # `@(` may be on its own line, so a decorator begins after the previous statement.
                line = (last.end_lineno or 0 if last else 0) if one.decorator_list else one.lineno - 1
                starts = [0, *(end.end() for end in _LINE_END.finditer(prefix))]
                return prefix[: starts[line]]
    start = definition(prefix, name)
    return prefix[: start.start()] if start else None


def code_tests(
    checks: tuple[str, ...], entry_point: str, *, setup: str = "", prefix: str = "", solution: str = ""
) -> CodeTests:
    """Return tests that take only permitted names from a program, and the others from the problem.

    Args:
        checks: snippets of Python.
        entry_point: the function to write.
        setup: Python that runs before the checks.
        prefix: the beginning of the program, if the problem gives it.
        solution: the reference solution.
    """
    given = "\n\n".join(part for part in ((before(prefix, entry_point) or "").strip(), setup) if part)
    free = _free("\n\n".join((given, *checks))) - {entry_point}
    if not checks:
        return CodeTests(setup=setup)
    taken, defined = _top_level(solution, free)
    names = (entry_point, *sorted(defined)) if entry_point else ()
    return CodeTests(setup="\n".join([*taken, given] if given else taken), checks=checks, names=names)


def _free(source: str) -> set[str]:
    try:
        return free_names(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()  # such tests cannot run


def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _top_level(solution: str, names: set[str]) -> tuple[list[str], set[str]]:
    """Return the imports and constants of a program that bind `names`, and those of `names` that it defines otherwise.

    A constant is a literal that is assigned once.
    """
    tree = _parsed(solution)
    if tree is None:
        return [], set()
    stored = Counter(name for node in ast.walk(tree) for name in _stored(node))
    given: list[str] = []
    defined: set[str] = set()
    for one in tree.body:
        if isinstance(one, ast.Import | ast.ImportFrom):
            bound = {(alias.asname or alias.name).partition(".")[0] for alias in one.names}
            if bound & names or "*" in bound:
                given.append(ast.unparse(one))
        elif isinstance(one, ast.FunctionDef | ast.ClassDef):
            defined.add(one.name)
        else:
            bound = {name for node in ast.walk(one) for name in _stored(node)}
            if bound & names and _is_literal(one) and all(stored[name] == 1 for name in bound):
                given.append(ast.unparse(one))
            else:
                defined |= bound
    return given, defined & names


def _stored(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Global):
        return node.names
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    return [node.id] if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del) else []


def _is_literal(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        return False
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    try:
        ast.literal_eval(statement.value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False
    return all(isinstance(target, ast.Name) for target in targets)
