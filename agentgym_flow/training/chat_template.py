"""Chat templates: settings such as `enable_thinking`, the date, TRL's training templates, delimiters of thoughts.

Base models have none and get a plain one. Settings and the date are written into the template itself, so they apply to
every prompt, reach the workers of a dataflow, and are saved with the model, as the plain one is: a server that loads a
checkpoint later uses the prompts of training.
"""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import TemplateError
from trl import get_training_chat_template

from agentgym_flow.errors import BadSetting, shown
from agentgym_flow.prompts import (
    CLOSE_THOUGHT,
    OPEN_THOUGHT,
    PAIRS,
    PromptTemplate,
    TranscriptTemplate,
    ends_in_thought,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PLAIN = (
    "{{ bos_token }}{% for message in messages %}{{ message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{{ '\\n\\n' }}{% endfor %}"
)
"""The chat template of models without one: plain texts separated by an empty line, answers with an end token."""

NONE = "none"
"""The value of the setting `chat_template` that replaces the model's chat template by `PLAIN`."""

_logger = logging.getLogger(__name__)

_WRITTEN = re.compile(
    r"(?P<clock>\{% macro strftime_now\(format\) %\}[^\n]*?\{% endmacro %\})?"
    r"(?P<settings>(?:\{% set \w+ = [^\n]*? %\})*)\{\{ '' \}\}"
)
_CLOCK = "{{% macro strftime_now(format) %}}{{{{ format{replacements} }}}}{{% endmacro %}}"
_DIRECTIVE = re.compile(r"%-?[aAbBcdDefFGHIjmMpSTuUVwWxXyYzZ]")
_NAME = re.compile(r"[A-Za-z_]\w*")
_SET = "{{% set {name} = {value} %}}"
# Without this expression, a line break at the beginning of a template would be lost after the statement.
_END = "{{ '' }}"
_FIELDS = ("reasoning_content", "reasoning", "thinking")  # of a message, as templates name its thought
_ASKED, _THOUGHT, _ANSWERED = "probe question", "probe thought", "probe answer"
_LONGEST = 80


def write_plain(tokenizer: PreTrainedTokenizerBase, template: PromptTemplate, wanted: str | None, model: str) -> None:
    """Write `PLAIN` into a tokenizer without a chat template, and log one line; with `wanted` `NONE` into any.

    Does nothing if the prompt template has its own vocabulary or writes an episode as one text: such prompts are no
    chats. `model` is the name to log.
    """
    chats = getattr(template, "vocabulary", None) is None and not isinstance(template, TranscriptTemplate)
    if not chats or is_plain(tokenizer) or (tokenizer.chat_template is not None and wanted is None):
        return
    if wanted is None:
        _logger.warning(
            "%s has no chat template: prompts are plain text, and an answer ends at the closing tag or line end that "
            "the prompt template asks for",
            model,
        )
    tokenizer.chat_template = PLAIN


def is_plain(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether the tokenizer has the chat template `PLAIN`."""
    return bool(tokenizer.chat_template == PLAIN)


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
    clock, _, template = _parts(tokenizer.get_chat_template())
    written = ""
    for name, value in settings.items():
        if not _NAME.fullmatch(name) or not re.search(rf"\b{name}\b", template):
            raise BadSetting(f"chat_template_kwargs sets {name!r}, which this model's chat template does not read")
        if not isinstance(value, bool | int | float | str):
            raise BadSetting(f"chat_template_kwargs takes true, false, a number or a text, got {name}={value!r:.60}")
        written += _SET.format(name=name, value=json.dumps(value))
    tokenizer.chat_template = f"{clock}{written}{_END}{template}"


def checked_date(date: object) -> str:
    """Return a date or time in ISO format, such as `2026-11-27`; None: today's. YAML reads dates as objects.

    Raises `BadSetting` if it has another format.
    """
    if date is None:
        return datetime.now().astimezone().date().isoformat()
    try:
        datetime.fromisoformat(str(date))
    except ValueError:
        raise BadSetting(f"date must be in ISO format, such as 2026-11-27, got {shown(date)}") from None
    return str(date)


def reads_clock(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether the tokenizer's chat template reads the date, as those of Llama 3.2 and gpt-oss do."""
    return tokenizer.chat_template is not None and "strftime_now" in without_settings(tokenizer.get_chat_template())


def write_date(tokenizer: PreTrainedTokenizerBase, date: str) -> None:
    """Let the tokenizer's chat template read `date` instead of the clock, so that equal turns have equal prompts.

    Replaces a date written before. Does nothing if the template does not read the clock. Raises `BadSetting` for an
    invalid date.
    """
    moment = datetime.fromisoformat(checked_date(date))
    if not reads_clock(tokenizer):
        return
    _, settings, template = _parts(tokenizer.get_chat_template())
    # The template passes a format to this function, so it gets one that fills in the formats' parts.
    parts = {part: moment.strftime(part) for part in sorted({*_DIRECTIVE.findall(template)})}
    replacements = "".join(f" | replace({json.dumps(part)}, {json.dumps(text)})" for part, text in parts.items())
    tokenizer.chat_template = f"{_CLOCK.format(replacements=replacements)}{settings}{_END}{template}"


def without_settings(template: str) -> str:
    """Return a chat template without what `write_settings` and `write_date` wrote into it."""
    return _parts(template)[2]


def _parts(template: str) -> tuple[str, str, str]:
    """Return the written date and settings of a chat template, and the rest."""
    found = _WRITTEN.match(template)
    if found is None:
        return "", "", template
    return found["clock"] or "", found["settings"], template[found.end() :]


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
        opening: the delimiter before a thought; empty for those of `prompts.thoughts`, or if the prompt has it.
        closing: the delimiter after a thought; empty for those of `prompts.thoughts`.
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
