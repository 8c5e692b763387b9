"""Workflows: the graph and its text, the rules for edits and submissions, and the interpreter."""
