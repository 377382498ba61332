#!/usr/bin/env python3
"""Writes tests/data/tiny: a random model of each architecture as GGUF, and the logits that Hugging Face's transformers gives it.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install -r tools/requirements-models.txt
    /tmp/venv/bin/python tools/make_tiny_models.py [DIRECTORY [NAME...]]

NAME.gguf is the model, NAME.npz its answer: `ids`, and the `logits` [positions, vocabulary] after some of them. NAME.WHAT.npz is one
more answer of the same model. Weights are large enough for logits to be far apart (about 1 to 5), for attention to look at few tokens,
and for soft-caps, norms, biases and windows to matter. Sums are in float64. Names of keys and tensors, the order of q's and k's rows
and the shift of Gemma's norms are those that files made for llama.cpp have.
"""

import math
import pathlib
import sys
from dataclasses import dataclass, field

import gguf
import numpy as np
import torch
import transformers as hf

from make_tiny_gguf import byte_alphabet

N_IDS = 96
N_VOCAB = 272
TYPES = gguf.GGMLQuantizationType


@dataclass
class Tiny:
    arch: str
    config: hf.PretrainedConfig
    spm: bool = False
    types: dict = field(default_factory=dict)  # type of a matrix by the last word of its tensor's name; "" = of all others
    cases: dict = field(default_factory=lambda: {"": N_IDS})  # number of ids by name of the case


# ---- The models.

def base(**more):
    return {"vocab_size": N_VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
            "bos_token_id": 256, "eos_token_id": 257, "pad_token_id": None, **more}


def rope(kind="default", theta=10000.0, **more):
    return {"rope_type": kind, "rope_theta": theta, **more}


def llama(**more):
    return hf.LlamaConfig(**base(**more))


def gemma(**more):
    return base(head_dim=16, rms_norm_eps=1e-6, query_pre_attn_scalar=16, hidden_activation="gelu_pytorch_tanh", **more)


def longrope():
    """As Phi-4-mini: three quarters of a head turn, output tied, no window; the text outgrows the original context."""
    n = 16 * 3 // 4 // 2
    factors = {"short_factor": [1 + 0.1 * i for i in range(n)], "long_factor": [1.5 + i * i for i in range(n)]}
    return hf.Phi3Config(**base(num_attention_heads=2, original_max_position_embeddings=48, partial_rotary_factor=0.75,
                                rope_parameters=rope("longrope", partial_rotary_factor=0.75, original_max_position_embeddings=48,
                                                     **factors)))


def models():
    yield "llama", Tiny("llama", llama(num_key_value_heads=4, tie_word_embeddings=False))
    yield "llama-gqa", Tiny("llama", hf.MistralConfig(**base(head_dim=16, sliding_window=None, rope_parameters=rope(theta=1e6))))
    yield "llama-mqa", Tiny("llama", llama(num_key_value_heads=1))
    yield "llama-rope-freqs", Tiny("llama", llama(num_attention_heads=2, rope_parameters=rope(
        "llama3", 5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)))
    yield "llama-linear", Tiny("llama", llama(rope_parameters=rope("linear", factor=4.0)))
    yield "llama-yarn", Tiny("llama", llama(num_attention_heads=2, rope_parameters=rope(
        "yarn", factor=4.0, original_max_position_embeddings=64)))
    for kind in ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"):
        yield f"llama-{kind.lower()}", Tiny("llama", llama(intermediate_size=64), types={"": TYPES[kind]})
    wide = {"hidden_size": 256, "intermediate_size": 256, "num_key_value_heads": 1, "num_hidden_layers": 1}
    k_types = {"": "Q4_K", "token_embd": "Q6_K", "attn_k": "Q5_K", "attn_v": "Q6_K", "attn_output": "Q3_K", "ffn_gate": "Q2_K",
               "ffn_up": "IQ4_XS", "ffn_down": "Q5_K"}
    yield "llama-k-quants", Tiny("llama", llama(**wide), types={k: TYPES[v] for k, v in k_types.items()})
    yield "qwen2", Tiny("qwen2", hf.Qwen2Config(**base(tie_word_embeddings=False, rope_parameters=rope(theta=1e6))))
    yield "qwen2-yarn", Tiny("qwen2", hf.Qwen2Config(**base(num_attention_heads=2, rope_parameters=rope(
        "yarn", factor=4.0, original_max_position_embeddings=64, attention_factor=0.8, beta_fast=16.0, beta_slow=2.0))))
    yield "qwen3", Tiny("qwen3", hf.Qwen3Config(**base(head_dim=16, rope_parameters=rope(theta=1e6))))
    yield "phi3", Tiny("phi3", hf.Phi3Config(**base(num_key_value_heads=4, tie_word_embeddings=False, sliding_window=31,
                                                    original_max_position_embeddings=256)), spm=True)
    yield "phi3-longrope", Tiny("phi3", longrope(), cases={"": N_IDS, "short": 40})
    yield "smollm3", Tiny("smollm3", hf.SmolLM3Config(**base(num_hidden_layers=4, use_sliding_window=False,
                                                                 rope_parameters=rope(theta=5e6))))
    yield "gemma2", Tiny("gemma2", hf.Gemma2Config(**gemma(num_hidden_layers=3, sliding_window=24, attn_logit_softcapping=3.0,
                                                           final_logit_softcapping=6.0)), spm=True)
    yield "gemma3", Tiny("gemma3", hf.Gemma3TextConfig(**gemma(
        num_hidden_layers=7, sliding_window=20, layer_types=[["sliding_attention", "full_attention"][i % 6 == 5] for i in range(7)],
        rope_parameters={"full_attention": rope("linear", 1e6, factor=8.0), "sliding_attention": rope()})), spm=True)


