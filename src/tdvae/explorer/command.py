"""The command `tdvae explore`: opens the models, prints the address of the page, and serves it until interrupted."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path

from tdvae.errors import InputError

MISSING = (
    "explore: expected the packages of the extra `explorer`, {name} is missing; install them with "
    "pip install 'tdvae[explorer]'"
)


def explore(
    run: str | None,
    host: str,
    port: int,
    data: Path | None = None,
    export: Path | None = None,
    compare: str | None = None,
) -> None:
    """Serve the page, or with ``export`` write a static version of it."""
    from tdvae.explorer.answers import Explorer

    if export is not None:
        from tdvae.explorer.export import check_folder, write

        check_folder(export)
        count, size = write(Explorer.of(run, compare, data), export)
        print(
            f"{export}/index.html: {count} answers, {size / 1e6:.1f} MB; open it in a browser, or put it on a web host"
        )
        return
    try:
        import uvicorn

        from tdvae.explorer.server import application, bind, is_loopback
    except ImportError as error:
        raise InputError(MISSING.format(name=error.name)) from error
    with contextlib.closing(bind(host, port)) as listening:
        token = None if is_loopback(host) else secrets.token_urlsafe(16)
        app = application(Explorer.of(run, compare, data), token)
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}/" + ("" if token is None else f"?token={token}")
        print(f"The explorer is at {address} (Ctrl+C ends it)", flush=True)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, server_header=False))
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[listening])
