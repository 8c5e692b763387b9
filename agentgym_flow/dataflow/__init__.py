"""Dataflow: rollout, bookkeeping and training as parts that can die, join and leave by themselves."""