# ---- Weights: random, and rounded to what the file's types can hold.

def random_floats(rng, tiny, name, shape):
    centre = 0
    if "norm" in name:
        centre, deviation = 0 if tiny.arch.startswith("gemma") else 1, 0.3  # Gemma's are stored less 1
    elif name.endswith("bias") or "embed_tokens" in name or "lm_head" in name:
        deviation = 0.5
    else:
        deviation = (1.5 if "q_proj" in name or "k_proj" in name or "qkv" in name else 1) / math.sqrt(shape[-1])
    return (centre + deviation * rng.standard_normal(tuple(shape))).astype(np.float32)


def random_k_quants(rng, kind, rows, n):
    """Rows of valid blocks from random bytes, with scales that make their values have mean 0 and deviation 1 / sqrt(n)."""
    offsets = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_XS": (0,)}[kind.name]
    middle = {"Q2_K": 1.5, "Q4_K": 7.5, "Q5_K": 15.5}.get(kind.name, 0)
    size = gguf.GGML_QUANT_SIZES[kind][1]
    blocks = rng.integers(0, 256, (rows, n // 256, size), dtype=np.uint8)

    def set_scale(scale):
        for offset, value in zip(offsets, (scale, scale * middle)):
            blocks[:, :, offset:offset + 2] = np.array([value], np.float16).view(np.uint8)
        return blocks.reshape(rows, -1)

    deviation = gguf.quants.dequantize(set_scale(1.0), kind).std()
    return set_scale(1 / math.sqrt(n) / deviation)


def stored(rng, kind, values):
    """A matrix as the file's bytes, or as floats where it is F32."""
    if kind == TYPES.F32:
        return values
    if gguf.GGML_QUANT_SIZES[kind][0] == 256:
        return random_k_quants(rng, kind, *values.shape)
    return gguf.quants.quantize(values, kind)


def fill(tiny, model, names):
    """Gives the model random weights; returns what the file holds of them: {tensor's name: (type, array)}."""
    rng = np.random.default_rng(42)
    tensors = {}
    for name, p in model.named_parameters():  # a tied head is not among them
        out = names.get_name(name, try_suffixes=(".weight", ".bias"))
        kind = tiny.types.get(out.split(".")[-2], tiny.types.get("", TYPES.F32)) if p.ndim == 2 else TYPES.F32
        data = stored(rng, kind, random_floats(rng, tiny, name, p.shape))
        p.data = torch.from_numpy(gguf.quants.dequantize(data, kind).astype(np.float64))
        tensors[out] = kind, data
    return tensors


def interleave(rows, n_heads):
    """Pairs (i, i + d/2) of a head become (2i, 2i + 1)."""
    return rows.reshape(n_heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def as_in_files(tiny, tensors):
    c = tiny.config
    for name, (kind, data) in tensors.items():
        if tiny.arch in ("llama", "smollm3") and ".attn_q." in name:
            data = interleave(data, c.num_attention_heads)
        elif tiny.arch in ("llama", "smollm3") and ".attn_k." in name:
            data = interleave(data, c.num_key_value_heads)
        elif tiny.arch.startswith("gemma") and "norm" in name:
            data = data + np.float32(1)
        yield name, kind, data
    yield from ((f"{name}.weight", TYPES.F32, np.array(factors, np.float32)) for name, factors in rope_factors(c))


def rope_factors(c):
    r = c.rope_parameters
    if r.get("rope_type") == "longrope":
        yield "rope_factors_long", r["long_factor"]
        yield "rope_factors_short", r["short_factor"]
    if r.get("rope_type") == "llama3":
        n = c.head_dim
        low, high, context = r["low_freq_factor"], r["high_freq_factor"], r["original_max_position_embeddings"]
        turns = context / (2 * math.pi) * r["rope_theta"] ** (-np.arange(0, n, 2) / n)
        smooth = np.clip((turns - low) / (high - low), 0, 1)
        yield "rope_freqs", 1 / ((1 - smooth) / r["factor"] + smooth)


# ---- Metadata.

def write_rope(w, tiny):
    c, r = tiny.config, tiny.config.rope_parameters
    if "sliding_attention" in r:
        w.add_rope_freq_base_swa(r["sliding_attention"]["rope_theta"])
        r = r["full_attention"]
    w.add_rope_freq_base(r["rope_theta"])
    d_k = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    w.add_rope_dimension_count(int(d_k * r.get("partial_rotary_factor", 1.0)))
    if r["rope_type"] in ("linear", "yarn"):
        w.add_rope_scaling_type(gguf.RopeScalingType(r["rope_type"]))
        w.add_rope_scaling_factor(r["factor"])
    if r["rope_type"] == "yarn":
        w.add_rope_scaling_orig_ctx_len(r["original_max_position_embeddings"])
        for key, add in (("attention_factor", w.add_rope_scaling_yarn_attn_factor), ("beta_fast", w.add_rope_scaling_yarn_beta_fast),
                         ("beta_slow", w.add_rope_scaling_yarn_beta_slow)):
            if key in r:
                add(r[key])
    if r["rope_type"] == "longrope":  # such files name no type
        original = r["original_max_position_embeddings"]
        w.add_rope_scaling_orig_ctx_len(original)
        w.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(c.max_position_embeddings / original) / math.log(original)))


def write_parameters(w, tiny):
    c = tiny.config
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_block_count(c.num_hidden_layers)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_vocab_size(c.vocab_size)
    if getattr(c, "head_dim", None):
        w.add_key_length(c.head_dim)
        w.add_value_length(c.head_dim)
    write_rope(w, tiny)
    if tiny.arch in ("gemma2", "gemma3", "phi3"):
        w.add_sliding_window(c.sliding_window or 0)
    if tiny.arch == "gemma2":
        w.add_attn_logit_softcapping(c.attn_logit_softcapping)
        w.add_final_logit_softcapping(c.final_logit_softcapping)


def write_bpe(w):
    merges = ["h e", "l l", "he ll", "hell o", "t h", "th e", "a n", "i n", "e r", "o r", "Ġ t", "Ġ a", "Ġt h"]
    special = ["<s>", "</s>"]
    tokens = byte_alphabet() + special + [m.replace(" ", "") for m in merges]
    tokens += [f"<unused{i}>" for i in range(N_VOCAB - len(tokens))]
    kinds = [gguf.TokenType.CONTROL if t in special or t.startswith("<unused") else gguf.TokenType.NORMAL for t in tokens]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("llama-bpe")
    w.add_token_list(tokens)
    w.add_token_types(kinds)
    w.add_token_merges(merges)
    w.add_bos_token_id(256)
    w.add_eos_token_id(257)


def write_spm(w):
    special = ["<unk>", "<s>", "</s>"]
    pieces = ["▁", "h", "e", "l", "o", "he", "ll", "hell", "hello", "▁hello"]
    tokens = special + [f"<0x{b:02X}>" for b in range(256)] + pieces
    tokens += [f"<unused{i}>" for i in range(N_VOCAB - len(tokens))]
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL] + [gguf.TokenType.BYTE] * 256
    kinds += [gguf.TokenType.NORMAL] * len(pieces)
    kinds += [gguf.TokenType.UNUSED] * (N_VOCAB - len(kinds))
    w.add_tokenizer_model("llama")
    w.add_token_list(tokens)
    w.add_token_scores([float(-i) for i in range(N_VOCAB)])
    w.add_token_types(kinds)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    w.add_add_space_prefix(False)


