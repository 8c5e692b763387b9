"""Workflows: the graph and its text, what can be written and handed in, and what happens when one runs."""
