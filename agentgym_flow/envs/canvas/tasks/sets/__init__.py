"""Real problems: the published sets, read as their publishers write them, checked, and without leaks between splits."""
