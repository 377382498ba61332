"""Every field of a request with every wrong type and beyond its range: a 400 in OpenAI's shape that names the field."""
import json

import pytest

from program import SMOLLM
from serving import Server

COMPLETION, CHAT = "/v1/completions", "/v1/chat/completions"
BOTH = (COMPLETION, CHAT)
BASE = {COMPLETION: {"prompt": "Hi", "max_tokens": 1}, CHAT: {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}}
TYPES = {"boolean": True, "integer": 1, "real": 0.5, "string": "1", "array": [1], "object": {"a": 1}}


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


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
                           [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
                           [{"role": "user", "content": [{"type": "text", "text": "a", "colour": "red"}]}])),
    "model": Field("string", good=(SMOLLM, "other-name")),
    "user": Field("string", good=("me",)),
    "n": integer(1, 128),
    "best_of": integer(1, 128, where=(COMPLETION,)),
    "echo": boolean(where=(COMPLETION,)),
    "stream": boolean(),
    "stream_options": Field("object", good=({}, {"include_usage": False}, {"include_usage": None}), bad=({"include_usage": 1}, {"include_usage": "a"}, {"include_obfuscation": True}, {"include": True})),
    "logprobs": integer(0, 64, where=(COMPLETION,)),
    "max_tokens": integer(0, 10**9),
    "max_completion_tokens": integer(0, 10**9),
    "n_predict": integer(-1, 10**9, more={"max_tokens": None}),
    "min_tokens": Field("integer", good=(0, 1), bad=(-1, 2, 2**63 - 1)),
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
    "dry_sequence_breakers": Field("array", "string", good=([], ["a"], "", "[\"a\"]")),
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
    "parse_special": Field("true", "false", good=(False,), bad=(True,)),
    "priority": integer(-2**31 + 1, 2**31 - 1),
    "cache_salt": Field("string", good=("me",), bad=("",)),
    "cache_only": Field("boolean", good=(False,)),
    "cache_pin": Field("integer", "real", good=(0,), bad=(-1, 604801, 1e9)),
    "timeout": Field("integer", "real", good=(60, 0.5, 604800), bad=(0, -1, 604801, 1e9)),
    "response_format": Field("object", where=(CHAT,), good=({"type": "text"},), bad=({"type": "json_object"}, {"type": 1}, {}, {"type": "text", "x": 1})),
    "tools": Field(where=(CHAT,), good=([], [TOOL]), bad=([1], ["a"], {"a": 1})),
    "tool_choice": Field(where=(CHAT,), good=("none", "auto"), bad=("required", "", {"type": "function", "function": {"name": "f"}})),
    "documents": Field("array", where=(CHAT,), good=([], [{"title": "a", "text": "b"}])),
    "chat_template_kwargs": Field("object", where=(CHAT,), good=({}, {"enable_thinking": False}), bad=({"messages": []}, {"tools": 1}, {"eos_token": "a"})),
    "add_generation_prompt": boolean(where=(CHAT,)),
    "reasoning_effort": Field(where=(CHAT,), good=("none", "low", "high"), bad=("", "much")),
    "functions": Field(where=(CHAT,), good=([],), bad=([{"name": "f"}],)),
    "suffix": Field(where=(COMPLETION,), good=("",), bad=("end",)),
}
CHAT_LOGPROBS = {"logprobs": boolean(where=(CHAT,)), "top_logprobs": integer(0, 64, where=(CHAT,), more={"logprobs": True})}


@pytest.fixture(scope="module")
def server():
    with Server("--ctx", 256, "--kv-memory", "256M", "--alias", "other-name", "--min-priority", -2**31 + 1) as s:
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


REFUSED = {"grammar": "root ::= \"a\"", "guided_choice": ["a", "b"], "structured_outputs": {"choice": ["a"]}, "bad_words": ["a"],
           "allowed_token_ids": [1], "chat_template": "{{ 1 }}", "suffix": "end", "truncate_prompt_tokens": 2, "prompt_logprobs": 1, "lora": [{"id": 0}],
           "max_token": 3, "temprature": 0, "no_such_field": {"a": [1]}, "use_beam_search": True, "a\"b\u00e9\n": 1, "": 1}
