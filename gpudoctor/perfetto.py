"""Hands one trace file to the Perfetto UI: a server on this machine that gives that file once, and ends.

The UI (https://ui.perfetto.dev) fetches a trace that its link names with `url=`. From this machine its content security
policy allows port 9001 of 127.0.0.1 alone, and the answer must allow its origin:
https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui and `tools/open_trace_in_ui` of Perfetto.
"""

from __future__ import annotations

import errno
import secrets
import shutil
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpudoctor.errors import InputError, UsageError

ORIGIN = "https://ui.perfetto.dev"
HOST = "127.0.0.1"
PORT = 9001
_IDLE_S = 60  # a connection that asks nothing: browsers open some in advance


class OneFile(ThreadingHTTPServer):
    """A server that gives one file, under a path that nobody can guess, until it was fetched whole once."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, file: Path, port: int = PORT) -> None:
        """Listens on 127.0.0.1.

        Args:
            file: what is given.
            port: where; 0 for any that is free.

        Raises:
            InputError: the file cannot be read.
            UsageError: the port is taken.
        """
        try:
            self.size = file.stat().st_size
            file.open("rb").close()
        except OSError as error:
            raise InputError(f"{file}: cannot be read ({error.strerror or error})") from None
        self.file = file
        self.path = f"/{secrets.token_urlsafe(16)}/{quote(file.name, safe='')}"
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise UsageError(f"{HOST}:{port} cannot be listened on ({error.strerror or error})") from None
            raise UsageError(
                f"port {port} of {HOST} is in use, and the Perfetto UI loads a trace from no other; end what uses it "
                f"(another `gpudoctor open`, or `trace_processor --httpd`), or open {file} in {ORIGIN} by hand"
            ) from None

    @property
    def link(self) -> str:
        """The address that opens the trace in the Perfetto UI."""
        return f"{ORIGIN}/#!/?url=http://{HOST}:{self.server_port}{self.path}"

    def serve_once(self) -> None:
        """Answers until the file was fetched whole."""
        try:
            self.serve_forever(poll_interval=0.1)
        finally:
            self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: a client that went away may come again."""


class _Handler(BaseHTTPRequestHandler):
    server: OneFile
    timeout = _IDLE_S
    server_version = "gpudoctor"
    sys_version = ""

    def do_GET(self) -> None:
        if not self._is_ours():
            return
        with self.server.file.open("rb") as file:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(self.server.size))
            self.send_header("Cache-Control", "no-store")
            self._allow()
            self.end_headers()
            shutil.copyfileobj(file, self.wfile)
            self.wfile.flush()
        threading.Thread(target=self.server.shutdown, daemon=True).start()

    def do_OPTIONS(self) -> None:
        """A browser's question whether a public page may ask this machine."""
        if self._is_ours():
            self.send_response(HTTPStatus.NO_CONTENT)
            self.send_header("Access-Control-Allow-Methods", "GET")
            self.send_header("Access-Control-Allow-Private-Network", "true")
            self._allow()
            self.end_headers()

    def _is_ours(self) -> bool:
        """Whether the request is for the file, by our own address: a foreign name that points here is refused."""
        address = f"{HOST}:{self.server.server_port}"
        ours = secrets.compare_digest(self.path, self.server.path) and self.headers.get("Host") == address
        if not ours:
            self.send_error(HTTPStatus.NOT_FOUND)
        return ours

    def _allow(self) -> None:
        self.send_header("Access-Control-Allow-Origin", ORIGIN)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Says nothing."""
