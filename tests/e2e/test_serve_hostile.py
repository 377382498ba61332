"""Bodies that are made to cost much: everybody else is served meanwhile, and their memory goes back."""
import json
import pathlib
import select
import socket
import threading
import time
from http.client import HTTPConnection

import pytest

from serving import Server, memory_mib, raw, read_all, read_until

BODY = 16 << 20
MESSAGE = '{"role":"user","content":""}'


def fill(start, unit, end, length=BODY):
    return (start + unit * ((length - len(start) - len(end)) // len(unit)) + end).encode()


# What is sent, and what becomes of it.
HOSTILE = {
    "a word": ("/tokenize", fill('{"content":"', "a", '"}', BODY // 4), 200, None),
    "pieces": ("/tokenize", fill('{"with_pieces":true,"content":"', "a b ", '"}', BODY * 3 // 8), 400, "answer_too_large"),
    "lists": ("/v1/completions", fill('{"prompt":"a","metadata":[', "[],", "0]}"), 400, "too_many_values"),
    "objects": ("/v1/completions", fill('{"prompt":"a","max_tokens":1,"metadata":[', "{},", "0]}", 3 << 18), 200, None),
    "nesting": ("/v1/chat/completions", b"[" * BODY, 400, "too_deep"),
    "empty messages": ("/v1/chat/completions", fill('{"messages":[', MESSAGE + ",", MESSAGE + "]}", 1 << 20), 400, "context_length_exceeded"),
    "a long prompt": ("/v1/completions", fill('{"prompt":"', "a b ", '"}'), 400, "context_length_exceeded"),
    "ids": ("/detokenize", fill('{"tokens":[', "1,", "1]}", 1 << 19), 200, None),
}


@pytest.fixture(scope="module")
def server():
    with Server("--ctx", 2048, "--kv-memory", "64M", "--request-timeout", 30) as s:
        s.post(*HOSTILE["objects"][:2])
        yield s


def unscheduled(task):
    """Seconds that a thread was ready to run while others had the processors."""
    with open(f"{task}/schedstat") as f:
        return int(f.read().split()[1]) * 1e-9


def http_thread(server):
    for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
        if (task / "comm").read_text().startswith("MHD"):
            return task


def longest_wait(server, work):
    """The longest time that GET /health took, asked again and again while work goes on; but for the time in which the
    machine had no processor for who asks or for who answers."""
    waits, over = [], threading.Event()

    def poll():
        connection = HTTPConnection(server.host, server.port, timeout=60)
        tasks = http_thread(server), pathlib.Path(f"/proc/self/task/{threading.get_native_id()}")
        while not over.is_set():
            lost, began = sum(map(unscheduled, tasks)), time.monotonic()
            connection.request("GET", "/health")
            assert connection.getresponse().read() == b'{"status":"ok"}'
            waits.append(time.monotonic() - began - (sum(map(unscheduled, tasks)) - lost))
            time.sleep(0.002)
        connection.close()

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        work()
    finally:
        over.set()
        thread.join()
    assert len(waits) > 1
    return max(waits)


@pytest.mark.parametrize("name", HOSTILE)
def test_nobody_waits_for_a_hostile_body(server, name):
    """A busy machine may hold up one try; what holds up the server does so each time."""
    path, body, status, code = HOSTILE[name]
    before, waits = memory_mib(server), []

    def send():
        reply = server.post(path, body)
        assert reply.status == status and (status == 200 or reply.json["error"]["code"] == code), reply.bytes[:300]

    while len(waits) < 5 and (not waits or min(waits) >= 0.05):
        waits.append(longest_wait(server, send))
    assert min(waits) < 0.05, waits
    end = time.monotonic() + 30
    while memory_mib(server) > before + 32:  # it goes back behind the answer
        assert time.monotonic() < end, (before, memory_mib(server))
        time.sleep(0.05)


def test_nobody_waits_for_long_events(server):
    """The logprobs of a whole prompt are one event of a stream."""
    asked = {"prompt": "hello " * 1900, "n": 4, "max_tokens": 1, "echo": True, "logprobs": 64, "stream": True}
    waits = []

    def stream():
        reply = server.post("/v1/completions", asked)
        assert reply.status == 200 and len(reply.bytes) > 8 << 20 and reply.text.endswith("data: [DONE]\n\n")

    while len(waits) < 3 and (not waits or min(waits) >= 0.02):
        waits.append(longest_wait(server, stream))
    assert min(waits) < 0.02, waits


def test_a_small_request_overtakes_large_ones(server):
    sockets = [server.connect() for _ in range(3)]
    for s in sockets:
        s.sendall(raw("POST", "/tokenize", HOSTILE["a word"][1], "Connection: close"))
    assert server.complete("Hi", max_tokens=1)["choices"]
    assert server.post("/tokenize", {"content": "Hi"}).json["count"] == 1
    assert not select.select([sockets[-1]], [], [], 0)[0]
    for s in sockets:
        assert b'"count":' in read_all(s)[-100:]
        s.close()


@pytest.mark.parametrize("name", ["lists", "objects"])
def test_values_are_bounded(server, name):
    """Of a body whose every third byte would be a value of hundred bytes."""
    with open(f"/proc/{server.process.pid}/clear_refs", "w") as f:
        f.write("5")  # the most from now on
    before = memory_mib(server, "VmRSS")
    server.post(*HOSTILE[name][:2])
    assert memory_mib(server, "VmHWM") < before + 200


def test_large_answers_that_nobody_fetches():
    """Three of 6 MB: memory holds what has a time to be fetched, and no longer."""
    with Server("--ctx", 256, "--kv-memory", "64M", "--request-timeout", 2) as s:
        before, sockets = memory_mib(s), []
        for _ in range(3):
            sockets.append(socket.socket())
            sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sockets[-1].connect((s.host, s.port))
            sockets[-1].sendall(raw("POST", "/tokenize", fill('{"content":"', "a", '"}', BODY // 4)))
        for one in sockets:
            assert read_until(one, b'{"tokens":[')
        end = time.monotonic() + 30
        while memory_mib(s) > before + 5:
            assert time.monotonic() < end, (before, memory_mib(s))
            time.sleep(0.05)
        for one in sockets:
            assert b'"count":' not in read_all(one)[-100:]
            one.close()
        assert s.get("/health").status == 200


def test_who_dribbles_pays():
    """Sixteen hold almost all that bodies may take, more come, and everybody else's requests are answered all along."""
    with Server("--ctx", 256, "--kv-memory", "64M", "--max-body", "4M") as s:
        dribble(s, 4 << 20)


def dribble(server, most):
    sockets, body = [], b" " * (most - 1)
    for _ in range(20):
        sockets.append(server.connect())
        sockets[-1].sendall(raw("POST", "/v1/completions", "", f"Content-Length: {most}"))
        try:
            sockets[-1].sendall(body)
        except OSError:  # there were too many already, and it was the slowest one
            pass
        assert server.complete("Hi", max_tokens=1)["choices"]
        assert server.post("/tokenize", {"content": "word " * 20000}).status == 200
    for s in sockets:  # nothing more comes: all are told
        answer = read_all(s)
        assert answer.startswith((b"HTTP/1.1 503", b"HTTP/1.1 408")), answer
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] in ("overloaded", "request_too_slow")
        s.close()
