"""The action language: what an action is, and its two written forms, tags and JSON."""
