"""The command `agentgym-flow`: one file a command, thin around functions that programs can call."""

from agentgym_flow.cli.app import app, main

__all__ = ["app", "main"]
