"""Penstock runs TensorFlow-1 dataflow graphs in Python, without TensorFlow.

    import penstock as tf

    x = tf.placeholder(tf.float32, [None, 2])
    y = tf.reduce_sum(x * x, axis=1)
    with tf.Session() as sess:
        print(sess.run(y, {x: [[3.0, 4.0]]}))

This module only assembles the public names. Where things are: docs/layout.md; how a step runs: docs/journey.md.
"""

from __future__ import annotations

from typing import Any

from penstock import api as _api

#: Penstock's own version; `__version__` is that of TensorFlow's API, which is what TF1 programs look for there.
penstock_version = "0.1.0"

_api.assemble(__name__)

__version__: str = _api.VERSION

_lazy = _api.lazy_names()


def __getattr__(name: str) -> Any:
    if name in _lazy:
        value = _api.resolve(name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_lazy})
