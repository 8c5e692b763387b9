"""Reference baselines: scripts that read like their papers. To run one: `python -m baselines.NAME --config FILE`."""
