"""Open a manager in a folder, and a relay for the workers of a region."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from agentgym_flow.dataflow.bookkeeping.journal import ManagerJournal
from agentgym_flow.dataflow.bookkeeping.manager import Manager
from agentgym_flow.dataflow.config import FlowConfig
from agentgym_flow.dataflow.network.remote import RemoteFlow
from agentgym_flow.dataflow.pictures.trace import NAME, TracedFlow, TraceWriter
from agentgym_flow.dataflow.records import Flow
from agentgym_flow.dataflow.weights.store import Files, Relay, WeightStore

JOURNAL, WEIGHTS = "journal.sqlite", "weights"
"""The contents of a manager's folder."""


def open_manager(folder: Path, config: FlowConfig) -> Manager:
    """Return a manager that continues from the journal and weights in `folder`, if there are any.

    Raises `BadSetting` if another manager has the folder open, `BadData` if the journal is damaged.
    """
    return Manager(
        lease_seconds=config.lease_seconds,
        episode_seconds=config.episode_seconds,
        deadline=config.deadline,
        journal=ManagerJournal(folder / JOURNAL),
        store=WeightStore(Files(folder / WEIGHTS)),
    )


def traced(manager: Manager, folder: Path, config: FlowConfig) -> Flow:
    """Return the manager, wrapped to write a trace in `folder` if the settings ask for one."""
    return TracedFlow(manager, TraceWriter(folder / NAME)) if config.trace else manager


@contextmanager
def hosted(folder: Path, config: FlowConfig) -> Iterator[Flow]:
    """Yield the manager of a folder, see `open_manager`, and close it after the block."""
    with closing(open_manager(folder, config)) as manager:
        yield traced(manager, folder, config)


class RelayFlow(RemoteFlow):
    """A manager for the workers of a region, which fetches each version of the weights from far away only once.

    Args:
        upstream: the manager, or another relay.

    Attributes:
        relay: keeps the weights.
    """

    def __init__(self, upstream: Flow) -> None:
        super().__init__("the manager behind this relay", deadline=0.0)  # its clients repeat calls
        self._upstream = upstream
        self.relay = Relay(upstream.fetch)

    def _attempt(self, name: str, arguments: dict[str, Any]) -> Any:
        if name == "fetch":
            return self.relay.get(**arguments)
        return getattr(self._upstream, name)(**arguments)
