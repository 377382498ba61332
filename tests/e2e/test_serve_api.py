"""kvasir serve: what the endpoints answer, asked by curl, by plain HTTP and by OpenAI's client."""
import asyncio
import json
import math
import random
import subprocess

import openai
import pytest

from program import GEMMA, SMOLLM, works_json
from serving import Server

STORY = "Once upon a time, in a small village by the sea, there lived an old fisherman who had never caught a fish. "


@pytest.fixture(scope="module")
def server():
    with Server("--ctx", 2048, "--parallel", 16, "--kv-memory", "1G") as s:
        yield s
        s.idle()
        assert s.stop() == 0


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def text(answer, index=0):
    return answer["choices"][index]["text"]


def test_start_line_tells_address_model_and_cache(server):
    assert server.start_line.startswith(f"serving {SMOLLM} at {server.url} | context 2048 | cache ")
    assert "tokens" in server.start_line and server.host == "127.0.0.1"


def test_curl(server):
    done = subprocess.run(["curl", "-sS", "--fail", server.url + "/v1/completions", "-d",
                           '{"prompt": "The capital of France is", "max_tokens": 1, "temperature": 0}'], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert text(json.loads(done.stdout)) == " Paris"


def test_the_answer_is_that_of_run(server):
    run = works_json("run", SMOLLM, "--raw", "The capital of France is", "-n", 12, "--temperature", 0)
    answer = server.complete("The capital of France is", max_tokens=12)
    assert text(answer) == run["text"]
    assert answer["object"] == "text_completion" and answer["id"].startswith("cmpl-") and answer["model"] == SMOLLM
    assert answer["choices"][0]["finish_reason"] == "length" and answer["choices"][0]["logprobs"] is None
    assert answer["usage"]["prompt_tokens"] == run["prompt_tokens"] and answer["usage"]["completion_tokens"] == 12
    assert answer["usage"]["total_tokens"] == run["prompt_tokens"] + 12


def test_chat_is_that_of_run(server):
    run = works_json("run", SMOLLM, "What is the capital of France?", "-n", 12, "--temperature", 0)
    answer = server.chat("What is the capital of France?", max_tokens=12)
    message = answer["choices"][0]["message"]
    assert message == {"role": "assistant", "content": run["text"]} and answer["object"] == "chat.completion"
    assert answer["usage"]["prompt_tokens"] == run["prompt_tokens"]


def test_prompts_in_all_forms(server):
    ids = [server.post("/tokenize", {"content": p, "add_special": True}).json["tokens"] for p in ("One two", "A B C")]
    one, two = (text(server.complete(p)) for p in ("One two", "A B C"))
    for prompt in (["One two", "A B C"], ids):
        answer = server.complete(prompt)
        assert [text(answer, 0), text(answer, 1)] == [one, two]
        assert [c["index"] for c in answer["choices"]] == [0, 1]
        assert answer["usage"]["prompt_tokens"] == sum(map(len, ids)) and answer["usage"]["completion_tokens"] == 16
    assert text(server.complete(ids[0])) == one


def test_stream_says_the_same(server):
    body = {"prompt": STORY, "max_tokens": 24, "temperature": 0}
    whole = server.complete(STORY, max_tokens=24)
    events = server.events("/v1/completions", {**body, "stream_options": {"include_usage": True}})
    assert events[-1] == "[DONE]" and events[-2]["choices"] == [] and events[-2]["usage"]["completion_tokens"] == 24
    chunks = [e["choices"][0] for e in events[:-2]]
    assert "".join(c["text"] for c in chunks) == text(whole)
    assert [c["finish_reason"] for c in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert all(e["usage"] is None and e["id"] == events[0]["id"] for e in events[:-2])
    assert "usage" not in server.events("/v1/completions", body)[0]


def test_chat_stream(server):
    whole = server.chat("Hello", max_tokens=16)
    events = server.events("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 16})
    deltas = [e["choices"][0]["delta"] for e in events[:-1]]
    assert deltas[0]["role"] == "assistant" and not any("role" in d for d in deltas[1:]) and deltas[-1] == {}
    assert "".join(d.get("content", "") for d in deltas) == whole["choices"][0]["message"]["content"]
    assert events[0]["object"] == "chat.completion.chunk" and events[-2]["choices"][0]["finish_reason"] is not None


def test_cached_tokens(server):
    prompt = "A prompt that nobody has sent before: " + STORY * 3
    first, second = (server.complete(prompt, max_tokens=32, ignore_eos=True) for _ in range(2))  # the answer fills the prompt's last block
    n = first["usage"]["prompt_tokens"]
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] < 16  # others may share a first word
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == n - 1  # the last token is always computed
    assert text(first) == text(second)
    longer = server.complete(prompt + text(first) + " And more.")
    assert longer["usage"]["prompt_tokens_details"]["cached_tokens"] == n + 31  # the answer's last token was never computed


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_turns_compute_their_new_tokens_alone(server):
    ids, rows = server.post("/tokenize", {"content": "A conversation of its own, told in tokens."}).json["tokens"], 0
    for turn in range(4):
        answer = server.post("/v1/completions", {"prompt": ids, "max_tokens": 1, "temperature": 0, "ignore_eos": True}).json
        assert turn == 0 or cached(answer) == rows
        rows = len(ids)  # computed so far: the answer's one token is not
        ids = ids + server.post("/tokenize", {"content": text(answer)}).json["tokens"] + [100 + turn] * (turn + 5)


def test_a_repeated_prompt_is_cached_to_its_last_token(server):
    for prompt in ("Short of a block", "Some words that come again, " * 9 + "and one token is the answer"):
        first, again = (server.complete(prompt, max_tokens=1) for _ in range(2))
        assert cached(again) == first["usage"]["prompt_tokens"] - 1 > cached(first)
        assert text(again) == text(first)


def test_cache_salt_separates_tenants(server):
    prompt = "Secrets of a tenant: " + STORY * 2
    cached = [server.complete(prompt, cache_salt=salt)["usage"]["prompt_tokens_details"]["cached_tokens"] for salt in ("a", "b", "a")]
    assert cached[0] == cached[1] == 0 and cached[2] > 32


def test_a_prompt_that_is_only_cached(server):
    for kind, fields in (("computed for the cache", {"cache_only": True}), ("computed and kept", {"max_tokens": 0, "cache_pin": 0.5})):
        prompt = f"A prompt that is {kind}: " + STORY * 2
        answer = server.post("/v1/completions", {"prompt": prompt, **fields}).json
        n = answer["usage"]["prompt_tokens"]
        assert text(answer) == "" and answer["usage"]["completion_tokens"] == 0 and answer["choices"][0]["finish_reason"] == "length"
        pinned = answer["usage"]["prompt_tokens_details"].get("pinned_tokens")
        assert pinned == (n // 16 * 16 if "cache_pin" in fields else None)
        assert cached(server.complete(prompt)) == n - 1
    assert server.post("/v1/completions", {"prompt": "a", "cache_only": True, "max_tokens": 1}).status == 400
    short = server.complete("No block", cache_pin=1)
    assert short["usage"]["prompt_tokens_details"]["pinned_tokens"] == 0


def test_pins_are_listed(server):
    n = server.complete("A prompt whose pin is listed: " + STORY, cache_pin=3)["usage"]["prompt_tokens"]
    pin = server.get("/v1/kv").json["pins"][-1]
    assert pin["tokens"] == n // 16 * 16 and 0 < pin["seconds_left"] <= 3
    assert server.metrics()["kvasir_pins"] >= 1 and server.metrics()["kvasir_pins_dropped_total"] == 0
    server.until(lambda m: m["kvasir_pins"] == m["kvasir_kv_blocks{group=0,state=in_use}"] == 0)


def test_a_pin_ends_on_an_idle_server(server):
    server.complete("A prompt to be pinned: " + STORY * 2, cache_pin=0.3)
    server.until(lambda m: m["kvasir_kv_blocks{group=0,state=in_use}"] == 0)
    server.idle()


def test_n_is_one_prefill(server):
    before = server.metrics()["kvasir_computed_rows_total"]
    prompt = "Sixteen ways to go on from here: " + STORY * 4
    answer = server.complete(prompt, n=16, max_tokens=4, temperature=1, seed=3, ignore_eos=True)
    rows = server.metrics()["kvasir_computed_rows_total"] - before
    n = answer["usage"]["prompt_tokens"]
    assert rows <= n + 16 * 3  # the last token of an answer is not computed
    assert answer["usage"]["completion_tokens"] == 64
    assert [c["index"] for c in answer["choices"]] == list(range(16)) and len({c["text"] for c in answer["choices"]}) > 4
    again = server.complete(prompt, n=16, max_tokens=4, temperature=1, seed=3, ignore_eos=True)
    assert [c["text"] for c in again["choices"]] == [c["text"] for c in answer["choices"]]


def test_seeds(server):
    def say(**fields):
        return text(server.complete("I went to", temperature=1.5, max_tokens=16, **fields))

    assert say(seed=5) == say(seed=5) != say(seed=6)
    assert len({say() for _ in range(4)}) > 1
    assert say(seed=-1) == say(seed=-1)


def test_best_of_returns_the_best(server):
    fields = {"temperature": 1.2, "seed": 11, "max_tokens": 6, "logprobs": 0, "ignore_eos": True}
    every = server.complete("The weather today is", n=6, **fields)["choices"]
    best = server.complete("The weather today is", n=2, best_of=6, **fields)
    mean = [sum(c["logprobs"]["token_logprobs"]) / 6 for c in every]
    order = sorted(range(6), key=lambda i: (-mean[i], i))
    assert [c["text"] for c in best["choices"]] == [every[i]["text"] for i in order[:2]]
    assert best["usage"]["completion_tokens"] == 36


def test_stop_strings(server):
    whole = text(server.complete("One, two, three, four,", max_tokens=24))
    stop = whole[10:13]
    answer = server.complete("One, two, three, four,", max_tokens=24, stop=["never in there", stop])
    assert text(answer) == whole[:whole.index(stop)] and answer["choices"][0]["finish_reason"] == "stop"
    streamed = server.events("/v1/completions", {"prompt": "One, two, three, four,", "max_tokens": 24, "temperature": 0, "stop": stop})
    assert "".join(e["choices"][0]["text"] for e in streamed[:-1]) == text(answer)


def test_stop_tokens_and_eos(server):
    end = server.post("/tokenize", {"content": "<|im_end|>", "parse_special": True}).json["tokens"]
    assert len(end) == 1
    chat = server.chat("Say hi", max_tokens=200)
    assert chat["choices"][0]["finish_reason"] == "stop" and "<|im_end|>" not in chat["choices"][0]["message"]["content"]
    longer = server.chat("Say hi", max_tokens=200, ignore_eos=True)
    assert longer["choices"][0]["finish_reason"] == "length" and longer["usage"]["completion_tokens"] == 200
    first = server.post("/tokenize", {"content": " Paris"}).json["tokens"]
    stopped = server.complete("The capital of France is", stop_token_ids=first)
    assert text(stopped) == "" and stopped["choices"][0]["finish_reason"] == "stop"


def test_echo(server):
    assert text(server.complete("Hello there", max_tokens=0, echo=True)) == "Hello there"
    whole = text(server.complete("Hello there", max_tokens=4, echo=True))
    assert whole.startswith("Hello there") and len(whole) > len("Hello there")
    events = server.events("/v1/completions", {"prompt": "Hello there", "max_tokens": 4, "echo": True, "temperature": 0, "n": 2})
    for index in (0, 1):
        assert "".join(e["choices"][0]["text"] for e in events[:-1] if e["choices"][0]["index"] == index) == whole
    ids = server.post("/tokenize", {"content": "Hello there", "add_special": True}).json["tokens"]
    assert text(server.complete(ids, max_tokens=0, echo=True)) == "Hello there"


def test_logprobs_of_a_completion(server):
    answer = server.complete("The sky is", max_tokens=6, logprobs=3, echo=True)
    choice, lp = answer["choices"][0], answer["choices"][0]["logprobs"]
    assert "".join(lp["tokens"]) == choice["text"] and lp["token_logprobs"][0] is None and lp["top_logprobs"][0] is None
    assert [choice["text"][a:b] for a, b in zip(lp["text_offset"], [*lp["text_offset"][1:], None])] == lp["tokens"]
    for token, logprob, top in list(zip(lp["tokens"], lp["token_logprobs"], lp["top_logprobs"]))[1:]:
        assert top[token] == logprob <= 0 and 3 <= len(top) <= 4 and sum(map(math.exp, top.values())) < 1.0001
    body = {"prompt": "The sky is", "temperature": 0, "n": 2, "logprobs": 3, "echo": True}
    for fields in ({"max_tokens": 6}, {"max_tokens": 0}):
        whole = server.complete(**body, **fields)
        events = server.events("/v1/completions", {**body, **fields})
        for index in (0, 1):
            mine = [e["choices"][0]["logprobs"] for e in events[:-1] if e["choices"][0]["index"] == index]
            assert {key: [x for part in mine for x in part[key]] for key in lp} == whole["choices"][index]["logprobs"]
    # What an answer's tokens were given is what they are given as a prompt.
    scored = server.complete(choice["text"], max_tokens=0, logprobs=0, echo=True)["choices"][0]["logprobs"]
    assert scored["tokens"] == lp["tokens"]
    assert scored["token_logprobs"][1:] == pytest.approx(lp["token_logprobs"][1:], abs=1e-4)
    greedy = [max(top.values()) for top in lp["top_logprobs"][-6:]]
    assert lp["token_logprobs"][-6:] == greedy


def test_logprobs_of_a_chat_and_of_streams(server):
    body = {"messages": [{"role": "user", "content": "Count to five"}], "temperature": 0, "max_tokens": 8, "logprobs": True, "top_logprobs": 2}
    whole = server.post("/v1/chat/completions", body).json["choices"][0]
    content = whole["logprobs"]["content"]
    assert len(content) == 8 and "".join(t["token"] for t in content) == whole["message"]["content"]
    for t in content:
        assert len(t["top_logprobs"]) == 2 and t["logprob"] == t["top_logprobs"][0]["logprob"]
        assert bytes(t["bytes"]).decode() == t["token"]
    events = server.events("/v1/chat/completions", body)
    streamed = [t for e in events[:-1] if e["choices"][0]["logprobs"] for t in e["choices"][0]["logprobs"]["content"]]
    assert streamed == content
    lp = server.complete("The sky is", max_tokens=6, logprobs=1)["choices"][0]["logprobs"]
    events = server.events("/v1/completions", {"prompt": "The sky is", "max_tokens": 6, "temperature": 0, "logprobs": 1})
    for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert [x for e in events[:-1] for x in e["choices"][0]["logprobs"][key]] == lp[key]


def test_logit_bias_and_penalties(server):
    paris = server.post("/tokenize", {"content": " Paris"}).json["tokens"][0]
    assert not text(server.complete("The capital of France is", logit_bias={str(paris): -100})).startswith(" Paris")
    assert text(server.complete("Say it:", logit_bias={str(paris): 100}, max_tokens=3)) == " Paris" * 3
    plain = text(server.complete("la la la la la la", max_tokens=12))
    assert plain != text(server.complete("la la la la la la", max_tokens=12, frequency_penalty=2, presence_penalty=2))
    assert plain != text(server.complete("la la la la la la", max_tokens=12, repetition_penalty=2))


def test_samplers_that_leave_one_token_are_greedy(server):
    greedy = text(server.complete("A list of colours:", max_tokens=8))
    for fields in ({"top_k": 1}, {"top_p": 0}, {"min_p": 1}):
        assert text(server.complete("A list of colours:", max_tokens=8, **{"temperature": 1, "seed": 1, **fields})) == greedy


def test_characters_are_whole_in_every_chunk(server):
    body = {"prompt": "Emoji: 😀😁😂🤣 and more emoji: ", "max_tokens": 48, "temperature": 1.5, "seed": 2, "ignore_eos": True}
    whole = text(server.complete(**body))
    lines = server.stream_lines("/v1/completions", body)
    pieces = [json.loads(line)["choices"][0]["text"] for line in lines[:-1]]
    assert "".join(pieces) == whole
    odd = server.post("/tokenize", {"content": "😀", "with_pieces": True}).json["tokens"]
    parts = [t["id"] for t in odd if isinstance(t["piece"], list)]
    assert parts, "this model has no token that is part of a character"
    broken = server.complete("x", max_tokens=1, logit_bias={str(parts[0]): 100})
    assert text(broken) == "\ufffd"


def test_text_offsets_are_places_in_the_text_that_is_sent(server):
    """A broken part of UTF-8 is one character, and tokens that go on with one begin after it."""
    byte = {}
    for token in server.post("/tokenize", {"content": "\u00c0€😀", "with_pieces": True}).json["tokens"]:
        piece = token["piece"]
        byte[bytes(piece) if isinstance(piece, list) else piece.encode()] = token["id"]
    a, space = (server.post("/tokenize", {"content": c}).json["tokens"][0] for c in ("a", " "))
    pieces = {id: piece for piece, id in byte.items()} | {a: b"a", space: b" "}
    parts = [id for piece, id in byte.items() if "\ufffd" in piece.decode("utf-8", "replace")]
    assert len(parts) > 2, "this model has no tokens that are parts of characters"
    random.seed(5)
    for ids in [[parts[-1]] * 3, [a, *parts, a]] + [random.choices([a, space, *parts], k=9) for _ in range(8)]:
        choice = server.complete(ids, max_tokens=0, echo=True, logprobs=0)["choices"][0]
        raw = b"".join(pieces[i] for i in ids)
        assert choice["text"] == raw.decode("utf-8", "replace")
        before = [raw[:sum(len(pieces[i]) for i in ids[:k])] for k in range(len(ids))]
        assert choice["logprobs"]["text_offset"] == [len(b.decode("utf-8", "replace")) for b in before]


def test_chat_content_and_roles(server):
    plain = server.chat("Hello")["choices"][0]["message"]["content"]
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}]
    assert server.post("/v1/chat/completions", {"messages": parts, "temperature": 0, "max_tokens": 8}).json["choices"][0]["message"]["content"] == plain

    def said(role):
        messages = [{"role": role, "content": "Answer in French."}, {"role": "user", "content": "Good morning"}]
        return server.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 12}).json["usage"]["prompt_tokens"]

    assert said("system") == said("developer")
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": None}, {"role": "tool", "content": "b"}]
    assert server.post("/v1/chat/completions", {"messages": turns, "max_tokens": 1}).status == 200


