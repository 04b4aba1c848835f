"""Of a traceback a reader sees their own frames; how many others there were is counted."""

from __future__ import annotations

from aiperf.report.traceback import own_lines

AIPERF = """  File "/opt/lib/python3.11/site-packages/aiperf/worker/plain.py", line 67, in step
    self._result = self._function(*self._args, **self._kwargs)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"""
OWN = """  File "/home/me/aiperf/mine.py", line 8, in deeper
    return json.loads("{nope")
           ^^^^^^^^^^^^^^^^^^^
"""
LIBRARY = """  File "/usr/lib/python3.11/json/decoder.py", line 337, in decode
    obj, end = self.raw_decode(s)
"""
HEAD, END = "Traceback (most recent call last):\n", "json.decoder.JSONDecodeError: no value\n"


def test_frames_of_aiperf_and_of_libraries_are_counted_and_the_users_are_shown() -> None:
    assert own_lines("a warning\n" + HEAD + AIPERF + AIPERF + OWN + LIBRARY + END) == [
        "a warning",
        "Traceback (most recent call last):",
        'File "/home/me/aiperf/mine.py", line 8, in deeper',
        'return json.loads("{nope")',
        "json.decoder.JSONDecodeError: no value",
        "(2 frames of aiperf and 1 frame of libraries left out; the record has them)",
    ]


def test_where_no_frame_is_the_users_those_of_libraries_stay_and_where_all_are_aiperfs_those() -> None:
    assert own_lines(HEAD + AIPERF + LIBRARY + END)[1:3] == [
        'File "/usr/lib/python3.11/json/decoder.py", line 337, in decode',
        "obj, end = self.raw_decode(s)",
    ]
    alone = own_lines(HEAD + AIPERF + END)
    assert "plain.py" in alone[1]
    assert alone[-1] == "json.decoder.JSONDecodeError: no value"


def test_the_rest_of_a_frame_without_its_head_is_dropped_and_other_text_is_whole() -> None:
    assert own_lines("    self.workload.step()\n" + OWN + END)[0].startswith("File ")
    assert own_lines("    usage: train [-h]\n\x1b[31mno\x1b[0m such file") == ["usage: train [-h]", "no such file"]
