"""The command line: a thin layer, and the only place that prints.

Slow imports are delayed until a command runs, so that --help is fast.
"""

from __future__ import annotations

import errno
import os
import sys
from functools import partial
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from reclick.cli.auction_commands import auction, rank
from reclick.cli.command import ReclickCommand, hide_types
from reclick.cli.console import show_error
from reclick.cli.demo_commands import demo
from reclick.cli.evaluation_commands import evaluate, report
from reclick.cli.fit_command import fit
from reclick.cli.judgment_commands import compare_judgments, ndcg
from reclick.cli.log_commands import (
    check,
    convert,
    count,
    describe,
    formats,
    simulate,
    split,
    sql,
)
from reclick.cli.model_commands import export, models, predict
from reclick.cli.service_commands import monitor, serve
from reclick.cli.show_command import show
from reclick.errors import Argument, ReclickError, SeenLogError
from reclick.runtime.interrupts import interrupt_code, was_interrupted

OUTPUT_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}  # of the output


class ErrorHandlingGroup(TyperGroup):
    """The group of all commands: it prints an error as one line, and handles Ctrl-C.

    If the reader of the output ends (`| head`), this is not an error.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options before the command."""
        return hide_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except ReclickError as error:
            command = self.get_command(ctx, ctx.invoked_subcommand)
            show_error(error.render(partial(spell_option, command_options(command))))
            sys.exit(3 if isinstance(error, SeenLogError) else 2)
        except KeyboardInterrupt:
            exit_interrupted()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        except Exception as error:
            if was_interrupted():
                exit_interrupted()
            if not isinstance(error, OSError) or error.filename or error.errno not in OUTPUT_ERRNOS:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            show_error(f"The output cannot be written ({error.strerror}).")
            sys.exit(2)


def exit_interrupted() -> NoReturn:
    """Exit from a command that a signal has interrupted."""
    show_error(
        "Interrupted. No file was left half-written: each is either the new version or the old one."
    )
    sys.exit(interrupt_code())


def command_options(command: Any) -> dict[str, Any]:
    """Map each Python argument name to the command-line option that sets it.

    An option that may be repeated has a plural name in Python: --column is `columns`.
    """
    options = {
        option.name.rstrip("_"): option
        for option in command.params
        if option.opts[0].startswith("--")
    }
    plurals = {f"{name}s": option for name, option in options.items() if option.multiple}
    return {**plurals, **options}


def spell_option(options: dict[str, Any], argument: Argument) -> str:
    """Spell an argument from an error message as a command-line option.

    If there is no such option, it is spelled as in Python.
    """
    key = argument.option or argument.name
    if key not in options:
        return str(argument._replace(call=""))
    option, value = options[key], argument.value
    name: str = option.opts[0]
    if value is None or value is ... or isinstance(value, bool):
        return name
    if isinstance(value, dict):
        values = [f"{key}={'...' if item is ... else item}" for key, item in value.items()]
    else:
        values = list(map(str, value)) if isinstance(value, list | tuple) else [str(value)]
    return " ".join(
        f"{name} {text}" for text in (values if option.multiple else [",".join(values)])
    )


app = typer.Typer(
    cls=ErrorHandlingGroup,
    help="Fit click models to logs: what attracts, what satisfies, what is clicked next.\n\n"
    "Start with:  reclick simulate --to logs   then   "
    "reclick fit logs/week2.parquet --ads logs/ads.parquet --to model",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    simulate,
    convert,
    check,
    describe,
    count,
    split,
    sql,
    fit,
    show,
    predict,
    rank,
    auction,
    export,
    compare_judgments,
    ndcg,
    evaluate,
    report,
    serve,
    monitor,
    models,
    formats,
    demo,
):
    app.command(cls=ReclickCommand)(command)


def print_version(show: bool) -> None:
    """Print the version and exit."""
    if show:
        from reclick import __version__

        typer.echo(f"reclick {__version__}")
        raise typer.Exit


@app.callback()
def _accept_global_options(
    _: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass
