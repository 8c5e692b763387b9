"""The tasks of episodes: generated tasks with known mistakes, and the problems of published sets."""
