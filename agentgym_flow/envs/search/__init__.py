"""Search: answering questions with what a retriever finds. Questions, the rules of an episode, scores and prompts."""
