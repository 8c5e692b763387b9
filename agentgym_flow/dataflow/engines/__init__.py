"""Run manager and workers: on this machine, on a Ray cluster, or behind an address."""
