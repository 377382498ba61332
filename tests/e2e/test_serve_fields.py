"""Every field of a request with every wrong type and beyond its range: a 400 in OpenAI's shape that names the field."""
import json

import pytest

from serving import Server

COMPLETION, CHAT = "/v1/completions", "/v1/chat/completions"
BOTH = (COMPLETION, CHAT)
BASE = {COMPLETION: {"prompt": "Hi", "max_tokens": 1}, CHAT: {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}}
TYPES = {"boolean": True, "integer": 1, "real": 0.5, "string": "1", "array": [1], "object": {"a": 1}}


class Field:
    def __init__(self, *types, where=BOTH, good=(), bad=(), more=None):
        self.types, self.where, self.good, self.bad, self.more = types, where, good, bad, more or {}


def number(low, high):
    return Field("integer", "real", good=(low, high), bad=(low - 0.1, high + 0.1, -1e300, 1e300))


def integer(low, high, **more):
    return Field("integer", good=(low,), bad=(low - 1, high + 1, -2**63, 2**63 - 1), **more)


def boolean(**more):
    return Field("boolean", good=(True, False), **more)


FIELDS = {
    "prompt": Field("string", "array", where=(COMPLETION,), good=("a", ["a"], [1], [[1]], [[1], [2]]),
                    bad=("", [], [[]], [""], [1, "a"], ["a", 1], ["a", [1]], [[1], "a"], [[1], [0.5]], [1, None], [None], [True], [-1], [1 << 20],
                         [[1, [2]]], ["a"] * 129)),
    "messages": Field(where=(CHAT,), good=([{"role": "user", "content": "a"}], [{"role": "user", "content": []}]),
                      bad=([], [{}], [1], ["a"], [None], [[]], [{"role": "user"}], [{"role": 1, "content": "a"}], [{"role": "king", "content": "a"}],
                           [{"role": "user", "content": 1}], [{"role": "user", "content": {"a": 1}}], [{"role": "user", "content": ["a"]}],
                           [{"role": "user", "content": None}], [{"content": "a"}], [{"role": "user\0", "content": "a"}],
                           [{"role": "user", "content": [{"type": "text"}]}], [{"role": "user", "content": [{"type": "text", "text": 1}]}],
                           [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])),
    "model": Field("string", good=("anything",)),
    "user": Field("string", good=("me",)),
    "n": integer(1, 128),
    "best_of": integer(1, 128, where=(COMPLETION,)),
    "echo": boolean(where=(COMPLETION,)),
    "stream": boolean(),
    "stream_options": Field("object", good=({}, {"include_usage": False}, {"include_usage": None}), bad=({"include_usage": 1}, {"include_usage": "a"})),
    "logprobs": integer(0, 64, where=(COMPLETION,)),
    "max_tokens": integer(0, 10**9),
    "max_completion_tokens": integer(0, 10**9),
    "temperature": number(0, 2),
    "top_p": number(0, 1),
    "top_k": integer(-1, 10**9),
    "min_p": number(0, 1),
    "typical_p": number(0, 1),
    "repeat_penalty": number(0.01, 100),
    "repetition_penalty": number(0.01, 100),
    "presence_penalty": number(-2, 2),
    "frequency_penalty": number(-2, 2),
    "penalty_last_n": integer(-1, 10**9),
    "dry_multiplier": number(0, 100),
    "dry_base": number(1, 100),
    "dry_allowed_length": integer(0, 10**9),
    "dry_last_n": integer(-1, 10**9),
    "xtc_probability": number(0, 1),
    "xtc_threshold": number(0, 1),
    "logit_bias": Field("object", good=({}, {"5": 1}, {"5": -100, "6": 1.5}),
                        bad=({"a": 1}, {"-1": 1}, {"5": "1"}, {"5": None}, {"5": 101}, {"5": -101}, {str(1 << 20): 1}, {"5 ": 1}, {"": 1},
                             {"99999999999999999999999": 1}, {"05": 1}, {"00": 1})),
    "seed": Field("integer", good=(0, -1, 2**63 - 1, -2**63)),
    "stop": Field("string", "array", good=("a", [], ["a", "b"], ["a"] * 16), bad=("", [""], [1], ["a", None], ["a"] * 17, "a" * 257, "a\0b")),
    "stop_token_ids": Field("array", good=([], [1], [1, 2]), bad=([-1], [1 << 20], ["a"], [0.5], [None], [1] * 129)),
    "ignore_eos": boolean(),
    "skip_special_tokens": boolean(),
    "add_special_tokens": boolean(where=(COMPLETION,)),
    "parse_special": boolean(where=(COMPLETION,)),
    "priority": integer(-2**31, 2**31 - 1),
    "cache_salt": Field("string", good=("me",), bad=("",)),
    "cache_pin": Field("integer", "real", good=(0,), bad=(-1, 604801, 1e9)),
    "timeout": Field("integer", "real", good=(60, 0.5, 604800), bad=(0, -1, 604801, 1e9)),
    "response_format": Field("object", where=(CHAT,), good=({"type": "text"},), bad=({"type": "json_object"}, {"type": 1}, {})),
    "tools": Field(where=(CHAT,), good=([],), bad=([{"type": "function"}],)),
    "functions": Field(where=(CHAT,), good=([],), bad=([{"name": "f"}],)),
    "suffix": Field(where=(COMPLETION,), good=("",), bad=("end",)),
}
CHAT_LOGPROBS = {"logprobs": boolean(where=(CHAT,)), "top_logprobs": integer(0, 64, where=(CHAT,), more={"logprobs": True})}


