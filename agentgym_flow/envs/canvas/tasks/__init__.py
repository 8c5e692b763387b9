"""What an episode is about: generated tasks with hidden mistakes, and the problems of published sets."""
