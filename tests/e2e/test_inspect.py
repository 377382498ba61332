"""kvasir inspect: real models, files built to be odd, and files that can't be read."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import make_tiny_gguf as tiny  # noqa: E402


def inspect(path, *options):
    return subprocess.run([ROOT / "kvasir", "inspect", path, *options], capture_output=True, timeout=60)


def inspect_json(path, *options):
    done = inspect(path, "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write(folder, name, data):
    path = folder / name
    path.write_bytes(data)
    return path


def fails(path, *words):
    done = inspect(path)
    assert done.returncode == 1
    assert done.stdout == b""
    text = done.stderr.decode()
    assert text.count("\n") == 1 and all(word in text for word in words), text


def test_smollm2():
    found = inspect_json("smollm2-135m-instruct")
    assert found["version"] == 3 and found["bytes"] == 98362432 and found["parts"] == 1
    assert found["metadata"]["llama.block_count"] == 30
    assert found["metadata"]["llama.embedding_length"] == 576
    assert found["metadata"]["llama.attention.layer_norm_rms_epsilon"] == 1e-5
    tokens = found["metadata"]["tokenizer.ggml.tokens"]
    assert tokens["array"] == "string" and tokens["n"] == 49152 and tokens["first"][1] == "<|im_start|>"
    assert len(found["tensors"]) == 272
    assert {"name": "token_embd.weight", "shape": [576, 49152], "type": "Q8_0", "bytes": 30081024} in found["tensors"]
    assert found["by_type"] == {"F32": {"tensors": 61, "bytes": 140544}, "Q4_1": {"tensors": 210, "bytes": 66355200},
                                "Q8_0": {"tensors": 1, "bytes": 30081024}}
    kvasir = found["kvasir"]
    assert kvasir["supported"] is True and kvasir["reasons"] == []
    assert kvasir["tokenizer"] == {"model": "gpt2", "pre": "smollm", "supported": True}
    assert kvasir["chat_template"] == {"present": True, "supported": True, "note": ""}
    assert kvasir["context_length"] == 8192
    # 30 layers * 3 heads * (64 + 64) elements * 2 bytes
    assert kvasir["cache"] == {"layers": 30, "heads": 9, "kv_heads": 3, "d_k": 64, "d_v": 64, "window": 0, "windowed_layers": 0,
                               "bytes_per_token_f16": 23040}


def test_smollm2_page():
    page = inspect("smollm2-135m-instruct").stdout.decode()
    assert "GGUF version 3, 98,362,432 bytes (93.8 MiB)" in page
    assert "Kvasir runs this model" in page
    assert "30 layers, 9 heads over 3 KV heads of 64: 23,040 bytes per token in f16" in page
    assert "string[49152]" in page and "(368 bytes)" in page
    assert max(map(len, page.splitlines())) < 200


def test_gemma3():
    found = inspect_json("gemma-3-270m")
    assert len(found["tensors"]) == 236
    kvasir = found["kvasir"]
    assert kvasir["supported"] is True and kvasir["chat_template"]["present"] is False
    assert kvasir["tokenizer"]["model"] == "llama"
    # 18 layers * 1 head * (256 + 256) elements * 2 bytes; every sixth layer is global
    assert kvasir["cache"]["bytes_per_token_f16"] == 18432
    assert kvasir["cache"]["window"] == 512 and kvasir["cache"]["windowed_layers"] == 15
    assert "18 layers (15 with a window of 512 tokens), 4 heads over 1 KV head of 256" in inspect("gemma-3-270m").stdout.decode()


def test_full_gives_whole_arrays():
    tokens = inspect_json("smollm2-135m-instruct", "--full")["metadata"]["tokenizer.ggml.tokens"]
    assert len(tokens) == 49152 and tokens[2] == "<|im_end|>"


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_of_every_type(tmp_path, version):
    found = inspect_json(write(tmp_path, "tiny.gguf", tiny.whole(version=version).bytes()))
    assert found["version"] == version
    assert found["metadata"] == {
        "general.architecture": "tiny", "u8": 200, "i8": -3, "u16": 50000, "i16": -300, "u32": 4000000000, "i32": -70000, "f32": 1.5,
        "yes": True, "u64": str(1 << 63), "i64": -5, "f64": -2.5, "numbers": [1, -2, 3], "words": ["a", "", "bc"], "empty": []}
    assert [t["shape"] for t in found["tensors"]] == [[32, 2], [5], [2, 3, 2, 1]]
    kvasir = found["kvasir"]
    assert kvasir["supported"] is False and "architecture 'tiny'" in kvasir["reasons"][0]
    assert kvasir["context_length"] is None and kvasir["cache"] is None


def test_unknown_tensor_types_are_named(tmp_path):
    g = tiny.whole().tensor("exotic", [256, 2], 16, b"").tensor("newer", [7], 999, b"")
    path = write(tmp_path, "exotic.gguf", g.bytes())
    found = inspect_json(path)
    assert found["by_type"]["IQ2_XXS"] == {"tensors": 1, "bytes": None}
    assert found["tensors"][-1] == {"name": "newer", "shape": [7], "type": "type 999", "bytes": None}
    assert any("2 tensors are of a type" in r and "IQ2_XXS, unknown" in r for r in found["kvasir"]["reasons"])
    assert "Kvasir can't run this model" in inspect(path).stdout.decode()


def test_hostile_text_is_shown_harmlessly(tmp_path):
    g = tiny.Gguf().kv(b"\xff\x1b[31mred", tiny.STRING, b"\x80\x1b]0;title\x07\xc2\x9b31m\n").kv("inf", tiny.F32, float("inf"))
    g.kv("long", tiny.STRING, "é" * 200)
    path = write(tmp_path, "hostile\n.gguf", g.tensor(b"\x1b[2J", [1], 0, bytes(4)).bytes())
    page = inspect(path).stdout
    assert b"\x1b" not in page and b"\x07" not in page and b"\xc2\x9b" not in page
    page = page.decode()
    assert "??[31mred" in page and "(400 bytes)" in page
    found = inspect_json(path)
    assert found["metadata"]["\ufffd\x1b[31mred"] == "\ufffd\x1b]0;title\x07\x9b31m\n"
    assert found["metadata"]["inf"] is None
    assert found["tensors"][0]["name"] == "\x1b[2J"


def parts(folder, n=2):
    paths = []
    for i in range(n):
        g = tiny.Gguf().kv("split.no", tiny.U16, i).kv("split.count", tiny.U16, n).kv("split.tensors.count", tiny.I32, n)
        paths.append(write(folder, f"m-{i + 1:05}-of-{n:05}.gguf", g.tensor(f"t{i}", [2], 0, bytes(8)).bytes()))
    return paths


def test_split(tmp_path):
    first, second = parts(tmp_path)
    found = inspect_json(first)
    assert found["parts"] == 2 and [t["name"] for t in found["tensors"]] == ["t0", "t1"]
    assert found["bytes"] == first.stat().st_size + second.stat().st_size
    assert "in 2 parts" in inspect(first).stdout.decode()
    fails(second, "name its first part", str(first))
    second.unlink()
    fails(first, "part 2 of 2 is missing", str(second))


def test_unreadable_files(tmp_path):
    good = tiny.whole().bytes()
    fails(write(tmp_path, "cut.gguf", good[:-1]), "the download is incomplete", "pull it again")
    fails(write(tmp_path, "header.gguf", good[:300]), "incomplete")
    fails(write(tmp_path, "empty.gguf", b""), "empty")
    fails(write(tmp_path, "page.gguf", b"<html>404</html>"), "not a GGUF file")
    fails(write(tmp_path, "big.gguf", tiny.whole(order=">").bytes()), "big-endian")
    fails(write(tmp_path, "new.gguf", tiny.whole(version=4).bytes()), "version 4")
    fails(f"{tmp_path}/", "is a directory")
    fails(tmp_path / "missing.gguf", "no such file")
    closed = write(tmp_path, "closed.gguf", good)
    closed.chmod(0)
    if os.geteuid() != 0:  # root reads everything
        fails(closed, "no permission")


def test_usage():
    assert subprocess.run([ROOT / "kvasir", "inspect"], capture_output=True).returncode == 2
