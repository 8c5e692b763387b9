"""Chat templates: settings such as `enable_thinking`, TRL's training templates, and the delimiters of thoughts.

A setting is written into the template itself, so it applies to every prompt and is saved with the model: a server that
loads a checkpoint later uses the prompts of training.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import TemplateError
from trl import get_training_chat_template

from agentgym_flow.errors import BadSetting
from agentgym_flow.thoughts import CLOSE_THOUGHT, OPEN_THOUGHT, PAIRS, ends_in_thought

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SETTINGS = re.compile(r"((?:\{% set \w+ = [^\n]*? %\})*)\{\{ '' \}\}")
_NAME = re.compile(r"[A-Za-z_]\w*")
_SET = "{{% set {name} = {value} %}}"
# Without this expression, a line break at the beginning of a template would be lost after the statement.
_END = "{{ '' }}"
_FIELDS = ("reasoning_content", "reasoning", "thinking")  # of a message, as templates name its thought
_ASKED, _THOUGHT, _ANSWERED = "probe question", "probe thought", "probe answer"
_LONGEST = 80


def write_settings(tokenizer: PreTrainedTokenizerBase, settings: Mapping[str, Any]) -> None:
    """Write settings into the tokenizer's chat template, replacing those written before.

    Args:
        tokenizer: must have a chat template.
        settings: name of a template variable -> true, false, a number or a text.

    Raises:
        BadSetting: there is no chat template, it does not read a variable, or a value has another type.
    """
    if not settings:
        return
    if tokenizer.chat_template is None:
        raise BadSetting(
            f"chat_template_kwargs sets {', '.join(settings)}, but this model's tokenizer has no chat template: leave "
            "it out, or use an instruction-tuned model"
        )
    template = without_settings(tokenizer.get_chat_template())
    written = ""
    for name, value in settings.items():
        if not _NAME.fullmatch(name) or not re.search(rf"\b{name}\b", template):
            raise BadSetting(f"chat_template_kwargs sets {name!r}, which this model's chat template does not read")
        if not isinstance(value, bool | int | float | str):
            raise BadSetting(f"chat_template_kwargs takes true, false, a number or a text, got {name}={value!r:.60}")
        written += _SET.format(name=name, value=json.dumps(value))
    tokenizer.chat_template = f"{written}{_END}{template}"


def without_settings(template: str) -> str:
    """Return a chat template without the settings that `write_settings` wrote into it."""
    found = _SETTINGS.match(template)
    return template if found is None else template[found.end() :]


def training_template(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """Return TRL's training template for a tokenizer, with the settings; None if there is none."""
    template = tokenizer.get_chat_template()
    plain = without_settings(template)
    bare = copy.copy(tokenizer)
    bare.chat_template = plain
    try:
        other: str | None = get_training_chat_template(bare)
    except ValueError:  # unsupported by TRL
        return None
    return None if other is None else f"{template.removesuffix(plain)}{other}"


class ThoughtStyle(NamedTuple):
    """How a model with a chat template writes its thoughts.

    Attributes:
        opening: the delimiter before a thought; empty for those of `agentgym_flow.thoughts`, or if the prompt has it.
        closing: the delimiter after a thought; empty for those of `agentgym_flow.thoughts`.
        begun: whether the prompt opens the thought, so that completions begin inside it.
    """

    opening: str = ""
    closing: str = ""
    begun: bool = False

    def plain(self, completion: str) -> str:
        """Return a completion with `<think>` and `</think>` for the delimiters, and with the thought that is begun."""
        for own, known in ((self.opening, OPEN_THOUGHT), (self.closing, CLOSE_THOUGHT)):
            completion = completion.replace(own, known) if own else completion
        return f"{OPEN_THOUGHT}{completion}" if self.begun else completion


def thought_style(tokenizer: PreTrainedTokenizerBase) -> ThoughtStyle:
    """Return how a chat template delimits thoughts, found by rendering a message with a thought.

    Templates that show no thoughts give the default.
    """
    asked = [{"role": "user", "content": _ASKED}]
    answered = {"role": "assistant", "content": _ANSWERED, **dict.fromkeys(_FIELDS, _THOUGHT)}
    style = ThoughtStyle()
    if tokenizer.chat_template is None:
        return style
    try:
        prompt = str(tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True))
        shown = str(tokenizer.apply_chat_template([*asked, answered], tokenize=False))
    except (TemplateError, TypeError, ValueError):  # it wants other messages
        return style
    before, _, after = shown.partition(_THOUGHT)
    between, found, _ = after.partition(_ANSWERED)
    opening, closing = before[len(prompt) :].strip() if before.startswith(prompt) else "", between.strip()
    known = any(opening == pair[0] or closing == pair[1] for pair in PAIRS)
    if found and closing and not known and _THOUGHT not in closing and len(opening + closing) <= _LONGEST:
        style = ThoughtStyle(opening, closing)
    return style._replace(begun=ends_in_thought(style.plain(prompt.rpartition(_ASKED)[2])))
