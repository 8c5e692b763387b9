"""The slowest step that a hostile action can cause in each environment, in CPU time.

`python benchmarks/worst_steps.py [LENGTH]`: actions have the environment's maximum length, or LENGTH.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from agentgym_flow.core import TextEnv
from agentgym_flow.envs import make_text_env

VARIANTS = (
    ("Sokoban", {}),
    ("ALFWorld", {}),
    ("WebShop", {}),
    ("WebShop", {"observation_mode": "html"}),
    ("Search", {}),
    ("Search", {"metric": "f1"}),
    ("Canvas", {}),
    ("Canvas", {"strict": True}),
    ("Canvas", {"prompting": "two_phase"}),
)
PIECES = (
    *(
        "x",
        " ",
        "\n",
        "\0",
        "\t x",
        "\ud800",
        "İ",
        "ﷺ",
        "é",
        "e\u0301",
        "\U0001f9ca",
        "[",
        "]",
        "][",
        "{",
        "}",
        "(",
        ")",
    ),
    *('"', '\\"', "\\", "<", ">", "&", "&lt;", "a b ", "aab ", "1", "1.", "1,", "-1e5 ", "the of a ", ", ", ". ", "- "),
    *("search[", "click[", "answer[", "click[a]", "search[a] ", "answer[b] ", "put ", "put a in/on b ", "in/on "),
    *("move a to b ", " to ", "go to ", "take x from ", "up ", "<action>", "</action>", "<action>add</action>"),
    *(
        "<think>",
        "</think>",
        "<think>a</think>",
        "<prompt>",
        "</prompt>",
        "<operator>Plan</operator>",
        "```",
        "```json\n",
    ),
    *('{"action": ', '{"a": [', '{"action": "add"} ', '"a": 1, ', "[{", "Plan -> ", "[Plan, ", "(Plan -> ", "Plan, "),
    *("Verify ? done : ", "? ", " * 3", "(Review -> Revise) * 3 -> ", "<a ", "<!--", "<![CDATA[", "<a b='", "&#1;"),
)
FRAMES = (
    *(
        "{}",
        "search[{}]",
        "answer[{}]",
        "click[{}]",
        "<action>{}</action>",
        '{{"action": "{}"}}',
        "<think>{}</think>up",
    ),
    *(
        "<action>add</action><operator>{}</operator>",
        "<action>add</action><operator>Plan</operator><prompt>{}</prompt>",
    ),
    *("<action>add</action><structure>parallel</structure><operators>{}</operators>", "<action>finish</action>{}"),
    '{{"action": "add", "structure": "loop", "operators": "{}", "count": 3}}',
    *(
        "{}<action>finish</action>",
        "```json\n{}\n```",
        "put {} in/on b",
        "move {} to b",
        "go to {}",
        "<prompt>{}</prompt>",
    ),
)


def texts(length: int) -> Iterator[str]:
    """Yield hostile actions of `length` characters."""
    for frame in FRAMES:
        room = length - len(frame.format(""))
        for piece in PIECES:
            filling = (piece * (room // len(piece) + 1))[:room]
            yield frame.format(filling)


def seconds(env: TextEnv, text: str) -> float:
    """Return the CPU time of a step in a fresh episode."""
    env.reset(seed=0, options={"task": 0})
    began = time.process_time()
    env.step(text)
    return time.process_time() - began


def main() -> None:
    """Print the slowest action of each variant."""
    print("| environment | length | worst step, ms | text | one more character, ms |\n|---|---|---|---|---|")
    for name, settings in VARIANTS:
        env = make_text_env(f"agentgym_flow/{name}-v0", **settings)
        length = int(sys.argv[1]) if len(sys.argv) > 1 else env.max_action_length
        for text in ("search[warm up]", "answer[it]", "<action>add</action><operator>Plan</operator>", "go to it"):
            seconds(env, text)
        worst, text = max((seconds(env, text), text) for text in texts(length))
        above = max(seconds(env, "x" * (env.max_action_length + 1)), seconds(env, f"search[{'a b ' * 250_000}]"))
        told = " ".join(f"{key}={value}" for key, value in settings.items())
        print(f"| {name} {told} | {length:,} | {1000 * worst:.1f} | `{text[:50]!r}` | {1000 * above:.2f} |", flush=True)


if __name__ == "__main__":
    main()
