"""What pytest's JUnit file says of a whole run: who submits what."""

from __future__ import annotations

import pytest

from pytest_qnn.core.printable import printable
from pytest_qnn.state import Session


def name_submission(config: pytest.Config, session: Session) -> None:
    """Give the testsuite a property for each text that names the submission.

    The fixture ``record_testsuite_property`` calls the same method. It has no effect under pytest-xdist: the
    main process, which writes the file, runs no fixtures.
    """
    for plugin in config.pluginmanager.get_plugins():
        if hasattr(type(plugin), "add_global_property"):
            for key, text in session.options.submission:
                plugin.add_global_property(key, printable(text))
