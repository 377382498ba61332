"""Random models of every architecture against the logits that Hugging Face's transformers gives them (tools/make_tiny_models.py)."""

import json
import pathlib
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "tiny"
CASES = sorted(path.stem for path in DATA.glob("*.npz"))


class Case:
    def __init__(self, name, folder):
        answer = np.load(DATA / f"{name}.npz")
        self.positions, self.expected = answer["positions"], answer["logits"]
        self.n, self.folder = len(answer["ids"]), folder
        self.file = DATA / f"{name.split('.')[0]}.gguf"
        (folder / "ids.json").write_text(json.dumps(answer["ids"].tolist()))

    def run(self, *options):
        """Hash and logits at the positions whose answer is known."""
        out = self.folder / "logits.f32"
        done = subprocess.run([ROOT / "kvasir", "logits", self.file, "--ids", self.folder / "ids.json", "--out", out, *options],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), np.fromfile(out, "<f4").reshape(self.n, -1)[self.positions]


@pytest.fixture(params=CASES)
def case(request, tmp_path):
    return Case(request.param, tmp_path)


@pytest.fixture(scope="module")
def has_avx2():
    done = subprocess.run([ROOT / "kvasir", "logits", DATA / "llama.gguf", "--cpu", "avx2"], input="[1]", capture_output=True, text=True,
                          timeout=60)
    return done.returncode == 0


def log_softmax(x):
    x = x.astype(np.float64) - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def divergence(expected, logits):
    """Mean Kullback-Leibler divergence of the tokens' distributions."""
    p, q = log_softmax(expected), log_softmax(logits)
    return (np.exp(p) * (p - q)).sum(axis=1).mean()


def test_every_architecture_is_there():
    names = {case.split(".")[0] for case in CASES}
    assert {name.split("-")[0] for name in names} == {"llama", "qwen2", "qwen3", "phi3", "smollm3", "gemma2", "gemma3"}
    assert names == {path.stem for path in DATA.glob("*.gguf")}
    assert len(CASES) > len(names), "LongRoPE's short factors"


def test_the_expected_logits_are_far_apart(case):
    assert len(case.positions) >= 20 and case.positions[-1] == case.n - 1
    assert 1 < case.expected.std() < 6


def test_exact_logits_are_the_reference_s(case):
    _, logits = case.run("--exact")
    assert abs(logits - case.expected).max() < 1e-4


def test_default_logits_stay_close(case):
    """An f16 cache alone where weights are floats; where they are quantized, the activations are so too."""
    _, logits = case.run()
    quantized = "-q" in case.file.stem or "quants" in case.file.stem
    assert divergence(case.expected, logits) < (4e-3 if quantized else 1e-5)
    chosen = np.take_along_axis(case.expected, logits.argmax(axis=1)[:, None], axis=1)[:, 0]
    lost = case.expected.max(axis=1) - chosen
    assert (lost == 0).mean() >= 0.9 and lost.max() < 0.5


@pytest.mark.parametrize("exact", [["--exact"], []], ids=["exact", "default"])
def test_no_setting_changes_a_bit(case, exact):
    hashes = {case.run(*exact, *options)[0]
              for options in ([], ["--chunk", "1"], ["--chunk", "7"], ["--threads", "1"], ["--threads", "3", "--chunk", "13"],
                              ["--block-size", "8"], ["--block-size", "32", "--chunk", "50"])}
    assert len(hashes) == 1


def test_scalar_and_avx2_agree(case, has_avx2):
    _, scalar = case.run("--exact", "--cpu", "scalar")
    assert abs(scalar - case.expected).max() < 1e-4
    if has_avx2:
        _, scalar = case.run("--cpu", "scalar")
        _, avx2 = case.run("--cpu", "avx2")
        assert divergence(scalar, avx2) < 1e-6
