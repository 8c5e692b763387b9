"""Versions of the weights: whole, as deltas or adapters, and where they are kept."""
