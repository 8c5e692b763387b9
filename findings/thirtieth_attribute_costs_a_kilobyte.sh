#!/usr/bin/env bash
# CPython stores the attributes of an instance in an array whose keys the class shares, but only up to 29 of them. The
# thirtieth gives every instance a dictionary of its own: in CPython 3.11 an environment then takes five times the
# memory, and every attribute is read through that dictionary, which takes longer.
# Who is hurt: environments with many settings and caches that are created or copied by the thousand, as for groups of
# attempts or tree search. One of ours lost 9 % of its steps per second to a single attribute.
# Way around: keep hot classes below 30 attributes (move settings into one object), or give them __slots__.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq gymnasium==1.4.0

"$folder/venv/bin/python" -I - <<'PYTHON'
import copy
import platform
import sys
import tracemalloc

import gymnasium

print(f"{platform.python_implementation()} {platform.python_version()}, gymnasium {gymnasium.__version__}")


def bytes_of_a_copy(attributes, slots=False):
    """Return the memory of one of a thousand copies of an environment with as many attributes, all small integers."""
    names = [f"setting_{number}" for number in range(attributes)]
    body = "".join(f"        self.{name} = {number}\n" for number, name in enumerate(names))
    base = "object" if slots else "gymnasium.Env"
    scope = {"gymnasium": gymnasium}
    exec(f"class Maze({base}):\n{f'    __slots__ = {names}' if slots else ''}\n    def __init__(self):\n{body}", scope)
    maze = scope["Maze"]()
    make = scope["Maze"] if slots else lambda: copy.copy(maze)
    kept = [make() for _ in range(100)]  # the class has seen its attributes
    tracemalloc.start()
    kept += [make() for _ in range(1000)]
    size = tracemalloc.get_traced_memory()[0] / 1000
    tracemalloc.stop()
    return size


few, many, slotted = bytes_of_a_copy(29), bytes_of_a_copy(30), bytes_of_a_copy(30, slots=True)
print("Expected: an attribute more takes 8 bytes more.")
print(f"Seen: {few:.0f} bytes with 29 attributes, {many:.0f} with 30; {slotted:.0f} with 30 in __slots__")
if not many > 2 * few > slotted:
    sys.exit("The behaviour is gone: the thirtieth attribute costs no more than the others.")
PYTHON
