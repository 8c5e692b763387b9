"""A manager in a folder, and a relay for the workers of a region."""

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
"""What is in the folder of a manager."""


def open_manager(folder: Path, config: FlowConfig) -> Manager:
    """Return the manager whose journal and weights are in `folder`, or a new one.

    Raises `BadSetting` if another manager has it open, `BadData` if it is damaged.
    """
    return Manager(
        lease_seconds=config.lease_seconds,
        episode_seconds=config.episode_seconds,
        deadline=config.deadline,
        journal=ManagerJournal(folder / JOURNAL),
        store=WeightStore(Files(folder / WEIGHTS)),
    )


def traced(manager: Manager, folder: Path, config: FlowConfig) -> Flow:
    """Return the manager of a folder as it is to be called: with a trace if the settings ask for one."""
    return TracedFlow(manager, TraceWriter(folder / NAME)) if config.trace else manager


@contextmanager
def hosted(folder: Path, config: FlowConfig) -> Iterator[Flow]:
    """Within, the manager of a folder is open; see `open_manager`."""
    with closing(open_manager(folder, config)) as manager:
        yield traced(manager, folder, config)


class RelayFlow(RemoteFlow):
    """A manager as the workers of a region reach it: each version of weights comes over the long way once.

    Args:
        upstream: the manager, or another relay.
        relay: keeps the weights.
    """

    def __init__(self, upstream: Flow, relay: Relay | None = None) -> None:
        super().__init__("the manager behind this relay")
        self._upstream = upstream
        self.relay = relay or Relay(upstream.fetch)

    def _attempt(self, name: str, arguments: dict[str, Any]) -> Any:
        if name == "fetch":
            return self.relay.get(**arguments)
        return getattr(self._upstream, name)(**arguments)
