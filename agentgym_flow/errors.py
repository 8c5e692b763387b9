"""Every error this package raises on purpose: typed, and each says what to do next.

All derive from `AgentGymFlowError` and also from the built-in or Gymnasium class that callers already catch
(`ValueError`, `ImportError`, `gymnasium.error.ResetNeeded`, ...). Each takes one message, so that an error survives
pickling across the process boundary of `AsyncVectorEnv`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

from gymnasium import error as gymnasium_error

MOST_LISTED = 40
"""The largest number of names that an error message lists."""


def shown(value: object) -> str:
    """Return `value` as an error message shows it: short, and without raising whatever it is."""
    try:
        if isinstance(value, str | bytes):
            return f"{value[:60]!r}" + (f"... ({len(value)} in all)" if len(value) > 60 else "")
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**30:
            return "an integer of more than 30 digits"
        if isinstance(value, Sequence | Mapping) and len(value) > 20:
            return f"a {type(value).__name__} of {len(value)}"
        return f"{value!r:.80}"
    except Exception:  # somebody's own __repr__, or nesting beyond it
        return f"an object of type {type(value).__name__}"


class AgentGymFlowError(Exception):
    """Base of all errors of this package."""


class UnknownName(AgentGymFlowError, ValueError):
    """A name was given that is not among the known ones."""

    kind = "name"

    @classmethod
    def among(cls, name: object, known: Iterable[str], advice: str = "") -> Self:
        """Build the error for `name`, proposing the closest of `known`; `advice` is appended unchanged.

        Up to `MOST_LISTED` known names are listed, more are only counted: nobody reads all names of a large module.
        """
        choices = list(known)
        close = difflib.get_close_matches(str(name)[:100], choices, n=1, cutoff=0.5)
        guess = f" Did you mean {close[0]!r}?" if close else ""
        listing = f" Known: {', '.join(choices)}." if choices else f" No {cls.kind} is known yet."
        if len(choices) > MOST_LISTED:
            listing = f" {len(choices)} names are known."
        return cls(f"Unknown {cls.kind} {shown(name)}.{guess}{listing}{' ' + advice if advice else ''}")


class UnknownSplit(UnknownName):
    """A split that the environment does not have."""

    kind = "split"


class UnknownOption(UnknownName):
    """A key of `reset(options=...)`, or a value of a keyword, that does not exist."""

    kind = "option"


class UnknownEnvironment(UnknownName):
    """An environment id that is not registered."""

    kind = "environment"


class UnknownData(UnknownName):
    """A data set name that is not registered on this machine."""

    kind = "data set"


class UnknownTrack(UnknownName):
    """A track of a leaderboard that does not exist."""

    kind = "track"


class UnknownPolicy(UnknownName):
    """A policy description that names no policy."""

    kind = "policy"


class UnknownProfile(UnknownName):
    """A prompt profile that the environment does not have."""

    kind = "prompt profile"


class UnknownTask(AgentGymFlowError, ValueError):
    """A task index outside the split, or of the wrong type."""


class BadAction(AgentGymFlowError, gymnasium_error.InvalidAction):
    """An action of the wrong type, or a number outside its space. Text never raises: a normal, invalid transition."""


class BadSetting(AgentGymFlowError, ValueError):
    """A keyword argument has a value that cannot work; the message names the setting and the allowed range."""


class BadRenderMode(BadSetting, TypeError):
    """A `render_mode` that the environment does not offer.

    It is a `TypeError` as well, by which Stable-Baselines3's `make_vec_env` finds that there are no pictures.
    """


class BadResume(BadSetting):
    """A run that was stopped cannot be gone on with in this way; what it has left does not change."""


class BadTrack(AgentGymFlowError, ValueError):
    """A track of a leaderboard cannot be read, or its tasks are not those of this version; the message says which."""


class BadSeason(AgentGymFlowError, ValueError):
    """The file of a leaderboard's season cannot be read, or a number that is revealed is not the one committed to."""


class BadSubmission(AgentGymFlowError, ValueError):
    """A submission to a leaderboard cannot be read, or is not what it says; the message names the file and the rule."""


class BadLevel(AgentGymFlowError, ValueError):
    """A level string or level file cannot be read; the message names the file and the line."""


class BadGame(AgentGymFlowError, ValueError):
    """An ALFWorld game file cannot be read or played; the message names the file and the line."""


class BadWorkflow(AgentGymFlowError, ValueError):
    """A workflow that cannot be, or a text that is none; the message names the rule that is broken."""


class SearchLimit(AgentGymFlowError, RuntimeError):
    """A solver gave up at its own limit without knowing the answer; the message says which argument raises it."""


