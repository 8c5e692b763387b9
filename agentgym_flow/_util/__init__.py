"""Helpers shared by several packages: files, JSON, processes, servers, intervals. Nothing here is public."""
