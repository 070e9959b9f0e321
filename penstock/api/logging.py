"""`tf.logging` and `tf.get_logger`: messages such as "INFO:tensorflow:loss = 0.5" on stderr.

They go through Python's logger "tensorflow", because TF1 programs and their readers know it by that name:
`logging.getLogger("tensorflow").setLevel(logging.ERROR)` works here as there.
"""

from __future__ import annotations

import logging as _logging
import sys
import threading
from typing import Any

from penstock.forks import renewed

DEBUG = _logging.DEBUG
INFO = _logging.INFO
WARN = _logging.WARNING
ERROR = _logging.ERROR
FATAL = _logging.CRITICAL

_lock = renewed(threading.Lock())
_logger: _logging.Logger | None = None
_counts: dict[tuple[str, int], int] = {}


def get_logger() -> _logging.Logger:
    """The Python logger behind `tf.logging`. It writes to stderr, from level WARN on, unless the program set it up itself."""
    global _logger
    if _logger is None:
        with _lock:
            logger = _logging.getLogger("tensorflow")
            interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive)
            if logger.level == _logging.NOTSET:
                logger.setLevel(INFO if interactive else WARN)
            # A program that configured logging gets records through the root logger; another handler would show them twice.
            if not _logging.getLogger().handlers and not logger.handlers:
                handler = _logging.StreamHandler(sys.stdout if interactive else sys.stderr)
                handler.setFormatter(_logging.Formatter(_logging.BASIC_FORMAT, None))
                logger.addHandler(handler)
            _logger = logger
    return _logger


def log(level: int, msg: Any, *args: Any, **kwargs: Any) -> None:
    """Logs `msg % args` at `level`."""
    get_logger().log(level, msg, *args, stacklevel=2, **kwargs)


def debug(msg: Any, *args: Any, **kwargs: Any) -> None:
    """Logs at level DEBUG."""
    get_logger().debug(msg, *args, stacklevel=2, **kwargs)


def info(msg: Any, *args: Any, **kwargs: Any) -> None:
    """Logs at level INFO."""
    get_logger().info(msg, *args, stacklevel=2, **kwargs)


def warning(msg: Any, *args: Any, **kwargs: Any) -> None:
    """Logs at level WARN."""
    get_logger().warning(msg, *args, stacklevel=2, **kwargs)


def warn(msg: Any, *args: Any, **kwargs: Any) -> None:
    """Logs at level WARN."""
    get_logger().warning(msg, *args, stacklevel=2, **kwargs)


def error(msg: Any, *args: Any, **kwargs: Any) -> None:
    """Logs at level ERROR."""
    get_logger().error(msg, *args, stacklevel=2, **kwargs)


def fatal(msg: Any, *args: Any, **kwargs: Any) -> None:
    """Logs at level FATAL; the program goes on."""
    get_logger().critical(msg, *args, stacklevel=2, **kwargs)


def vlog(level: int, msg: Any, *args: Any, **kwargs: Any) -> None:
    """Logs at `level`."""
    get_logger().log(level, msg, *args, stacklevel=2, **kwargs)


def TaskLevelStatusMessage(msg: Any) -> None:
    """Logs at level ERROR."""
    get_logger().error(msg, stacklevel=2)


def flush() -> None:
    """Flushes the handlers."""
    for handler in get_logger().handlers:
        handler.flush()


def _calls_from_here() -> int:
    """How often the caller's caller has come by before, counted per source line."""
    frame = sys._getframe(2)
    token = (frame.f_code.co_filename, frame.f_lineno)
    with _lock:
        count = _counts.get(token, 0)
        _counts[token] = count + 1
    return count


def log_every_n(level: int, msg: Any, n: int, *args: Any) -> None:
    """Logs the first and then every n-th time that this line runs."""
    if _calls_from_here() % n == 0:
        get_logger().log(level, msg, *args, stacklevel=2)


def log_first_n(level: int, msg: Any, n: int, *args: Any) -> None:
    """Logs the first n times that this line runs."""
    if _calls_from_here() < n:
        get_logger().log(level, msg, *args, stacklevel=2)


def log_if(level: int, msg: Any, condition: Any, *args: Any) -> None:
    """Logs if `condition` is true."""
    if condition:
        get_logger().log(level, msg, *args, stacklevel=2)


def get_verbosity() -> int:
    """The lowest level that is shown."""
    return get_logger().getEffectiveLevel()


def set_verbosity(v: int | str) -> None:
    """Sets the lowest level that is shown: `tf.logging.set_verbosity(tf.logging.INFO)`."""
    get_logger().setLevel(v)
