"""A world without language models: tasks with hidden mistakes, and operators that make, find and mend them."""
