"""kvasir logits: against the reference, against itself (bit-identity), and bad input."""
import json
import os
import signal
import subprocess
import time

import numpy as np
import pytest

from program import GEMMA, KVASIR, ROOT, SMOLLM, fails, works
from reference import references

REFERENCE = {SMOLLM: references(ROOT / "tests/data/logits-smollm2.npz"), GEMMA: references(ROOT / "tests/data/logits-gemma3.npz")}
FULL = bool(os.environ.get("TEST_FULL"))
LONG = 1 << 30 if FULL else 300  # tokens of a sequence that the short run looks at


def logits(folder, model, ids, *options):
    """[positions, vocabulary] and the printed hash."""
    out = folder / "logits.f32"
    done = works("logits", model, "--ids", "-", "--out", out, *options, text=json.dumps(ids), timeout=1200)
    x = np.fromfile(out, "<f4").reshape(len(ids), -1)
    out.unlink()
    return x, done.stdout.strip()


def hash_of(model, ids, *options):
    return works("logits", model, "--ids", "-", *options, text=json.dumps(ids)).stdout.strip()


def compare(folder, model, *options):
    """Over all sequences: KL by position, top-1 agreement by position, where the reference's margin is clear, the largest difference."""
    kl, same, clear, difference = [], [], [], 0
    for r in REFERENCE[model].values():
        n = min(len(r.ids), LONG)
        x, _ = logits(folder, model, r.ids[:n].tolist(), *options)
        r = r.first(n)
        kl.append(r.kl(x))
        same.append(r.same_top(x))
        clear.append(r.clear_margin(1e-3))
        difference = max(difference, r.largest_difference(x))
    return np.concatenate(kl), np.concatenate(same), np.concatenate(clear), difference


@pytest.mark.parametrize("model", REFERENCE)
def test_exact_arithmetic_is_the_reference(tmp_path, model):
    kl, same, clear, difference = compare(tmp_path, model, "--exact")
    assert kl.mean() < 1e-6 and difference < 5e-3
    assert same[clear].all()


@pytest.mark.parametrize("model", REFERENCE)
def test_default_kernels_are_close(tmp_path, model):
    kl, same, _, _ = compare(tmp_path, model)
    assert kl.mean() < 1.7e-3 and same.mean() >= 0.96


@pytest.mark.parametrize("model", REFERENCE)
def test_bits_do_not_depend_on_how_the_work_is_cut(model):
    ids = REFERENCE[model]["code"].ids[:90].tolist()
    want = hash_of(model, ids)
    assert len(want) == 16
    for options in ("--chunk 1", "--chunk 7", "--chunk 64", "--threads 1", "--threads 2", "--threads 3", "--block-size 8",
                    "--block-size 32", "--chunk 7 --threads 3 --block-size 256"):
        assert hash_of(model, ids, *options.split()) == want, options
    assert hash_of(model, ids[:-1] + [ids[-1] + 1]) != want
    assert hash_of(model, ids, "--kv", "f32") != want


def test_the_scalar_kernels_agree_with_themselves_and_nearly_with_the_others(tmp_path):
    ids = REFERENCE[SMOLLM]["chat"].ids[:12].tolist()
    x, fast = logits(tmp_path, SMOLLM, ids)
    y, scalar = logits(tmp_path, SMOLLM, ids, "--cpu", "scalar", "--chunk", "5")
    assert scalar == hash_of(SMOLLM, ids, "--cpu", "scalar", "--threads", "1", "--block-size", "8")
    # What differs is the last bits of exp and the norms; now and then that tips an activation to the next of its 255 steps.
    x, y = (v - np.log(np.exp(v).sum(axis=1, keepdims=True)) for v in (x.astype(np.float64), y.astype(np.float64)))
    kl = (np.exp(y) * (y - x)).sum(axis=1)
    assert kl[0] < 1e-6 and kl.mean() < 5e-3


def test_json(tmp_path):
    (tmp_path / "ids").write_text("[1, 2, 3]")
    done = json.loads(works("logits", SMOLLM, "--ids", tmp_path / "ids", "--json").stdout)
    assert done == {"positions": 3, "vocabulary": 49152, "hash": hash_of(SMOLLM, [1, 2, 3])}


def test_bad_input(tmp_path):
    bad = tmp_path / "bad"
    for text, says in (("", "line"), ("[1, 2", "line"), ("{}", "array"), ("[]", "array"), ('["a"]', "element 0"), ("[1, -1]", "element 1"),
                       ("[1.5]", "element 0"), ("[1e30]", "element 0")):
        bad.write_text(text)
        fails(1, "logits", SMOLLM, "--ids", bad, says=says)
    fails(1, "logits", SMOLLM, "--ids", "-", text="[49152]", says="vocabulary of 49152")
    fails(1, "logits", SMOLLM, "--ids", tmp_path / "none", says="no such file")
    fails(1, "logits", SMOLLM, "--ids", tmp_path, says="directory")
    fails(1, "logits", SMOLLM, "--ids", "-", "--out", tmp_path / "no" / "where", text="[1]", says="can't be written")
    fails(1, "logits", SMOLLM, "--ids", "-", "--out", "/dev/full", text="[1]", says="can't be written")
    fails(1, "logits", SMOLLM, "--block-size", "12", text="[1]", says="power of two")
    fails(1, "logits", SMOLLM, "--kv-memory", "1K", text="[1]", says="bytes")
    fails(2, "logits", SMOLLM, "--chunk", "0", text="[1]", says="--chunk")
    fails(2, "logits", says="MODEL")


def test_a_failed_run_leaves_no_file(tmp_path):
    out = tmp_path / "out"
    out.write_text("before")
    fails(1, "logits", SMOLLM, "--ids", "-", "--out", out, text="[1, 2, 99999999]", says="vocabulary")
    assert out.read_text() == "before" and [p.name for p in tmp_path.iterdir()] == ["out"]


def test_an_interrupted_or_limited_run_leaves_no_file(tmp_path):
    command = ["sh", "-c", f"ulimit -f 1; exec '{KVASIR}' logits {SMOLLM} --out '{tmp_path}/out'"]
    done = subprocess.run(command, input="[1, 2, 3]", capture_output=True, text=True)
    assert done.returncode == 1 and "File too large" in done.stderr and not list(tmp_path.iterdir())
    ids = tmp_path / "ids"
    ids.write_text(json.dumps([1] * 20000))
    running = subprocess.Popen([KVASIR, "logits", SMOLLM, "--ids", ids, "--chunk", "1", "--out", tmp_path / "out"])
    while len(list(tmp_path.iterdir())) < 2:
        assert running.poll() is None
        time.sleep(0.01)
    running.terminate()
    assert running.wait() == -signal.SIGTERM and [p.name for p in tmp_path.iterdir()] == ["ids"]