def test_a_base_model_has_no_chats():
    with Server("--ctx", 256, model=GEMMA) as s:
        reply = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})
        assert reply.status == 400 and reply.json["error"]["code"] == "no_chat_template"
        answer = s.complete(STORY)
        again = s.complete(STORY)
        assert text(answer) == text(again) and again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_a_template_that_refuses_is_told(tmp_path):
    (tmp_path / "t.jinja").write_text("{{ raise_exception('only poems, please') }}")
    with Server("--ctx", 256, "--chat-template", tmp_path / "t.jinja", "--alias", "poet") as s:
        reply = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})
        assert reply.status == 400 and "only poems, please" in reply.json["error"]["message"]
        assert s.get("/v1/models").json["data"][0]["id"] == "poet" and s.get("/v1/models/poet").status == 200
        assert s.get("/v1/models/other").status == 404


def test_what_can_never_fit(server):
    reply = server.post("/v1/completions", {"prompt": "word " * 3000})
    assert reply.status == 400 and reply.json["error"]["code"] == "context_length_exceeded" and "2048" in reply.json["error"]["message"]
    reply = server.post("/v1/completions", {"prompt": "word", "max_tokens": 2048})
    error = reply.json["error"]
    assert reply.status == 400 and error["code"] == "context_length_exceeded" and error["param"] == "max_tokens" and "2047" in error["message"]
    for name in ("max_completion_tokens", "n_predict"):
        assert server.post("/v1/completions", {"prompt": "word", name: 2048}).json["error"]["param"] == name
    error = server.post("/v1/completions", {"prompt": "x" * 4_000_000}).json["error"]
    assert error["code"] == "context_length_exceeded" and error["param"] == "prompt"
    for body in ({"prompt": "1 " * 20_000}, {"messages": [{"role": "user", "content": "1 " * 20_000}]}):
        reply = server.post("/v1/chat/completions" if "messages" in body else "/v1/completions", body)
        assert (reply.status, reply.json["error"]["code"], reply.json["error"]["param"]) == (400, "context_length_exceeded", next(iter(body)))
        assert "more than 8192 tokens" in reply.json["error"]["message"]  # it isn't read to its end
    ids = [100] * 2040
    assert server.complete(ids, max_tokens=8, ignore_eos=True)["choices"][0]["finish_reason"] == "length"
    full = server.post("/v1/completions", {"prompt": ids, "ignore_eos": True}).json  # by default 16, as far as they fit
    assert full["choices"][0]["finish_reason"] == "length" and full["usage"]["completion_tokens"] == 8


