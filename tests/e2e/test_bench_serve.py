"""kvasir bench serve: every workload through every cache, what must hold of the figures, and what they must show."""
import pytest

from program import GEMMA, SMOLLM, fails, works, works_json

WORKS, CACHES = ["fixed", "mix", "agents", "chat", "tree"], ["shared", "paged", "contiguous"]
SMALL = ("--scale", "0.05", "--requests", "16")
TIMES = {"p50", "p90", "p99"}


def serve(*options, model=SMOLLM):
    return works_json("bench", "serve", model, *options)


@pytest.fixture(scope="module")
def runs():
    done = serve(*SMALL, "--work", "all", "--kv", "f16", "--threads", "2")
    assert done["kv"] == "f16" and done["threads"] == 2 and done["block_tokens"] == 16 and done["clients"] == 16
    assert [(r["work"], r["baseline"]) for r in done["runs"]] == [(w, c) for w in WORKS for c in CACHES]
    return {(r["work"], r["baseline"]): r for r in done["runs"]}


def test_every_answer_is_whole(runs):
    for (work, _), r in runs.items():
        assert r["answers"] == r["finished"] == (20 if work == "tree" else 16) and r["failed"] == r["dropped"] == 0
    for cache in CACHES:
        assert runs["fixed", cache]["prompt_tokens"] == 16 * 13 and runs["fixed", cache]["output_tokens"] == 16 * 3
        assert runs["agents", cache]["prompt_tokens"] == 16 * 253 and runs["agents", cache]["output_tokens"] == 16 * 2
        assert runs["chat", cache]["prompt_tokens"] == 4 * (10 + 16 + 22 + 28) and runs["chat", cache]["output_tokens"] == 16 * 2
        assert runs["tree", cache]["output_tokens"] == 20 * 2


def test_all_caches_give_the_same_tokens(runs):
    for work in WORKS:
        same = {(r["hash"], r["prompt_tokens"], r["output_tokens"], r["context"], r["cache_bytes"])
                for (w, _), r in runs.items() if w == work}
        assert len(same) == 1, same
    assert len({runs[work, "shared"]["hash"] for work in WORKS}) == 5


def test_figures_hang_together(runs):
    for r in runs.values():
        assert r["seconds"] > 0 and 0 <= r["goodput"] <= r["answers"] / r["seconds"] * 1.01
        assert abs(r["output_tokens_s"] * r["seconds"] / r["output_tokens"] - 1) < 0.02
        assert abs(r["total_tokens_s"] * r["seconds"] / (r["output_tokens"] + r["prompt_tokens"]) - 1) < 0.02
        for name in ("ttft_ms", "tpot_ms", "itl_ms"):
            assert set(r[name]) == TIMES and 0 <= r[name]["p50"] <= r[name]["p90"] <= r[name]["p99"]
        assert 0 < r["in_flight"]["mean"] <= r["in_flight"]["max"] <= 16
        w = r["waste_percent"]
        assert abs(w["reserved"] + w["internal"] + w["external"] - w["total"]) < 0.01 and 0 < w["total"] < 100
        assert r["computed_rows"] + r["reused_tokens"] >= r["prompt_tokens"] and r["steps"] > 0
        assert r["hit_rate"] == pytest.approx(r["reused_tokens"] / r["prompt_tokens"], abs=1e-4)


def test_temperature_is_named_and_draws(runs):
    """Drawn answers are others than greedy ones, and the same again, however many threads and clients there are."""
    drawn = serve(*SMALL, "--work", "mix", "-b", "shared", "--temperature", "1", "--threads", "2")
    again = serve(*SMALL, "--work", "mix", "-b", "paged", "--temperature", "1", "--threads", "1", "--clients", "3")
    assert drawn["temperature"] == 1 and serve(*SMALL, "-b", "shared")["temperature"] == 0
    assert drawn["runs"][0]["hash"] == again["runs"][0]["hash"] != runs["mix", "shared"]["hash"]
    tail = works("bench", "serve", SMOLLM, *SMALL, "-b", "shared", "--temperature", "0.7").stdout.splitlines()[-1]
    assert "; temperature 0.7, unfiltered; " in tail


