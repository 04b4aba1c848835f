"""tiny-random: a Llama of random weights with a tokenizer of its own, written in a second, for servers on any machine.

What must not live here: running it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from aiperf.workloads.serve.trace import WORDS

TINY = "tiny-random"
_HIDDEN, _LAYERS, _HEADS, _KV_HEADS, _INNER, _POSITIONS = 128, 2, 4, 2, 256, 8192
_TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


def make_tiny(folder: Path) -> Path:
    """The folder, filled with the model unless it is there already; every call makes the same one."""
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".tiny-", dir=folder.parent))
    try:
        _write_model(made, _write_tokenizer(made))
        os.rename(made, folder)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        if not folder.is_dir():
            raise
    return folder


def _write_tokenizer(folder: Path) -> list[bool]:
    """A tokenizer of bytes and of the words that prompts are made of. Returns which tokens are words."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1024, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator([" ".join(WORDS)] * 4, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    _write(folder / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
        "chat_template": _TEMPLATE, "model_max_length": _POSITIONS,
    })  # fmt: skip
    kinds = {number: token for token, number in tokenizer.get_vocab().items()}
    return [kinds[number].startswith("\u0120") and len(kinds[number]) > 2 for number in sorted(kinds)]


def _write_model(folder: Path, is_word: list[bool]) -> None:
    from safetensors.numpy import save_file

    vocabulary, draw = len(is_word), np.random.default_rng(0)
    _write(folder / "config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocabulary, "hidden_size": _HIDDEN,
        "num_hidden_layers": _LAYERS, "num_attention_heads": _HEADS, "num_key_value_heads": _KV_HEADS,
        "intermediate_size": _INNER, "max_position_embeddings": _POSITIONS, "rms_norm_eps": 1e-5, "hidden_act": "silu",
        "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": None, "torch_dtype": "float32",
    })  # fmt: skip
    # Without an end token every answer has the length that was asked for.
    _write(folder / "generation_config.json", {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0})

    def weight(*shape: int) -> Any:
        return draw.normal(0.0, shape[-1] ** -0.5, shape).astype(np.float32)

    key = _HIDDEN // _HEADS * _KV_HEADS
    tensors = {"model.embed_tokens.weight": weight(vocabulary, _HIDDEN), "lm_head.weight": weight(vocabulary, _HIDDEN)}
    # Other tokens are never the likeliest: each answer is text, a piece a token.
    tensors["lm_head.weight"][~np.array(is_word)] = 0.0
    tensors["model.norm.weight"] = np.ones(_HIDDEN, np.float32)
    for layer in range(_LAYERS):
        at = f"model.layers.{layer}"
        for name, rows, columns in (
            ("self_attn.q_proj", _HIDDEN, _HIDDEN), ("self_attn.k_proj", key, _HIDDEN),
            ("self_attn.v_proj", key, _HIDDEN), ("self_attn.o_proj", _HIDDEN, _HIDDEN),
            ("mlp.gate_proj", _INNER, _HIDDEN), ("mlp.up_proj", _INNER, _HIDDEN), ("mlp.down_proj", _HIDDEN, _INNER),
        ):  # fmt: skip
            tensors[f"{at}.{name}.weight"] = weight(rows, columns)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}.{name}.weight"] = np.ones(_HIDDEN, np.float32)
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
