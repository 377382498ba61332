#!/usr/bin/env python3
"""Writes a model with the shape of Llama-3.2-1B and random weights as GGUF: what speed needs, without a download.

    tools/make_synthetic_llama.py --type Q4_K_M|Q8_0 --out FILE [--layers 16] [--vocab 128256] [--d-model 2048] [--heads 32]
                                  [--kv-heads 8] [--d-ff 8192] [--seed 1]

The types of Q4_K_M are those that llama.cpp's quantizer would choose. Blocks are random bytes with scales that give each matrix a deviation
of 1 / sqrt(its inputs), so activations and logits stay as far apart as those of a trained model, and what the model says is noise. The
vocabulary has the 256 bytes, a few merges, words without meaning, and Llama 3's two marks at its end. Needs numpy.
"""

import argparse
import math

import numpy as np

from make_tiny_gguf import ARRAY, F32, I32, STRING, U32, Gguf, byte_alphabet

TYPE_F32, TYPE_Q8_0, TYPE_Q4_K, TYPE_Q6_K = 0, 8, 12, 14
BLOCKS = {TYPE_Q8_0: (32, 34), TYPE_Q4_K: (256, 144), TYPE_Q6_K: (256, 210)}  # values, bytes
FILE_TYPES = {"Q4_K_M": 15, "Q8_0": 7}
HEAD_SIZE = 64
LOGIT_DEVIATION = 3
NORMAL, CONTROL = 1, 3


# ---- Weights.

def halves(values):
    return np.asarray(values, np.float16)[..., None].view(np.uint8)


def block_scales(rng, shape):
    """6-bit scales of the parts of a block, and the mean of their squares."""
    return rng.integers(32, 64, shape, dtype=np.uint8), np.mean(np.arange(32, 64) ** 2.0)


def q8_0(rng, n, deviation):
    out = rng.integers(0, 256, (n, 34), dtype=np.uint8)
    out[:, :2] = halves(deviation / math.sqrt((256**2 - 1) / 12))
    return out


def q4_k(rng, n, deviation):
    """Minimums are 7.5 times the scales, so that values have mean 0."""
    out = rng.integers(0, 256, (n, 144), dtype=np.uint8)
    s, mean_square = block_scales(rng, (n, 8))
    d = deviation / math.sqrt(mean_square * (16**2 - 1) / 12)
    out[:, 0:2], out[:, 2:4] = halves(d), halves(7.5 * d)
    out[:, 4:8] = out[:, 8:12] = s[:, :4] | s[:, 4:] >> 4 << 6
    out[:, 12:16] = (s[:, 4:] & 15) * 17
    return out


def q6_k(rng, n, deviation):
    out = rng.integers(0, 256, (n, 210), dtype=np.uint8)
    out[:, 192:208], mean_square = block_scales(rng, (n, 16))
    out[:, 208:] = halves(deviation / math.sqrt(mean_square * (64**2 - 1) / 12))
    return out


MAKERS = {TYPE_Q8_0: q8_0, TYPE_Q4_K: q4_k, TYPE_Q6_K: q6_k}


def tensor_bytes(dims, kind):
    n = math.prod(dims)
    return 4 * n if kind == TYPE_F32 else n // BLOCKS[kind][0] * BLOCKS[kind][1]


