"""The public names whose modules are imported on first use: companions that a program may or may not touch.

A line says which module of this folder holds which public names; `name=attribute` where the two differ. Modules listed here
do not use `@export`, and `import penstock` does not import them.
"""

from __future__ import annotations

from penstock.api.export import export_lazy

LAZY: dict[str, str] = {}

#: Modules and packages of this folder that `import penstock` leaves alone.
MODULES = frozenset(f"penstock.api.{part}" for module in LAZY for part in (module, module.partition(".")[0]))

for _module, _names in LAZY.items():
    for _entry in _names.split():
        _public, _, _attribute = _entry.partition("=")
        export_lazy(_public, f"penstock.api.{_module}:{_attribute or _public.rpartition('.')[2]}")
