"""A prompt and its answer are at most the context together, whoever asks."""
import json
import re

import pytest

from program import SMOLLM, fails, kvasir, works_json
from serving import Server

CONTEXT = 64
IDS = list(range(1000, 1000 + CONTEXT + 1))
TURN = {"messages": [{"role": "user", "content": "Count to a hundred."}]}


@pytest.fixture(scope="module")
def server():
    with Server("--ctx", CONTEXT, "--parallel", 4) as s:
        yield s
        s.idle()
        assert s.stop() == 0


def fields(n_prompt, **more):
    return {"prompt": IDS[:n_prompt], "temperature": 0, "ignore_eos": True, **more}


def events(reply):
    assert reply.status == 200, reply.text
    return [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: ") and line != "data: [DONE]"]


@pytest.mark.parametrize("n_prompt", [1, 60, 63])
def test_a_completion_fills_the_context_and_no_more(server, n_prompt):
    left = CONTEXT - n_prompt
    for max_tokens in (max(left - 1, 1), left):
        answer = server.post("/v1/completions", fields(n_prompt, max_tokens=max_tokens, n=2)).json
        assert answer["usage"]["completion_tokens"] == 2 * max_tokens
        assert [c["finish_reason"] for c in answer["choices"]] == ["length", "length"]
    error = server.post("/v1/completions", fields(n_prompt, max_tokens=left + 1))
    assert error.status == 400 and error.json["error"]["code"] == "context_length_exceeded"
    assert error.json["error"]["param"] == "max_tokens" and f"at most {left} are left" in error.json["error"]["message"]
    streamed = events(server.post("/v1/completions", fields(n_prompt, max_tokens=left, stream=True,
                                                            stream_options={"include_usage": True})))
    assert streamed[-1]["usage"]["total_tokens"] == CONTEXT
    assert [e["choices"][0]["finish_reason"] for e in streamed if e["choices"]][-1] == "length"


def test_a_chat_without_a_limit_fills_the_context(server):
    body = {**TURN, "temperature": 0, "ignore_eos": True}
    usage = server.post("/v1/chat/completions", body).json["usage"]
    assert usage["total_tokens"] == CONTEXT
    left = CONTEXT - usage["prompt_tokens"]
    assert server.post("/v1/chat/completions", {**body, "max_tokens": left}).json["usage"]["completion_tokens"] == left
    assert server.post("/v1/chat/completions", {**body, "max_tokens": left + 1}).status == 400
    streamed = events(server.post("/v1/chat/completions", {**body, "stream": True, "stream_options": {"include_usage": True}}))
    assert streamed[-1]["usage"]["total_tokens"] == CONTEXT


def test_a_prompt_that_fills_the_context_is_told(server):
    for n, says in ((CONTEXT, "no room for an answer is left"), (CONTEXT + 1, "65 tokens, but the context holds 64")):
        for more in ({}, {"max_tokens": 1}, {"stream": True}):
            error = server.post("/v1/completions", fields(n, **more))
            assert error.status == 400 and error.json["error"]["code"] == "context_length_exceeded", error.text
            assert error.json["error"]["param"] == "prompt" and says in error.json["error"]["message"]
    echo = server.post("/v1/completions", fields(CONTEXT, max_tokens=0, echo=True, logprobs=1)).json
    assert echo["usage"]["total_tokens"] == CONTEXT and len(echo["choices"][0]["logprobs"]["tokens"]) == CONTEXT
    assert server.post("/v1/completions", fields(CONTEXT + 1, max_tokens=0, echo=True)).status == 400
    long_turn = {"messages": [{"role": "user", "content": "word " * 80}]}
    error = server.post("/v1/chat/completions", long_turn).json["error"]
    assert error["code"] == "context_length_exceeded" and error["param"] == "messages"


def test_run_and_chat_end_with_the_context():
    words = "1 2 3 4 5 6"
    alone = works_json("run", SMOLLM, "--raw", words, "--ignore-eos", "--temperature", 0, "--ctx", CONTEXT)
    assert alone["finish"] == "context" and alone["prompt_tokens"] + alone["generated_tokens"] == CONTEXT == alone["context_used"]
    n = alone["prompt_tokens"]
    just = works_json("run", SMOLLM, "--raw", words, "--ignore-eos", "--temperature", 0, "--ctx", n + 3, "-n", 3)
    assert just["finish"] == "length" and just["generated_tokens"] == 3
    fails(1, "run", SMOLLM, "--raw", words, "--ctx", n, says="no room for an answer is left")
    assert works_json("run", SMOLLM, "--raw", words, "--ctx", n, "-n", 0)["generated_tokens"] == 0
    window = works_json("run", SMOLLM, "--raw", words, "--ctx", n, "-n", 20, "--ignore-eos", "--overflow", "window")
    assert window["generated_tokens"] == 20 and window["context_used"] <= n
    talk = kvasir("chat", SMOLLM, "--ctx", CONTEXT, "--temperature", 0, "--ignore-eos", text="Hello\n")
    prompt, answer, used = map(int, re.search(r"prompt (\d+) tokens.*answer (\d+) tokens.*context (\d+) /", talk.stderr).groups())
    assert prompt + answer == used == CONTEXT
