"""Reference baselines: scripts that read like their papers. To run one: `python -m baselines.NAME --config FILE`.

They do not go on line, unless `HF_HUB_OFFLINE=0` lets them fetch a model by its name on the Hub. The threads of PyTorch
sleep while they wait for each other, unless `OMP_WAIT_POLICY` or its like is set.
"""

import os

from agentgym_flow._util.signals import wait_passively

wait_passively()

for _name in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
    os.environ.setdefault(_name, "1")  # read once, when huggingface_hub is imported
