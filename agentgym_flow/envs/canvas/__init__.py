"""Canvas: building an agentic workflow edit by edit. Operators, graphs, the action language, runs."""
