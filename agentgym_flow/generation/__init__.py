"""Generation of token ids from token ids. A backend is any object that implements the protocol `Generator`.

base                     the protocol: `GenerationRequest`, `Sampling`, `Completion`, `Generator`
transformers_generator   a Transformers model in this process; the default, on any device
"""

from __future__ import annotations

from agentgym_flow.generation.base import SEEDS, BatchGenerator, Completion, GenerationRequest, Generator, Sampling

__all__ = ["SEEDS", "BatchGenerator", "Completion", "GenerationRequest", "Generator", "Sampling"]
