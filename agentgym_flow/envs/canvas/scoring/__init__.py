"""What an answer is worth: mathematics, questions and code, each in one place, from the text of a workflow's result."""
