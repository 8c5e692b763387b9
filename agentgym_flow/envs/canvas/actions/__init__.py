"""The action language: actions, and their two written forms, tags and JSON."""
