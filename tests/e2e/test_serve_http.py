"""kvasir serve among bad neighbours: connections that leave, dribble, send too much or nonsense, and many at once."""
import http.client
import json
import pathlib
import re
import select
import signal
import socket
import subprocess
import time

import pytest

from program import GEMMA, KVASIR, SMOLLM, fails
from serving import Server, raw, read_all, read_until

LONG = {"prompt": "Tell a long story.", "max_tokens": 1500, "ignore_eos": True, "temperature": 0}


@pytest.fixture(scope="module")
def server():
    with Server("--ctx", 2048, "--kv-memory", "1G", "--request-timeout", 60, "--max-body", "1M") as s:
        yield s
        s.idle()
        assert s.complete("Still here")["choices"]


def running(n):
    return lambda m: m["kvasir_requests_running"] == n


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_is_cancelled(server, stream):
    server.idle()
    before = server.metrics()["kvasir_requests_total{finish_reason=cancelled}"]
    s = server.open("/v1/completions", {**LONG, "stream": stream, "n": 2})
    server.until(running(2))
    s.close()
    server.until(lambda m: m["kvasir_requests_running"] == 0 and m["kvasir_requests_total{finish_reason=cancelled}"] == before + 2, 10)
    server.idle()


def test_a_client_that_resets_is_cancelled(server):
    s = server.open("/v1/completions", {**LONG, "stream": True})
    server.until(running(1))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    s.close()
    server.until(running(0), 10)


def test_pipelined_requests_are_answered_in_order(server):
    with server.connect() as s:
        body = json.dumps({"prompt": "The capital of France is", "max_tokens": 1, "temperature": 0})
        s.sendall(raw("POST", "/v1/completions", body) + raw("GET", "/health") + raw("POST", "/tokenize", '{"content": "a"}')
                  + raw("GET", "/nowhere", "") + raw("GET", "/ready", "", "Connection: close"))
        answers = read_all(s)
    places = [answers.index(part) for part in (b" Paris", b'"ok"', b'"tokens"', b"not_found", b'"ready"')]
    assert places == sorted(places) and answers.count(b"HTTP/1.1 200") == 4


def refusal(answer):
    """Status and code of a whole answer that is an error in OpenAI's shape, and the last on its connection."""
    head, _, body = answer.partition(b"\r\n\r\n")
    fields = head.decode().lower().split("\r\n")
    assert "connection: close" in fields and f"content-length: {len(body)}" in fields and "content-type: application/json" in fields, answer
    error = json.loads(body)["error"]
    assert error["message"] and error["type"] and "param" in error
    return int(head.split()[1]), error["code"]


def test_a_body_that_is_announced_too_large_is_refused_at_once(server):
    for more in ((), ("Expect: 100-continue",)):
        with server.connect() as s:
            s.sendall(raw("POST", "/v1/completions", "", f"Content-Length: {1 << 30}", *more))
            assert refusal(read_all(s)) == (413, "body_too_large")


def test_a_chunked_body_without_end_is_refused_early(server):
    with server.connect() as s:
        s.sendall(raw("POST", "/v1/completions", "", "Transfer-Encoding: chunked"))
        chunk, sent = b"10000\r\n" + b" " * 0x10000 + b"\r\n", 0
        try:
            while sent < 1 << 30:
                s.sendall(chunk)
                sent += len(chunk)
        except OSError:
            pass
        answer = read_all(s)
    assert sent < 64 << 20 and refusal(answer) == (413, "body_too_large")
    assert server.get("/health").status == 200


def test_bodies_of_many_clients_are_bounded_together(server):
    sockets = [server.connect() for _ in range(24)]
    for s in sockets:
        s.sendall(raw("POST", "/tokenize", "", f"Content-Length: {1 << 20}"))
    for s in sockets:
        try:
            s.sendall(b" " * ((1 << 20) - 1))
        except OSError:
            pass
        assert server.post("/tokenize", {"content": "word"}).status == 200  # it isn't the one who comes last that pays
    refused = []
    while len(refused) < 8:  # the rest is 16 MiB, but for a byte each
        refused = select.select(sockets, [], [], 60)[0]
    assert [refusal(read_all(s)) for s in refused] == [(503, "overloaded")] * 8
    for s in set(sockets) - set(refused):
        s.sendall(b" ")
        answer = read_until(s, b"}}")
        assert b"HTTP/1.1 400" in answer and b"invalid_json" in answer
        s.close()


