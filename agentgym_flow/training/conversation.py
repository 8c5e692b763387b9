"""One conversation per episode: every prompt is the previous prompt, the sampled answer, and the new observation.

Sampled tokens are never decoded and tokenised again: they are kept, and only the new observation is tokenised and
appended. So the tokens of the last prompt are those of the whole episode, and training computes the log-probabilities
of sampling in one forward pass over them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import TemplateError

from agentgym_flow.errors import BadSetting
from agentgym_flow.policies import PolicyInput
from agentgym_flow.prompts import ConversationTemplate, PromptTemplate, TranscriptTemplate, WordTemplate
from agentgym_flow.training.chat_template import training_template

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

    def prompt(self, policy_input: PolicyInput) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the tokens of the conversation so far and the new tokens, for a turn after the first.

        Raises `BadSetting` if the last turn has no tokens, or the tokenizer does not know every new word.
        """
        last = policy_input.episode.turns[-1]
        if last.output.prompt_ids is None or not last.output.completion_ids:
            raise BadSetting("a conversation continues turns that have tokens: let one policy play the whole episode")
        answered = last.output.completion_ids[-1]
        new = self.follow_up(policy_input)
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