def test_large_answers(server):
    body = {"prompt": "hello " * 600, "n": 100, "max_tokens": 0, "echo": True, "logprobs": 64}
    reply = server.post("/v1/completions", body)
    assert reply.status == 400 and reply.json["error"]["code"] == "answer_too_large"
    size, ends = 0, 0
    with server.open("/v1/completions", {**body, "stream": True}) as s:
        tail = b""
        while b"[DONE]" not in tail:
            part = s.recv(1 << 20)
            assert part, tail[-200:]
            size += len(part)
            ends += (tail[-20:] + part).count(b'"finish_reason":"length"') - tail[-20:].count(b'"finish_reason":"length"')
            tail = (tail + part)[-1000:]
    assert size > 64 << 20 and ends == 100


def test_a_deadline_ends_an_answer(server):
    answer = server.complete("Tell me everything.", max_tokens=1500, ignore_eos=True, timeout=0.2)
    assert answer["choices"][0]["finish_reason"] == "timeout" and answer["usage"]["completion_tokens"] < 1500


def test_bytes_without_a_token_are_counted(server):
    """SmolLM2's vocabulary has no token for some control characters."""
    assert server.post("/tokenize", {"content": "a\x04b\x06\x04"}).json["dropped_bytes"] == 3
    assert server.post("/tokenize", {"content": "ab"}).json["dropped_bytes"] == 0
    reply = server.post("/v1/completions", {"prompt": "\x04\x06"})
    assert (reply.status, reply.json["error"]["param"]) == (400, "prompt") and "none of its 2 bytes has a token" in reply.json["error"]["message"]
    details = [server.complete(p, max_tokens=1)["usage"]["prompt_tokens_details"] for p in ("a\x04b", "ab")]
    assert details[0]["dropped_bytes"] == 1 and "dropped_bytes" not in details[1]


