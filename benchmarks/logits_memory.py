"""Memory for log-probabilities: in tiles of the vocabulary, as this package computes them, and from whole logits.

    python benchmarks/logits_memory.py [--rows 2] [--tokens 512] [--vocabulary 151936]

The model has one small layer and a large vocabulary, so the logits dominate memory. Each variant runs in its own
process; its figure is the increase of peak resident memory. `reference` computes without gradients, as the KL term
does; `cloning` computes the loss of behaviour cloning and its gradient.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable

from _timing import peak_megabytes

WAYS = ("reference", "cloning")


def measure(way: str, whole: bool, rows: int, tokens: int, vocabulary: int) -> None:
    """Print by how many MB one pass raises peak memory."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from agentgym_flow.training import loss, scoring
    from agentgym_flow.training.rows import TrainingRow, collate
    from agentgym_flow.training.warm_start import imitation_loss

    torch.set_num_threads(1)
    size = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=vocabulary, num_hidden_layers=1, tie_word_embeddings=True, **size))
    made = [TrainingRow([1] * 16, [2] * tokens, [-1.0] * tokens, [1.0] * tokens)] * rows
    batch = collate(made, pad=0, multiple=1)
    few = collate([TrainingRow([1], [2, 3], [-1.0] * 2, [1.0] * 2)], pad=0, multiple=1)

    @torch.no_grad()
    def reference(part: loss.Batch) -> None:
        loss.completion_logprobs(model, part)

    def cloning(part: loss.Batch) -> None:
        imitation_loss(model, part).backward()

    work: Callable[[loss.Batch], None] = {"reference": reference, "cloning": cloning}[way]
    work(few)  # loads libraries and allocates gradients
    scoring.WHOLE_LOGITS = sys.maxsize if whole else scoring.WHOLE_LOGITS
    before = peak_megabytes()
    work(batch)
    print(peak_megabytes() - before)


def main() -> None:
    """Measure every variant in its own process and print a table."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    shape = (args.rows, args.tokens, args.vocabulary)
    if args.measure:
        measure(args.measure[0], args.measure[1] == "whole", *shape)
        return
    print(f"logits: {args.rows * args.tokens * args.vocabulary * 4 / 2**20:,.0f} MB in float32")
    for way in WAYS:
        sizes = ["--rows", str(args.rows), "--tokens", str(args.tokens), "--vocabulary", str(args.vocabulary)]
        command = [sys.executable, __file__, *sizes, "--measure", way]
        tiles, whole = (
            float(subprocess.check_output([*command, how], text=True).split()[-1]) for how in ("tiles", "whole")
        )
        print(f"{way}: {tiles:,.0f} MB in tiles, {whole:,.0f} MB whole")


if __name__ == "__main__":
    main()
