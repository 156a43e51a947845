"""The console script, and `python -m gymctl`."""

import os
import sys

INTERRUPTED = b'{"error": {"type": "Interrupted", "message": "ended by SIGINT", "hint": "", "exit_code": 130}}\n'


def main() -> None:
    """Run the command line; Ctrl-C while that is still being loaded is said as it is later."""
    try:
        from gymctl.cli import main as command
    except KeyboardInterrupt:
        if "--json" in sys.argv[1:]:
            os.write(1, INTERRUPTED)
        os.write(2, b"error: ended by SIGINT\n")
        sys.exit(130)
    command()


if __name__ == "__main__":
    main()
