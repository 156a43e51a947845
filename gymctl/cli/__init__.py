"""The command line: finds the verb, turns signals into unwinding, and prints every error in one place."""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import os
import signal
import sys
from types import FrameType
from typing import Any, NoReturn

import click

from gymctl import __version__
from gymctl.errors import BUG, GymctlError, Interrupted, Unavailable, UsageError
from gymctl.paths import DEBUG_VARIABLE

VERBS = {
    "run": "Start an environment, or a whole episode",
    "reset": "Put a session into a known state",
    "step": "Act: call a tool, click, type",
    "verify": "Say whether the task was done",
    "ps": "List what runs",
    "stop": "End instances",
    "logs": "Show what an instance printed; bundle a report",
    "view": "Say where a person opens a session",
    "load": "Give an image file to an engine or the cache",
    "build-image": "Build an image from its source",
    "doctor": "Prove what this machine can run",
    "cache": "List, check and clean the cache",
    "recipes": "List recipes and tasks, or check your own",
}
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Verbs(click.Group):
    """Loads the module of one verb, when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"gymctl.cli.{cmd_name.replace('-', '_')}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:  # before click makes an exit with code 1 of it
            raise Interrupted(signal.SIGPIPE) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], VERBS, n=1)
            raise UsageError(f"no command {args[0]!r}{f'; did you mean {near[0]}?' if near else ''}", hint="`gymctl -h` lists them")
        return super().resolve_command(ctx, args)


EXAMPLES = """\b
Examples:
  gymctl run agent-environment --runner local
  gymctl step agent-environment calendar_get_calendar_events
  gymctl run agent-environment --task move-standup --agent oracle --rm
  gymctl stop agent-environment
"""


@click.group(cls=Verbs, context_settings=CONTEXT, epilog=EXAMPLES)
@click.version_option(__version__, "-V", "--version", prog_name="gymctl", message="%(prog)s %(version)s")
@click.pass_context
def group(ctx: click.Context) -> None:
    """Start any agent environment, reset it, let an agent act, get a verdict.

    Every command takes --json: one document on stdout, errors included.
    Exit codes: 0 done or passed, 1 no, 2 usage, 3-11 see the README, 70 a bug.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        ctx.color = False


def main() -> NoReturn:
    """The console script."""
    _open_streams()
    as_json = "--json" in sys.argv[1:]
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, _interrupt)
    _leave(_outcome(as_json))


def _outcome(as_json: bool) -> int:
    """Run the verb; its exit code, everything printed."""
    try:
        code = group(prog_name="gymctl", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except GymctlError as error:
        return _print_error(error, as_json)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help(), err=True)
        return UsageError.exit_code
    except click.ClickException as error:
        return _print_error(_usage(error), as_json)
    except (Interrupted, KeyboardInterrupt, click.Abort) as error:
        signum = error.signum if isinstance(error, Interrupted) else signal.SIGINT
        if signum == signal.SIGPIPE:
            return _to_nowhere()
        return _report(as_json, "Interrupted", f"ended by {signal.Signals(signum).name}", "", 128 + signum)
    except OSError as error:
        return _disk_error(error, as_json)
    except Exception as error:  # noqa: BLE001  (the one place: a bug is reported as one)
        return _bug(error, as_json)


def _open_streams() -> None:
    """Streams that the caller closed (`<&-`) lead to nowhere, else the next file or socket opened would take their place."""
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", errors="surrogateescape", closefd=False))


def _interrupt(signum: int, frame: FrameType | None) -> NoReturn:
    """The first signal unwinds; a second one ends us at once."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) is _interrupt:
            signal.signal(each, _force)
    raise Interrupted(signum)


def _force(signum: int, frame: FrameType | None) -> None:
    """Somebody does not want to wait for the unwinding: say what that leaves, and give the terminal its cursor back."""
    signal.signal(signum, signal.SIG_DFL)
    cursor = "\x1b[?25h\r\n" if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else ""
    os.write(2, f"{cursor}error: ended before all was undone\nhint: `gymctl ps --all` lists what still runs, `gymctl cache gc` ends it\n".encode())
    os.kill(os.getpid(), signum)


def _usage(error: click.ClickException) -> UsageError:
    ctx = getattr(error, "ctx", None)
    return UsageError(error.format_message(), hint=f"`{ctx.command_path} -h` shows how" if ctx else "")


def _print_error(error: GymctlError, as_json: bool) -> int:
    return _report(as_json, type(error).__name__, error.message, error.hint, error.exit_code)


def _report(as_json: bool, type: str, message: str, hint: str, code: int) -> int:
    from gymctl.wire import printable

    message, hint = printable(message), printable(hint)
    try:
        if as_json:
            click.echo(json.dumps({"error": {"type": type, "message": message, "hint": hint, "exit_code": code}}))
        click.echo(f"error: {message}", err=True)
        if hint:
            click.echo(f"hint: {hint}", err=True)
        sys.stdout.flush()
    except BrokenPipeError:
        _to_nowhere()
    except OSError:  # a full disk takes the error's own document neither; stderr may be another
        _to_nowhere()
        with contextlib.suppress(OSError):
            click.echo(f"error: {message}", err=True)
    return code


def _disk_error(error: OSError, as_json: bool) -> int:
    """A reader that has gone, and a disk that is full (stdout's, or one that nobody expected to fill up), are no faults of ours."""
    if isinstance(error, BrokenPipeError):
        return _to_nowhere()
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG):
        return _bug(error, as_json)
    where = f" in {error.filename}" if error.filename else ""
    return _print_error(Unavailable(f"cannot write{where}: {error.strerror}", hint="free some space; what already runs goes on: `gymctl ps`"), as_json)


def _bug(error: Exception, as_json: bool) -> int:
    import traceback

    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exception(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{last.filename.rpartition('gymctl/')[2]}:{last.lineno}"
    return _report(as_json, "Bug", f"{type(error).__name__}: {error} ({where})", "a fault in gymctl: please report it; GYMCTL_DEBUG=1 shows the trace", BUG)


def _to_nowhere() -> int:
    """The reader of stdout has gone (`| head`): end quietly, and let the interpreter's own flush go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 128 + signal.SIGPIPE


def _leave(code: int) -> NoReturn:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _to_nowhere()
    except OSError:
        _to_nowhere()
    sys.exit(code)


def fields(pairs: tuple[str, ...], what: str) -> dict[str, str]:
    """`K=V` words as a mapping; UsageError."""
    made: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise UsageError(f"{what} {pair!r} is not K=V")
        made[name] = value
    return made
