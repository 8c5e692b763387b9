"""One conversation over a whole episode: every prompt is the one before it, the answer sampled, and what came of it.

What the policy sampled is never turned into text and back: its tokens are kept, and only the new observation is
tokenised and appended. So the tokens of the last prompt are those of the whole episode, and the log-probabilities taken
in sampling are those that training computes in one forward pass over them.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

from trl import get_training_chat_template

from agentgym_flow.errors import BadSetting
from agentgym_flow.policies import View
from agentgym_flow.prompts import ConversationProfile, Message, Profile

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROBE = "<think>\nprobe\n</think>\n\n<action>probe</action>"
"""An answer with the parts that chat templates are known to rewrite, in the form in which they write them."""


class Conversation:
    """Continues a conversation token by token.

    Where the tokenizer's chat template rewrites what was said before, as Qwen3's drops earlier reasoning, the one that
    TRL trains such models with is used for what follows an answer.

    Args:
        tokenizer: without a chat template, texts follow each other with an empty line between them.
        profile: must say what follows an action.
        ends: the tokens that end a completion.

    Raises:
        BadSetting: the profile has no `follow_up`, or the chat template rewrites what was said before and TRL knows
            none in its place.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, profile: Profile, ends: Set[int]) -> None:
        if not isinstance(profile, ConversationProfile):
            raise BadSetting(
                f"profile {profile.name!r} has no follow_up message, which layout conversation needs: use profile "
                "text, or set layout to turn"
            )
        self._tokenizer = tokenizer
        self._profile = profile
        self._ends = ends
        self._known: dict[str, tuple[int, ...]] = {}
        self._template = None if tokenizer.chat_template is None else self._lasting_template()

    def prompt(self, view: View) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return what was said so far and what is new, as tokens, for a turn that is not the episode's first.

        Raises `BadSetting` when the last turn has no tokens.
        """
        last = view.episode.turns[-1]
        if last.prompt_ids is None or not last.completion_ids:
            raise BadSetting("a conversation continues turns that have tokens: let one policy play the whole episode")
        answered = last.completion_ids[-1]
        new = self._encode(self._profile.follow_up(view))
        # The template closes an answer; one that closed itself must not be closed twice.
        if answered in self._ends and new and new[0] == answered:
            new = new[1:]
        return (*last.prompt_ids, *last.completion_ids), new

    def _encode(self, text: str) -> tuple[int, ...]:
        ids = self._known.get(text)
        if ids is None:
            if len(self._known) > _MAX_KNOWN:
                self._known.clear()
            ids = self._known[text] = tuple(self._tokenizer(self._after(text), add_special_tokens=False).input_ids)
        return ids

    def _after(self, text: str) -> str:
        """Return the text between an answer and the next: the end of the answer, the new message, who speaks next."""
        if self._template is None:
            return f"\n\n{text}\n\n"
        return self._written_after(text, self._template)

    def _written_after(self, text: str, template: str) -> str:
        opening, answer = _message("user", "probe"), _message("assistant", PROBE)
        answered = self._render([opening], template) + PROBE
        return self._render([opening, answer, _message("user", text)], template)[len(answered) :]

    def _render(self, messages: list[Message], template: str) -> str:
        text = self._tokenizer.apply_chat_template(
            messages, chat_template=template, tokenize=False, add_generation_prompt=True
        )
        assert isinstance(text, str)  # not tokenised
        return text

    def _lasting_template(self) -> str:
        """Return the tokenizer's template if it leaves answers as they were, or else TRL's in its place."""
        own: str = self._tokenizer.get_chat_template()
        if self._keeps(own):
            return own
        try:
            other: str | None = get_training_chat_template(self._tokenizer)
        except ValueError:  # TRL has none for it
            other = None
        opening = [_message("user", "probe")]
        if other and self._keeps(other) and self._render(opening, other) == self._render(opening, own):
            return other
        raise BadSetting(
            "the tokenizer's chat template rewrites earlier messages when new ones come (many drop earlier reasoning): "
            "give it a chat_template that keeps every answer as it was, or set layout to turn"
        )

    def _keeps(self, template: str) -> bool:
        """Return whether what a template writes for a longer conversation begins with what it wrote for a shorter."""
        messages = [_message("user", "probe")]
        said = self._render(messages, template) + PROBE
        for text in ("first", "second"):
            messages += [_message("assistant", PROBE), _message("user", text)]
            rendered = self._render(messages, template)
            if rendered != said + self._written_after(text, template):
                return False
            said = rendered + PROBE
        return True


_MAX_KNOWN = 1 << 15


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}
