"""gymctl verify: say whether the task was done."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from gymctl.cli import complete, ui
from gymctl.errors import NotFound, UsageError

EPILOG = ui.examples(
    "gymctl verify agent-environment",
    "gymctl verify agent-environment --task move-standup",
    "gymctl verify agent-environment --checks my-checks.yaml --json",
    "gymctl verify agent-environment --task report --answer @answer.txt --judge 'python judge.py'",
)

COMPARED = {"eq": "", "neq": "anything but", "gt": "more than", "gte": "at least", "lt": "less than", "lte": "at most"}
"""How a comparator is read out; the others read well as they are."""


@click.command("verify", epilog=EPILOG)
@click.argument("name", shell_complete=complete.names)
@click.option("--session", metavar="S", help="Another session than the instance's own.")
@click.option("--task", metavar="T", help="The task whose checks count (default: the one it was reset to).", shell_complete=complete.tasks)
@click.option("--checks", metavar="FILE", help="Checks of your own: YAML or JSON.", type=click.Path())
@click.option("--answer", metavar="TEXT|@FILE", help="What the agent said at the end; claims are judged on it.")
@click.option("--judge", metavar="CMD", help="Who judges claims: reads {claims, answer}, prints {verdicts}.")
@click.option("--timeout", type=ui.Seconds(120), default=60.0, show_default=True, metavar="S", help="How long the verifier may take.")
@ui.json_option
def command(
    name: str, session: str | None, task: str | None, checks: str | None, answer: str | None, judge: str | None, timeout: float, as_json: bool
) -> int:
    """Say whether the task was done: exit 0 passed, 1 failed, 11 no verdict, 9 the checks themselves are faulty."""
    from gymctl import proc
    from gymctl import session as sessions

    if task and checks:
        raise UsageError("give --task or --checks, not both")
    judged_by = None if judge is None else proc.words(judge, "--judge")
    with ui.telling() as told, sessions.opened(name) as (instance, client):
        asked, claims, prompt = _asked(sessions, instance, task, checks)
        told.step(f"verifying {name}")
        verdict = sessions.verify(
            instance, client, asked, claims,
            session=session, answer=_answer(answer), judge=judged_by, prompt=prompt, timeout=timeout,
        )  # fmt: skip
    if as_json:
        ui.print_json(verdict.json())
    else:
        show(verdict)
    return verdict.exit_code


def _asked(sessions: Any, instance: Any, task: str | None, checks: str | None) -> tuple[list[Any], list[str], str]:
    if checks:
        return (*sessions.load_checks(Path(checks)), "")
    chosen = sessions.task_of(instance, task)
    if chosen is None:
        raise UsageError(f"{instance.name} was reset to no task", hint="name one with --task, or give --checks FILE")
    return chosen.asked(), chosen.claims, chosen.prompt


def _answer(text: str | None) -> str | None:
    if text is None or not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(f"cannot read the answer in {text[1:]}: {error}") from error


def show(verdict: Any) -> None:
    """The verdict for people: each check, what was found where one failed, then one word."""
    from gymctl.wire import printable

    for check in verdict.checks:
        outcome = check.get("success")
        click.echo(f"  {ui.mark(outcome)}  {printable(str(check.get('id') or check.get('claim')))}")
        for line in _why(check) if outcome is False else []:
            click.echo(f"      {line}")
    if verdict.verdict == "none":
        click.echo(f"{click.style('NO VERDICT', fg='yellow', bold=True)}: {printable(verdict.reason['message'])}")
    else:
        color = "green" if verdict.verdict == "passed" else "red"
        click.echo(f"{click.style(verdict.verdict.upper(), fg=color, bold=True)}  score {verdict.score:.2f}")


def _why(check: Any) -> Iterator[str]:
    """What a failed check found: its asserts, or its metrics that gave less than 1."""
    from gymctl.wire import printable

    for fact in check.get("asserts", []):
        if isinstance(fact, dict) and fact.get("success") is False:
            found, wanted = (printable(json.dumps(fact.get(k), ensure_ascii=False))[:120] for k in ("actual_value", "expected_value"))
            comparator = str(fact.get("comparator"))
            yield f"found {found}, expected {' '.join(filter(None, (COMPARED.get(comparator, comparator), wanted)))}"
    for metric in check.get("metrics", []):
        if isinstance(metric, dict) and metric.get("score") != 1:
            result = metric.get("result")
            looked = next((str(result[k]) for k in ("path", "command", "type") if k in result), "") if isinstance(result, dict) else ""
            yield printable(f"{metric.get('func')} {looked}".rstrip()[:120] + f": {metric.get('why', '')}"[:300])
