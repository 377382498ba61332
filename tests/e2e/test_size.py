"""kvasir size: every number is worked out again here, from the models' published configurations."""

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import make_tiny_gguf as tiny  # noqa: E402

BITS = {"f32": 32, "f16": 16, "q8": 8.5, "q4": 4.5, "q2": 2.5}
GIB = 1 << 30


def size(*words):
    return subprocess.run([ROOT / "kvasir", "size", *map(str, words)], capture_output=True, timeout=60, text=True)


def size_json(*words):
    done = size(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fails(status, *words, says):
    done = size(*words)
    assert done.returncode == status, (done.returncode, done.stderr)
    assert done.stdout == "" and says in done.stderr, done.stderr


# layers, d_model, heads, KV heads, head size, d_ff, vocabulary, context; then what differs
DENSE = {
    "Llama-2-7B": (32, 4096, 32, 32, 128, 11008, 32000, 4096, {}),
    "Llama-3-8B": (32, 4096, 32, 8, 128, 14336, 128256, 8192, {}),
    "Llama-3-70B": (80, 8192, 64, 8, 128, 28672, 128256, 8192, {}),
    "Llama-3.1-8B": (32, 4096, 32, 8, 128, 14336, 128256, 131072, {}),
    "Llama-3.1-70B": (80, 8192, 64, 8, 128, 28672, 128256, 131072, {}),
    "Mistral-7B": (32, 4096, 32, 8, 128, 14336, 32768, 32768, {}),
    "Mistral-7B-v0.1": (32, 4096, 32, 8, 128, 14336, 32000, 32768, {"window": 4096, "windowed": 32}),
    "Qwen2.5-7B": (28, 3584, 28, 4, 128, 18944, 152064, 131072, {"bias": True}),
    "Qwen3-8B": (36, 4096, 32, 8, 128, 12288, 151936, 40960, {"qk_norm": True}),
    "Gemma-3-27B": (62, 5376, 32, 16, 128, 21504, 262208, 131072,
                    {"window": 1024, "windowed": 52, "qk_norm": True, "tied": True, "norms": 4}),
}
# layers, d_model, heads, q latent, d_ff of dense layers, of experts, routed, shared, dense layers, vocabulary, routing bias
LATENT = {
    "DeepSeek-V2-Lite": (27, 2048, 16, 0, 10944, 1408, 64, 2, 1, 102400, False),
    "DeepSeek-V2": (60, 5120, 128, 1536, 12288, 1536, 160, 2, 1, 102400, False),
    "DeepSeek-V3": (61, 7168, 128, 1536, 18432, 2048, 256, 1, 3, 129280, True),
}


def dense_parameters(layers, d, heads, kv, hd, ff, vocab, _context, more):
    layer = 2 * d * heads * hd + 2 * d * kv * hd + 3 * d * ff + more.get("norms", 2) * d
    layer += (heads + 2 * kv) * hd if more.get("bias") else 0
    layer += 2 * hd if more.get("qk_norm") else 0
    return layers * layer + vocab * d * (1 if more.get("tied") else 2) + d


def latent_parameters(layers, d, heads, q, ff, expert, routed, shared, dense, vocab, bias):
    nope, rope, v, latent = 128, 64, 128, 512
    attention = d * q + q + q * heads * (nope + rope) if q else d * heads * (nope + rope)
    attention += d * (latent + rope) + latent + latent * heads * (nope + v) + heads * v * d
    experts = (routed + shared) * 3 * d * expert + d * routed + (routed if bias else 0)
    return layers * (attention + 2 * d) + dense * 3 * d * ff + (layers - dense) * experts + 2 * vocab * d + d


def blocks(tokens, window, block):
    """Most blocks that a sequence holds while it grows one by one: row i goes when no query at i + window or later can come."""
    whole = -(-tokens // block)
    if not window:
        return whole
    return max(-(-(n + 1) // block) - max(0, n - window + 1) // block for n in range(max(0, tokens - 4 * window - 4 * block), tokens))


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("kv", BITS)
def test_dense_shapes(name, kv):
    layers, _, heads, kv_heads, hd, _, _, context, more = DENSE[name]
    found = size_json(name, "--context", 20000, "--kv", kv, "--memory", "1T", "--batch", 7)
    window, windowed = more.get("window", 0), more.get("windowed", 0)
    assert (found["layers"], found["heads"], found["context_length"]) == (layers, heads, context)
    assert (found["window"], found["windowed_layers"]) == (window, windowed)
    row = kv_heads * 2 * hd * BITS[kv] / 8
    assert found["bytes_per_token_layer"] == row
    assert found["bytes_per_token"] == row * layers
    assert found["mha_bytes_per_token_layer"] == heads * 2 * hd * BITS[kv] / 8
    assert found["mqa_bytes_per_token_layer"] == 2 * hd * BITS[kv] / 8
    sequence = 16 * row * ((layers - windowed) * blocks(20000, 0, 16) + windowed * blocks(20000, window, 16))
    assert found["bytes_per_sequence"] == sequence
    assert found["cache_bytes"] == 7 * sequence
    weights = 2 * dense_parameters(*DENSE[name])
    assert found["weights_bytes"] == weights
    assert found["total_bytes"] == weights + 7 * sequence
    assert found["decides"] == ("cache" if 7 * sequence > weights else "weights")
    assert found["fits"] == (1024 * GIB - weights) // int(sequence)
    reserved = 16 * row * layers * blocks(max(20000, context), 0, 16)
    assert found["fits_contiguous"] == (1024 * GIB - weights) // int(reserved)
    assert found["kv_stored"] == (kv in ("f32", "f16"))


@pytest.mark.parametrize("name", LATENT)
@pytest.mark.parametrize("kv", BITS)
def test_latent_shapes(name, kv):
    layers, _, heads = LATENT[name][:3]
    found = size_json(name, "--context", 1000, "--kv", kv, "--memory", "2T")
    assert found["bytes_per_token_layer"] == found["mla_bytes_per_token_layer"] == 576 * BITS[kv] / 8
    assert found["mha_bytes_per_token_layer"] == heads * 256 * BITS[kv] / 8
    assert found["bytes_per_sequence"] == 63 * 16 * layers * 576 * BITS[kv] / 8
    assert found["weights_bytes"] == 2 * latent_parameters(*LATENT[name])
    assert found["contiguous_tokens"] == 163840
    assert found["fits"] == (2048 * GIB - found["weights_bytes"]) // found["bytes_per_sequence"]
    assert found["fits_contiguous"] == (2048 * GIB - found["weights_bytes"]) // found["bytes_per_sequence_contiguous"]


def test_llama_3_70b_to_the_byte():
    found = size_json("llama-3-70b", "--context", 128000)
    assert found["bytes_per_token"] == 327680
    assert found["bytes_per_sequence"] == 41943040000


def test_deepseek_v3_to_the_byte():
    found = size_json("DEEPSEEK-V3", "--context", 4096)
    assert found["bytes_per_token_layer"] == 1152
    assert found["mha_bytes_per_token_layer"] == 65536
    assert round(65536 / 1152, 1) == 56.9


def test_every_listed_shape_is_checked_here():
    listed = json.loads(size("--list", "--json").stdout)
    assert {s["model"] for s in listed} == set(DENSE) | set(LATENT)
    assert all(s["source"].startswith("hf:") and s["source"].endswith("/config.json") for s in listed)
    text = size("--list").stdout
    assert all(s["model"] in text and s["source"] in text for s in listed)


@pytest.mark.parametrize("context", [1, 1023, 1024, 1025, 1039, 1040, 1041, 5000])
@pytest.mark.parametrize("block", [8, 16, 64])
def test_windows(context, block):
    found = size_json("gemma-3-27b", "--context", context, "--block-size", block)
    per_block = block * 16 * 256 * 2
    assert found["bytes_per_sequence"] == per_block * (10 * blocks(context, 0, block) + 52 * blocks(context, 1024, block))


@pytest.mark.parametrize("kind,bits", [("bf16", 16), ("Q8_0", 8.5), ("q4_k", 4.5), ("MXFP4", 4.25)])
def test_types_of_weights(kind, bits):
    found = size_json("llama-3-8b", "--weights", kind)
    assert found["weights_bytes"] == 8030261248 * bits / 8
    assert found["weights_type"] == kind.upper()


def test_memory_that_the_weights_fill():
    weights = size_json("llama-3-8b")["weights_bytes"]
    one = size_json("llama-3-8b", "--context", 16)["bytes_per_sequence"]
    assert one == 16 * 131072
    for memory, fits in [(1, 0), (weights, 0), (weights + one - 1, 0), (weights + one, 1), (weights + 3 * one - 1, 2)]:
        found = size_json("llama-3-8b", "--context", 16, "--memory", memory)
        assert (found["memory_bytes"], found["fits"], found["fits_contiguous"]) == (memory, fits, 0)
    assert "no sequence fits" in size("llama-3-8b", "--memory", weights).stdout


def test_defaults():
    found = size_json("qwen3-8b")
    assert (found["context"], found["kv"], found["batch"], found["block_tokens"]) == (40960, "f16", 1, 16)
    assert found["memory_bytes"] > 0 and found["weights_type"] == "BF16"


def test_largest_numbers():
    found = size_json("llama-2-7b", "--context", 10**9, "--batch", 10**6, "--kv", "f32")
    assert found["bytes_per_sequence"] == 10**9 * 32 * 32 * 256 * 4
    assert found["cache_bytes"] == found["total_bytes"] == 2**64 - 1  # saturated
    assert "weights" in size("llama-2-7b", "--context", 10**9, "--batch", 10**6).stdout


def test_page_for_people():
    page = size("llama-3-70b", "--context", 128000, "--memory", "640G").stdout
    lines = page.splitlines()
    assert lines[0] == "Llama-3-70B: 80 layers, 64 heads over 8 of K and V, 128 wide; made for 8192 tokens"
    assert "longer than the model was made for" in page
    chosen = [line for line in lines if line.startswith("->")]
    assert [line.split()[1] for line in chosen] == ["GQA", "f16"]
    assert chosen[1].split()[2:5] == ["16", "327680", "41943040000"]
    assert "the weights decide" in page and "13 x 128000 tokens fit in blocks, 39.1 GiB each" in page
    assert "the cache decides" in size("llama-3-70b", "--context", 128000, "--batch", 4).stdout
    assert [line.split()[0] for line in lines if line.lstrip().startswith("q")] == ["q8*", "q4*", "q2*"]


def model(folder, arch, **numbers):
    g = tiny.Gguf().kv("general.architecture", tiny.STRING, arch)
    for key, value in numbers.items():
        g.kv(f"{arch}.{key.replace('__', '.')}", tiny.U32, value)
    g.kv("tokenizer.ggml.tokens", tiny.ARRAY, (tiny.STRING, ["a", "b", "c", "d"]))
    g.tensor("token_embd.weight", [32, 4], 8, bytes(4 * 34)).tensor("output_norm.weight", [32], 0, bytes(128))
    path = folder / f"{arch}.gguf"
    path.write_bytes(g.bytes())
    return path


NUMBERS = {"embedding_length": 32, "feed_forward_length": 64, "attention__head_count": 4, "attention__head_count_kv": 2,
           "attention__key_length": 8, "attention__value_length": 16, "context_length": 512}


def test_file(tmp_path):
    path = model(tmp_path, "qwen3", block_count=3, **NUMBERS)
    found = size_json(path, "--context", 100)
    assert found["model"] == found["source"] == str(path)
    assert found["bytes_per_token_layer"] == 2 * (8 + 16) * 2
    assert found["mha_bytes_per_token_layer"] == 4 * (8 + 16) * 2
    assert found["bytes_per_sequence"] == 7 * 16 * 3 * 96
    assert (found["weights_bytes"], found["weights_type"]) == (4 * 34 + 128, "file")
    assert size_json(path)["context"] == 512
    assert "8 wide (V: 16)" in size(path).stdout


def test_file_with_windows(tmp_path):
    path = model(tmp_path, "gemma3", block_count=13, attention__sliding_window=40, **NUMBERS)
    found = size_json(path, "--context", 300)
    assert (found["windowed_layers"], found["window"]) == (11, 40)
    assert found["bytes_per_sequence"] == 16 * 96 * (2 * blocks(300, 0, 16) + 11 * blocks(300, 40, 16))


def test_real_models():
    found = size_json("smollm2-135m-instruct", "--context", 1024)
    assert found["bytes_per_token"] == 23040 and found["bytes_per_sequence"] == 23040 * 1024
    found = size_json("gemma-3-270m", "--context", 4096)
    assert found["bytes_per_sequence"] == 1024 * 16 * (3 * blocks(4096, 0, 16) + 15 * blocks(4096, 512, 16))


def test_bad_numbers():
    for option, value in [("--context", 0), ("--context", -5), ("--context", 10**18), ("--context", "many"), ("--batch", 0),
                          ("--batch", 10**18), ("--memory", "lots"), ("--memory", 10**30), ("--kv", "f17"), ("--block-size", 7)]:
        fails(2, "llama-3-8b", option, value, says=option)
    fails(2, "llama-3-8b", "--block-size", 24, says="8, 16, 32, 64, 128 or 256")
    fails(2, "llama-3-8b", "--weights", "Q9", says="Q8_0")
    fails(2, says="--list")
    fails(2, "llama-3-8b", "llama-3-70b", says="")


def test_bad_models(tmp_path):
    fails(1, "llama-3-70", says="did you mean 'Llama-3-70B'?")
    fails(1, "zzz", says="DeepSeek-V3")
    fails(1, tmp_path, says="is a directory")
    fails(1, tmp_path / "none.gguf", says="none.gguf")
    (tmp_path / "text.gguf").write_text("this is no model")
    fails(1, tmp_path / "text.gguf", says="text.gguf")
    (tmp_path / "empty.gguf").write_bytes(b"")
    fails(1, tmp_path / "empty.gguf", says="empty.gguf")
    fails(1, model(tmp_path, "mamba", block_count=2, **NUMBERS), says="mamba")
    fails(2, model(tmp_path, "llama", block_count=2, **NUMBERS), "--weights", "Q8_0", says="--weights")
