"""Secrets stay out: of profiled processes, of exports, of what is read from them. Nothing of a planted one is left."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from profilers_made import FIXTURES, PID, Export, host, tid

from aiperf.profilers.environment import (
    missed,
    profiled_environment,
    secrets_of,
    with_libraries,
    withheld,
    withheld_notes,
    without_secrets,
)
from aiperf.profilers.notes import note_sentence
from aiperf.profilers.nsys import nsys_profile
from aiperf.profilers.nsys_export import nsys_sqlite
from aiperf.profilers.nsys_read import read_nsys
from aiperf.profilers.reading import Pass
from aiperf.profilers.registry import statuses
from aiperf.profilers.scrub import scrub

TOKEN = "hunter2-5f3a9c-planted"
BEFORE = Pass("before", 1, {PID: 0})


def planted(path: Path) -> Path:
    """An export with a secret wherever nsys of any release puts what it should not know."""
    made = Export(path).domain().range("before", 1000, 9000).kernel(2000, 3000, launched=1500)
    made.add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value="3.20.3")
    made.add("META_DATA_EXPORT", name="EXPORT_PARAM_OUTPUT_PATH", value=f"/home/{TOKEN}/r.sqlite")
    made.string(f"PATH=/bin\0API={TOKEN}\0")
    # The environment of a process with a single variable has no NUL byte.
    made.string(f"API={TOKEN}")
    printed = made.string(f"my token is {TOKEN}\n")
    made.base.executescript(f"""
        CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT);
        INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE_3', 'API={TOKEN}');
        INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:COMMAND_LINE', '--token {TOKEN}');
        CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT);
        INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('DeviceEnvironment', 'API={TOKEN}');
        CREATE TABLE PROCESSES (globalPid, pid, name TEXT);
        INSERT INTO PROCESSES VALUES (1, 1, 'curl -H {TOKEN}');
        CREATE TABLE ProcessStreams (globalPid, filenameId, contentId);
        INSERT INTO ProcessStreams VALUES (1, 1, {printed});
        CREATE TABLE "A NEW ""TABLE"" HERE" (value TEXT);
        INSERT INTO "A NEW ""TABLE"" HERE" VALUES ('{TOKEN}');
        CREATE VIEW shown AS SELECT value FROM META_DATA_CAPTURE;
    """)
    made.done()
    assert path.read_bytes().count(TOKEN.encode()) >= 8
    return path


def test_nothing_of_a_secret_is_left_anywhere_in_an_export(tmp_path: Path):
    path = planted(tmp_path / "r.sqlite")
    assert scrub(path) >= 8
    assert TOKEN.encode() not in path.read_bytes()
    assert [other.name for other in tmp_path.iterdir()] == ["r.sqlite"]
    with sqlite3.connect(path) as base:
        assert base.execute("PRAGMA freelist_count").fetchone() == (0,)
    assert scrub(path) == 0


def test_what_is_read_does_not_change_by_the_scrubbing(tmp_path: Path):
    path = planted(tmp_path / "r.sqlite")
    whole = read_nsys(path, [BEFORE])
    scrub(path)
    assert read_nsys(path, [BEFORE]) == whole
    assert whole.facts["schema"] == "3.20.3"
    assert TOKEN not in json.dumps(asdict(whole))


def test_tables_of_a_newer_schema_are_kept_and_their_names_with_them(tmp_path: Path):
    made = Export(tmp_path / "r.sqlite", newer="_V3").domain()
    made.range("before", 1000, 9000).kernel(2000, 3000, launched=1500)
    path = made.done()
    scrub(path)
    assert [row.name for row in read_nsys(path, [BEFORE]).rows if row.kind != "call"] == ["add"]


def test_a_name_with_a_nul_byte_in_it_goes_although_a_call_uses_it(tmp_path: Path):
    made = Export(tmp_path / "r.sqlite").domain().range("before", 1000, 9000)
    made.call(1500, name=f"PATH=/bin\0API={TOKEN}")
    path = made.done()
    scrub(path)
    assert TOKEN.encode() not in path.read_bytes()


def test_a_recorded_export_is_clean_already():
    with sqlite3.connect(FIXTURES / "h200_s.sqlite") as base:
        tables = {name for (name,) in base.execute("SELECT name FROM sqlite_master")}
    assert not {"PROCESSES", "META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV", "ProcessStreams"} & tables


def test_what_is_no_database_is_said_so(tmp_path: Path):
    path = tmp_path / "r.sqlite"
    path.write_bytes(b"no database " * 50)
    with pytest.raises(sqlite3.DatabaseError):
        scrub(path)


# ---- the environment -------------------------------------------------------------------------------------------------

KEPT = {
    "PATH": "/bin", "HOME": "/h", "LANG": "C", "LC_ALL": "C", "TMPDIR": "/t", "PYTHONPATH": "/p",
    "LD_LIBRARY_PATH": "/l",
    "CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG": "INFO", "GLOO_SOCKET_IFNAME": "lo", "TORCHINDUCTOR_CACHE_DIR": "/c",
    "OMP_NUM_THREADS": "1", "RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "1", "AIPERF_LAUNCH": "x",
    "AIPERF_PARENT": "1", "CUPY_CACHE_DIR": "/c", "KVIKIO_NTHREADS": "4", "CUFILE_ENV_PATH_JSON": "/c.json",
    "HF_HOME": "/hf", "LIBRARY_PATH": "/l", "XDG_CACHE_HOME": "/x",
}  # fmt: skip
GONE = {
    "AWS_SECRET_ACCESS_KEY": TOKEN, "GITHUB_TOKEN": TOKEN, "HTTPS_PROXY": TOKEN, "PIP_INDEX_URL": TOKEN, "XPATH": TOKEN,
    "AIPERF_TOKEN": TOKEN, "NVIDIA_API_KEY": TOKEN, "TORCH_AUTH": TOKEN, "CUDA_PASSWORD": TOKEN, "path": TOKEN,
    "NCCL_Secret": TOKEN, "DATABASE_URL": TOKEN, "HF_HUB_TOKEN": TOKEN, "CUPY_KEY": TOKEN,
}  # fmt: skip


def test_a_profiled_process_gets_what_is_on_the_list_and_nothing_that_smells_of_a_secret():
    assert profiled_environment({**KEPT, **GONE}) == KEPT
    assert withheld({**KEPT, **GONE}) == tuple(sorted(GONE))


def test_the_sides_own_variables_are_given_whatever_their_name():
    told = profiled_environment({"PATH": "/bin", "MY_KEY": "a"}, extra={"MY_KEY": "b", "PATH": "/own"})
    assert told == {"PATH": "/own", "MY_KEY": "b"}


def test_the_environment_of_this_process_is_the_one_without_any(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOME_TOKEN", TOKEN)
    assert "PATH" in profiled_environment()
    assert "SOME_TOKEN" not in profiled_environment()
    assert "SOME_TOKEN" in withheld()


def test_what_a_profiled_launch_goes_without_is_named_but_for_secrets_and_what_only_a_shell_reads():
    github = {f"GITHUB_{letter}": "1" for letter in "ABCD"}
    names = missed({**KEPT, **github, "PWD": "/", "MY_MODE": "1", "API_TOKEN": TOKEN, "OWN": "1"}, extra={"OWN": "1"})
    (note,) = withheld_notes(names)
    assert note_sentence(note) == (
        "profiled without 6 variables of the environment (GITHUB_* (4), MY_MODE, 1 named like secrets); "
        "a side that needs one sets it under env"
    )
    assert withheld_notes(missed({**KEPT, "SHLVL": "1"})) == ()
    (many,) = withheld_notes(missed({f"{letter}": "1" for letter in "ABCDEFGHIJ"}))
    assert "without 10 variables of the environment (A, B, C, D, E, F, G, H, 2 more);" in note_sentence(many)


def test_values_of_secrets_are_taken_out_of_a_text_but_not_words_and_paths(tmp_path: Path):
    environ = {
        "A_TOKEN": TOKEN,
        "B_TOKEN": f"{TOKEN}-longer",
        "KEYMAP": "us",
        "SSH_AUTH_SOCK": str(tmp_path),
        "C": "plain",
    }
    assert set(secrets_of(environ)) == {"A_TOKEN", "B_TOKEN"}
    told = without_secrets(f"refused {TOKEN}-longer and {TOKEN} in {tmp_path}, us", environ=environ)
    assert told == f"refused [withheld] and [withheld] in {tmp_path}, us"


def test_library_folders_come_before_those_that_are_there():
    assert with_libraries({"A": "1"}, ["", ""]) == {"A": "1"}
    assert with_libraries({"LD_LIBRARY_PATH": "/l"}, ["/a", "", "/b"])["LD_LIBRARY_PATH"] == "/a:/b:/l"
    assert with_libraries({}, ["/a"])["LD_LIBRARY_PATH"] == "/a"


# ---- with the real tool ----------------------------------------------------------------------------------------------


def test_a_secret_in_any_environment_or_printed_by_the_program_is_in_nothing_that_is_kept(tmp_path: Path):
    """With nsys itself where it is installed, else that it is said to be absent."""
    nsys = next(status for status in statuses(host(gpu=False)) if status.tool == "nsys")
    if not nsys.usable or nsys.found is None:
        print("nsys cannot be used here")
        assert nsys.reason
        return
    print("the real nsys")
    environ = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    strangers = [
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", TOKEN], env=env)
        for env in ({"API": TOKEN}, {**environ, "API": TOKEN})
    ]
    try:
        script = f"import sys; print('{TOKEN}'[:7] + '{TOKEN}'[7:]); print('{TOKEN}', file=sys.stderr)"
        argv = nsys_profile(nsys.found, [sys.executable, "-c", script], output=tmp_path / "nsys", gpu=False)
        env = profiled_environment({**environ, "MY_TOKEN": TOKEN})
        subprocess.run(argv, env=env, capture_output=True, timeout=60, check=True)
        raw = any(TOKEN.encode() in path.read_bytes() for path in tmp_path.glob("nsys.*"))
        assert raw, "nsys no longer records what it should not: this test has nothing to show"
        sqlite = nsys_sqlite(nsys.found, tmp_path / "nsys", env=env)
    finally:
        for stranger in strangers:
            stranger.kill()
            stranger.wait()
    assert TOKEN.encode() not in sqlite.read_bytes()
    assert TOKEN not in json.dumps(asdict(read_nsys(sqlite, [Pass("before", 1)])))


def test_an_export_keeps_the_identifier_of_a_thread(tmp_path: Path):
    path = Export(tmp_path / "r.sqlite").domain().range("before", 1, 9).done()
    scrub(path)
    with sqlite3.connect(path) as base:
        assert (tid(PID),) in base.execute("SELECT globalTid FROM NVTX_EVENTS").fetchall()
