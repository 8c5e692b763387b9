"""How observations become prompts, and completions become actions."""

from typing import TYPE_CHECKING

from agentgym_flow._util.importing import on_demand

if TYPE_CHECKING:
    from agentgym_flow.prompts.files import PromptFile, Template
    from agentgym_flow.prompts.templates import (
        ChoiceTemplate,
        Published,
        TextTemplate,
        history_window,
        template_for,
        templates_of,
        tools_for,
    )
    from agentgym_flow.prompts.thoughts import (
        CLOSE_THOUGHT,
        OPEN_THOUGHT,
        PAIRS,
        TAGS,
        ends_in_thought,
        without_thoughts,
    )
    from agentgym_flow.prompts.tools import CALL_A_TOOL, TEXT, Tool
    from agentgym_flow.prompts.types import (
        CLOSE,
        CONVERSATION,
        LAYOUTS,
        OPEN,
        TURN,
        ConversationTemplate,
        Message,
        PromptContext,
        PromptTemplate,
        SettingsTemplate,
        TranscriptTemplate,
        valid_turns,
    )
    from agentgym_flow.prompts.words import FIXED, IndexedPrompt, IndexTemplate, WordTemplate, words_of
else:
    __getattr__ = on_demand(__name__)  # hidden from type checkers, which would accept any name

__all__ = [
    "CALL_A_TOOL",
    "CLOSE",
    "CLOSE_THOUGHT",
    "CONVERSATION",
    "FIXED",
    "LAYOUTS",
    "OPEN",
    "OPEN_THOUGHT",
    "PAIRS",
    "TAGS",
    "TEXT",
    "TURN",
    "ChoiceTemplate",
    "ConversationTemplate",
    "IndexTemplate",
    "IndexedPrompt",
    "Message",
    "PromptContext",
    "PromptFile",
    "PromptTemplate",
    "Published",
    "SettingsTemplate",
    "Template",
    "TextTemplate",
    "Tool",
    "TranscriptTemplate",
    "WordTemplate",
    "ends_in_thought",
    "history_window",
    "template_for",
    "templates_of",
    "tools_for",
    "valid_turns",
    "without_thoughts",
    "words_of",
]
