"""One conversation per episode: every prompt is the previous prompt, the sampled answer, and the new observation.

Sampled tokens are never decoded and tokenised again: they are kept, and only the new observation is tokenised and
appended. So the tokens of the last prompt are those of the whole episode, and training computes the log-probabilities
of sampling in one forward pass over them.

Chat templates write the messages. Base models have none and get a plain one. Settings such as `enable_thinking` and the
date are written into the template itself, so they apply to every prompt, reach the workers of a dataflow, and are saved
with the model, as the plain one is: a server that loads a checkpoint later uses the prompts of training.
"""

from __future__ import annotations

import copy
import json
import logging
import re
import unicodedata
from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import TemplateError
from trl import get_training_chat_template

from agentgym_flow.errors import BadSetting, shown
from agentgym_flow.policies import PolicyInput
from agentgym_flow.prompts import (
    CLOSE_THOUGHT,
    OPEN_THOUGHT,
    PAIRS,
    ConversationTemplate,
    PromptTemplate,
    TranscriptTemplate,
    WordTemplate,
    ends_in_thought,
    history_window,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ACTION = "<action>probe</action>"
PROBE = f"<think>\nprobe\n</think>\n\n{ACTION}"
"""An answer with the parts that chat templates often rewrite, in the usual format."""


class Conversation:
    """Continues a conversation token by token.

    If the tokenizer's chat template rewrites earlier messages, as Qwen3's drops earlier reasoning, the template that
    TRL uses for training such models is used after the first answer. A template may begin the answer itself: Qwen3.5's
    opens a thought, or adds an empty one if thinking is off.

    Args:
        tokenizer: without a chat template, texts are separated by an empty line.
        template: must have a `follow_up` message. That of a `TranscriptTemplate` is appended unchanged.
        ends: the tokens that end a completion.

    Raises:
        BadSetting: the prompt template has no `follow_up`, or the chat template rewrites earlier messages and TRL has
            no replacement.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, template: PromptTemplate, ends: Set[int]) -> None:
        if not isinstance(template, ConversationTemplate):
            raise BadSetting(
                f"template {template.name!r} has no follow_up message, which layout conversation needs: use template "
                "text, or set layout to turn"
            )
        self._tokenizer = tokenizer
        self._template = template
        self._ends = ends
        self._known: dict[str, tuple[int, ...]] = {}
        self._is_transcript = isinstance(template, TranscriptTemplate)
        chats = tokenizer.chat_template is not None and not self._is_transcript
        self._style = self._find_style() if chats else None

    def prompt(
        self, policy_input: PolicyInput, acts_as: str | None = None
    ) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the tokens of the conversation so far and the new tokens; None for the policy's first turn.

        Tokens belong to the tokenizer of their policy. What other policies did since the last turn of `acts_as` is
        therefore a part of the new message, as text.

        Args:
            policy_input: the turn.
            acts_as: the name of the policy if several share the episode.

        Raises:
            BadSetting: the policy's last turn has no tokens, or the tokenizer does not know every new word.
        """
        turns = policy_input.episode.turns
        own = next((number for number in reversed(range(len(turns))) if turns[number].is_by(acts_as)), None)
        if own is None:
            return None
        last = turns[own]
        if last.output.prompt_ids is None or not last.output.completion_ids:
            raise BadSetting("a conversation continues turns that have tokens: let one policy play the whole episode")
        answered = last.output.completion_ids[-1]
        others = history_window(turns, len(turns) - own - 1)
        told = self._template.follow_up(policy_input)
        new = self._encode(f"{OTHERS_ACTED}\n\n{others}\n\n{told}" if others else told)
        # The template adds an end token to answers; a sampled one must not be repeated.
        if answered in self._ends and new and new[0] == answered:
            new = new[1:]
        return (*last.output.prompt_ids, *last.output.completion_ids), new

    def follow_up(self, policy_input: PolicyInput) -> tuple[int, ...]:
        """Return the tokens of the text between the last answer and the next one.

        Raises `BadSetting` if the tokenizer does not know every word.
        """
        return self._encode(self._template.follow_up(policy_input))

    def _encode(self, text: str) -> tuple[int, ...]:
        ids = self._known.get(text)
        if ids is None:
            if len(self._known) > _MAX_KNOWN:
                self._known.clear()
            after = self._after(text)
            ids = tuple(self._tokenizer(after, add_special_tokens=False).input_ids)
            check_words(self._tokenizer, self._template, after, ids)
            self._known[text] = ids
        return ids

    def _after(self, text: str) -> str:
        """Return the text between two answers: the end of the first, the new message, the start of the second."""
        if self._style is not None:
            return self._render_after(text, self._style)
        return text if self._is_transcript else f"\n\n{text}\n\n"

    def _render_after(self, text: str, style: _AnswerStyle) -> str:
        opening = _message("user", "probe")
        answered = self._render([opening], style.template) + style.answer
        return self._render([opening, style.message, _message("user", text)], style.template)[len(answered) :]

    def _render(self, messages: list[dict[str, str]], template: str) -> str:
        text = self._tokenizer.apply_chat_template(
            messages, chat_template=template, tokenize=False, add_generation_prompt=True
        )
        assert isinstance(text, str)  # not tokenised
        return text

    def _find_style(self) -> _AnswerStyle:
        """Return the tokenizer's template if it does not rewrite answers, else TRL's replacement."""
        own: str = self._tokenizer.get_chat_template()
        asked = [_message("user", "probe")]
        opening = self._render(asked, own)
        for template in (own, training_template(self._tokenizer)):
            if template is not None and self._render(asked, template) == opening:
                for style in _answer_styles(template, opening):
                    if self._is_stable(style):
                        return style
        raise BadSetting(
            "the tokenizer's chat template rewrites earlier messages when new ones are added (many drop earlier "
            "reasoning): use a chat_template that keeps every answer unchanged, or set layout to turn"
        )

    def _is_stable(self, style: _AnswerStyle) -> bool:
        """Return whether the text of a longer conversation begins with the text of a shorter one."""
        messages = [_message("user", "probe")]
        said = self._render(messages, style.template) + style.answer
        for text in ("first", "second"):
            messages += [style.message, _message("user", text)]
            try:
                rendered = self._render(messages, style.template)
            except TemplateError:  # some templates need the content in another form
                return False
            if rendered != said + self._render_after(text, style):
                return False
            said = rendered + style.answer
        return True


def check_words(tokenizer: PreTrainedTokenizerBase, template: PromptTemplate, text: str, ids: Sequence[int]) -> None:
    """Raise `BadSetting` if a tokenizer does not know every word of a text, whose tokens are `ids`.

    The unknown token alone proves nothing: in many byte-level tokenizers, which know every text, it is also the
    begin-of-sequence or end token. So the tokens are decoded, and must give the text back, white space and the form of
    letters aside. A `WordTemplate` may have unknown words, because its vocabulary is collected by play.
    """
    if tokenizer.unk_token_id is None or tokenizer.unk_token_id not in ids or isinstance(template, WordTemplate):
        return
    decoded = tokenizer.decode(tokenizer(text, add_special_tokens=False).input_ids, skip_special_tokens=False)
    if _letters(decoded) != _letters(text):
        raise BadSetting(
            f"the tokenizer does not know every word of template {template.name!r}: use another tokenizer or template"
        )


def _letters(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


OTHERS_ACTED = "What others did since your last answer:"
"""In a conversation, the words before the turns of other policies."""

_MAX_KNOWN = 1 << 15
_OPENED = re.compile(r"<think>\s*(</think>\s*)?$")


class _AnswerStyle(NamedTuple):
    """A way to write an answer with a chat template.

    Attributes:
        template: the chat template.
        answer: the text that a policy would sample.
        message: the corresponding message for the template.
    """

    template: str
    answer: str
    message: dict[str, str]


def _answer_styles(template: str, opening: str) -> list[_AnswerStyle]:
    """Return the possible ways to write an answer after the prompt `opening`, which may begin the answer itself.

    Some templates parse a thought from the message's text, others have a field for it.
    """
    opened = _OPENED.search(opening)
    begun = "" if opened is None else opened[0]
    if "</think>" in begun:  # an empty thought: only the rest is sampled
        return [_AnswerStyle(template, ACTION, _message("assistant", text)) for text in (begun + ACTION, ACTION)]
    thought = {**_message("assistant", ACTION), "reasoning_content": "probe"}
    return [
        _AnswerStyle(template, PROBE.removeprefix(begun), message)
        for message in (_message("assistant", PROBE), thought)
    ]


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


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
