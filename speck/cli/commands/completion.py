"""`speck completion`"""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a shell's completion script.

    bash: `eval "$(speck completion bash)"` in ~/.bashrc; zsh the same in ~/.zshrc;
    fish: `speck completion fish > ~/.config/fish/completions/speck.fish`.
    """
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root().command
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    click.echo(completion_class(root, {}, "speck", "_SPECK_COMPLETE").source())
