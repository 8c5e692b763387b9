"""Versions of weights: full, as deltas or adapters, and their storage."""
