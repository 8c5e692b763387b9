"""Helpers that several rooms share: files, JSON, processes, servers, intervals. Nothing here is public."""