ONLY = {COMPLETION: {"response_format": {"type": "json_object"}, "messages": [], "top_logprobs": 1, "chat_template_kwargs": {"a": 1}, "tools": [TOOL]},
        CHAT: {"echo": True, "best_of": 2, "prompt": "a", "add_special_tokens": True}}
NEUTRAL = {"suffix": "", "min_tokens": 0, "use_beam_search": False, "parallel_tool_calls": True, "modalities": ["text"], "grammar": "", "lora": [],
           "length_penalty": 1, "mirostat": 0, "mirostat_tau": 5.0, "detokenize": True, "metadata": {"a": "b"}, "store": True, "user": "me", "service_tier": "auto",
           "safety_identifier": "x", "prompt_cache_key": "k", "prediction": {"type": "content", "content": "a"}, "cache_prompt": False, "id_slot": 3,
           "keep_alive": "5m", "extra_body": {}, "response_format": {"type": "text"}, "logprobs": False, "spaces_between_special_tokens": True}


@pytest.mark.parametrize("path", BOTH)
def test_fields_that_are_not_obeyed_are_refused_by_name(server, path):
    for name, value in {**REFUSED, **ONLY[path]}.items():
        error = refused(server, path, {**BASE[path], name: value})
        assert error["param"] == (name or None) and error["code"] in ("unknown_parameter", "unsupported_parameter"), error
    assert "did you mean 'max_tokens'?" in refused(server, path, {**BASE[path], "max_token": 3})["message"]
    for name, value in NEUTRAL.items():
        reply = server.post(path, {**BASE[path], name: value})
        assert reply.status == 200 and "X-Kvasir-Ignored" not in reply.headers, (name, value, reply.text)
    assert server.post(path, {**BASE[path], **NEUTRAL}).json["usage"] == server.post(path, BASE[path]).json["usage"]


def test_names_of_the_model(server):
    for path in BOTH:
        reply = server.post(path, {**BASE[path], "model": "gpt-4"})
        error = reply.json["error"]
        assert reply.status == 404 and error["param"] == "model" and error["code"] == "model_not_found" and "other-name" in error["message"]
    assert server.get("/v1/models").json["data"][0] | {"created": 0} == {
        "id": "other-name", "object": "model", "created": 0, "owned_by": "kvasir", "max_model_len": 256, "priority_order": "lowest_first"}
    assert server.get(f"/v1/models/{SMOLLM}").status == 200 and server.get("/v1/models/gpt-4").status == 404


def test_a_lenient_server_names_what_it_ignores():
    with Server("--ctx", 256, "--kv-memory", "256M", "--lenient") as s:
        reply = s.post(COMPLETION, {**BASE[COMPLETION], "model": "gpt-4", "grammar": "x", "no_such_field": 1, "a\r\nb: \u00e9": 1, "store": True})
        assert reply.status == 200 and reply.headers["X-Kvasir-Ignored"] == "model, grammar, no_such_field, a??b????"
        reply = s.post(CHAT, {**BASE[CHAT], "stream": True, "stream_options": {"include_usage": True, "x": 1}})
        assert reply.status == 200 and reply.headers["X-Kvasir-Ignored"] == "stream_options.x"
        assert s.post("/tokenize", {"content": "a", "x": 1}).headers["X-Kvasir-Ignored"] == "x"
        assert "X-Kvasir-Ignored" not in s.post(CHAT, BASE[CHAT]).headers
        assert refused(s, CHAT, {**BASE[CHAT], "temperature": 9}, "temperature")


