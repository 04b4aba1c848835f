"""What holds for every test: facts of this host go to a folder of the session's own, output is plain."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIPERF_STATE", str(tmp_path_factory.mktemp("state")))
        patch.setenv("NO_COLOR", "1")
        patch.delenv("COLUMNS", raising=False)
        # In GitHub Actions annotations go to stderr, where tests expect nothing.
        for name in ("AIPERF_SCRATCH", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
            patch.delenv(name, raising=False)
        yield