@pytest.fixture(scope="module")
def server():
    with Server("--ctx", 256, "--kv-memory", "256M") as s:
        yield s
        assert s.complete("Still here")["choices"]  # after all of that
        s.idle()


def refused(server, path, body, field=None):
    reply = server.post(path, body)
    assert reply.status == 400, (body, reply.status, reply.text[:200])
    error = reply.json["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"] and error["type"] == "invalid_request_error"
    if field:
        assert error["param"] and error["param"].split(".")[0] in (field, "max_tokens"), (body, error)
    return error


CASES = [(path, name, field) for table in (FIELDS, CHAT_LOGPROBS) for name, field in table.items() for path in field.where]


@pytest.mark.parametrize("path,name,field", CASES, ids=[f"{path.split('/')[2]}-{name}" for path, name, _ in CASES])
def test_field(server, path, name, field):
    base = {**BASE[path], **field.more}
    for kind, value in TYPES.items():
        if kind not in field.types:
            refused(server, path, {**base, name: value}, name)
    for value in field.bad:
        refused(server, path, {**base, name: value}, name)
    for value in (*field.good, None):
        if value is None and name in ("prompt", "messages"):
            continue
        reply = server.post(path, {**base, name: value})
        assert reply.status == 200, (name, value, reply.text)


def test_what_fields_say_together(server):
    for path, body, field in (
            (COMPLETION, {}, "prompt"), (CHAT, {}, "messages"), (COMPLETION, {"prompt": None}, "prompt"),
            (COMPLETION, {"prompt": "a", "n": 3, "best_of": 2}, "best_of"),
            (COMPLETION, {"prompt": "a", "n": 1, "best_of": 2, "stream": True}, "best_of"),
            (COMPLETION, {"prompt": ["a"] * 100, "n": 2}, "n"),
            (CHAT, {**BASE[CHAT], "top_logprobs": 2}, "top_logprobs"),
            (COMPLETION, {"prompt": "a", "stream_options": {"include_usage": True}}, "stream_options")):
        refused(server, path, body, field)


def test_unknown_fields_are_ignored(server):
    assert server.complete("Hi", max_tokens=1, no_such_field={"a": [1]}, store=True, metadata={})["choices"]


@pytest.mark.parametrize("body", [
    b"", b" ", b"{", b"[]", b"null", b"1", b'"text"', b"{]", b'{"prompt": "a"', b'{"prompt": "a"} trailing', b"\xff\xfe", b'{"prompt": "\xff"}',
    b'{"prompt": "\xc3"}', b'{"prompt": "\\ud800"}', b'{"prompt": "a\0b"}', b"\0", b'{"a\\u0000b": 1, "prompt": "a"}', b'{"n": 1e999, "prompt": "a"}',
    b'{"n": 99999999999999999999999, "prompt": "a"}', b'{"n": NaN, "prompt": "a"}', b"[" * 100000, b'{"a":' * 100000,
    b'{"prompt": ' + b"[" * 1000 + b"1" + b"]" * 1000 + b"}"], ids=range(23))
def test_bodies_that_are_no_request(server, body):
    for path in (COMPLETION, "/tokenize", "/detokenize"):
        refused(server, path, body)


def test_nul_characters_in_texts(server):
    assert server.complete("a\0b", max_tokens=1)["usage"]["prompt_tokens"] >= 3
    assert server.chat("a\0b")["choices"]
    tokens = server.post("/tokenize", {"content": "a\0b"}).json["tokens"]
    assert server.post("/detokenize", {"tokens": tokens}).json["content"] == "a\0b"
    assert server.post(COMPLETION, json.dumps({"prompt": "x", "max_tokens": 0, "echo": True})).json["choices"][0]["text"] == "x"
