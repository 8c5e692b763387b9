"""The command `agentgym-flow`: one file per command, each a thin layer over functions of the Python API."""

from agentgym_flow.cli.app import app, main

__all__ = ["app", "main"]
