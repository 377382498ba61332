"""What users of other engines complained about, by the complaint: each must not be so here."""
import concurrent.futures

import pytest

from program import GEMMA, SMOLLM
from serving import Server

CONTEXT = 1024
WORDS = "the river runs past an old stone bridge where a baker sells warm bread to sailors every morning before".split()


def text(n_words, seed=0):
    return " ".join(WORDS[(i * i + i // 7 + seed) % len(WORDS)] + str((i + seed) % 10) for i in range(n_words))


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def prompt_tokens(answer):
    return answer["usage"]["prompt_tokens"]


def in_parallel(n, f):
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        return list(pool.map(f, range(n)))


@pytest.fixture(scope="module")
def smollm():
    with Server("--ctx", CONTEXT, "--threads", 2) as s:
        yield s


@pytest.fixture(scope="module")
def gemma():
    with Server("--ctx", 4096, "--threads", 2, model=GEMMA) as s:
        yield s


def test_sliding_window_models_compute_a_known_prompt_again(gemma):
    """They do not: window layers need their last window only. (llama.cpp 21831, 13194)"""
    known = text(320)
    first = gemma.complete(known)
    assert prompt_tokens(first) > 600  # longer than the window of 512
    again = gemma.complete(known)
    assert cached(again) >= prompt_tokens(first) // 16 * 16 - 16
    assert again["choices"][0]["text"] == first["choices"][0]["text"]
    longer = gemma.complete(known + text(20, seed=3))
    assert cached(longer) >= prompt_tokens(first) // 16 * 16 - 16


def test_what_one_slot_knows_no_other_slot_finds(smollm):
    """There are no slots. (llama.cpp 22942)"""
    known = text(200, seed=11)
    smollm.complete(known)
    assert all(cached(a) > 0.9 * prompt_tokens(a) for a in in_parallel(4, lambda i: smollm.complete(known)))


def test_a_busy_slots_prefix_can_not_be_used(smollm):
    """Blocks are visible as soon as they are full, also of a prompt that is still being computed. (llama.cpp 27616)"""
    known = text(200, seed=12)
    answers = in_parallel(6, lambda i: smollm.complete(known + f" number {i}", max_tokens=40, ignore_eos=True))
    assert sum(cached(a) > 0.9 * prompt_tokens(a) for a in answers) >= 5


def test_branches_of_a_conversation_cost_a_prefill_each(smollm):
    """n answers are one prefill. (llama.cpp 26204)"""
    before = smollm.metrics()
    answer = smollm.complete(text(150, seed=13), n=8, temperature=1, seed=5, max_tokens=4, ignore_eos=True)
    after = smollm.metrics()
    assert len({c["text"] for c in answer["choices"]}) > 1
    computed = after["kvasir_computed_rows_total"] - before["kvasir_computed_rows_total"]
    assert computed <= prompt_tokens(answer) + 8 * 4


def test_thinking_that_the_client_strips_breaks_the_prefix(smollm):
    """What stands before it is found, down to the token. (llama.cpp 25254)"""
    known = text(150, seed=14)
    first = smollm.complete(known, max_tokens=60, ignore_eos=True)
    stripped = smollm.complete(known + " The answer is bread.")
    assert cached(stripped) >= prompt_tokens(first) - 2
    assert first["usage"]["completion_tokens"] == 60


def test_the_context_is_divided_by_the_slots(smollm):
    """Every request may use all of it, many at once. (llama.cpp 11681, 9016, 23340)"""
    def fill(i):
        return smollm.complete(text(230, seed=20 + i), max_tokens=400, ignore_eos=True)
    for answer in in_parallel(4, fill):
        assert answer["usage"]["completion_tokens"] == 400
        assert answer["usage"]["total_tokens"] > CONTEXT * 4 // 5


def test_exhaustion_aborts_every_generation():
    """It aborts none: the youngest waits. (llama.cpp 23652) Restored, it goes on as if nothing had been. (28194, 25913)"""
    with Server("--ctx", 512, "--threads", 2, "--kv-memory", "16M") as s:
        prompts = [text(60, seed=30 + i) for i in range(6)]
        def complete(i):
            return s.complete(prompts[i], max_tokens=200, ignore_eos=True)["choices"][0]["text"]
        together = in_parallel(6, complete)
        assert s.metrics()["kvasir_preemptions_total"] > 0
        assert together == [complete(i) for i in range(6)]
        s.idle()


def test_the_cache_takes_memory_that_nobody_named():
    """Its size is what was said, and the first line tells it. (ollama 18264)"""
    with Server("--ctx", 512, "--threads", 2, "--kv-memory", "32M") as s:
        assert s.get("/v1/kv").json["bytes"] <= 32 << 20
        assert "tokens" in s.start_line or "tokens" in s.log()


def test_reuse_is_lost_when_the_prompt_ends_elsewhere(smollm):
    """A prompt cut short, or with another end, shares what it has in common. (llama.cpp 15082)"""
    known = text(150, seed=15)
    first = smollm.complete(known)
    shorter = smollm.complete(" ".join(known.split()[:100]))
    other_end = smollm.complete(" ".join(known.split()[:100]) + " but then it rained")
    assert cached(shorter) >= prompt_tokens(shorter) - 2
    assert cached(other_end) >= prompt_tokens(shorter) - 2
    assert prompt_tokens(first) > prompt_tokens(shorter)