def test_tokenize_and_detokenize(server):
    words = "Hello, wörld! 😀"
    reply = server.post("/tokenize", {"content": words}).json
    assert reply["count"] == len(reply["tokens"]) and reply["max_model_len"] == 2048
    assert reply["tokens"] == works_json("tokenize", SMOLLM, words)["ids"]
    assert server.post("/detokenize", {"tokens": reply["tokens"]}).json == {"content": words}
    assert server.post("/tokenize", {"prompt": words}).json == server.post("/tokenize", {"content": None, "prompt": words}).json == reply
    pieces = server.post("/tokenize", {"content": words, "with_pieces": True}).json["tokens"]
    joined = b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces)
    assert joined.decode() == words and [p["id"] for p in pieces] == reply["tokens"]
    for path, body in (("/tokenize", {}), ("/tokenize", {"content": 1}), ("/tokenize", {"content": "a", "with_pieces": 1}), ("/detokenize", {}),
                       ("/detokenize", {"tokens": "a"}), ("/detokenize", {"tokens": [-1]}), ("/detokenize", {"tokens": [1 << 40]}), ("/detokenize", [])):
        assert server.post(path, body).status == 400, (path, body)


def test_models_health_ready(server):
    models = server.get("/v1/models").json
    assert models["object"] == "list" and models["data"][0]["id"] == SMOLLM and models["data"][0]["max_model_len"] == 2048
    assert server.get("/health").json == {"status": "ok"} and server.get("/ready").status == 200


