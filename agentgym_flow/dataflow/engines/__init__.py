"""Where manager and workers run: this machine, a Ray cluster, or an address."""
