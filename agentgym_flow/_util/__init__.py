"""Helpers shared by several packages: files, JSON, processes, servers, intervals. Nothing here is public."""

__version__ = "0.1.0"
"""The version of the package."""
