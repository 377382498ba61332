#!/usr/bin/env python3
"""Writes tests/data/dequant.bin: random blocks of every weight type with the floats that the `gguf` package makes of them.

Records, little-endian: u32 type id, u32 n_bytes, u32 n_values, the blocks, the float32 values.
Usage: pip install gguf; tools/make_dequant_data.py tests/data/dequant.bin
"""
import struct
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

# Byte offsets of the binary16 numbers in a block: random bytes there must not be infinities or NaN.
HALVES = {
    T.F16: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108],
    T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0],
}


def blocks(rng, t, n):
    _, size = GGML_QUANT_SIZES[t]
    raw = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for at in HALVES.get(t, []):
        exponent_high = raw[:, at + 1] & 0x7C
        raw[exponent_high == 0x7C, at + 1] &= 0xBF
    if t == T.BF16:
        raw[:, 1] &= 0xBF
    if t == T.F32:
        raw = rng.standard_normal(n).astype("<f4").view(np.uint8).reshape(n, 4)
    if t == T.MXFP4:
        raw[:, 0] = np.resize([0, 1, 2, 3, 100, 127, 128, 200, 251], n)
    return raw


def main():
    rng = np.random.default_rng(20240229)
    with open(sys.argv[1], "wb") as out:
        for t in [T.F32, T.F16, T.BF16, *[t for t in HALVES if t != T.F16], T.MXFP4]:
            elems, _ = GGML_QUANT_SIZES[t]
            raw = blocks(rng, t, 2 if elems == 256 else 9 if elems == 32 else 16)
            values = np.asarray(dequantize(raw.reshape(-1), t), dtype="<f4").reshape(-1)
            assert np.isfinite(values).all() and values.size == raw.shape[0] * elems, t
            out.write(struct.pack("<III", int(t), raw.size, values.size))
            out.write(raw.tobytes())
            out.write(values.tobytes())


if __name__ == "__main__":
    main()
