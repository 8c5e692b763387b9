"""The backends of operators: the simulator, models behind servers, and tapes of earlier runs."""
