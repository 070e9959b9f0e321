"""What each op means: one file per family, one declaration per op."""

from __future__ import annotations

import importlib
import pkgutil


def load_all() -> None:
    """Imports every family of this folder, so that the registry is complete."""
    for module in pkgutil.iter_modules(__path__):
        if not module.ispkg:
            importlib.import_module(f"{__name__}.{module.name}")
