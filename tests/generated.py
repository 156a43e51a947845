"""What is written by a program and committed: completions, README's tables, the pinned options. `python -m tests.generated` writes it anew."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from gymctl import cli, doctor, errors, paths

ROOT = Path(__file__).resolve().parent.parent
SHELLS = ("bash", "zsh", "fish")


def completion(shell: str) -> str:
    """The completion script of a shell, as click writes it."""
    made = get_completion_class(shell)
    assert made is not None
    return made(cli.group, {}, "gymctl", "_GYMCTL_COMPLETE").source().strip() + "\n"


def options() -> str:
    """{verb: its options and arguments}, read off the commands, as JSON."""
    found = {}
    context = click.Context(cli.group)
    for verb in cli.VERBS:
        made = cli.group.get_command(context, verb)
        assert made is not None
        commands = made.commands.items() if isinstance(made, click.Group) else [("", made)]
        for name, each in commands:
            found[f"{verb} {name}".strip()] = sorted("/".join(p.opts) for p in each.params)
    return json.dumps(found, indent=1) + "\n"


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows))


def blocks() -> dict[str, str]:
    """README's generated blocks by name."""
    features = doctor.feature_table()
    abilities = list(features[0]["abilities"])
    return {
        "features": table(
            ["runner", "boots", "isolated", *abilities, "what it is"],
            [
                [f"`{r['name']}`", ", ".join(r["formats"]), yes(r["isolated"]), *(yes(r["abilities"][a]) for a in abilities), f"{r['summary']}. {r['notes']}"]
                for r in features
            ],
        ),
        "options": table(
            ["runner", "option", "meaning"], [[f"`{r['name']}`", f"`--opt {o['name']}={o['type']}`", o["help"]] for r in features for o in r["options"]]
        ),
        "exit codes": table(["code", "name", "meaning"], [[str(code), name, meaning] for code, name, meaning in errors.table()]),
        "variables": table(["variable", "meaning"], [[f"`{name}`", meaning] for name, meaning in paths.VARIABLES.items()]),
    }


def yes(value: bool) -> str:
    """yes, or nothing."""
    return "yes" if value else ""


def readme(text: str) -> str:
    """README with its generated blocks as they should be."""
    for name, block in blocks().items():
        begin, end = f"<!-- {name}: generated -->", f"<!-- end of {name} -->"
        assert begin in text, f"README has no block {name}"
        text = re.sub(f"{begin}.*?{end}", lambda _, made=f"{begin}\n{block}\n{end}": made, text, flags=re.DOTALL)  # type: ignore[misc]
    return text


def files() -> dict[Path, str]:
    """Each generated file and what it should hold."""
    made = {ROOT / "completions" / f"gymctl.{shell}": completion(shell) for shell in SHELLS}
    made[ROOT / "tests" / "options.json"] = options()
    made[ROOT / "README.md"] = readme((ROOT / "README.md").read_text())
    return made


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
