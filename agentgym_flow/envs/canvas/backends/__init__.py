"""The backends of operators: the simulator, models behind servers, and recordings of earlier runs."""
