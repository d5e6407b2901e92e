"""What a command is about: a name or a document, and a suggestion when the name is unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

import click

from speck.cli.options import client, names_of

F = TypeVar("F", bound=Callable[..., Any])

_FIELDS = {"composition": "compositions", "job": "jobs", "site": "sites"}


def add_name(noun: str, argument: str = "name", metavar: str | None = None) -> Callable[[F], F]:
    """Add the name of a `job`, `site` or `composition` as argument; for one that the service does
    not know the error suggests another."""

    def decorate(command: F) -> F:
        @wraps(command)
        def run(*args: Any, **kwargs: Any) -> Any:
            with _suggesting(noun, kwargs[argument]):
                return command(*args, **kwargs)

        names = names_of(_FIELDS[noun])
        return click.argument(argument, metavar=metavar, shell_complete=names)(run)  # type: ignore[return-value]

    return decorate


def add_composition(*, required: bool = True) -> Callable[[F], F]:
    """Add COMPOSITION and `-f FILE`, a document with the name of a composition; passed as
    `composition`, which is None only if it is not `required`."""

    def decorate(command: F) -> F:
        @wraps(command)
        def run(*args: Any, document: str | None, composition: str | None, **kwargs: Any) -> Any:
            name = _choose(composition, document, required=required)
            with _suggesting("composition", name):
                return command(*args, composition=name, **kwargs)

        with_file = click.option(
            "-f", "--file", "document", metavar="FILE", help="The composition of this document."
        )(run)
        names = names_of("compositions")
        return click.argument("composition", required=False, shell_complete=names)(with_file)  # type: ignore[return-value]

    return decorate


def add_document(command: F) -> F:
    """Add FILE as an argument and as `-f FILE`, passed as `file`; the command refuses None."""

    @wraps(command)
    def run(*args: Any, document: str | None, file: str | None, **kwargs: Any) -> Any:
        if document is not None and file is not None:
            raise click.UsageError("give FILE once, either by itself or with -f")
        return command(*args, file=document or file, **kwargs)

    option = click.option("-f", "--file", "document", metavar="FILE", help="The same as FILE.")
    return click.argument("file", required=False)(option(run))  # type: ignore[return-value]


def _choose(composition: str | None, document: str | None, *, required: bool) -> str | None:
    if document is not None and composition is not None:
        raise click.UsageError("give COMPOSITION or -f FILE, not both")
    if document is not None:
        return _name_in(document)
    if composition is None and required:
        raise click.UsageError("give COMPOSITION, or -f FILE with its document")
    return composition


def _name_in(document: str) -> str:
    """The name of the composition in a document. Raises SpeckError when it holds none."""
    from speck.cli import documents
    from speck.errors import InvalidError
    from speck.spec.documents import limits_for, load_document
    from speck.spec.schema import MAX_JOBS

    text = documents.read(document)
    data = load_document(text.content, text.content_type, limits_for(MAX_JOBS)).data
    name = data.get("name") if isinstance(data, dict) else None
    if not isinstance(name, str):
        raise InvalidError(
            f"cannot tell which composition {text.name} is: it has no `name`; give COMPOSITION"
        )
    return name


@contextmanager
def _suggesting(noun: str, name: str | None) -> Iterator[None]:
    from speck.cli.names import check_known
    from speck.client import ClientError

    try:
        yield
    except ClientError as error:
        if error.status == 404 and name is not None and f"{noun} {name!r}" in str(error):
            check_known(client(), **{noun: name})
        raise
