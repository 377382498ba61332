"""tools/make_synthetic_llama.py: a small one of each type, which must load, and whose logits must be numbers apart from each other."""
import subprocess
import sys

import numpy as np
import pytest

from program import ROOT, works, works_json


SHAPE = ["--layers", 4, "--vocab", 512, "--d-model", 256, "--heads", 4, "--kv-heads", 2, "--d-ff", 512]


def make(path, *words):
    return subprocess.run([sys.executable, ROOT / "tools/make_synthetic_llama.py", "--out", path, *map(str, words)],
                          capture_output=True, text=True, timeout=60)


@pytest.fixture(params=["Q4_K_M", "Q8_0"])
def small(request, tmp_path):
    path = tmp_path / "small.gguf"
    done = make(path, "--type", request.param, *SHAPE)
    assert done.returncode == 0, done.stderr
    return request.param, path


def test_shapes_and_types(small):
    kind, path = small
    tensors = {t["name"]: (t["shape"], t["type"]) for t in works_json("inspect", path)["tensors"]}
    assert len(tensors) == 2 + 9 * 4
    usual, better = ("Q4_K", "Q6_K") if kind == "Q4_K_M" else ("Q8_0", "Q8_0")
    assert tensors["token_embd.weight"] == ([256, 512], better)
    assert tensors["blk.0.ffn_down.weight"] == ([512, 256], usual)
    assert tensors["blk.3.ffn_down.weight"] == ([512, 256], better), "the last eighth"
    assert tensors["blk.1.attn_v.weight"] == ([256, 128], usual) and tensors["blk.2.attn_v.weight"] == ([256, 128], better)


def test_logits(small, tmp_path):
    out = tmp_path / "logits"
    works("logits", small[1], "--ids", "-", "--out", out, text="[300, 301, 302, 303, 304, 305, 306, 307]")
    logits = np.fromfile(out, "<f4").reshape(8, 512)
    assert np.isfinite(logits).all() and 1.5 < logits.std() < 6
    assert len(set(logits.argmax(axis=1))) > 2
    assert abs(logits.mean()) < 0.5


def test_it_speaks(small):
    assert works("run", small[1], "--raw", "the hell", "-n", "4", "-q").stdout


def test_the_same_seed_makes_the_same_file(small, tmp_path):
    again, other = tmp_path / "again.gguf", tmp_path / "other.gguf"
    words = ["--type", small[0], *SHAPE]
    assert make(again, *words).returncode == make(other, *words, "--seed", 2).returncode == 0
    assert again.read_bytes() == small[1].read_bytes() != other.read_bytes()


def test_shapes_that_can_not_be(tmp_path):
    for words, says in ((["--d-model", 100], "multiples of 256"), (["--vocab", 100], "300"), (["--kv-heads", 5], "divides")):
        done = make(tmp_path / "no", *words)
        assert done.returncode == 2 and says in done.stderr
