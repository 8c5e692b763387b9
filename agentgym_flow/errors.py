"""All errors that this package raises deliberately. Their messages say how to solve the problem.

All errors derive from `AgentGymFlowError`, and from the built-in or Gymnasium class that callers already catch
(`ValueError`, `ImportError`, `gymnasium.error.ResetNeeded`, ...). They take one message, so that they can be pickled
and cross the process boundary of `AsyncVectorEnv`.
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
    """Return a short form of `value` for an error message. Never raises, for any object."""
    try:
        if isinstance(value, str | bytes):
            return f"{value[:200]!r}" + (f"... ({len(value)} in all)" if len(value) > 200 else "")
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**30:
            return "an integer of more than 30 digits"
        if isinstance(value, Sequence | Mapping) and len(value) > 20:
            return f"a {type(value).__name__} of {len(value)}"
        return f"{value!r:.80}"
    except Exception:  # a faulty __repr__, or too deep nesting
        return f"an object of type {type(value).__name__}"


class AgentGymFlowError(Exception):
    """The base class of all errors of this package."""


class UnknownName(AgentGymFlowError, ValueError):
    """A name is not among the known names."""

    kind = "name"

    @classmethod
    def among(cls, name: object, known: Iterable[str], advice: str = "") -> Self:
        """Return the error for `name`. The message suggests the closest of `known`, and ends with `advice`.

        It lists up to `MOST_LISTED` known names; if there are more, it gives only their number.
        """
        choices = list(known)
        close = difflib.get_close_matches(str(name)[:100], choices, n=1, cutoff=0.5)
        guess = f" Did you mean {close[0]!r}?" if close else ""
        listing = f" Known: {', '.join(choices)}." if choices else f" No {cls.kind} is known yet."
        if len(choices) > MOST_LISTED:
            listing = f" {len(choices)} names are known."
        return cls(f"Unknown {cls.kind} {shown(name)}.{guess}{listing}{' ' + advice if advice else ''}")


class UnknownSplit(UnknownName):
    """The environment does not have this split."""

    kind = "split"


class UnknownOption(UnknownName):
    """A key of `reset(options=...)`, an argument, or a named value of an argument does not exist."""

    kind = "option"


class UnknownEnvironment(UnknownName):
    """The environment id is not registered."""

    kind = "environment"


class UnknownData(UnknownName):
    """The name of a data set is not registered on this machine."""

    kind = "data set"


class UnknownTrack(UnknownName):
    """The track of a leaderboard does not exist."""

    kind = "track"


class UnknownPolicy(UnknownName):
    """The description of a policy does not name an existing policy."""

    kind = "policy"


class UnknownTemplate(UnknownName):
    """The environment does not have this prompt template."""

    kind = "prompt template"


class UnknownTask(AgentGymFlowError, ValueError):
    """The task index is outside the split, or has the wrong type."""


class BadAction(AgentGymFlowError, gymnasium_error.InvalidAction):
    """The action has the wrong type, or is a number outside its space. Invalid texts never raise."""


class BadSetting(AgentGymFlowError, ValueError):
    """An argument has an invalid value; the message names the argument and the allowed values."""


class ContextFull(BadSetting):
    """The next prompt of an episode does not fit into the model's context. A rollout truncates the episode there."""


class BadRenderMode(BadSetting, TypeError):
    """The environment does not support this `render_mode`.

    It is also a `TypeError`: Stable-Baselines3's `make_vec_env` then creates the environment without rendering.
    """


class BadResume(BadSetting):
    """A stopped run cannot be resumed in this way. Its files are not changed."""


class BadTrack(AgentGymFlowError, ValueError):
    """A track of a leaderboard cannot be read, or this version of the package generates other tasks."""


class BadSeason(AgentGymFlowError, ValueError):
    """The file of a leaderboard season cannot be read, or a revealed number does not match its commitment."""


class BadSubmission(AgentGymFlowError, ValueError):
    """A submission to a leaderboard is malformed or breaks a rule; the message names the file and the rule."""


class NotPublished(AgentGymFlowError, ValueError):
    """Entries of a leaderboard have no verdict yet, or a verdict is damaged; the message names each with its cause."""


class BadLevel(AgentGymFlowError, ValueError):
    """A level string or level file cannot be parsed; the message names the file and the line."""


class BadGame(AgentGymFlowError, ValueError):
    """An ALFWorld game file cannot be parsed or played; the message names the file and the line."""


class BadWorkflow(AgentGymFlowError, ValueError):
    """A workflow breaks a rule, or a text cannot be parsed as a workflow; the message names the rule."""


class SearchLimit(AgentGymFlowError, RuntimeError):
    """A solver reached its limit without a result; the message names the argument that raises the limit."""


class BadData(AgentGymFlowError, ValueError):
    """Data on disk is missing, unreadable, or does not match its digest."""