def test_kv_report(server):
    server.complete("Something for the tree: " + STORY)
    report = server.get("/v1/kv").json
    blocks = report["groups"][0]["blocks"]
    assert blocks["free"] + blocks["cached"] + blocks["in_use"] + blocks["in_flight"] == blocks["total"]
    assert report["tree"]["blocks"] == blocks["cached"] > 0 and report["tree"]["policy"] == "lru" and report["sequences"] == []
    assert "audit" not in report and server.get("/v1/kv?audit=1").json["audit"] == "clean"
    assert report["bytes"] == blocks["total"] * report["groups"][0]["block_bytes"]
    with server.open("/v1/completions", {"prompt": "Long", "max_tokens": 1500, "ignore_eos": True, "stream": True}) as s:
        s.recv(1000)
        running = server.get("/v1/kv").json["sequences"]
    assert len(running) == 1 and running[0]["state"] == "running" and running[0]["request"].startswith("cmpl-")
    server.idle()


def test_metrics(server):
    before = server.metrics()
    server.complete("Count me in.", max_tokens=5, ignore_eos=True)
    after = server.metrics()

    def grew(name):
        return after[name] - before.get(name, 0)

    assert grew("kvasir_generated_tokens_total") == 5 and grew("kvasir_requests_total{finish_reason=length}") == 1
    assert grew("kvasir_time_to_first_token_seconds_count") == 1 and grew("kvasir_inter_token_latency_seconds_count") == 4
    for name in ("request_duration", "request_queue", "request_prefill", "request_decode"):
        assert grew(f"kvasir_{name}_seconds_count") == 1 and grew(f"kvasir_{name}_seconds_sum") >= 0
    assert grew("kvasir_request_generated_tokens_sum") == 5 and after["kvasir_ready"] == 1
    assert grew("kvasir_http_responses_total{code=200}") == 2  # the first page itself and the completion
    assert after["kvasir_request_duration_seconds_bucket{le=+Inf}"] == after["kvasir_request_duration_seconds_count"]


