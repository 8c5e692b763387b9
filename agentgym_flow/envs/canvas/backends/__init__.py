"""What does the work of the operators: the simulator, models behind servers, and tapes of earlier runs."""
