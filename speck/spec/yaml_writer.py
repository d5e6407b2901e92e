"""Writes data as YAML text that `speck.spec.yaml_loader` reads back as the same data."""

from __future__ import annotations

from typing import Any

import yaml


def to_yaml(data: Any) -> str:
    """Return YAML in block style, keys in their order. Text that YAML 1.2 would read as a number
    (`1e3`) is quoted; PyYAML, which follows YAML 1.1, would not quote it."""
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


class _Dumper(yaml.SafeDumper):
    """Quotes all text except what begins with a letter or a slash."""

    def analyze_scalar(self, scalar: str) -> Any:
        """Write what could control a terminal as escapes, between quotes: with `allow_unicode`
        PyYAML does so for a few characters only."""
        analysis = super().analyze_scalar(scalar)
        if not scalar.replace("\n", "").isprintable():
            analysis.multiline = True
            analysis.allow_flow_plain = analysis.allow_block_plain = False
            analysis.allow_single_quoted = analysis.allow_block = False
        return analysis

    def write_double_quoted(self, text: str, split: bool = True) -> None:
        """See `analyze_scalar`."""
        self.allow_unicode = text.replace("\n", "").isprintable()
        super().write_double_quoted(text, split)
        self.allow_unicode = True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = None if text[:1].isalpha() or text[:1] == "/" else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
