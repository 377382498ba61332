"""A running `kvasir serve`, and ways to talk with it."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse

from prometheus_client.parser import text_string_to_metric_families

from program import KVASIR, SMOLLM


class Reply:
    def __init__(self, response):
        self.status, self.headers, self.bytes = response.status, response.headers, response.read()

    @property
    def text(self):
        return self.bytes.decode()

    @property
    def json(self):
        return json.loads(self.bytes)


class Server:
    def __init__(self, *options, model=SMOLLM, program=KVASIR, **environment):
        self.stderr = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([program, "serve", model, "--port", "0", *map(str, options)], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=self.stderr, text=True, env={**os.environ, **environment})
        self.start_line = self.process.stdout.readline()
        found = re.search(r"http://(\S+):(\d+)", self.start_line)
        assert found, self.log()
        self.url, self.host, self.port = found[0], found[1], int(found[2])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def log(self):
        self.stderr.seek(0)
        return self.stderr.read()

    def stop(self, how=signal.SIGTERM, seconds=60):
        """Ends it; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def request(self, method, path, body=None, timeout=120, **headers):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        assert self.process.poll() is None, f"it ended with {self.process.returncode}: {self.log()}"
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            return Reply(connection.getresponse())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.request("GET", path, **headers)

    def post(self, path, body, **headers):
        return self.request("POST", path, body if isinstance(body, (bytes, str)) else json.dumps(body), **headers)

    def complete(self, prompt, **fields):
        reply = self.post("/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 8, **fields})
        assert reply.status == 200, reply.text
        return reply.json

    def chat(self, *texts, **fields):
        messages = [{"role": "user", "content": text} for text in texts]
        reply = self.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 8, **fields})
        assert reply.status == 200, reply.text
        return reply.json

    def events(self, path, body):
        """The data of a stream's events, parsed; the last one is the string [DONE]."""
        return [json.loads(data) if data != "[DONE]" else data for data in self.stream_lines(path, body)]

    def stream_lines(self, path, body):
        reply = self.post(path, {**body, "stream": True})
        assert reply.status == 200, reply.text
        assert reply.headers["Content-Type"].startswith("text/event-stream")
        blocks = [block for block in reply.text.split("\n\n") if block]
        assert all(block.startswith("data: ") or block.startswith(": ") for block in blocks)
        return [block[len("data: "):] for block in blocks if block.startswith("data: ")]

    def metrics(self):
        """Values by name, with labels in their order: name{a=1}."""
        values = {}
        for family in text_string_to_metric_families(self.get("/metrics").text):
            for sample in family.samples:
                labels = ",".join(f"{key}={value}" for key, value in sample.labels.items())
                values[sample.name + (f"{{{labels}}}" if labels else "")] = sample.value
        return values

    def idle(self, seconds=30):
        """Waits until nothing runs; no block is held then."""
        self.until(lambda m: m["kvasir_requests_running"] == m["kvasir_requests_waiting"] == 0, seconds)
        groups = self.get("/v1/kv").json["groups"]
        assert all(group["blocks"]["in_use"] == 0 for group in groups), groups

    def until(self, holds, seconds=30):
        end = time.monotonic() + seconds
        while not holds(values := self.metrics()):
            assert time.monotonic() < end, values
            time.sleep(0.02)

    def connect(self):
        return socket.create_connection((self.host, self.port), timeout=60)

    def open(self, path, body):
        """A connection on which a request has been sent, and nothing read."""
        s = self.connect()
        s.sendall(raw("POST", path, json.dumps(body)))
        return s


def raw(method, path, body="", *headers):
    data = body if isinstance(body, bytes) else body.encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
    if data and not any(h.lower().startswith("transfer-encoding") for h in headers):
        lines.append(f"Content-Length: {len(data)}")
    return "\r\n".join([*lines, "", ""]).encode() + data


def read_all(s):
    """What comes until the other side closes."""
    parts = []
    try:
        while part := s.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def read_until(s, end):
    """What comes up to those bytes."""
    data = b""
    while end not in data:
        part = s.recv(65536)
        assert part, data
        data += part
    return data


def memory_mib(server, what="RssAnon"):
    """Of the process: what is its own, or the most there was at once (VmHWM)."""
    with open(f"/proc/{server.process.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(what)) / 1024


def quote(text):
    return urllib.parse.quote(text, safe="")
