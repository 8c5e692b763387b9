"""Canvas: an environment in which the agent builds an agentic workflow edit by edit."""
