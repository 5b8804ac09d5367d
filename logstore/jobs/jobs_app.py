"""Finding the queue that a program of workers names: ``module:attribute``, as ``app:jobs``.

Invariants: the module is imported from the working directory first, as the program would import it;
what is wrong with the name is told in one line, what is wrong in the module with its traceback.
"""

from __future__ import annotations

import importlib
import os
import sys

from logstore.errors import OptionError
from logstore.jobs.queue import Jobs


def load(name: str) -> Jobs:
    """The queue of this name.

    Args:
        name: ``module:attribute``, or ``module`` if there is one ``Jobs`` in it.

    Returns:
        The queue.

    Raises:
        OptionError: there is no such module, or no queue in it.
    """
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module + ".").startswith(error.name + "."):
            raise
        raise OptionError(
            f"there is no module {module!r} in {os.getcwd()} or on Python's path: give "
            "module:attribute, as app:jobs for jobs = Jobs(...) in app.py"
        ) from error
    except (ValueError, TypeError) as error:  # an empty or relative name
        raise OptionError(f"give module:attribute, as app:jobs, not {name!r}") from error
    if attribute:
        found = getattr(loaded, attribute, None)
        if not isinstance(found, Jobs):
            raise OptionError(
                f"{module} has no queue {attribute!r}: give the name of its Jobs(...)"
            )
        return found
    queues = {key: value for key, value in vars(loaded).items() if isinstance(value, Jobs)}
    if len(queues) != 1:
        raise OptionError(
            f"{module} has {len(queues)} queues ({', '.join(sorted(queues)) or 'none'}): give "
            f"{module}:NAME"
        )
    return next(iter(queues.values()))
