"""The ConfigProto of sessions that are given none: what `tf.config` has set, empty otherwise."""

from __future__ import annotations

from typing import Any

_proto: Any = None


def editable() -> Any:
    """The proto itself: changes hold for sessions made later."""
    global _proto
    if _proto is None:
        from penstock.formats.protos import ConfigProto

        _proto = ConfigProto()
    return _proto


def current() -> Any:
    """A copy for one session."""
    from penstock.formats.protos import ConfigProto

    proto = ConfigProto()
    if _proto is not None:
        proto.CopyFrom(_proto)
    return proto


def reset() -> None:
    """Forgets all settings."""
    global _proto
    _proto = None
