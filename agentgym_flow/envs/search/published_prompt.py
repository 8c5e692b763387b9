"""Search as others show it to a language model: verl-agent (and GiGPO, RewardFlow), and Search-R1.

Unlike in our own prompts, passages and queries keep their angle brackets, as they do in the originals: a passage can
open and close tags here. It cannot act: the environment reads nothing but the policy's answer.
"""

from __future__ import annotations

import json
import re
from typing import Any

from agentgym_flow.envs.search.game import NOTHING_FOUND, read_action
from agentgym_flow.envs.search.prompt import AGAIN, HISTORY
from agentgym_flow.envs.verl_agent import NAME, VerlAgentTemplate, has_chinese
from agentgym_flow.episode import Turn
from agentgym_flow.prompt_files import PromptFile
from agentgym_flow.prompts import Message, PromptContext, Published
from agentgym_flow.retrieval.passage import Passage

SEARCH_R1 = "search_r1"

_NOTE = "next_obs.append"  # where `generation.py` has the note on an answer without a block
_HEAD = "Doc {}(Title: "
_BLOCKS = {verb: re.compile(f"<{verb}>(.*?)</{verb}>", re.IGNORECASE | re.DOTALL) for verb in ("search", "answer")}
_FIRST_BLOCK = re.compile(r"<(search|answer)>(.*?)</\1>", re.DOTALL)
_ENDS = ("</search>", "</answer>")


def passages(observation: str) -> list[Passage]:
    """Return the passages of an observation, without ids: a line each, as `shown.documents` writes them.

    A title ends with the parenthesis that closes the one before it.
    """
    found = []
    for number, line in enumerate([] if observation == NOTHING_FOUND else observation.split("\n"), 1):
        rest = line.removeprefix(_HEAD.format(number))
        end = _closing(rest)
        found.append(Passage("", rest[:end], rest[end + 1 :].strip()))
    return found


def _closing(text: str) -> int:
    depth = 1
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return place
    return max(text.find(")"), 0)


def question(view: PromptContext) -> str:
    """Return what is asked, with a question mark at its end, as the published data have it."""
    asked: str = view.info["goal"].strip()
    return asked if asked.endswith("?") else f"{asked}?"


def _cut(completion: str) -> str:
    """Return a completion up to its first `</search>`, or its first `</answer>` where there is none."""
    for end in _ENDS:
        if end in completion:
            return completion[: completion.find(end) + len(end)]
    return completion


def _block_of(action: str) -> str:
    """Return the block that asks for an action; empty for what is none."""
    verb, text = read_action(action)
    return f"<{verb}>{text}</{verb}>" if verb else ""


def _searched(turn: Turn) -> bool:
    return turn.action_valid and not turn.terminated


# ---------------------------------------------------------------- verl-agent
class VerlAgentSearchPrompt(VerlAgentTemplate):
    """verl-agent's prompt: the question, and the last four steps with what they found, as JSON.

    Args:
        file: has `SEARCH_TEMPLATE_NO_HIS` and `SEARCH_TEMPLATE`.

    Raises:
        BadPromptFile: it lacks one of them.
    """

    def __init__(self, file: PromptFile) -> None:
        places, more = ("task_description",), ("step_count", "memory_context")
        names = ("SEARCH_TEMPLATE_NO_HIS", "SEARCH_TEMPLATE")
        super().__init__(file, *names, places=places, more=more, history=HISTORY)

    def parse_action(self, completion: str, view: PromptContext) -> str:
        """Return the first search of a completion, or its first answer where there is none; empty without either.

        What follows the first `</search>`, or else the first `</answer>`, is not read. A search that holds an answer
        block ends the episode with that answer.
        """
        block = _block(completion)
        said = _BLOCKS["answer"].findall(block) if all(tag in block for tag in ("<answer>", "</answer>")) else []
        if said:
            return f"answer[{said[-1].strip()}]"
        found = _BLOCKS["search"].fullmatch(block)
        return f"search[{found[1]}]" if found else ""

    def format_action(self, action: str, view: PromptContext) -> str | None:
        """Return `action` in tags after an empty thought; None when it would not be read back so."""
        completion = f"<think></think>{_block_of(action)}"
        return completion if action and self.parse_action(completion, view) == action else None

    def well_formed(self, completion: str) -> bool:
        """Return whether there is one block of one kind, and no Chinese character."""
        tags = [completion.lower().count(f"<{verb}>") for verb in _BLOCKS]
        return bool(_block(completion)) and sorted(tags) == [0, 1] and not has_chinese(completion)

    def _now(self, view: PromptContext) -> dict[str, Any]:
        return {"task_description": question(view)}

    def _past(self, view: PromptContext) -> dict[str, Any]:
        turns = view.episode.turns
        before = max(0, len(turns) - HISTORY)
        steps = [
            f"Step {number}:{self._did(turn)} {_as_json(turn)}\n"
            for number, turn in enumerate(turns[before:], before + 1)
        ]
        return {"step_count": len(turns), "memory_context": "\n".join(steps)}

    def _did(self, turn: Turn) -> str:
        return _block_of(turn.action)


