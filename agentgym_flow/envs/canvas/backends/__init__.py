"""What can do the work of the operators of Canvas: language models behind a server, and tapes of earlier runs."""
