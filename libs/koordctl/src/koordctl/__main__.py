"""The program `koord`. It runs the command tree and shows a sentence, never a traceback.

Exit statuses: 0 done; 1 refused, failed, different (`verify`) or not found, including a position beyond the end of the
log; 2 wrong usage, or a file that is missing, empty, or not valid YAML or JSON; 3 the stream of facts is gone
(`koord up`, `koord bus bootstrap`); 130 ended by Ctrl-C.
"""

import contextlib
import logging
import os
import shlex
import sys
import tempfile
import traceback
from pathlib import Path

import typer
from koordcore.embedded.errors import EmbeddedError
from typer._click.exceptions import NoArgsIsHelpError
from typer.exceptions import Abort, Exit, TyperException

from koordctl import sketches

PROGRAM = "koord"
USAGE = 2
INTERRUPTED = 130
_NO_FILES = 4
"""The word of kubectl (cobra) for completions that are not names of files."""


def main() -> None:
    from koordctl.app import app

    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who started us: nobody listens, which is no failure
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  for as long as the process lives

    # The libraries' warnings are for services; a command says what went wrong in its own sentence.
    logging.getLogger("koordcore").addHandler(logging.NullHandler())
    sys.exit(run(app))


def complete() -> None:
    """Offer completions to kubectl: the arguments are the words after `kubectl koord`, the last one is incomplete."""
    words = sys.argv[1:] or [""]
    os.environ |= {
        sketches.COMPLETE: "complete_bash",
        "COMP_WORDS": shlex.join([PROGRAM, *words[:-1]]) + f" {words[-1]}",
        "COMP_CWORD": str(len(words)),
    }
    sys.argv = [PROGRAM]
    with contextlib.suppress(SystemExit):
        main()
    from koordctl.render.output import flush, write_line

    try:
        write_line(f":{_NO_FILES}")
        flush()
    except BrokenPipeError:
        _without_reader()


def run(app: typer.Typer) -> int:
    """Run the command line and return its exit status; expected errors are printed as one sentence.

    While a shell completes, nothing is said about errors: it would stand in the line that the user types.
    """
    if sketches.COMPLETE not in os.environ:
        return _run(app)
    # typer removes rich's markup from the texts that a shell shows, if it finds rich. Ours have none.
    sys.modules["rich"] = None  # pyright: ignore[reportArgumentType]  # the import system's word for "not there"
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stderr(nowhere):
        return _run(app)


def _run(app: typer.Typer) -> int:
    try:
        # Not standalone: that would print "Aborted!" after Ctrl-C and let everything else through as a traceback.
        # Always by this name: how it was started (`python -m`, a test) changes neither help nor completion.
        status = app(prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except Exit as end:
        return end.exit_code
    except TyperException as error:
        return _wrong_usage(error)
    except (Abort, KeyboardInterrupt):
        return INTERRUPTED
    except SystemExit as end:
        # So typer ends a command when the reader of a pipe (head, less) has gone: nothing is left to say. It also ends
        # the completion of a shell so, which asks by the status whether there is any.
        return _without_reader() if isinstance(end.__context__, BrokenPipeError) else _status(end)
    except BrokenPipeError:
        return _without_reader()
    except EmbeddedError as error:
        # What follows the first line is the end of a log, which the sentence names.
        say(str(error).partition("\n")[0])
        return error.exit_status
    except OSError as error:
        return say(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except Exception as error:  # noqa: BLE001  the edge of the program: a defect becomes a sentence and a file
        from koordctl.access.clients import LogTrouble  # only now: it imports the client of the services

        if isinstance(error, LogTrouble):
            return say(str(error).partition("\n")[0])
        return say(f"{type(error).__name__}: {error}; this is a defect of koord; details are in {_keep(error)}")
    return status if isinstance(status, int) else 0


def _wrong_usage(error: TyperException) -> int:
    """Say what is wrong in one sentence, and where the usage stands. A group without a command shows its help."""
    context = getattr(error, "ctx", None)
    if isinstance(error, NoArgsIsHelpError):
        from koordctl.render.output import write_line  # only now: help needs no output

        write_line(error.message)
        return 0
    shown = error.format_message().replace("Value error, ", "")  # the library's word for any value
    sentence = " ".join(shown.split()).removesuffix(".")
    say(sentence if context is None else f"{sentence} (usage: `{context.command_path} -h`)")
    return USAGE


def say(sentence: str) -> int:
    from koordctl.render.output import say_error

    say_error(sentence)
    return 1


def _status(end: SystemExit) -> int:
    return end.code if isinstance(end.code, int) else 0 if end.code is None else 1


def _without_reader() -> int:
    """Redirect stdout to nowhere after the reader of the pipe has gone: the interpreter's last flush would fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _keep(error: BaseException) -> Path:
    """Write a traceback to a file beside the logs of the services, or in the temporary folder if there is none."""
    from koordctl.access.clients import var_directory

    text = "".join(traceback.format_exception(error))
    for folder in (var_directory() / "log", Path(tempfile.gettempdir())):
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / "koord-defect.log"
            with file.open("a", encoding="utf-8") as log:
                log.write(text + "\n")
            return file
    return Path(os.devnull)


if __name__ == "__main__":
    main()
