"""Training on TRL: rows, the trainer, its configuration, the tiny policy and its warm start. Needs the extra `train`.

Importing this package switches the Hugging Face client off line and its telemetry off, unless the environment says
otherwise: nothing here needs the network. Set `HF_HUB_OFFLINE=0` to fetch a model by its name on the Hub.
"""

import os
from importlib.util import find_spec

from agentgym_flow.errors import MissingExtra

# Both are read once, when huggingface_hub is imported.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

for _package in ("torch", "transformers", "trl"):
    if find_spec(_package) is None:
        raise MissingExtra.of(_package, "train")
