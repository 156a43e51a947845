"""Every failure a user can meet, with its exit code.

    GymctlError
    ├── UsageError       2  the command line itself is wrong
    ├── RecipeError      3  a recipe, image or task file is wrong
    ├── NotFound         4  no such recipe, image, instance, tool, pack, universe, session
    ├── Unavailable      5  this host lacks something
    ├── Unsupported      6  no host can
    ├── Conflict         7  somebody else holds it
    ├── StartError       8  it did not start
    ├── EnvError         9  the environment answered with an error
    ├── IntegrityError  10  bytes are not what they should be
    └── NoVerdict       11  nobody can say whether the task was done

0 is done or passed, 1 is a plain "no", 70 a bug, 128+n an end by signal n.
"""

from __future__ import annotations

PASSED = 0
ANSWER_IS_NO = 1
BUG = 70


class GymctlError(Exception):
    """A failure with a message for people, the way out as `hint`, and its own exit code."""

    exit_code = BUG

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Interrupted(BaseException):
    """INT, TERM or HUP reached us: everything open unwinds, and we end as ended by that signal."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class UsageError(GymctlError):
    """The command line itself is wrong."""

    exit_code = 2


class RecipeError(GymctlError):
    """A recipe, image or task file is wrong; the message lists every problem."""

    exit_code = 3


class NotFound(GymctlError):
    """No such recipe, image, instance, tool, pack, universe or session."""

    exit_code = 4


class Unavailable(GymctlError):
    """This host lacks something, or the thing does not answer."""

    exit_code = 5


class Unsupported(GymctlError):
    """No host can do this."""

    exit_code = 6


class Conflict(GymctlError):
    """A name, port or lock is held by somebody else."""

    exit_code = 7


class StartError(GymctlError):
    """The environment or the agent did not start."""

    exit_code = 8


class EnvError(GymctlError):
    """The environment answered with an error. `type` is the environment's own word for it."""

    exit_code = 9

    def __init__(self, message: str, *, hint: str = "", type: str = "", status: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.type = type
        self.status = status


class IntegrityError(GymctlError):
    """Bytes are not what they should be."""

    exit_code = 10


class NoVerdict(GymctlError):
    """Nobody can say whether the task was done."""

    exit_code = 11


def table() -> list[tuple[int, str, str]]:
    """(exit code, name, meaning) of every outcome, in order: README's table."""
    rows = [(cls.exit_code, cls.__name__, (cls.__doc__ or "").split("\n")[0]) for cls in GymctlError.__subclasses__()]
    rows += [
        (PASSED, "done", "Done; for `verify` and `run --agent`: passed."),
        (ANSWER_IS_NO, "no", "The answer is no: verification failed, or doctor says a named runner is unusable."),
        (BUG, "bug", "A fault in gymctl itself."),
    ]
    return sorted(rows)