def _block(completion: str) -> str:
    """Return the block that decides, stripped inside; empty when there is none."""
    said = _cut(completion)
    for verb, block in _BLOCKS.items():
        if found := block.search(said):
            return f"<{verb}>{found[1].strip()}</{verb}>"
    return ""


def _as_json(turn: Turn) -> str:
    """Return what a step brought; nothing for one that was refused."""
    if not _searched(turn):
        return ""
    found = "".join(
        f"Doc {number}: {passage.contents.strip()}\n"
        for number, passage in enumerate(passages(turn.next_observation), 1)
    )
    return f"<information>{json.dumps({'result': found})}</information>"


# ---------------------------------------------------------------- Search-R1
class SearchR1Script:
    """Search-R1's prompt as its script `infer.py` writes it: one text, with an empty line before every answer.

    That line is added once the answer is there, so a conversation cannot be continued token by token.

    Args:
        file: has `prompt` and `curr_search_template`.

    Raises:
        BadPromptFile: it lacks one of them.
    """

    def __init__(self, file: PromptFile) -> None:
        self._asked = file.template("prompt", "question")
        self._step = file.template("curr_search_template", "output_text", "search_results")
        self.name = file.named(SEARCH_R1)

    def prompt(self, view: PromptContext) -> str:
        """Return the episode so far as one text."""
        return "".join(message["content"] for message in self.messages(view))

    def messages(self, view: PromptContext) -> list[Message]:
        """Return the question as the user's message, and what was said so far as the beginning of the answer."""
        asked = self._asked.fill({"question": question(view)})
        messages: list[Message] = [{"role": "user", "content": asked}]
        if view.episode.turns:
            messages.append({"role": "assistant", "content": "".join(map(self._step_of, view.episode.turns))})
        return messages

    def parse_action(self, completion: str, view: PromptContext) -> str:
        """Return the action of the first complete block; empty without one."""
        found = _FIRST_BLOCK.search(_cut(completion))
        return f"{found[1]}[{found[2].strip()}]" if found else ""

    def format_action(self, action: str, view: PromptContext) -> str | None:
        """Return `action` in tags; None when it would not be read back so."""
        completion = _block_of(action)
        return completion if action and self.parse_action(completion, view) == action else None

    def _step_of(self, turn: Turn) -> str:
        """Return what the policy wrote in a turn and what came of it; nothing came of an answer without a block."""
        found = _documents(turn) if _searched(turn) else ""
        return self._step.fill({"output_text": _said(turn), "search_results": found})


class SearchR1Prompt(SearchR1Script):
    """Search-R1's prompt as in its training: answers and what came of them follow each other in one message.

    Args:
        file: has `prefix`, the prompt in `scripts/data_process/nq_search.py`. The note after an answer without a block
            is the published one if `search_r1/llm_agent/generation.py` is there, too, and ours if not.

    Attributes:
        stops: what ends an answer.

    Raises:
        BadPromptFile: it lacks the prompt.
    """

    stops = _ENDS

    def __init__(self, file: PromptFile) -> None:
        self._asked = file.template("prefix", "question")
        self._refusal = file.template(_NOTE).fill({}) if _NOTE in file else f"\n{AGAIN}\n"
        self.name = file.named(SEARCH_R1)

    def follow_up(self, view: PromptContext) -> str:
        """Return what came of the last answer; it stands in the policy's own message."""
        return self._came_of(view.episode.turns[-1])

    def _step_of(self, turn: Turn) -> str:
        return f"{_said(turn)}{self._came_of(turn)}"

    def _came_of(self, turn: Turn) -> str:
        if not _searched(turn):
            return self._refusal
        return f"\n\n<information>{_documents(turn).strip()}</information>\n\n"


def _said(turn: Turn) -> str:
    """Return what the policy wrote in a turn; of one that wrote only an action, its block."""
    if turn.completion is not None:
        return _cut(turn.completion)
    return _block_of(turn.action) or turn.action


def _documents(turn: Turn) -> str:
    """Return the passages of a search, a line each, with their titles in quotation marks as in the published corpus."""
    lines = []
    for number, passage in enumerate(passages(turn.next_observation), 1):
        title, _, text = passage.contents.partition("\n")
        lines.append(f"{_HEAD.format(number)}{title}) {text}\n")
    return "".join(lines)


def search_r1(file: PromptFile) -> SearchR1Script:
    """Return the profile of the training where its prompt is in the file, or else of the script. Raises as both do."""
    return SearchR1Script(file) if "curr_search_template" in file and "prefix" not in file else SearchR1Prompt(file)


PUBLISHED: Published = {NAME: VerlAgentSearchPrompt, SEARCH_R1: search_r1}
"""The published prompts for Search by name."""
