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


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = None if text[:1].isalpha() or text[:1] == "/" else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
