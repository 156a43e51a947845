"""gymctl view: where a person opens a session."""

from __future__ import annotations

import os
import socket

import click

from gymctl.cli import complete, ui
from gymctl.errors import Unsupported

EPILOG = ui.examples("gymctl view calendr", "xdg-open $(gymctl view calendr)", "gymctl view calendr --session mine --json")


@click.command("view", epilog=EPILOG)
@click.argument("name", shell_complete=complete.names)
@click.option("--session", metavar="S", help="Another session than the instance's own.")
@ui.json_option
def command(name: str, session: str | None, as_json: bool) -> None:
    """Print the URL of a session's page: for a person, browser-use, Selenium. gymctl's own browser is another window on the same session."""
    from gymctl import instances
    from gymctl import session as sessions

    with sessions.opened(name) as (instance, client):
        address = getattr(instances.kind(instance.kind), "address", None)
        if address is None:
            hint = f"`gymctl step {name} ACTION` calls a tool; MCP clients connect to {instance.url}/mcp"
            raise Unsupported(f"{name} is a tool server: it has no page", hint=hint)
        client.send("GET", "/health", timeout=10)
        chosen = sessions.session_of(instance, session)
        url = address(instance.url, chosen)
        tunnel = f"ssh -L {client.port}:127.0.0.1:{client.port} {os.environ.get('USER', 'USER')}@{socket.gethostname()}"
    if as_json:
        ui.print_json({"name": name, "url": url, "session": chosen, "ssh": tunnel})
        return
    click.echo(url)
    ui.note(f"from another machine: `{tunnel}`, then the same URL there")
