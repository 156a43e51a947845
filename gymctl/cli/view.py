"""gymctl view: where a person opens a session, or watches a desktop."""

from __future__ import annotations

import os
import socket
from typing import Any

import click

from gymctl.cli import complete, ui
from gymctl.errors import Unsupported

EPILOG = ui.examples("gymctl view calendr", "xdg-open $(gymctl view calendr)", "gymctl view calendr --session mine --json", "gymctl view linux-desktop")


@click.command("view", epilog=EPILOG)
@click.argument("name", shell_complete=complete.names)
@click.option("--session", metavar="S", help="Another session than the instance's own.")
@ui.json_option
def command(name: str, session: str | None, as_json: bool) -> None:
    """Print the URL of a session's page: for a person, browser-use, Selenium. gymctl's own browser is another window on the same session.

    A desktop's URL opens it in noVNC, once; its VNC address is printed too.
    """
    from gymctl import session as sessions

    with sessions.opened(name) as (instance, client):
        chosen = sessions.session_of(instance, session)
        seen = _seen(instance, client, chosen)
        port = seen.pop("port")
        tunnel = f"ssh -L {port}:127.0.0.1:{port} {os.environ.get('USER', 'USER')}@{socket.gethostname()}"
    if as_json:
        ui.print_json({"name": name, "url": seen.pop("url"), "session": chosen, "ssh": tunnel, **seen})
        return
    click.echo(seen["url"])
    ui.note(f"from another machine: `{tunnel}`, then the same URL there")
    if "vnc" in seen:
        ui.note(f"it works once; a VNC viewer of your own: {seen['vnc']}, password {seen['password']}")


def _seen(instance: Any, client: Any, session: str) -> dict[str, Any]:
    """{url, port} and, of a desktop, {vnc, password}."""
    from gymctl import instances

    kind = instances.kind(instance.kind)
    if hasattr(kind, "watch"):
        kind.check_session(client, session)
        found: dict[str, Any] = kind.watch(instance)
        return found
    if not hasattr(kind, "address"):
        hint = f"`gymctl step {instance.name} ACTION` calls a tool; MCP clients connect to {instance.url}/mcp"
        raise Unsupported(f"{instance.name} is a tool server: it has no page", hint=hint)
    client.send("GET", "/health", timeout=10)
    return {"url": kind.address(instance.url, session), "port": client.port}
