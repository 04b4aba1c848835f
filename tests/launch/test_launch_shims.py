"""Shims of version managers, and the programs behind them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aiperf.launch.shims import ResolvedCommand, resolve
from aiperf.records import Side

SHIMS = {
    "pyenv": '#!/usr/bin/env bash\nset -e\nprogram="${0##*/}"\n\nexec "{manager}" exec "$program" "$@"\n',
    "asdf": '#!/usr/bin/env bash\n# asdf-plugin: python 3.11.7\nexec {manager} exec "tool" "$@"\n',
}


@pytest.fixture(params=sorted(SHIMS))
def manager(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A manager of two versions of a tool, the one of the folder's choice; its shim is first on PATH."""
    for version in ("one", "two"):
        script(tmp_path / version / "bin/tool", f"#!/bin/sh\necho {version}\n")
    choice = 'for v in "$WANTED" "$(cat .choice 2>/dev/null)" one; do test -n "$v" && break; done\n'
    which = f'test "$1" = which && test "$2" = tool || exit 9\n{choice}echo {tmp_path}/$v/bin/$2\n'
    made = script(tmp_path / "bin" / request.param, f"#!/bin/sh\n{which}")
    script(tmp_path / "shims/tool", SHIMS[request.param].replace("{manager}", str(made)))
    monkeypatch.setenv("PATH", f"{tmp_path}/shims{os.pathsep}{os.environ['PATH']}")
    return made


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_the_program_behind_a_shim_is_what_its_manager_would_run_there(manager: Path, tmp_path: Path) -> None:
    shim = str(tmp_path / "shims/tool")
    program = f"{tmp_path}/one/bin/tool"
    assert resolve(Side("before", command=("tool", "-x"))) == ResolvedCommand((program, "-x"), shim=shim)
    assert resolve(Side("before", command=(shim,))).argv == (program,)
    chosen = resolve(Side("before", command=("tool",), env={"WANTED": "two"}))
    assert chosen.argv == (f"{tmp_path}/two/bin/tool",)
    (tmp_path / "project").mkdir()
    (tmp_path / "project/.choice").write_text("two")
    here = resolve(Side("before", command=("tool",), folder=str(tmp_path / "project")))
    assert here.argv == (f"{tmp_path}/two/bin/tool",)


def test_it_finds_the_programs_beside_it_first_as_behind_its_shim(manager: Path, tmp_path: Path) -> None:
    found = resolve(Side("before", command=("tool",)))
    assert found.environment({"PATH": "/usr/bin", "A": "1"}) == {"PATH": f"{tmp_path}/one/bin:/usr/bin", "A": "1"}
    known = {"PATH": f"/usr/bin:{tmp_path}/one/bin"}
    assert found.environment(known) == known


def test_a_shim_whose_manager_does_not_answer_is_run_as_it_is(manager: Path, tmp_path: Path) -> None:
    (tmp_path / "one/bin/tool").unlink()
    assert resolve(Side("before", command=("tool",))) == ResolvedCommand(("tool",))
    script(manager, "#!/bin/sh\necho no such version >&2\nexit 1\n")
    assert resolve(Side("before", command=("tool",))) == ResolvedCommand(("tool",))
    manager.unlink()
    assert resolve(Side("before", command=("tool",))) == ResolvedCommand(("tool",))


def test_what_is_no_shim_is_left_alone(tmp_path: Path) -> None:
    own = script(tmp_path / "shims/own", '#!/bin/sh\nexec "/usr/bin/env" exec "$@"\n')
    for command in (("true", "x"), (str(own),), ("no-such-program",)):
        found = resolve(Side("before", command=command))
        assert found == ResolvedCommand(command)
        assert found.environment({"PATH": "/bin"}) == {"PATH": "/bin"}
