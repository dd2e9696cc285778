"""A server over real sockets that sends what it is told to, when it is told to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def chunk(text: str, finish_reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "delta": {"content": text}, "finish_reason": finish_reason}]}


def usage(completion_tokens: int) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": completion_tokens}}


class ScriptedServer:
    """script: (seconds to wait, event) of each answer. bodies: what was asked."""

    def __init__(self, script: Sequence[tuple[float, dict[str, Any]]], status: int = 200) -> None:
        self.script, self.status = script, status
        self.bodies: list[tuple[str, dict[str, Any]]] = []
        self.most_at_a_time = self.now = 0
        self.lock = threading.Lock()

    def entered(self, step: int) -> None:
        with self.lock:
            self.now += step
            self.most_at_a_time = max(self.most_at_a_time, self.now)


@contextmanager
def running(scripted: ScriptedServer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            scripted.bodies.append((self.path, body))
            scripted.entered(1)
            self.send_response(scripted.status)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for seconds, event in scripted.script:
                time.sleep(seconds)
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
                self.wfile.flush()
            self.wfile.write(b"data: [DONE]\n\n")
            scripted.entered(-1)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
