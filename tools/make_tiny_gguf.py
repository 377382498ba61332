#!/usr/bin/env python3
"""Writes small GGUF files, right and wrong ones: the seeds of the GGUF fuzzer.

    tools/make_tiny_gguf.py tests/fuzz/corpus/gguf

As a module: `Gguf` builds one file byte by byte, so that a test can also build what no writer would.
"""

import pathlib
import struct
import sys

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}


class Gguf:
    def __init__(self, version=3, alignment=32, order="<"):
        self.version, self.alignment, self.order = version, alignment, order
        self.kvs, self.tensors, self.data = [], [], b""

    def pack(self, fmt, *values):
        return struct.pack(self.order + fmt, *values)

    def string(self, s):
        s = s.encode() if isinstance(s, str) else s
        return self.pack("Q", len(s)) + s

    def value(self, kind, v):
        if kind == STRING:
            return self.string(v)
        if kind == ARRAY:  # (element type, elements)
            return self.pack("IQ", v[0], len(v[1])) + b"".join(self.value(v[0], e) for e in v[1])
        return self.pack(FORMATS[kind], v)

    def kv(self, key, kind, v):
        self.kvs.append(self.string(key) + self.pack("I", kind) + self.value(kind, v))
        return self

    def declare(self, name, dims, kind, offset):
        """A tensor whose data stands that far behind the head."""
        self.tensors.append(self.string(name) + self.pack(f"I{len(dims)}QIQ", len(dims), *dims, kind, offset))
        return self

    def tensor(self, name, dims, kind, data):
        self.data += bytes(-len(self.data) % self.alignment)
        self.declare(name, dims, kind, len(self.data))
        self.data += data
        return self

    def head(self, n_kvs=None, n_tensors=None):
        head = b"GGUF" + self.pack("IQQ", self.version, len(self.tensors) if n_tensors is None else n_tensors,
                                   len(self.kvs) if n_kvs is None else n_kvs)
        head += b"".join(self.kvs + self.tensors)
        return head + bytes(-len(head) % self.alignment) if self.tensors else head

    def bytes(self, n_kvs=None, n_tensors=None):
        return self.head(n_kvs, n_tensors) + self.data


def byte_alphabet():
    """GPT-2's character of each byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = iter(range(256, 512))
    return [chr(b if b in shown else next(hidden)) for b in range(256)]


def whole(**settings):
    """Metadata of every type, tensors of three."""
    g = Gguf(**settings)
    g.kv("general.architecture", STRING, "tiny")
    for key, kind, v in [("u8", U8, 200), ("i8", I8, -3), ("u16", U16, 50000), ("i16", I16, -300), ("u32", U32, 4000000000),
                         ("i32", I32, -70000), ("f32", F32, 1.5), ("yes", BOOL, True), ("u64", U64, 1 << 63), ("i64", I64, -5),
                         ("f64", F64, -2.5)]:
        g.kv(key, kind, v)
    g.kv("numbers", ARRAY, (I16, [1, -2, 3])).kv("words", ARRAY, (STRING, ["a", "", "bc"])).kv("empty", ARRAY, (F32, []))
    if g.alignment != 32:
        g.kv("general.alignment", U32, g.alignment)
    g.tensor("token_embd.weight", [32, 2], 8, bytes(range(68)))
    g.tensor("output_norm.weight", [5], 0, struct.pack("<5f", 1, 2, 3, 4, 5))
    return g.tensor("blk.0.attn_q.weight", [2, 3, 2, 1], 1, bytes(24))


def seeds():
    good = whole().bytes()
    yield "version-3", good
    yield "version-2", whole(version=2).bytes()
    yield "alignment-64", whole(alignment=64).bytes()
    yield "nested", Gguf().kv("nested", ARRAY, (ARRAY, [(U8, [1, 2]), (STRING, ["inner"]), (ARRAY, [(I64, [7])])])).bytes()
    yield "unknown-tensor-type", whole().tensor("exotic", [256, 2], 16, b"").bytes()
    yield "split", Gguf().kv("split.no", U16, 1).kv("split.count", U16, 3).kv("split.tensors.count", I32, 9).bytes()
    yield "big-endian", whole(order=">").bytes()
    yield "truncated", good[:-1]
    yield "truncated-header", good[:200]
    yield "many-claimed", Gguf().bytes(n_kvs=1 << 60, n_tensors=1 << 60)
    yield "same-key", Gguf().kv("k", U8, 1).kv("k", U8, 2).bytes()
    yield "bad-alignment", Gguf().kv("general.alignment", U32, 24).bytes()
    yield "not-utf-8", Gguf().kv(b"\xff\xfe\x00", STRING, b"\x80abc\xc3").bytes()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in seeds():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