class BadData(AgentGymFlowError, ValueError):
    """Data on disk is missing, unreadable, or not what its digest says."""


class BadPromptFile(BadData):
    """A file of published prompts is missing, cannot be read, or lacks a string; the message names file and string."""


class BadIndex(BadData):
    """A search index on disk is missing, damaged or of another version; the message names the folder or the file."""


class RetrieverFailed(AgentGymFlowError, RuntimeError):
    """A remote retriever gave no usable answer in time; the message says how often it was tried and what came.

    Nothing of what the server sent is in the message.

    Attributes:
        answered: what it did answer of the queries that were asked together: query -> what was found for it.
    """

    answered: Mapping[str, Any] = MappingProxyType({})


class ExecutorFailed(AgentGymFlowError, RuntimeError):
    """The server that does the work of a workflow's operators cannot be reached, or answers nobody.

    Nothing is scored: the environment is as it was before the step, which can be taken
    again. Nothing of what the server sent is in the message.
    """


class ServerDown(AgentGymFlowError, RuntimeError):
    """A model server that had answered has answered nothing for longer than the patience that was set.

    What was played and answered before is kept, where there is a log. Nothing of what the server sent is in the
    message.
    """


class SandboxUnavailable(AgentGymFlowError, RuntimeError):
    """This machine cannot hold a program as well as was asked for; the message says what is missing, and the remedy."""


class SandboxFailed(AgentGymFlowError, RuntimeError):
    """A sandbox broke before or while it ran a program, which says nothing about the program."""


class BadLog(AgentGymFlowError, ValueError):
    """An episode log is truncated, edited or not an episode log; the message names the line."""


class BeyondLimits(BadLog):
    """A log or a line of it is larger than `LogLimits` allow."""


class GroupMismatch(AgentGymFlowError, ValueError):
    """Episodes put into one group did not start from the same state."""


class BadPolicy(AgentGymFlowError, TypeError):
    """A policy does not answer as `agentgym_flow.policies.Policy` promises; the message says what it returned."""


class MissingExtra(AgentGymFlowError, ImportError):
    """An optional dependency is not installed."""

    @classmethod
    def of(cls, package: str, extra: str) -> Self:
        """Build the error for a missing `package` that the named extra would install."""
        return cls(f"{package} is not installed. Install it with: pip install 'agentgym_flow[{extra}]'")


class UnsupportedPython(AgentGymFlowError, ImportError):
    """An installed package does not work on this version of Python; the message says what does."""


class UnsupportedTRL(AgentGymFlowError, ImportError):
    """The installed TRL does not have the members the trainer is built on."""


class TrainingFailed(AgentGymFlowError, RuntimeError):
    """Training cannot go on; the message names the setting to change and where the state was saved."""


class UnsupportedVLLM(AgentGymFlowError, ImportError):
    """The installed vLLM, or that of a server, is of a version that is not supported, or cannot run on this machine."""


class UpdateFailed(AgentGymFlowError, RuntimeError):
    """A generator could not take new weights over, or has lost them; the message names it. Old ones are never used."""


class GenerationFailed(AgentGymFlowError, RuntimeError):
    """A generator could not answer a request; the message says what it tried and what came."""


class FlowDown(AgentGymFlowError, RuntimeError):
    """The manager of a dataflow, or the trainer behind it, was not heard of for longer than the deadline."""


class NoWorkers(AgentGymFlowError, RuntimeError):
    """No rollout worker of a dataflow was heard of for longer than the deadline; the message says how to start one."""


class PutAside(AgentGymFlowError, RuntimeError):
    """A rollout worker gets no more episodes, because nothing came of the last ones; the message says why."""


class RunsFinished(AgentGymFlowError, RuntimeError):
    """No trainer of a manager needs more episodes, so there is nothing to play until a new run begins."""


class Superseded(AgentGymFlowError, RuntimeError):
    """Another trainer of the same policy has begun since, so this one must not go on."""


class Forged(AgentGymFlowError, ValueError):
    """An episode from a rollout worker is not what its tokens come to; the message names the first difference."""


class OtherProcessFailed(AgentGymFlowError, RuntimeError):
    """Another process of the run failed, so this one stops too; the message has the other's error."""


class LostProcess(AgentGymFlowError, RuntimeError):
    """Another process of the run was killed or hangs, and could not say why; the message says which, where it can."""


class EnginesDiffer(AgentGymFlowError, RuntimeError):
    """The original engine and ours do not agree on a game; the message names the first difference."""


class ResetNeeded(AgentGymFlowError, gymnasium_error.ResetNeeded):
    """`step` was called before `reset` or after the episode had ended."""
