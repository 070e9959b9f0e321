"""`tf.app.run`: parses the command line, then calls the program's `main(argv)`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn

from penstock.api.flags import FLAGS, Error

_HELP = {"--help": "all", "-help": "all", "-h": "main", "-?": "main", "--helpshort": "main", "-helpshort": "main", "--helpfull": "all"}


def run(main: Callable[[list[str]], Any] | None = None, argv: list[str] | None = None) -> NoReturn:
    """Parses flags, calls `main` (by default that of the program) with the rest of the command line, and exits with its result.

    Undefined flags are left in `argv`; values that do not parse end the program with a message and the help text.
    """
    arguments = list(sys.argv if argv is None else argv)
    main = main or sys.modules["__main__"].main  # type: ignore[attr-defined]
    for argument in arguments[1:]:
        if argument == "--":
            break
        if argument in _HELP and argument.lstrip("-") not in FLAGS:
            _usage(shorthelp=_HELP[argument] == "main")
            sys.exit(1)
    try:
        rest = FLAGS(arguments, known_only=True)
    except Error as error:
        sys.stderr.write(f"FATAL Flags parsing error: {error}\nPass --helpshort or --helpfull to see help on flags.\n")
        sys.exit(1)
    assert main is not None
    sys.exit(main(rest))


def _usage(shorthelp: bool) -> None:
    doc = sys.modules["__main__"].__doc__ or f"\nUSAGE: {sys.argv[0]} [flags]\n"
    flags = FLAGS.main_module_help() if shorthelp else FLAGS.get_help()
    sys.stdout.write(f"{doc.replace('%s', sys.argv[0])}\nflags:\n\n{flags}\n")
    if shorthelp:
        sys.stdout.write("\nTry --helpfull to get a list of all flags.\n")
