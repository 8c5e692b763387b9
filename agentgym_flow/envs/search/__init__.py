"""Search: answer questions with the help of a retriever."""
