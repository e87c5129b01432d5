"""The server of the explorer: static files and a JSON API, on the loopback address unless the user says otherwise."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tdvae.errors import InputError, TDVAEError, failure
from tdvae.explorer.answers import Explorer
from tdvae.explorer.latest import BusyError, Latest, SupersededError

STATIC = Path(__file__).with_name("static")
LONGEST_QUERY = 8_000  # characters
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def application(explorer: Explorer, token: str | None = None) -> Starlette:
    """The application. With a token, every request of the API needs it."""
    latest = Latest()
    # Files are read once: no name of a request ever reaches the disk.
    files = {f"/{path.name}": (path.read_bytes(), TYPES[path.suffix]) for path in sorted(STATIC.iterdir())}
    files["/"] = files["/index.html"]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        latest.close()

    async def static(request: Request) -> Response:
        if request.url.path not in files:
            return _problem(404, "no such page")
        content, kind = files[request.url.path]
        return Response(content, media_type=kind)

    async def api(request: Request) -> Response:
        given = request.headers.get("x-explorer-token", "")
        if token is not None and not hmac.compare_digest(given.encode(), token.encode()):
            return _problem(401, "token: expected the one in the address that tdvae explore printed")
        if len(request.url.query) > LONGEST_QUERY:
            return _problem(414, f"query: expected at most {LONGEST_QUERY} characters")
        return await _answer(explorer, latest, request)

    routes = [
        Route("/api/{view}", api, methods=["GET"]),
        Route("/{path:path}", static, methods=["GET"]),
    ]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.add_middleware(_Guard, any_host=token is not None)
    return app


async def _answer(explorer: Explorer, latest: Latest, request: Request) -> Response:
    """The answer of the API; mistakes of the request are 4xx with one line."""
    view, values = request.path_params["view"], dict(request.query_params)
    if len(request.query_params.multi_items()) != len(values):
        return _problem(400, "query: expected each name once")
    page = values.pop("page", "")[:40]
    slot = f"{page}/{view}/{values.get('model', '')}" if page else ""
    work = latest.run(slot, lambda stop: explorer.answer(view, values, stop))
    try:
        return JSONResponse(await _unless_gone(request, work))
    except InputError as error:
        return _problem(400, failure(error))
    except TDVAEError as error:
        return _problem(422, failure(error))
    except SupersededError:
        return _problem(409, "a newer request has taken the place of this one")
    except BusyError:
        return _problem(503, "too many requests are waiting; try again")
    except Exception as error:
        return _problem(500, failure(error))


async def _unless_gone(request: Request, work: Awaitable[object]) -> object:
    """Await the work, but cancel it when the reader has gone."""
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.wait([task], timeout=0.05)
        if not task.done() and await request.is_disconnected():
            task.cancel()
            raise SupersededError
    return task.result()


def _problem(status: int, line: str) -> Response:
    return JSONResponse({"error": " ".join(line.split())[:500]}, status_code=status)


class _Guard:
    """Checks the Host header, so that no other site can reach the server through a name; adds security headers."""

    def __init__(self, app: ASGIApp, any_host: bool) -> None:
        self._app, self._any_host = app, any_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *extra]}  # type: ignore[misc]
            await send(message)

        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        app: Callable[[Scope, Receive, Send], Awaitable[None]] = self._app
        if not self._any_host and not is_loopback(_host_name(host)):
            app = _problem(421, "host: expected localhost or 127.0.0.1")
        await app(scope, receive, send_with_headers)  # type: ignore[arg-type]


def _host_name(host: str) -> str:
    """The name in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; with port 0 the system chooses one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio turns Nagle's algorithm off, which would delay every answer by 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(64)
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"--host, --port: expected a free address, got {host}:{port} ({reason.lower()})") from error
    return listening
