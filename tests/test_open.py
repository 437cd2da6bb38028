"""`gpudoctor open`: the right file, and a server that gives it once, to one origin, from this machine."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpudoctor import perfetto
from gpudoctor.cli import app
from gpudoctor.errors import GpuDoctorError, InputError, UsageError

CONTENT = b'{"traceEvents": []}' * 100_000


class Running:
    """A server in a thread and a client's view of it."""

    def __init__(self, file: Path) -> None:
        self.server = perfetto.OneFile(file, port=0)
        self.thread = threading.Thread(target=self.server.serve_once, daemon=True)
        self.thread.start()

    def ask(self, method: str, path: str, host: str | None = None) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=30)
        connection.request(method, path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), body

    def ended(self) -> bool:
        self.thread.join(timeout=30)
        return not self.thread.is_alive()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    file = tmp_path / "a trace #1.json"
    file.write_bytes(CONTENT)
    server = Running(file)
    yield server
    if server.thread.is_alive():
        server.server.shutdown()
    assert server.ended()


def test_the_file_is_given_once_to_perfettos_origin_alone_and_the_server_ends(running: Running) -> None:
    status, headers, body = running.ask("GET", running.server.path)
    assert (status, body) == (200, CONTENT)
    assert headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
    assert headers["Content-Length"] == str(len(CONTENT))
    assert running.ended()
    with pytest.raises(ConnectionRefusedError):
        running.ask("GET", running.server.path)


@pytest.mark.parametrize("path", ["/", "/a%20trace%20%231.json", "/../../etc/passwd", "/favicon.ico", "*", "/\u00e9"])
def test_every_other_path_is_not_found_and_does_not_end_the_server(running: Running, path: str) -> None:
    status, headers, body = running.ask("GET", urllib.parse.quote(path, safe="/%*."))
    assert status == 404
    assert "Access-Control-Allow-Origin" not in headers
    assert CONTENT[:20] not in body
    assert running.ask("GET", running.server.path)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD"])
def test_every_other_method_is_refused(running: Running, method: str) -> None:
    assert running.ask(method, running.server.path)[0] == 501
    assert running.thread.is_alive()


def test_a_foreign_name_that_points_here_is_refused(running: Running) -> None:
    assert running.ask("GET", running.server.path, host=f"evil.example:{running.server.server_port}")[0] == 404


def test_a_browsers_question_for_a_local_address_is_answered_and_does_not_count(running: Running) -> None:
    status, headers, body = running.ask("OPTIONS", running.server.path)
    assert (status, body) == (204, b"")
    assert headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
    assert headers["Access-Control-Allow-Private-Network"] == "true"
    assert running.ask("GET", running.server.path)[0] == 200


def test_a_connection_that_asks_nothing_does_not_keep_others_waiting(running: Running) -> None:
    with socket.create_connection(("127.0.0.1", running.server.server_port)):
        assert running.ask("GET", running.server.path)[0] == 200
        assert running.ended()


def test_it_listens_on_this_machine_only_and_its_path_cannot_be_guessed(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text("{}")
    with perfetto.OneFile(file, port=0) as one, perfetto.OneFile(file, port=0) as other:
        assert one.server_address[0] == "127.0.0.1"
        assert one.path != other.path
        assert one.link == f"https://ui.perfetto.dev/#!/?url=http://127.0.0.1:{one.server_port}{one.path}"


def test_a_taken_port_and_a_file_that_is_not_there_are_clear_errors(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text("{}")
    server = perfetto.OneFile(file, port=0)
    with server, pytest.raises(UsageError, match=rf"port {server.server_port} .*in use"):
        perfetto.OneFile(file, port=server.server_port)
    with pytest.raises(InputError, match=r"gone\.json"):
        perfetto.OneFile(tmp_path / "gone.json", port=0)


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    (tmp_path / "recording.json").write_text(json.dumps({"schema": 1}))
    for rank in (0, 1):
        folder = tmp_path / f"rank{rank}"
        folder.mkdir()
        (folder / "begun.json").write_text("{}")
        for number, label in enumerate(("light", "detail", "light")):
            (folder / f"trace.{number}.{label}.json").write_text(f"{rank} {number} {label}")
    return tmp_path


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["open", *words], standalone_mode=False)


@pytest.mark.parametrize(
    ("words", "content"),
    [
        ((), "0 1 detail"),
        (("--burst", "light"), "0 0 light"),
        (("--burst", "2"), "0 2 light"),
        (("--rank", "1"), "1 1 detail"),
    ],
)
def test_of_a_recording_the_detail_burst_is_given_unless_another_is_chosen(
    recording: Path, words: tuple[str, ...], content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    fetched: list[str] = []
    client: list[threading.Thread] = []

    def browser(address: str) -> bool:
        """Fetches what the address names, as the page would."""
        opened.append(address)
        trace = urllib.parse.urlsplit(address.partition("url=")[2])

        def fetch() -> None:
            connection = http.client.HTTPConnection(trace.netloc, timeout=30)
            connection.request("GET", trace.path)
            fetched.append(connection.getresponse().read().decode())

        client.append(threading.Thread(target=fetch))
        client[0].start()
        return True

    monkeypatch.setattr("webbrowser.open", browser)
    monkeypatch.setattr(perfetto, "PORT", 0)
    result = run(str(recording), "--perfetto", *words)
    assert result.return_value == 0, result.exception
    client[0].join(timeout=30)
    assert fetched == [content]
    assert result.stdout == f"{opened[0]}\n"


def test_the_report_of_a_recording_is_opened(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) is None)
    (recording / "report.html").write_text("<!doctype html>")
    assert run(str(recording)).return_value == 0
    assert opened == [(recording / "report.html").resolve().as_uri()]
    assert run(str(recording), "--no-browser").stdout == f"{opened.pop()}\n"
    assert opened == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("gone",), "gone: no such file or folder"),
        (("RECORDING",), "has no report yet; `gpudoctor analyze"),
        (("RECORDING/rank0/trace.0.light.json",), "-o report.html"),
        (("RECORDING/rank0", "--perfetto"), "without recording.json"),
        (("RECORDING", "--perfetto", "--burst", "7"), "it has 0 (light), 1 (detail), 2 (light)"),
        (("RECORDING", "--perfetto", "--rank", "7"), "has no rank 7; it has rank0, rank1"),
    ],
)
def test_what_cannot_be_opened_says_what_to_do(recording: Path, words: tuple[str, ...], says: str) -> None:
    result = run(*(word.replace("RECORDING", str(recording)) for word in words), "--no-browser")
    assert isinstance(result.exception, GpuDoctorError)
    assert says in str(result.exception)
    assert result.exception.exit_code == 2
