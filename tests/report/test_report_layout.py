"""Pages in both of their dialects, and records as CSV."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from printed import document_of, markdown_of, text_of

from aiperf.errors import UserError
from aiperf.report.layout.formats import OutputFormat, chosen_format, print_in, printed_listing
from aiperf.report.layout.page import Sentences, page_lines
from aiperf.report.layout.table import Table, TableColumn, listing
from aiperf.report.layout.text import Line

TABLE = Table(
    [
        TableColumn("name", "name", lambda row: row[0], rank=1),
        TableColumn("short", "", lambda row: "only here", dialect="terminal"),
        TableColumn("long", "value|s", lambda row: row[1], markdown=lambda row: f"{row[1]} in full", right=True),
    ],
    [("one", "1"), ("two", "22")],
    below=lambda row: [Line("a note")] if row[0] == "one" else [],
)
PAGE = [
    [Sentences(["A title"], style="bold", mark="## ")],
    [Sentences(["for a *terminal*"], dialect="terminal"), Sentences(["for a review"], mark="- ", dialect="markdown")],
    [],
    [TABLE, Sentences(["the end"], lead="  ", mark="**")],
    [lambda width: [Line("#" * (width // 10))]],
]


def test_a_table_that_goes_to_a_pipe_has_a_line_a_row() -> None:
    table = Table(
        [
            TableColumn("name", "name", lambda row: row[0], fold="cut", most=10),
            TableColumn("more", "more", lambda row: row[1], rank=1),
            TableColumn("long", "what", lambda row: row[2], fold="wrap"),
        ],
        [("n" * 60, "m" * 60, "a sentence of several words")],
    )
    lines = page_lines([[table]], width=100, narrow=False)
    assert [line.text.split() for line in lines[1:]] == [
        ["n" * 60, "m" * 60, "a", "sentence", "of", "several", "words"],
    ]
    assert "more" not in page_lines([[table]], width=100)[0].text


@dataclass(frozen=True)
class Row:
    name: str
    parts: tuple[str, ...] = ()
    sizes: dict[str, float] = field(default_factory=dict)
    share: float | None = None
    sure: bool = True


def test_a_page_in_a_terminal_has_a_blank_line_between_paragraphs_and_none_within() -> None:
    assert text_of(PAGE, width=40) == (
        "A title\n\nfor a *terminal*\n\n"
        " name             value|s\n one   only here        1\n     a note\n two   only here       22\n  the end\n\n"
        "####\n"
    )


def test_a_page_in_markdown_has_one_between_blocks_and_escapes_what_it_says() -> None:
    assert markdown_of(PAGE) == (
        "## A title\n\n- for a review\n\n"
        "| name | value\\|s |\n| --- | ---: |\n| one | 1 in full |\n| two | 22 in full |\n\n**the end**\n"
    )


def test_the_last_column_of_a_listing_is_wrapped_unless_it_is_a_number() -> None:
    assert text_of([[listing(["a", "b"], [["x", "many words " * 4]])]], width=30).splitlines()[2].startswith("    ")
    assert text_of([[listing(["a", "b"], [["x", "1"], ["y", "22"]], right=[1])]]).splitlines() == [
        " a   b", " x   1", " y  22",
    ]  # fmt: skip


def test_records_are_csv_of_their_fields() -> None:
    rows = [Row("a", ("x", "y"), {"k": 1.5}, 0.25), Row("b,c", sure=False)]
    assert document_of(printed_listing(rows, []).csv()) == (
        'name,parts,sizes,share,sure\na,x | y,"{""k"": 1.5}",0.25,true\n"b,c",,{},,false\n'
    )
    assert document_of(printed_listing([], [], kind=Row).csv()) == "name,parts,sizes,share,sure\n"


def test_a_format_that_a_command_lacks_is_a_mistake_that_names_those_it_has() -> None:
    assert chosen_format("csv") is OutputFormat.csv
    assert chosen_format("table", as_json=True) is OutputFormat.json
    with pytest.raises(UserError) as caught:
        chosen_format("csv", allowed=(OutputFormat.table, OutputFormat.json))
    (fault,) = caught.value.faults
    assert (fault.where, fault.what) == ("--format", 'invalid value "csv" (allowed: table, json).')


@pytest.mark.parametrize(("form", "err"), [(OutputFormat.csv, "careful\n"), (OutputFormat.json, "")])
def test_warnings_stand_beside_every_format_but_json_which_holds_them(capsys, form, err) -> None:
    print_in(form, printed_listing([Row("a")], []), warnings=["careful"])
    assert capsys.readouterr().err == err
