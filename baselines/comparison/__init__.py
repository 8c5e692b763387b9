"""The parts of `baselines.compare`: what to run, running it, what came out, what that says, and the pages."""
