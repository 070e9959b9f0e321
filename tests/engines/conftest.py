"""What tests of several engines share."""

import pytest

from penstock.engines.onednn.chains import Chain
from penstock.runtime.executor.chooser import Chooser


@pytest.fixture
def chained(monkeypatch):
    """Generated code from the first step on. Gives the outcomes of chains: whether they computed."""
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    monkeypatch.setattr(Chooser, "on_pool", lambda self: False)
    done = []
    call = Chain.__call__

    def counted(self, *arrays):
        results = call(self, *arrays)
        done.append(results is not None)
        return results

    monkeypatch.setattr(Chain, "__call__", counted)
    return done