def data_of(rng, name, dims, kind):
    if kind == TYPE_F32:
        return np.ones(dims, np.float32)
    deviation = (LOGIT_DEVIATION if name == "token_embd.weight" else 1) / math.sqrt(dims[0])
    return MAKERS[kind](rng, math.prod(dims) // BLOCKS[kind][0], deviation)


# ---- The model: names, shapes, types.

def more_bits(layer, n_layers):
    """The layers whose v and down matrices get six bits in Q4_K_M: the first and last eighth, and every third between."""
    return layer < n_layers // 8 or layer >= 7 * n_layers // 8 or (layer - n_layers // 8) % 3 == 2


def tensors(a):
    """(name, dims, type) in the order of the file."""
    mixed = a.type == "Q4_K_M"
    usual, better = (TYPE_Q4_K, TYPE_Q6_K) if mixed else (TYPE_Q8_0, TYPE_Q8_0)
    n_q, n_kv = a.heads * HEAD_SIZE, a.kv_heads * HEAD_SIZE
    yield "token_embd.weight", (a.d_model, a.vocab), better
    yield "output_norm.weight", (a.d_model,), TYPE_F32
    for i in range(a.layers):
        chosen = better if more_bits(i, a.layers) else usual
        for name, dims, kind in (("attn_norm", (a.d_model,), TYPE_F32), ("attn_q", (a.d_model, n_q), usual),
                                 ("attn_k", (a.d_model, n_kv), usual), ("attn_v", (a.d_model, n_kv), chosen),
                                 ("attn_output", (n_q, a.d_model), usual), ("ffn_norm", (a.d_model,), TYPE_F32),
                                 ("ffn_gate", (a.d_model, a.d_ff), usual), ("ffn_up", (a.d_model, a.d_ff), usual),
                                 ("ffn_down", (a.d_ff, a.d_model), chosen)):
            yield f"blk.{i}.{name}.weight", dims, kind


def add_parameters(g, a):
    g.kv("general.architecture", STRING, "llama")
    g.kv("general.name", STRING, f"Synthetic Llama {a.layers}x{a.d_model} {a.type}")
    g.kv("general.file_type", U32, FILE_TYPES[a.type])
    for key, value in (("block_count", a.layers), ("context_length", 131072), ("embedding_length", a.d_model),
                       ("feed_forward_length", a.d_ff), ("attention.head_count", a.heads), ("attention.head_count_kv", a.kv_heads),
                       ("rope.dimension_count", HEAD_SIZE), ("attention.key_length", HEAD_SIZE),
                       ("attention.value_length", HEAD_SIZE), ("vocab_size", a.vocab)):
        g.kv(f"llama.{key}", U32, value)
    g.kv("llama.rope.freq_base", F32, 500000.0).kv("llama.attention.layer_norm_rms_epsilon", F32, 1e-5)


def add_tokenizer(g, a):
    merges = ["h e", "l l", "t h", "th e", "a n", "i n", "e r", "Ġ t", "Ġt he", "Ġ a"]
    marks = ["<|begin_of_text|>", "<|end_of_text|>"]
    tokens = byte_alphabet() + [m.replace(" ", "") for m in merges]
    tokens += [f"Ġword{i}" for i in range(a.vocab - len(tokens) - len(marks))] + marks
    kinds = [NORMAL] * (a.vocab - len(marks)) + [CONTROL] * len(marks)
    g.kv("tokenizer.ggml.model", STRING, "gpt2").kv("tokenizer.ggml.pre", STRING, "llama-bpe")
    g.kv("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)).kv("tokenizer.ggml.token_type", ARRAY, (I32, kinds))
    g.kv("tokenizer.ggml.merges", ARRAY, (STRING, merges))
    g.kv("tokenizer.ggml.bos_token_id", U32, a.vocab - 2).kv("tokenizer.ggml.eos_token_id", U32, a.vocab - 1)


def write(a):
    """The head first, then one tensor after the other, so that memory holds no more than the largest."""
    g = Gguf()
    add_parameters(g, a)
    add_tokenizer(g, a)
    offset = 0
    for name, dims, kind in tensors(a):
        g.declare(name, dims, kind, offset)
        offset += tensor_bytes(dims, kind) + -tensor_bytes(dims, kind) % g.alignment
    rng = np.random.Generator(np.random.SFC64(a.seed))
    with open(a.out, "wb") as f:
        f.write(g.head())
        for name, dims, kind in tensors(a):
            n = tensor_bytes(dims, kind)
            f.write(data_of(rng, name, dims, kind).data)
            f.write(bytes(-n % g.alignment))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--type", choices=sorted(FILE_TYPES), default="Q4_K_M")
    ap.add_argument("--out", required=True)
    for name, value in (("layers", 16), ("vocab", 128256), ("d-model", 2048), ("heads", 32), ("kv-heads", 8), ("d-ff", 8192),
                        ("seed", 1)):
        ap.add_argument(f"--{name}", type=int, default=value)
    a = ap.parse_args()
    if a.d_model % 256 or a.d_ff % 256 or a.heads * HEAD_SIZE % 256:
        ap.error("rows must be whole blocks: --d-model, --d-ff and 64 times --heads are multiples of 256")
    if a.vocab < 300 or a.heads % a.kv_heads:
        ap.error("--vocab is 300 at least, and --kv-heads divides --heads")
    write(a)


if __name__ == "__main__":
    main()
