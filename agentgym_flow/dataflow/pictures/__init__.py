"""Metrics, traces and pictures of runs."""
