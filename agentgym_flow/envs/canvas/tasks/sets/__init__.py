"""Published sets of problems: read in their original formats, checked, and split without leaks."""