class BadPromptFile(BadData):
    """A file of published prompts is missing, cannot be read, or lacks a string; the message names both."""


class BadIndex(BadData):
    """A search index on disk is missing, damaged or has another format; the message names the folder or the file."""


class RetrieverFailed(AgentGymFlowError, RuntimeError):
    """A remote retriever gave no valid answer in time; the message has the number of tries and the kind of failure.

    The message contains no text from the server.

    Attributes:
        answered: the queries of the same batch that were answered: query -> its hits.
    """

    answered: Mapping[str, Any] = MappingProxyType({})


class ExecutorFailed(AgentGymFlowError, RuntimeError):
    """The server that runs the operators of workflows cannot be reached, or answers no requests.

    The step has no effect and can be repeated. The message contains no text from the server.
    """


class ServerDown(AgentGymFlowError, RuntimeError):
    """A model server has stopped answering, for longer than the configured patience.

    If a log is written, finished episodes and received answers are kept. The message contains no text from the server.
    """


class BudgetSpent(AgentGymFlowError, RuntimeError):
    """The answers of a model server have reached the user's limit of tokens or money, so no further one was requested.

    If a log is written, finished episodes and received answers are kept.
    """


class SandboxUnavailable(AgentGymFlowError, RuntimeError):
    """This machine cannot provide the requested isolation; the message says what is missing and how to get it."""


class SandboxFailed(AgentGymFlowError, RuntimeError):
    """A sandbox failed before or while it ran a program. This is not a failure of the program."""


class BadLog(AgentGymFlowError, ValueError):
    """A file is not an episode log, or the log is truncated or edited; the message names the line."""


class BeyondLimits(BadLog):
    """A log or one of its lines exceeds `LogLimits`."""


class GroupMismatch(AgentGymFlowError, ValueError):
    """The episodes of a group did not start from the same state."""


class BadPolicy(AgentGymFlowError, TypeError):
    """A policy breaks the protocol of `agentgym_flow.policies.Policy`; the message says what it returned."""


class MissingExtra(AgentGymFlowError, ImportError):
    """An optional dependency is not installed."""

    @classmethod
    def of(cls, package: str, extra: str) -> Self:
        """Return the error for a missing `package` that is part of the named extra."""
        return cls(f"{package} is not installed. Install it with: pip install 'agentgym_flow[{extra}]'")


class BadModule(AgentGymFlowError, ImportError):
    """The code of a module that the user named raised or exited on import; the message names the line."""


class UnsupportedPython(AgentGymFlowError, ImportError):
    """An installed package does not work with this version of Python; the message says which version does."""


class UnsupportedTRL(AgentGymFlowError, ImportError):
    """The installed version of TRL lacks members that the trainer needs."""


class TrainingFailed(AgentGymFlowError, RuntimeError):
    """Training cannot continue; the message names the setting to change and the folder of the saved state."""


class UnsupportedVLLM(AgentGymFlowError, ImportError):
    """The version of vLLM, installed or on a server, is not supported, or vLLM cannot run on this machine."""


class UpdateFailed(AgentGymFlowError, RuntimeError):
    """A generator could not load new weights, or has lost them; the message names it. Old weights are never used."""


class GenerationFailed(AgentGymFlowError, RuntimeError):
    """A generator could not answer a request; the message says what it tried and why it failed."""


class FlowDown(AgentGymFlowError, RuntimeError):
    """The manager of a dataflow, or the trainer behind it, has not answered before the deadline."""


class DiskFull(FlowDown):
    """The disk of a dataflow's manager is full. The manager continues, without a restart, once there is space.

    The call had no effect, or will have it then; it can be repeated. Clients repeat it until their deadline.
    """


class NoWorkers(AgentGymFlowError, RuntimeError):
    """No rollout worker has contacted a dataflow before the deadline; the message says how to start a worker."""


class PutAside(AgentGymFlowError, RuntimeError):
    """A rollout worker gets no more episodes, because its last ones all failed; the message says why."""


class RunsFinished(AgentGymFlowError, RuntimeError):
    """No trainer of a manager needs more episodes. There is no work until a new run begins."""


class Superseded(AgentGymFlowError, RuntimeError):
    """A newer trainer of the same policy has started, so this one must stop."""


class Forged(AgentGymFlowError, ValueError):
    """An episode from a rollout worker does not match its tokens; the message names the first difference."""


class OtherProcessFailed(AgentGymFlowError, RuntimeError):
    """Another process of the run failed, so this one stops too; the message contains the error of the other process."""


class LostProcess(AgentGymFlowError, RuntimeError):
    """Another process of the run was killed or hangs, without an error; the message names it, if it is known."""


class EnginesDiffer(AgentGymFlowError, RuntimeError):
    """The official engine and ours differ on a game; the message names the first difference."""


class ResetNeeded(AgentGymFlowError, gymnasium_error.ResetNeeded):
    """`step` was called before `reset` or after the end of the episode."""
