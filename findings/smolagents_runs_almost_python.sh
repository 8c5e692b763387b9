#!/usr/bin/env bash
# CodeAgent of smolagents runs the code of a model with an interpreter of its own. Where it does not know a statement, as
# yield, it raises, so one expects that it runs the rest as Python does. It does not, and says nothing: `else` of a loop
# is skipped, decorators are ignored, a function that ends without `return` returns its last value instead of None,
# defaults are computed in each call, and *args also holds the arguments of the parameters before it.
# Who is hurt: whoever scores answers of a CodeAgent, or trains a model with it: right programs get wrong results, and the
# model learns this dialect. "for ... else" is how primes are found.
# Way around: another executor_type, which runs Python, or a check of the model's program with Python.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq smolagents==1.26.0

HF_HUB_OFFLINE=1 "$folder/venv/bin/python" -I - <<'PYTHON'
import platform
import sys
from importlib.metadata import version

from smolagents.local_python_executor import LocalPythonExecutor

print(f"smolagents {version('smolagents')}, Python {platform.python_version()}")
PROGRAMS = {
    "for ... else": """
found = []
for number in range(2, 12):
    for divisor in range(2, number):
        if number % divisor == 0:
            break
    else:
        found.append(number)
result = found
""",
    "a decorator": """
def doubled(function):
    def wrapped(number):
        return 2 * function(number)
    return wrapped

@doubled
def following(number):
    return number + 1

result = following(4)
""",
    "no return": """
def sign(number):
    if number < 0:
        return -1
    number + 0

result = sign(5)
""",
    "a default": """
scale = 10
def scaled(number, by=scale):
    return number * by

scale = 1000
result = scaled(2)
""",
    "*args": """
def total(first, *others):
    return [first, sum(others)]

result = total(100, 1, 2)
""",
}
GENERATOR = "def two():\n    yield 1\n    yield 2\n\nresult = list(two())"


def python(program):
    scope = {}
    exec(program, scope)
    return scope["result"]


def smolagents(program):
    executor = LocalPythonExecutor([])
    executor.send_tools({})
    try:
        return executor(program + "\nresult").output
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


expected = [python(program) for program in PROGRAMS.values()]
seen = [smolagents(program) for program in PROGRAMS.values()]
print("Expected: a program has the result that Python gives, or raises, as one with yield does:")
print(f"  {smolagents(GENERATOR)}")
for name, right, wrong in zip(PROGRAMS, expected, seen, strict=True):
    print(f"Seen with {name}: {wrong!r}; Python gives {right!r}")
if seen != [[], 5, 5, 2000, [100, 103]] or expected != [[2, 3, 5, 7, 11], 10, None, 20, [100, 3]]:
    sys.exit("The behaviour is gone.")
PYTHON
