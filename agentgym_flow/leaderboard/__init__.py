"""Leaderboards: what a board shows, and how an entry is checked. Needs no torch."""
