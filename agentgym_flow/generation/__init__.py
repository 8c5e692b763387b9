"""Generation: a model that answers token ids with token ids. A backend is anything with this protocol.

base                     the protocol: `GenerationRequest`, `Sampling`, `Completion`, `Generator`
transformers_generator   a Transformers model in this process; the default, on any device
"""

from __future__ import annotations

from agentgym_flow.generation.base import SEEDS, BatchGenerator, Completion, GenerationRequest, Generator, Sampling

__all__ = ["SEEDS", "BatchGenerator", "Completion", "GenerationRequest", "Generator", "Sampling"]