# ---- Files.

def write_gguf(path, tiny, tensors):
    w = gguf.GGUFWriter(path, tiny.arch)
    w.add_name(path.stem)
    write_parameters(w, tiny)
    (write_spm if tiny.spm else write_bpe)(w)
    for name, kind, data in as_in_files(tiny, tensors):
        w.add_tensor(name, np.ascontiguousarray(data), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write_answer(path, model, n_ids):
    ids = np.random.default_rng(7).integers(0, N_VOCAB, n_ids, dtype=np.int32)
    with torch.no_grad():
        logits = model(torch.from_numpy(ids.astype(np.int64))[None]).logits[0].numpy()
    positions = np.unique(np.linspace(0, n_ids - 1, 20).round().astype(np.int32))
    np.savez_compressed(path, ids=ids, positions=positions, logits=logits[positions].astype(np.float32))
    return logits


def write(directory, name, tiny):
    model = hf.AutoModelForCausalLM.from_config(tiny.config, attn_implementation="eager").double().eval()
    arch = next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == tiny.arch)
    tensors = fill(tiny, model, gguf.get_tensor_name_map(arch, tiny.config.num_hidden_layers))
    write_gguf(directory / f"{name}.gguf", tiny, tensors)
    for case, n_ids in tiny.cases.items():
        logits = write_answer(directory / f"{name}{case and '.' + case}.npz", model, n_ids)
        kib = (directory / f"{name}.gguf").stat().st_size / 1024
        print(f"{name:20} {case:6} {kib:4.0f} KiB, logits: deviation {logits.std():.2f}, largest {abs(logits).max():.2f}")


def main():
    hf.logging.set_verbosity_error()
    directory = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1] / "tests/data/tiny")
    directory.mkdir(parents=True, exist_ok=True)
    for name, tiny in models():
        if len(sys.argv) < 3 or name in sys.argv[2:]:
            write(directory, name, tiny)


if __name__ == "__main__":
    main()
