"""Figures in words, with units that suit them. Pure."""

from __future__ import annotations


def describe_size(count: float) -> str:
    """Bytes in a suitable unit: 120 B, 21 kB, 1.5 MB."""
    size, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while abs(size) >= 999.5 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.3g} {units[0]}" if abs(size) < 999.5 else f"{size:.0f} {units[0]}"


def describe_rate(bytes_per_s: float | None) -> str:
    """Bytes per second in a suitable unit."""
    return "not known" if bytes_per_s is None else f"{describe_size(bytes_per_s)}/s"


def describe_duration(seconds: float) -> str:
    """A duration in its largest unit: 2.3 s, 45 s, 2.5 min, 1 h, 3 d."""
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
