"""CRC32C, as it stands in every frame: the function of the package crc32c, and nothing else of it.

The package asks importlib.metadata for its own version when it is imported, and brings a command
line, which takes longer than all else of opening a store. So its compiled module is loaded by
itself, under its own name: whoever imports the package later meets the same module.
"""

from __future__ import annotations

import sys
from importlib.machinery import ExtensionFileLoader, PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crc32c import crc32c
else:

    def _load():
        """The compiled module; the whole package where that is not laid out as expected."""
        name = "crc32c._crc32c"
        if "crc32c" not in sys.modules and name not in sys.modules:
            package = PathFinder.find_spec("crc32c")
            places = None if package is None else package.submodule_search_locations
            found = PathFinder.find_spec(name, places) if places else None
            if found is not None and isinstance(found.loader, ExtensionFileLoader):
                module = found.loader.create_module(found)
                found.loader.exec_module(module)
                sys.modules[name] = module
                if hasattr(module, "crc32c"):
                    return module.crc32c
        from crc32c import crc32c

        return crc32c

    crc32c = _load()

__all__ = ["crc32c"]