def test_what_sharing_is_worth(runs):
    for (work, cache), r in runs.items():
        assert (r["reused_tokens"] > 0) == (cache == "shared" and work in ("agents", "chat", "tree")), (work, cache)
    assert runs["agents", "shared"]["hit_rate"] > 0.8
    assert runs["chat", "shared"]["hit_rate"] > 0.4
    assert runs["tree", "shared"]["hit_rate"] > 0.6  # three of four branches compute nothing
    for work in ("agents", "tree"):
        assert runs[work, "paged"]["computed_rows"] > 2 * runs[work, "shared"]["computed_rows"]


def test_what_is_set_aside(runs):
    for (_, cache), r in runs.items():
        assert (r["waste_percent"]["reserved"] > 0) == (cache == "contiguous")
    for work in WORKS:
        assert runs[work, "contiguous"]["waste_percent"]["total"] > runs[work, "paged"]["waste_percent"]["total"]
        assert runs[work, "contiguous"]["in_flight"]["max"] <= 4  # room for a quarter of sixteen contexts


def test_waste_at_the_lengths_of_conversations():
    """Half of the published lengths: the tails of 16-token blocks weigh twice what they do in the whole."""
    paged, contiguous = serve("--requests", "8", "--scale", "0.5", "-b", "paged", "-b", "contiguous", "--clients", "8")["runs"]
    assert paged["waste_percent"]["total"] < 4
    assert contiguous["waste_percent"]["total"] > 50
    assert paged["in_flight"]["mean"] > 1.5 * contiguous["in_flight"]["mean"]


def test_counts_are_the_same_in_every_run(runs):
    again = serve(*SMALL, "--work", "mix", "-b", "shared", "--threads", "1")["runs"][0]
    for key in ("hash", "steps", "computed_rows", "in_flight", "waste_percent", "hit_rate"):
        assert again[key] == runs["mix", "shared"][key]
    other = serve(*SMALL, "--work", "mix", "-b", "shared", "--seed", "2")["runs"][0]
    assert other["hash"] != again["hash"]


def test_an_open_loop(runs):
    done = serve(*SMALL, "--rate", "200", "--work", "mix", "--work", "chat", "-b", "shared", "--itl-target", "50")
    for r in done["runs"]:
        assert r["finished"] == 16 and r["hash"] == runs[r["work"], "shared"]["hash"]
    strict = serve(*SMALL, "-b", "shared", "--slo-ttft", "0")["runs"][0]
    assert strict["goodput"] == 0


def test_too_little_memory_is_shared_fairly():
    """A pool of one context: sessions make room for each other, and say the same."""
    small, large = (serve("--scale", "0.1", "-n", "12", "-b", "shared", "--contexts", n)["runs"][0] for n in (1, 16))
    assert small["cache_bytes"] < large["cache_bytes"] and small["finished"] == 12
    assert small["hash"] == large["hash"]


def test_sliding_windows():
    shared, paged = serve(*SMALL, "--work", "agents", "-b", "shared", "-b", "paged", model=GEMMA)["runs"]
    assert shared["hash"] == paged["hash"] and shared["hit_rate"] > 0.8


def test_the_table():
    text = works("bench", "serve", SMOLLM, "--scale", "0.05", "-n", "4", "-w", "fixed").stdout
    for cache in CACHES:
        assert text.count(f"| fixed | {cache} |") == 2
    assert "goodput" in text and "; greedy; " in text and text.startswith("| work | cache |")


def test_bad_command_lines():
    fails(2, "bench", "serve", says="MODEL is missing")
    fails(2, "bench", "serve", SMOLLM, "--work", "poems", says="--work")
    fails(2, "bench", "serve", SMOLLM, "--clients", "0", says="--clients")
    fails(1, "bench", "serve", SMOLLM, "--work", "agents", "--context", "1000", says="the longest request has 5092")
    fails(1, "bench", "serve", "no-such-model", says="no-such-model")
