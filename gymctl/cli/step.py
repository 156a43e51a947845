"""gymctl step: act."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from typing import Any

import click

from gymctl.cli import complete, ui
from gymctl.errors import GymctlError, Unavailable, UsageError

EPILOG = ui.examples(
    "gymctl step agent-environment calendar_get_calendar_events",
    "gymctl step agent-environment email_search query='from:ada' limit:=5",
    """gymctl step agent-environment '{"action": "email_search", "args": {"query": "invoice"}}'""",
    "gymctl step calendr click 'text=New event'",
    "gymctl step calendr screenshot page.png",
    "gymctl step linux-desktop click 'push button=Save' in Mousepad",
    "gymctl step linux-desktop key ctrl+s screenshot:=true",
    """gymctl step linux-desktop '[{"mouse": {"left_click": [80, 60]}}, {"keyboard": {"text": "hello"}}]'""",
    """echo '{"action": "email_search", "args": {"query": "invoice"}, "id": 1}' | gymctl step agent-environment --stdin""",
)

FEW = 40
"""Names of actions that a hint lists one by one."""


@click.command("step", epilog=EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("name", shell_complete=complete.names)
@click.argument("action", nargs=-1, type=click.UNPROCESSED, shell_complete=complete.actions)
@click.option("--session", metavar="S", help="Another session than the instance's own.")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read actions as JSON lines and answer each with one.")
@ui.json_option
def command(name: str, action: tuple[str, ...], session: str | None, from_stdin: bool, as_json: bool) -> None:
    """Do one action and print what it brought; or many, with --stdin.

    \b
    A tool:     ACTION [K=V | K:=JSON | JSON]
    A website:  goto URL; click SELECTOR | X Y; fill SELECTOR VALUE; type TEXT; press KEY;
                select SELECTOR VALUE; drag FROM TO; scroll DY; back; wait-for SELECTOR;
                upload SELECTOR FILE...; snapshot; screenshot [FILE]; state [TABLE]
    A desktop:  click [right|double...] PLACE; move, drag, scroll; type TEXT; key CHORD;
                wait S; wait-change; wait-stable; screenshot [FILE] [--fresh]; a11y; windows;
                activate W; close W; exec LINE; launch LINE; put, get; clipboard [TEXT];
                PLACE: X Y, window=W [X Y] or ROLE=NAME [in W]; also gym-anything's JSON
    """
    from gymctl import session as sessions

    if from_stdin == bool(action):
        raise UsageError("give NAME and one ACTION, or NAME and --stdin", hint="" if action else _offered(name, session))
    with sessions.opened(name) as (instance, client):
        if from_stdin:
            _lines(instance, client, session)
            return
        observation = sessions.step(instance, client, sessions.parse_action(list(action), instance.kind), session=session)
    if as_json:
        ui.print_json(observation.json())
    else:
        text = _readable(observation.value)
        click.echo(text) if text else ui.note("it is empty")


def _lines(instance: Any, client: Any, session: str | None) -> None:
    """Actions as lines on stdin, an answer a line on stdout, until stdin ends; a failed action is an answer."""
    from gymctl import agents
    from gymctl import session as sessions

    for line in sys.stdin.buffer:
        if not line.strip():
            continue
        began, identity = time.monotonic(), None
        try:
            document = agents.read_line(line)
            identity = document.get("id")
            done: Any = sessions.step(instance, client, sessions.read_action(document, instance.kind), session=session)
        except Unavailable as error:
            raise sessions.explained(instance, error) from error
        except GymctlError as error:
            done = error
        sys.stdout.buffer.write(agents.line_of(agents.answer_line(identity, done, time.monotonic() - began)))
        sys.stdout.buffer.flush()


def _readable(value: Any) -> str:
    """Content blocks as text, JSON in them indented; a page with its snapshot below, or a desktop's tree, or what a command printed."""
    from gymctl.wire import printable

    for text in ("snapshot", "a11y", "stdout"):
        if isinstance(value, dict) and isinstance(value.get(text), str):
            rest = {k: v for k, v in value.items() if k != text}
            return "\n".join(filter(None, (_readable(rest) if rest else "", printable(value[text]).removesuffix("\n"))))
    blocks = value if isinstance(value, list) else [value]
    texts = [b["text"] if isinstance(b, dict) and isinstance(b.get("text"), str) else json.dumps(b, ensure_ascii=False) for b in blocks]
    return "\n".join(map(printable, map(_indented, texts)))


def _indented(text: str) -> str:
    from gymctl.wire import parsed

    try:
        return json.dumps(parsed(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


def _offered(name: str, session: str | None) -> str:
    """What may be done in an instance, for a hint: the names, or their beginnings where they are too many to read."""
    from gymctl import session as sessions

    try:
        with sessions.opened(name) as (instance, client):
            names = [tool["name"] for tool in sessions.tools(instance, client, session)]
    except GymctlError as error:
        return "; ".join(filter(None, (error.message, error.hint)))
    if len(names) <= FEW:
        return f"actions here: {', '.join(names)}"
    servers = Counter(tool.partition("_")[0] for tool in names)
    return f"{len(names)} actions here: {', '.join(f'{server}_... ({count})' for server, count in servers.items())}; TAB completes them"
