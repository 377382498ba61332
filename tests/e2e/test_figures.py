"""Figures against an independent count, where forks, prefixes, prompts' logprobs and windows make definitions differ."""
import json
import math
import threading

import pytest

from program import GEMMA, SMOLLM, works
from serving import Server

STORY = "The lighthouse keeper climbed the stairs every evening and lit the lamp before the ships came in. "
BLOCK = 16


@pytest.fixture(scope="module")
def server():
    with Server("--ctx", 512, "--parallel", 4) as s:
        yield s


class Growth:
    def __init__(self, server):
        self.server, self.before = server, server.metrics()

    def __getitem__(self, name):
        return self.server.metrics()[f"kvasir_{name}"] - self.before.get(f"kvasir_{name}", 0)


def n_tokens(server, text):
    return len(server.post("/tokenize", {"content": text}).json["tokens"])


@pytest.mark.parametrize("fields", [{"n": 3}, {"n": 1, "best_of": 3}])
def test_choices(server, fields):
    grew = Growth(server)
    usage = server.complete(f"Three ways, {fields}: " + STORY, max_tokens=5, temperature=1, seed=4, ignore_eos=True, **fields)["usage"]
    n = usage["prompt_tokens"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert usage["completion_tokens"] == grew["generated_tokens_total"] == 15
    assert grew["prompt_tokens_total"] == grew["looked_up_tokens_total"] == 3 * n
    assert grew["cached_tokens_total"] == 2 * n + cached
    assert grew["computed_rows_total"] == n - cached + 3 * 4  # nobody computes the last token of an answer
    assert grew["request_prompt_tokens_count"] == 1 and grew["request_prompt_tokens_sum"] == n
    for each_choice in ("request_duration_seconds", "request_queue_seconds", "time_to_first_token_seconds", "request_generated_tokens"):
        assert grew[f"{each_choice}_count"] == 3
    assert grew["inter_token_latency_seconds_count"] == 3 * 4 and grew["requests_total{finish_reason=length}"] == 3
    assert grew["steps_total"] == grew["step_seconds_count"] == 5


def test_a_prefix_and_the_logprobs_of_a_prompt(server):
    prompt = "Known by heart: " + STORY
    n = server.complete(prompt, max_tokens=1)["usage"]["prompt_tokens"]
    grew = Growth(server)
    assert server.complete(prompt, max_tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"] == n - 1
    assert (grew["prompt_tokens_total"], grew["cached_tokens_total"], grew["computed_rows_total"]) == (n, n - 1, 1)
    server.complete(prompt, max_tokens=1, echo=True, logprobs=1)
    assert (grew["prompt_tokens_total"], grew["looked_up_tokens_total"]) == (2 * n, n)
    assert (grew["cached_tokens_total"], grew["computed_rows_total"]) == (n - 1, 1 + n)


def test_a_prompt_for_the_cache_alone_has_no_answer_to_count(server):
    grew = Growth(server)
    n = server.complete("Only to be kept: " + STORY, max_tokens=0, cache_only=True)["usage"]["prompt_tokens"]
    assert grew["computed_rows_total"] == grew["prompt_tokens_total"] - grew["cached_tokens_total"] and grew["prompt_tokens_total"] == n
    assert grew["generated_tokens_total"] == grew["time_to_first_token_seconds_count"] == grew["request_prefill_seconds_count"] == 0
    assert grew["requests_total{finish_reason=length}"] == 1


def test_pins_hold_blocks(server):
    server.idle()
    total = server.get("/v1/kv").json["groups"][0]["blocks"]["total"]
    usage = server.complete("A pin of this: " + STORY, max_tokens=1, cache_pin=60)["usage"]
    blocks = usage["prompt_tokens_details"]["pinned_tokens"] // BLOCK
    assert blocks == usage["prompt_tokens"] // BLOCK
    values = server.metrics()
    assert values["kvasir_kv_blocks{group=0,state=in_use}"] == blocks and values["kvasir_kv_usage_ratio"] == blocks / total


def test_preempted_answers_and_those_that_never_ran():
    """Two answers of up to 12 blocks in 16: one gives way. A third and a fourth wait, and one of them leaves."""
    size = json.loads(works("size", SMOLLM, "--context", 256, "--json").stdout)
    with Server("--ctx", 256, "--parallel", 2, "--kv-memory", size["bytes_per_sequence"]) as s:
        assert s.get("/v1/kv").json["capacity_tokens"] == 256
        usages = []

        def ask(text):
            usages.append(s.complete(text, max_tokens=150, ignore_eos=True)["usage"])

        threads = [threading.Thread(target=ask, args=(text,)) for text in ("One " + STORY, "Two " + STORY)]
        for thread in threads:
            thread.start()
        s.until(lambda m: m["kvasir_requests_running"] == 2)
        late = s.complete("Late", max_tokens=4, timeout=0.01)
        assert late["choices"][0]["finish_reason"] == "timeout" and late["usage"]["completion_tokens"] == 0
        for thread in threads:
            thread.join()
        m = s.metrics()
        assert m["kvasir_preemptions_total"] >= 1
        assert m["kvasir_prompt_tokens_total"] == sum(u["prompt_tokens"] for u in usages)  # a preempted one counts once
        assert m["kvasir_cached_tokens_total"] == sum(u["prompt_tokens_details"]["cached_tokens"] for u in usages)
        assert m["kvasir_generated_tokens_total"] == m["kvasir_request_generated_tokens_sum"] == 300
        assert m["kvasir_request_duration_seconds_count"] == 3 and m["kvasir_request_queue_seconds_count"] == 2


def test_sequences_at_work(server):
    thread = threading.Thread(target=server.complete, args=("At work: " + STORY,), kwargs={"max_tokens": 300, "ignore_eos": True})
    thread.start()
    server.until(lambda m: m["kvasir_requests_running"] == 1)
    while not (sequences := server.get("/v1/kv").json["sequences"]) or sequences[0]["generated_tokens"] == 0:
        assert thread.is_alive()
    thread.join()
    q = sequences[0]
    assert q["context_used"] == q["prompt_tokens"] + q["generated_tokens"] and q["stored_tokens"] == q["context_used"] - 1


def test_reasons_in_vllms_words():
    with Server("--ctx", 256, "--metrics-names", "vllm", "--alias", "m") as s:
        s.complete("Hi", max_tokens=2, ignore_eos=True)
        s.complete("Count: 1, 2, 3,", max_tokens=20, stop=[" 5"])
        s.complete("Late " + STORY * 5, max_tokens=100, timeout=0.001)
        s.complete("Hi", max_tokens=1, echo=True, logprobs=0)
        values = s.metrics()
        reasons = {r: values[f"vllm:request_success_total{{model_name=m,finished_reason={r}}}"] for r in ("stop", "length", "abort", "error")}
        assert reasons == {"stop": 1, "length": 2, "abort": 1, "error": 0}
        assert sum(name.startswith("vllm:request_success_total") for name in values) == 4
        asked, prompts = values["vllm:prefix_cache_queries_total{model_name=m}"], values["vllm:prompt_tokens_total{model_name=m}"]
        assert asked == prompts - n_tokens(s, "Hi")


def run(prompt, n, model=SMOLLM):
    return json.loads(works("run", model, prompt, "--raw", "--temperature", 0, "--ignore-eos", "-n", n, "--json").stdout)


def test_the_cache_of_an_answer():
    """All but the last token is stored: of 17 tokens 16, in one block."""
    block = json.loads(works("size", SMOLLM, "--context", BLOCK, "--json").stdout)["bytes_per_sequence"]
    n = run("Once upon a time", 1)["prompt_tokens"]
    for total in (17, 18, 33):
        done = run("Once upon a time", total - n)
        assert done["context_used"] == total and done["cache_bytes"] == math.ceil((total - 1) / BLOCK) * block


def test_what_an_answer_reads():
    """Each token but the first reads the weights, and K and V of what is before it."""
    size = json.loads(works("size", SMOLLM, "--json").stdout)
    done = run(STORY * 60, 9)
    steps, prompt = done["generated_tokens"] - 1, done["prompt_tokens"]
    read = sum(size["weights_bytes"] + size["bytes_per_token"] * (prompt + i) for i in range(steps))
    assert steps == 8 and prompt > 1000
    assert abs(done["read_gb_s"] - read * 1e-9 / done["decode_s"]) < 0.011  # it is printed with two digits


def test_the_cache_of_windows():
    """Gemma's windowed layers keep the blocks of 512 rows, the others all."""
    done = run(STORY * 40, 2, GEMMA)
    assert done["prompt_tokens"] > 600
    size = json.loads(works("size", GEMMA, "--context", done["context_used"] - 1, "--json").stdout)
    assert done["cache_bytes"] == size["bytes_per_sequence"]


def test_stats_of_a_chat_tell_what_is_kept():
    done = works("chat", SMOLLM, "--temperature", 0, "-n", 5, text="Hello\n/stats\n")
    n = int(done.stderr.split("prompt ")[1].split()[0])
    assert f"{math.ceil((n + 4) / BLOCK)} of " in done.stderr and "blocks cached" in done.stderr
