"""Scorers of results: mathematics, questions and code."""