def test_the_prompt_of_a_chat(server, tmp_path):
    """Messages, tools, documents and variables reach the template; so /apply-template shows, /tokenize counts, and a chat answers."""
    source = """{% for m in messages %}<{{ m.role }}{% for k, v in m.items() %}{% if k != 'role' %} {{ k }}={{ v | tojson }}{% endif %}{% endfor %}>{% endfor %}
{%- if tools %}T{{ tools | tojson }}{% endif %}{% if documents %}D{{ documents | length }}{% endif %}{{ mood }}{{ reasoning_effort }}{% if add_generation_prompt %}:{% endif %}"""
    (tmp_path / "t.jinja").write_text(source)
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}], "name": "Eve"},
                {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": "2"}]
    chat = {"messages": messages, "tools": [TOOL], "documents": [{"text": "a"}], "tool_choice": "auto", "reasoning_effort": "low",
            "chat_template_kwargs": {"mood": "glad"}}
    with Server("--ctx", 512, "--kv-memory", "256M", "--chat-template", tmp_path / "t.jinja") as s:
        reply = s.post("/apply-template", {**chat, "temperature": 0, "stream": False})
        text = reply.json["prompt"]
        assert text == ('<user content="Hi" name="Eve"><assistant content=null tool_calls=[{"id": "c1", "type": "function", "function": {"name": "f", '
                        '"arguments": {"x": 1}}}]><tool tool_call_id="c1" content="2">T[{"type": "function", "function": {"name": "f", "parameters": '
                        '{"type": "object"}}}]D1gladlow:') and "X-Kvasir-Ignored" not in reply.headers
        fields = {key: value for key, value in chat.items() if key != "tool_choice"}
        tokens = s.post("/tokenize", fields).json
        assert tokens["tokens"] == s.post("/tokenize", {"content": text}).json["tokens"] and tokens["count"] == len(tokens["tokens"])
        assert s.post(CHAT, {**chat, "max_tokens": 1}).json["usage"]["prompt_tokens"] == tokens["count"]
        assert s.post("/apply-template", {**chat, "add_generation_prompt": False}).json["prompt"] == text[:-1]
        assert s.post("/apply-template", {"messages": messages, "chat_template_kwargs": {"tempo": 1}}).headers["X-Kvasir-Ignored"] == "chat_template_kwargs.tempo"
        for body, param in (({"messages": messages, "content": "a"}, "messages"), ({"messages": messages, "add_special": True}, "add_special"),
                            ({"content": "a", "tools": [TOOL]}, "messages"), ({"content": "a", "stream": True}, "stream")):
            error = s.post("/tokenize", body).json["error"]
            assert error["param"] == param, error
        for bad, param in ((1, "messages.0"), ({"role": "user"}, "messages.0.content"), ({"role": "king", "content": ""}, "messages.0.role"),
                           ({"role": "user", "content": [{"type": "video"}]}, "messages.0.content.0.type")):
            assert s.post("/apply-template", {"messages": [bad]}).json["error"]["param"] == param
    assert server.post(CHAT, {**BASE[CHAT], "reasoning_effort": "high"}).headers["X-Kvasir-Ignored"] == "reasoning_effort"


def test_what_is_said_beside_the_body(server):
    for path, param in (("/v1/kv?audti=1", "audti"), ("/v1/kv?audit=maybe", "audit"), ("/metrics?name=x", "name"), ("/v1/models?limit=3", "limit")):
        reply = server.get(path)
        assert reply.status == 400 and reply.json["error"]["param"] == param, (path, reply.text)
    assert "audit" not in server.get("/v1/kv?audit=0").json and server.get("/v1/kv?audit").json["audit"] == "clean"
    assert server.get("/health?probe=1").status == 200
    assert server.post(COMPLETION + "?api-version=2024-10-21", BASE[COMPLETION]).status == 200
    assert refused(server, COMPLETION + "?stream=true", BASE[COMPLETION])["param"] == "stream"
    for headers, status in (({"Content_Encoding": "gzip"}, 415), ({"Content_Encoding": "identity"}, 200),
                            ({"Content_Type": "application/json; charset=utf-16"}, 415), ({"Content_Type": "application/json; charset=UTF-8"}, 200),
                            ({"Content_Type": 'text/plain; charset="latin1"'}, 415), ({"Content_Type": "application/x-www-form-urlencoded"}, 200)):
        reply = server.post(COMPLETION, BASE[COMPLETION], **headers)
        assert reply.status == status, (headers, reply.text)
        if status == 415:
            assert reply.json["error"]["code"] == "unsupported_encoding" and reply.json["error"]["param"].startswith("Content-")


# What programs send beyond prompt, messages and model, as they have it by default.
USAGE = {"stream": True, "stream_options": {"include_usage": True}}
PARTS = [{"role": "system", "content": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]},
         {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
WEBUI = {"max_new_tokens": 5, "typical_p": 1, "min_p": 0, "repetition_penalty": 1.2, "frequency_penalty": 0, "presence_penalty": 0, "top_k": 40, "skew": 0,
         "min_length": 0, "min_tokens": 0, "num_beams": 1, "length_penalty": 1, "early_stopping": False, "add_bos_token": True, "smoothing_factor": 0,
         "smoothing_curve": 1, "dry_allowed_length": 2, "dry_multiplier": 0, "dry_base": 1.75, "dry_sequence_breakers": '["\\n", ":"]', "dry_penalty_last_n": 0,
         "max_tokens_second": 0, "stop": ["\nUser:"], "ban_eos_token": False, "skip_special_tokens": True, "top_a": 0, "tfs": 1, "epsilon_cutoff": 0,
         "eta_cutoff": 0, "mirostat_mode": 0, "mirostat_tau": 5, "mirostat_eta": 0.1, "custom_token_bans": "", "banned_strings": [], "xtc_threshold": 0.1,
         "xtc_probability": 0, "encoder_repetition_penalty": 1, "no_repeat_ngram_size": 0, "penalty_alpha": 0, "temperature_last": True, "guidance_scale": 1,
         "negative_prompt": "", "grammar_string": "", "tfs_z": 1, "mirostat": 0, "ignore_eos": False}
CLIENTS = {
    "openai": (CHAT, {"metadata": {"a": "b"}, "store": False, "service_tier": "auto", "modalities": ["text"], "parallel_tool_calls": True}),
    "guidellm": (COMPLETION, {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}, "ignore_eos": True, "stop": None,
                              "max_tokens": 5, "max_completion_tokens": 5}),
    "vllm bench": (COMPLETION, {"repetition_penalty": 1.0, "logprobs": None, "ignore_eos": False, "temperature": 0.0, "top_p": 1.0, "top_k": -1, "min_p": 0, **USAGE}),
    "vllm bench, chat": (CHAT, {"messages": PARTS[1:], "max_completion_tokens": 5, "max_tokens": None, "temperature": 0.0, "ignore_eos": True, **USAGE}),
    "sglang bench": (COMPLETION, {"temperature": 0.0, "best_of": 1, "stream": True, "ignore_eos": True}),
    "genai-perf": (CHAT, {"stream": True, "n": 1, "max_tokens": 5, "min_tokens": 5, "ignore_eos": True}),
    "langchain": (CHAT, {"n": 1, "temperature": 0.7, **USAGE}),
    "langchain, completions": (COMPLETION, {"prompt": ["Hi"], "temperature": 0.7, "max_tokens": 5, "top_p": 1, "frequency_penalty": 0, "presence_penalty": 0, "n": 1,
                                            "seed": None, "logprobs": None, "logit_bias": {}, "best_of": 1}),
    "litellm": (CHAT, {"temperature": 0, "stream": False, "max_tokens": 5, "user": "x", "extra_body": {}}),
    "llama-index": (CHAT, {"temperature": 0.1, "stream": True, "logprobs": None}),
    "aider": (CHAT, {"temperature": 0, "stream": True, "user": "x"}),
    "cline": (CHAT, {"messages": PARTS, "temperature": 0, "max_tokens": 5, "tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": False, **USAGE}),
    "roo": (CHAT, {"messages": PARTS, "temperature": 0, "max_completion_tokens": 5, "max_tokens": None, "reasoning_effort": "medium", "tools": [TOOL], **USAGE}),
    "vercel ai": (CHAT, {"temperature": 0, "max_tokens": 5, "tools": [{**TOOL, "function": {**TOOL["function"], "strict": False}}], "tool_choice": "auto",
                         "user": "x", "seed": 1, "stop": [], **USAGE}),
    "open webui": (CHAT, {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": 5}),
    "open webui, title": (CHAT, {"stream": False, "max_completion_tokens": 5, "temperature": 0.8, "reasoning_effort": "none", "logit_bias": {}}),
    "continue": (CHAT, {"stop": ["\n\n"], "prediction": None, "presence_penalty": 0, "frequency_penalty": 0, "top_p": 1, "tools": None, **USAGE}),
    "jan": (CHAT, {"stream": True, "temperature": 0.7, "top_p": 0.95, "top_k": 40, "min_p": 0.05, "repeat_penalty": 1.1, "repeat_last_n": 64, "stop": [],
                   "cache_prompt": True, "max_tokens": 5, "chat_template_kwargs": {}}),
    "lm studio": (CHAT, {"ttl": 3600, "draft_model": None, "top_k": 40, "repeat_penalty": 1.1, "stream": True}),
    "ollama's interface": (CHAT, {"stream": True, "keep_alive": "5m", "options": {}, "think": False, "format": ""}),
    "sillytavern, chat": (CHAT, {"temperature": 1, "max_tokens": 5, "stream": True, "presence_penalty": 0, "frequency_penalty": 0, "top_p": 1, "logit_bias": {},
                                 "n": 1, "seed": 5, "top_k": 0}),
    "sillytavern, vllm": (COMPLETION, {"best_of": 1, "n": 1, "temperature": 0.7, "top_p": 0.5, "top_k": 40, "min_p": 0, "repetition_penalty": 1.2, "frequency_penalty": 0,
                                       "presence_penalty": 0, "max_tokens": 5, "min_tokens": 0, "ignore_eos": False, "skip_special_tokens": True,
                                       "spaces_between_special_tokens": True, "stop": ["\nUser:"], "stream": True}),
    "text-generation-webui's": (COMPLETION, {**WEBUI, "max_tokens": None}),
    "lm-evaluation-harness": (COMPLETION, {"prompt": [[1, 2, 3]], "logprobs": 1, "seed": 1234, "echo": True, "max_tokens": 1, "temperature": 0}),
    "lm-evaluation-harness, text": (COMPLETION, {"prompt": ["a", "b"], "max_tokens": 5, "temperature": 0, "stop": ["\n\n", "Q:"], "seed": 1234}),
    "lm-evaluation-harness, chat": (CHAT, {"messages": [{"role": "user", "content": "Hi", "type": "text"}], "max_tokens": 5, "temperature": 0,
                                           "stop": ["<|endoftext|>"], "seed": 1234}),
    "llama.cpp's page": (CHAT, {"cache_prompt": True, "dynatemp_range": 0, "dynatemp_exponent": 1, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "typical_p": 1,
                                "xtc_probability": 0, "xtc_threshold": 0.1, "repeat_last_n": 64, "repeat_penalty": 1, "dry_multiplier": 0, "dry_base": 1.75,
                                "dry_allowed_length": 2, "dry_penalty_last_n": -1, "max_tokens": 5, "timings_per_token": False, "backend_sampling": False}),
    "zed": (CHAT, {"stream": True, "parallel_tool_calls": False, "prompt_cache_key": "thread", "stop": [], "tools": [TOOL], "tool_choice": "auto"}),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_what_clients_send_by_default(server, client):
    path, fields = CLIENTS[client]
    reply = server.post(path, {**BASE[path], "model": "other-name", **fields})
    assert reply.status == 200, reply.text


def test_min_tokens(server):
    """What ends an answer does so behind them; whoever comes at the same time is the same."""
    body = {"prompt": "One, two, three, four,", "temperature": 0, "max_tokens": 12, "stop": " five"}
    assert server.post(COMPLETION, body).json["choices"][0]["finish_reason"] == "stop"
    reply = server.post(COMPLETION, {**body, "min_tokens": 10}).json
    assert reply["usage"]["completion_tokens"] >= 10 and reply["choices"][0]["text"].startswith(" five")
    chat = {"messages": [{"role": "user", "content": "Say hi."}], "temperature": 0}
    short = server.post(CHAT, chat).json
    n = short["usage"]["completion_tokens"]
    assert short["choices"][0]["finish_reason"] == "stop" and n < 100
    longer = server.post(CHAT, {**chat, "min_tokens": n + 3}).json
    assert longer["usage"]["completion_tokens"] >= n + 3
    assert longer["choices"][0]["message"]["content"].startswith(short["choices"][0]["message"]["content"])
    error = refused(server, CHAT, {**chat, "min_tokens": 500})
    assert error["code"] == "context_length_exceeded" and error["param"] == "min_tokens"


def test_usage_in_every_chunk(server):
    body = {"prompt": "One, two,", "max_tokens": 6, "temperature": 0, "ignore_eos": True, "n": 2,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    usages = [e["usage"] for e in server.events(COMPLETION, body)[:-1]]
    counts = [u["completion_tokens"] for u in usages]
    assert counts == sorted(counts) and 0 < counts[0] and counts[-1] == 12 and len(usages) > 2
    assert all(u["total_tokens"] == u["prompt_tokens"] + u["completion_tokens"] for u in usages)
    refused(server, COMPLETION, {**BASE[COMPLETION], "stream_options": {"continuous_usage_stats": True}}, "stream_options")


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