def test_metrics_under_vllms_names():
    with Server("--ctx", 256, "--metrics-names", "vllm", "--alias", 'a "b"') as s:
        s.complete("Hi", max_tokens=3, ignore_eos=True)
        values = s.metrics()
        for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:prompt_tokens_total",
                     "vllm:generation_tokens_total", "vllm:time_to_first_token_seconds_count", "vllm:inter_token_latency_seconds_count",
                     "vllm:e2e_request_latency_seconds_sum", "vllm:request_queue_time_seconds_sum", "vllm:request_prefill_time_seconds_sum",
                     "vllm:request_decode_time_seconds_sum", "vllm:num_preemptions_total", "vllm:prefix_cache_hits_total",
                     "vllm:prefix_cache_queries_total", "vllm:request_prompt_tokens_sum", "vllm:request_generation_tokens_sum"):
            assert name + '{model_name=a "b"}' in values
        assert values['vllm:generation_tokens_total{model_name=a "b"}'] == 3
        assert values['vllm:request_success_total{model_name=a "b",finished_reason=length}'] == 1


def test_openai_client(client, server):
    assert client.models.list().data[0].id == SMOLLM
    chat = client.chat.completions.create(model=SMOLLM, messages=[{"role": "user", "content": "Hi"}], temperature=0, max_completion_tokens=8, logprobs=True)
    assert chat.choices[0].message.content and chat.usage.prompt_tokens_details.cached_tokens >= 0 and len(chat.choices[0].logprobs.content) == 8
    stream = client.chat.completions.create(model=SMOLLM, messages=[{"role": "user", "content": "Hi"}], temperature=0, max_tokens=8, stream=True,
                                            stream_options={"include_usage": True})
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == chat.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == 8
    completion = client.completions.create(model=SMOLLM, prompt="The capital of France is", temperature=0, max_tokens=1)
    assert completion.choices[0].text == " Paris"
    extended = client.completions.create(model=SMOLLM, prompt="Hi", max_tokens=4, extra_body={"top_k": 1, "ignore_eos": True, "cache_salt": "me"})
    assert extended.usage.completion_tokens == 4
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(model=SMOLLM, prompt="Hi", temperature=9)
    assert error.value.code == "invalid_value" and error.value.param == "temperature"


def test_openai_client_async(server):
    async def one(client, i):
        stream = await client.completions.create(model=SMOLLM, prompt=f"Number {i} is", temperature=0, max_tokens=8, stream=True)
        return "".join([chunk.choices[0].text async for chunk in stream])

    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
            return await asyncio.gather(*[one(client, i) for i in range(24)])

    together = asyncio.run(all_of_them())
    assert together[3] == text(server.complete("Number 3 is")) and len(together) == 24 and all(together)
