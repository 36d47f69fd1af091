"""A catalog dataset on a local server, which also misbehaves as real servers do."""

import hashlib
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tailbatch.data import catalog

CONTENT = bytes(range(256)) * 2000
BROKEN = 3 << 16  # where the connection breaks


class Server(BaseHTTPRequestHandler):
    """Serves CONTENT at /good, and misbehaves at other paths."""

    requests: list[tuple[str, str | None]]

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.requests.append((self.path, wanted))
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        getattr(self, f"_{self.path.strip('/')}")(start)

    def _send(self, body, status=200, length=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def _good(self, start):
        self._send(CONTENT[start:], 206 if start else 200)

    def _slow(self, start):
        self._send(b"", 206 if start else 200, length=len(CONTENT) - start)
        for piece in range(start, len(CONTENT), 1 << 15):
            try:
                self.wfile.write(CONTENT[piece : piece + (1 << 15)])
            except ConnectionError:
                return  # the client was killed
            time.sleep(0.01)

    def _breaks(self, start):
        self._send(CONTENT[start:BROKEN], 206 if start else 200, length=len(CONTENT) - start)

    def _plain(self, start):
        self._send(CONTENT)

    def _other(self, start):
        self._send(bytes(len(CONTENT) - start), 206 if start else 200)

    def _endless(self, start):
        self._send(CONTENT * 3, length=3 * len(CONTENT))

    def _short(self, start):
        self._send(b"not an ARFF file")

    def _missing(self, start):
        self._send(b"no", 404)

    def _exhausted(self, start):
        self._send(b"", 416)

    def log_message(self, *args):
        pass


@contextmanager
def serving():
    """Run the server; it has an `address` and records its `requests`."""
    handler = type("Handler", (Server,), {"requests": []})
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    http.requests = handler.requests
    http.address = f"http://127.0.0.1:{http.server_port}"
    try:
        yield http
    finally:
        http.shutdown()
        http.server_close()


def served_catalog(*urls):
    """Return the catalog with a yeast dataset of CONTENT served at these addresses."""
    entry = catalog.known("yeast")
    file = replace(
        entry.files[0],
        bytes=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        urls=urls,
    )
    return {**catalog.catalog(), "yeast": replace(entry, files=(file,))}