def test_only_what_is_needed_of_a_body_is_kept(server):
    """Its JSON takes many times the body's size: answers at work don't hold on to it."""
    body = '{"prompt": "Once", "stop": ["never to be said"], "max_tokens": 1500, "ignore_eos": true, "metadata": [' + "{}," * 250_000 + "0]}"
    sockets, memory = [], []
    for _ in range(8):
        sockets.append(server.connect())
        sockets[-1].sendall(raw("POST", "/v1/completions", body))
        server.until(lambda m: m["kvasir_requests_running"] == len(sockets))
        status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
        memory.append(int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) // 1024)
    assert memory[-1] - memory[0] < 150, memory
    for s in sockets:
        s.close()
    server.idle()


@pytest.mark.parametrize("headers", [("Content-Length: 2", "Content-Length: 30"), ("Content-Length: 2", "Content-Length: 2"),
                                     ("Content-Length: 2", "Transfer-Encoding: chunked"), ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
                                     ("Transfer-Encoding: gzip",), ("Transfer-Encoding: gzip, chunked",), ("Transfer-Encoding: identity",)])
def test_a_body_of_doubtful_length_is_refused(server, headers):
    """A second request can't hide in it from a proxy that sees its end elsewhere."""
    for path in ("/v1/completions", "/health"):
        with server.connect() as s:
            s.sendall(raw("POST", path, "", *headers) + b"{}GET /ready HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = read_all(s)
            assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1") == 1 and b'"param":null' in answer


def test_a_large_body_within_the_limit_is_read(server):
    reply = server.post("/tokenize", {"content": "word " * 180_000})
    assert reply.status == 200 and reply.json["count"] > 100_000


POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize("bytes_sent, status", [
    (b"\0\0\0\0\r\n\r\n", None), (b"GET\r\n\r\n", None), (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 300, None),
    (b"GET / HTTP/9.9\r\n\r\n", 505), (b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 200_000 + b"\r\n\r\n", 431),
    (b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414), (POST + b"Content-Length: -5\r\n\r\n{}", 400),
    (POST + b"Content-Length: 99999999999999999999\r\n\r\n{}", 413), (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400)], ids=range(9))
def test_nonsense_harms_nobody(server, bytes_sent, status):
    """What isn't HTTP is closed without an answer; the rest is refused by the HTTP library, in its words."""
    with server.connect() as s:
        try:
            s.sendall(bytes_sent)
            s.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        answer = read_all(s)
    assert answer == b"" if status is None else answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
    assert server.get("/health").status == 200


def test_paths_and_methods(server):
    for method, path, status, allow in (("GET", "/nowhere", 404, None), ("POST", "/", 404, None), ("GET", "/v1/completions", 405, "POST"),
                                        ("DELETE", "/v1/chat/completions", 405, "POST"), ("POST", "/health", 405, "GET, HEAD"),
                                        ("PUT", "/metrics", 405, "GET, HEAD"), ("OPTIONS", "/v1/completions", 405, "POST")):
        reply = server.request(method, path, body="{}" if method in ("POST", "PUT") else None)
        assert reply.status == status and reply.headers["Allow"] == allow and reply.json["error"]["message"], (method, path)
    head = server.request("HEAD", "/health")
    assert head.status == 200 and head.bytes == b"" and int(head.headers["Content-Length"]) > 0
    assert server.get("/health").headers["Access-Control-Allow-Origin"] is None


def test_256_streams_at_once():
    with Server("--ctx", 512, "--kv-memory", "1G", "--parallel", 64) as s:
        bodies = [{"prompt": f"Stream number {i}:", "max_tokens": 6, "ignore_eos": True, "temperature": 0, "stream": True} for i in range(256)]
        open_ones = [s.open("/v1/completions", body) for body in bodies]
        for i, sock in enumerate(open_ones):
            answer = b""
            while b"[DONE]" not in answer:
                part = sock.recv(65536)
                assert part, (i, answer)
                answer += part
            assert answer.startswith(b"HTTP/1.1 200") and b'"finish_reason":"length"' in answer and b"error" not in answer
            sock.close()
        s.idle()
        assert s.metrics()["kvasir_requests_total{finish_reason=length}"] == 256


def test_slow_clients_are_shown_the_door():
    with Server("--ctx", 256, "--request-timeout", 1.5) as s:
        began = time.monotonic()
        lazy, dribbling, half = s.connect(), s.connect(), s.connect()
        half.sendall(raw("POST", "/v1/completions", "", "Content-Length: 100") + b'{"prom')
        try:
            for byte in b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: " + b"a" * 1000:
                dribbling.sendall(bytes([byte]))
                time.sleep(0.05)
            raise AssertionError("a client may dribble for ever")
        except OSError:
            assert 1 < time.monotonic() - began < 20
        half.settimeout(20)
        assert refusal(read_all(half)) == (408, "request_timeout")
        lazy.settimeout(20)
        assert read_all(lazy) == b""  # it has asked nothing
        assert s.get("/health").status == 200


def test_an_answer_that_nobody_fetches_is_dropped():
    with Server("--ctx", 8192, "--request-timeout", 2) as s:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect((s.host, s.port))
        body = {"prompt": "hello " * 200, "n": 64, "max_tokens": 0, "stream": True, "echo": True, "logprobs": 64}  # 20 MB
        sock.sendall(raw("POST", "/v1/completions", json.dumps(body)))
        s.until(lambda m: sum(v for k, v in m.items() if k.startswith("kvasir_requests_total")) == 64, 120)
        time.sleep(4)  # it reads nothing, and the answers have long been ready
        assert b"[DONE]" not in read_all(sock)
        s.idle()


def test_a_full_queue_is_told():
    with Server("--ctx", 2048, "--kv-memory", "1G", "--parallel", 1, "--queue", 1) as s:
        one = s.open("/v1/completions", LONG)
        s.until(lambda m: m["kvasir_requests_running"] == 1)
        two = s.open("/v1/completions", LONG)
        s.until(lambda m: m["kvasir_requests_waiting"] == 1)
        reply = s.post("/v1/completions", {"prompt": "Hi"})
        assert reply.status == 429 and reply.json["error"]["code"] == "queue_full" and int(reply.headers["Retry-After"]) >= 1
        for field in ("n", "best_of"):
            reply = s.post("/v1/completions", {"prompt": "Hi", field: 3})
            assert reply.status == 400 and reply.json["error"]["param"] == field
        one.close(), two.close()
        s.idle()
        assert s.complete("Hi")["choices"]


def test_long_silences_are_filled_with_comments():
    with Server("--ctx", 2048, "--kv-memory", "1G", "--parallel", 1, "--keep-alive", 0.5) as s:
        busy = s.open("/v1/completions", LONG)
        s.until(lambda m: m["kvasir_requests_running"] == 1)
        waiting = [s.open("/v1/completions", {"prompt": "Hi", "max_tokens": 2, "stream": True}) for _ in range(150)]
        for one in waiting:
            seen = b""
            while seen.count(b": keep-alive\n\n") < 2:
                seen += one.recv(4096)
            assert seen.startswith(b"HTTP/1.1 200") and b"data:" not in seen
        busy.close()
        for one in waiting:
            seen = b""
            while b"[DONE]" not in seen:
                seen += one.recv(4096)


def test_keys(tmp_path):
    (tmp_path / "keys").write_text("# clients\n\n  first-key  \nsecond key\n")
    with Server("--ctx", 256, "--api-key-file", tmp_path / "keys") as s:
        body = {"prompt": "Hi", "max_tokens": 1}
        for key in ("first-key", "second key"):
            assert s.post("/v1/completions", body, Authorization=f"Bearer {key}").status == 200
        for header in ("Bearer wrong", "Bearer ", "Bearer first-key2", "Bearer first-ke", "Basic first-key", "first-key", "Bearer # clients"):
            reply = s.post("/v1/completions", body, Authorization=header)
            assert reply.status == 401 and reply.json["error"]["code"] == "invalid_api_key" and reply.headers["WWW-Authenticate"] == "Bearer"
        assert s.post("/v1/completions", body).status == 401
        for path in ("/v1/models", "/v1/kv", "/metrics"):
            assert s.get(path).status == 401 and s.get(path, Authorization="Bearer first-key").status == 200
        assert s.get("/health").status == s.get("/ready").status == 200
    (tmp_path / "none").write_text("# nothing\n")
    fails(1, "serve", SMOLLM, "--port", 0, "--api-key-file", tmp_path / "none", says="has no key")
    fails(1, "serve", SMOLLM, "--port", 0, "--api-key-file", tmp_path / "missing", says="no such file")


def test_cors():
    with Server("--ctx", 256, "--cors", "https://page.example") as s:
        asked = s.request("OPTIONS", "/v1/chat/completions", Origin="https://page.example", Access_Control_Request_Method="POST")
        assert asked.status == 204 and asked.headers["Access-Control-Allow-Origin"] == "https://page.example"
        assert "Authorization" in asked.headers["Access-Control-Allow-Headers"] and "POST" in asked.headers["Access-Control-Allow-Methods"]
        reply = s.get("/v1/models", Origin="https://page.example")
        assert reply.headers["Access-Control-Allow-Origin"] == "https://page.example" and reply.headers["Vary"] == "Origin"
        assert s.get("/nowhere").headers["Access-Control-Allow-Origin"] == "https://page.example"


def test_draining():
    s = Server("--ctx", 2048, "--kv-memory", "1G", "--drain-timeout", 120)
    finishing = s.open("/v1/completions", {**LONG, "max_tokens": 600, "stream": True})
    finishing.recv(500)
    s.process.send_signal(signal.SIGTERM)
    end = time.monotonic() + 20
    while s.get("/ready").status != 503:
        assert time.monotonic() < end
    assert s.get("/ready").json == {"status": "draining"} and s.get("/health").status == 200
    refused = s.post("/v1/completions", {"prompt": "Hi"})
    assert refused.status == 503 and refused.json["error"]["code"] == "shutting_down" and refused.headers["Retry-After"]
    rest = read_all(finishing)
    assert b'"finish_reason":"length"' in rest and b"[DONE]" in rest
    assert s.process.wait(60) == 0 and "waiting for those at work" in s.log()


def test_a_drain_that_takes_too_long_is_cut_off():
    s = Server("--ctx", 2048, "--kv-memory", "1G", "--drain-timeout", 1)
    whole, stream = s.open("/v1/completions", LONG), s.open("/v1/completions", {**LONG, "stream": True})
    s.until(running(2))
    s.process.send_signal(signal.SIGTERM)
    assert b"HTTP/1.1 503" in (answer := read_until(whole, b"}}")) and b"shutting_down" in answer
    assert b'"code":"shutting_down"' in (answer := read_all(stream)) and b"[DONE]" not in answer
    assert s.process.wait(30) == 0


def test_the_second_signal_cuts_off_at_once():
    s = Server("--ctx", 2048, "--kv-memory", "1G", "--drain-timeout", 1000)
    stream = s.open("/v1/completions", {**LONG, "stream": True})
    s.until(running(1))
    s.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert s.process.poll() is None
    s.process.send_signal(signal.SIGINT)
    assert s.process.wait(30) == 0 and b"shutting_down" in read_all(stream)


def test_it_answers_while_it_loads():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([KVASIR, "serve", GEMMA, "--port", str(port), "--ctx", "256"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert "listening on" in process.stderr.readline()

    def ask(path):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", path)
        return connection.getresponse()

    ready, models = ask("/ready"), ask("/v1/models")
    assert ready.status == models.status == 503 and b"loading" in ready.read() and models.headers["Retry-After"]
    assert ask("/health").status == ask("/metrics").status == 200
    process.send_signal(signal.SIGTERM)  # there is nothing to drain yet
    assert process.wait(30) == -signal.SIGTERM
    fails(1, "serve", "no-such-model", "--port", 0, says="no-such-model")


def test_what_it_can_not_listen_on():
    with Server("--ctx", 256) as s:
        fails(1, "serve", SMOLLM, "--port", s.port, says="--port 0 takes one that is free")
    fails(1, "serve", SMOLLM, "--port", 0, "--host", "not an address", says="no address to listen on")
    fails(2, "serve", SMOLLM, "--port", 65536, says="--port")
    fails(2, "serve", SMOLLM, "--evict", "random", says="lru")


def test_it_logs_while_busy_and_is_quiet_when_idle():
    def processor_time(pid):
        with open(f"/proc/{pid}/stat") as f:
            return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))

    with Server("--ctx", 2048, "--kv-memory", "1G") as s:
        one = s.open("/v1/completions", {**LONG, "n": 8})
        end = time.monotonic() + 60
        while not re.search(r"kvasir: 8 running, 0 waiting; .* prompt tokens/s .* answered; .* of the cache in use\n", s.log()):
            assert time.monotonic() < end, s.log()
            time.sleep(0.2)
        one.close()
        s.idle()
        time.sleep(0.5)
        lines, before = s.log().count("\n"), processor_time(s.process.pid)
        time.sleep(2)
        assert processor_time(s.process.pid) - before <= 4  # of 200 hundredths of a second
        assert s.log().count("\n") == lines
