"""What one kind of step asks for: the key of the executor cache."""

from __future__ import annotations

from typing import NamedTuple


class Signature(NamedTuple):
    """Feeds, fetches and targets by name; `connections` are (from, to) tensor names (CallableOptions.tensor_connection).

    `through_rendezvous` chooses how values come in and out: `_Arg`/`_Retval` nodes and a call frame, or `_Recv`/`_Send` nodes and
    the step's rendezvous (partial runs, clients of a cluster). `feed_devices` and `fetch_devices` give devices to some of them.
    """

    feeds: tuple[str, ...] = ()
    fetches: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    connections: tuple[tuple[str, str], ...] = ()
    through_rendezvous: bool = False
    feed_devices: tuple[tuple[str, str], ...] = ()
    fetch_devices: tuple[tuple[str, str], ...] = ()
