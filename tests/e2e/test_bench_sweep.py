"""kvasir bench: ranges, settings side by side, noise contexts and phases, on a small model."""
import json

import pytest

from program import ROOT, fails, works, works_json

MODEL = ROOT / "tests/data/tiny/llama-gqa.gguf"
WINDOWED = ROOT / "tests/data/tiny/gemma3.gguf"
PHASES = {"products", "attention", "elementwise", "head", "sampling", "other", "waiting"}


def bench(*options, model=MODEL):
    return works_json("bench", "--model", model, "--reps", "1", "--threads", "2", *options)["tests"]


def test_ranges_are_swept():
    assert [t["test"] for t in bench("--tests", "pp7,tg2@16..50,tb2x1..3@8")] == [
        "pp7", "tg2@16", "tg2@32", "tg2@50", "tb2x1@8", "tb2x2@8", "tb2x3@8"]
    fails(2, "bench", MODEL, "--tests", "tg2@8..4", says="range 8..4")
    fails(2, "bench", MODEL, "--tests", "tg2@0..4", says="above 0")


def test_shared_prefix_is_a_sweep_of_sp():
    done = works_json("bench", MODEL, "--reps", "1", "--shared-prefix", "24")["tests"]
    assert [t["test"] for t in done] == [f"sp16x{n}@24+16" for n in (1, 2, 4, 8, 16)]


def test_block_sizes_side_by_side():
    done = bench("--tests", "pp20,tg4@30", "--block-sizes")
    assert [(t["block_tokens"], t["test"]) for t in done] == [(b, t) for b in (8, 16, 32, 64, 128, 256) for t in ("pp20", "tg4@30")]
    for test in ("pp20", "tg4@30"):
        assert len({t["hash"] for t in done if t["test"] == test}) == 1
    for t in done:
        assert t["split"] and t["unused_tokens"] == (t["block_tokens"] - 1) / 2
        assert t["bookkeeping_bytes_per_token"] == pytest.approx(done[0]["bookkeeping_bytes_per_token"] * 8 / t["block_tokens"], abs=1e-3)
    table = works("bench", MODEL, "--reps", "1", "--tests", "tg2@9", "--block-sizes").stdout
    assert table.count("\n| tg2@9 | f16 |") == 6 and "| tokens a block |" in table and "\n| 256 | 127.5 |" in table


def test_split_and_not_side_by_side():
    done = bench("--tests", "tg4@600,pp8", "--splits", "--fill", "noise")
    assert [(t["test"], t["split"]) for t in done] == [("tg4@600", True), ("pp8", True), ("tg4@600", False), ("pp8", False)]
    assert done[0]["hash"] == done[2]["hash"] and done[1]["hash"] == done[3]["hash"]
    assert not any(t["split"] for t in bench("--tests", "tg2@4", "--no-split"))
    table = works("bench", MODEL, "--reps", "1", "--tests", "tg2@9", "--splits").stdout
    assert "| tg2@9 | f16 |" in table and "| test | split | not split | ratio |" in table


@pytest.mark.parametrize("model", [MODEL, WINDOWED], ids=["global", "windowed"])
def test_noise_is_a_context_like_another(model):
    """The same bytes are read, and bits don't depend on how the cache is cut; only what the logits are is another matter."""
    def runs(*options):
        return bench("--tests", "tg3@70,tb2x3@50", *options, model=model)
    tokens, noise = runs(), runs("--fill", "noise")
    for a, b in zip(tokens, noise):
        assert a["bytes_per_token"] == b["bytes_per_token"] and a["hash"] != b["hash"]
    for options in (["--block-size", "64"], ["--chunk", "7"], ["--no-split"], ["--threads", "3"]):
        assert [t["hash"] for t in runs("--fill", "noise", *options)] == [t["hash"] for t in noise]
    assert runs("--fill", "tokens")[0]["hash"] == tokens[0]["hash"]


def test_phases_add_up():
    done = bench("--tests", "pp40,tg8@20,tb4x3@20", "--phases")
    for t in done:
        assert set(t["phases_us"]) == PHASES and all(v >= 0 for v in t["phases_us"].values())
        assert sum(t["phases_us"].values()) == pytest.approx(t["phases_total_us"], abs=0.01)
        assert min(t["phases_us"][p] for p in ("products", "attention", "head", "elementwise")) > 0
    assert [t["hash"] for t in done] == [t["hash"] for t in bench("--tests", "pp40,tg8@20,tb4x3@20")]
    assert "phases_us" not in bench("--tests", "tg2@2")[0]
    one = works_json("bench", MODEL, "--reps", "1", "--threads", "1", "--tests", "tg4@20", "--phases")["tests"][0]
    assert one["phases_us"]["waiting"] == 0


def test_phases_in_every_form():
    words = ("bench", MODEL, "--reps", "1", "--tests", "tg2@4", "--phases")
    assert "| products, % | attention, % |" in works(*words).stdout
    head, row = works(*words, "--output", "csv").stdout.splitlines()
    assert len(head.split(",")) == len(row.split(",")) and "attention_us" in head
    assert json.loads(works(*words, "--output", "json").stdout)["tests"][0]["phases_us"]
