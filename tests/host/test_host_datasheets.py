"""Datasheets: what is shipped, what a damaged file is told, and how near a measured peak came."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from host_fake_nvml import LIBRARY_NOT_FOUND, FakeNvml
from host_shelf import recorded, sight_of

from aiperf.errors import UserError
from aiperf.host import datasheets
from aiperf.host.datasheets import FIGURE_OF, held_against, load_datasheets, sheet_of
from aiperf.host.facts import Gpu, HostFacts
from aiperf.host.fingerprint import fingerprint
from aiperf.host.host_report import check_host
from aiperf.host.peaks import PEAK_SPECS, Peak, peak_spec, save_peak
from aiperf.host.probes.run_start import PEAKS
from aiperf.paths import config_folder
from aiperf.recipes.doctor import examine

NO_NVML = FakeNvml(init_error=LIBRARY_NOT_FOUND)
SHEETS = load_datasheets()
H200 = Gpu(0, "NVIDIA H200", "GPU-1", "9.0", 1 << 37, 1 << 37)
HOST = HostFacts("node", "Linux", "AMD EPYC", (0, 1), 1 << 34, 1 << 34, gpus=(H200,))
FILE = """\
family: X
documents: {sheet: X Datasheet}
checks:
  code: {by: vendor, what: the vendor's code, address: "https://x.example/code", date: "2026-11-22"}
  copy: {by: third party, what: a copy, address: "https://y.example", date: "2026-11-21"}
models:
  - model: X1
    names: ["NVIDIA X1"]
    figures:
      memory_bandwidth: {value: 2 TB/s, source: sheet}
    pcie: {generation: 5, lanes: 16, source: sheet}
    nvlink: {one_way: 450 GB/s, total: 900 GB/s, source: sheet}
    book:
      - {figure: nvlink_total, value: 900 GB/s, lines: 1-2}
"""


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("AIPERF_STATE", str(tmp_path / "state"))


def peak(name: str, value: float, **changes: object) -> Peak:
    unit = peak_spec(name).unit
    return replace(Peak(name, value, unit, value, value, "2026-01-01", 20), **changes)


def held(**values: float):
    return held_against(HOST, {name: peak(name, value) for name, value in values.items()}, SHEETS)


def faults_of(tmp_path, text: str) -> list[str]:
    (tmp_path / "hardware").mkdir(exist_ok=True)
    (tmp_path / "hardware" / "x.yaml").write_text(text)
    with pytest.raises(UserError) as caught:
        load_datasheets(tmp_path / "hardware")
    return [f"{fault.where} {fault.what}" for fault in caught.value.faults]


def test_the_families_that_are_shipped_are_read_and_every_figure_names_its_document() -> None:
    names = {
        "NVIDIA H100 80GB HBM3",
        "NVIDIA H200",
        "NVIDIA A100-SXM4-80GB",
        "NVIDIA B200",
        "NVIDIA GB200",
        "NVIDIA L40S",
    }
    assert all(sheet_of(name, SHEETS) for name in names | {"NVIDIA GeForce RTX 4090"})
    for sheet in SHEETS:
        assert "memory_bandwidth" in sheet.figures, sheet.model
        assert all(figure.source.startswith("NVIDIA ") and figure.value > 0 for figure in sheet.figures.values())


def test_tensor_figures_are_dense_and_in_the_order_of_their_width() -> None:
    for sheet in SHEETS:
        found = sheet.figures
        if {"tf32", "bf16", "fp8"} <= set(found):
            assert found["bf16"].value == pytest.approx(2 * found["tf32"].value, rel=0.02), sheet.model
            assert found["fp8"].value == pytest.approx(2 * found["bf16"].value, rel=0.02), sheet.model
        if {"bf16", "fp16"} <= set(found):
            assert found["fp16"].value == found["bf16"].value
    h200 = sheet_of("NVIDIA H200", SHEETS).figures
    assert (h200["memory_bandwidth"].value, h200["bf16"].value) == (4.8e12, 989.5e12)


def test_the_link_to_the_host_is_counted_one_way_after_its_encoding() -> None:
    assert sheet_of("NVIDIA H200", SHEETS).figures["pcie"].value == pytest.approx(63.0e9, rel=0.001)
    assert sheet_of("NVIDIA L40S", SHEETS).figures["pcie"].value == pytest.approx(31.5e9, rel=0.001)


def test_every_figure_belongs_to_a_roof_that_exists() -> None:
    assert set(FIGURE_OF) <= {declared.name for declared in PEAK_SPECS}


@pytest.mark.parametrize("name", ["NVIDIA H200 MIG 1g.18gb", "NVIDIA H2000", "AMD Instinct MI300X", ""])
def test_a_slice_and_an_unknown_gpu_have_no_datasheet(name) -> None:
    assert sheet_of(name, SHEETS) is None
    assert sheet_of(name, [replace(SHEETS[0], names=("NVIDIA H200 MIG*",))]) is None


def test_a_roof_is_held_against_the_figure_it_reaches_for() -> None:
    found = held(
        dram=4.1e12, gemm_bf16=770e12, gemm_fp8=1385e12, h2d=53.1e9, p2p=385e9, l2=6e12, cpu_stream=2e10, launch=2e-6
    )
    assert {name: round(entry.share, 2) for name, entry in found.items()} == {
        "dram": 0.85, "gemm_bf16": 0.78, "gemm_fp8": 0.70, "h2d": 0.84, "p2p": 0.86,
    }  # fmt: skip
    assert not any(entry.far_below for entry in found.values())
    # How sure a figure is stands beside it wherever it is shown.
    assert found["dram"].figure.source == "NVIDIA H200 Tensor Core GPU Datasheet [checked in other files of the vendor]"


def test_the_latest_occasion_counts_where_it_is_known() -> None:
    found = held_against(HOST, {"dram": peak("dram", 4.1e12, latest=2.4e12)}, SHEETS)
    assert found["dram"].share == pytest.approx(0.5)
    assert found["dram"].far_below


def test_sixty_per_cent_is_not_far_below() -> None:
    assert not held(dram=0.601 * 4.8e12)["dram"].far_below
    assert held(dram=0.599 * 4.8e12)["dram"].far_below


def test_a_gpu_cut_into_slices_and_a_host_without_a_gpu_are_held_against_nothing() -> None:
    sliced = replace(HOST, gpus=(replace(H200, mig=True),))
    assert held_against(sliced, {"dram": peak("dram", 1e12)}, SHEETS) == {}
    assert held_against(replace(HOST, gpus=()), {"dram": peak("dram", 1e12)}, SHEETS) == {}


def test_the_book_is_told_beside_it_with_what_is_wrong_in_it() -> None:
    b200 = replace(HOST, gpus=(replace(H200, name="NVIDIA B200"),))
    found = held_against(b200, {n: peak(n, 7e11) for n in ("dram", "p2p", "gemm_fp32")}, SHEETS)
    assert (found["dram"].figure.value, found["dram"].claim.value, found["dram"].claim.error) == (7.7e12, 8e12, "")
    assert "50 GB/s one way" in found["p2p"].claim.error
    assert (found["gemm_fp32"].figure.value, found["gemm_fp32"].claim.value) == (75e12, 80e12)


def test_a_claim_of_the_book_is_told_also_where_no_document_has_the_figure(tmp_path) -> None:
    (tmp_path / "x.yaml").write_text(
        FILE.replace("figure: nvlink_total, value: 900 GB/s", "figure: fp32, value: 80 TFLOP/s")
    )
    known = replace(HOST, gpus=(replace(H200, name="NVIDIA X1"),))
    found = held_against(known, {"gemm_fp32": peak("gemm_fp32", 7e11)}, load_datasheets(tmp_path))["gemm_fp32"]
    assert (found.figure, found.share, found.claim.value) == (None, None, 80e12)


@pytest.mark.parametrize(
    ("checked", "source", "told"),
    [
        ("", "X Datasheet [from memory, unchecked]", ""),
        (
            ", checked: copy",
            "X Datasheet [checked in a third party's copy]",
            "a copy, https://y.example, read 2026-11-21",
        ),
        (
            ", checked: [copy, code]",
            "X Datasheet [checked in other files of the vendor]",
            "a copy, https://y.example, read 2026-11-21; the vendor's code, https://x.example/code, read 2026-11-22",
        ),
    ],
)
def test_each_figure_says_by_itself_where_it_was_read_and_by_whom_that_is(tmp_path, checked, source, told) -> None:
    (tmp_path / "x.yaml").write_text(FILE.replace("source: sheet}", f"source: sheet{checked}}}"))
    (sheet,) = load_datasheets(tmp_path)
    for name in ("memory_bandwidth", "pcie", "nvlink", "nvlink_total"):
        assert (sheet.figures[name].source, sheet.figures[name].checked) == (source, told)
    (tmp_path / "x.yaml").write_text(FILE.replace("16, source: sheet}", f"16, source: sheet{checked}}}"))
    (sheet,) = load_datasheets(tmp_path)
    assert sheet.figures["pcie"].source == source
    assert sheet.figures["memory_bandwidth"].source == "X Datasheet [from memory, unchecked]"


def test_what_is_shipped_names_public_addresses_and_uses_every_check_that_it_lists() -> None:
    for path in sorted((config_folder() / "hardware").glob("*.yaml")):
        data = yaml.safe_load(path.read_text())
        figures = [f for m in data["models"] for f in (*m["figures"].values(), m.get("pcie", {}), m.get("nvlink", {}))]
        used = {
            name
            for f in figures
            for name in ([f["checked"]] if isinstance(f.get("checked"), str) else f.get("checked", []))
        }
        assert used == set(data["checks"]), path.name
        assert {f["source"] for f in figures if f} == set(data["documents"]), path.name
        assert all(check["address"].startswith("https://") for check in data["checks"].values())


def test_the_figures_that_nobody_has_read_are_few_and_marked() -> None:
    unread = {(s.model, name) for s in SHEETS for name, f in s.figures.items() if not f.checked}
    assert unread == {
        ("A100 SXM 80 GB", "sms"), ("A100 PCIe 40 GB", "sms"), ("A100 PCIe 80 GB", "sms"),
        ("GeForce RTX 4090", "tf32"), ("GeForce RTX 4090", "fp16"), ("GeForce RTX 4090", "pcie"),
        ("RTX 6000 Ada", "pcie"),
    }  # fmt: skip
    for sheet in SHEETS:
        for figure in sheet.figures.values():
            assert figure.source.endswith("[from memory, unchecked]") == (not figure.checked)


def test_what_the_book_adds_up_over_both_ways_counts_half_one_way(tmp_path) -> None:
    (tmp_path / "x.yaml").write_text(FILE)
    (sheet,) = load_datasheets(tmp_path)
    assert (sheet.book["nvlink"].value, sheet.book["nvlink_total"].value) == (450e9, 900e9)


def test_every_fault_of_every_file_is_told_at_once(tmp_path) -> None:
    text = FILE.replace("2 TB/s", "2 TB").replace("total: 900", "total: 800").replace("generation: 5", "generation: 9")
    text = text.replace("figure: nvlink_total", "figure: warp").replace("family: X", "family: X\ncolour: green")
    told = "\n".join(faults_of(tmp_path, text))
    for part in (
        '"2 TB" is not a number in B/s',
        "total is not twice one_way",
        "generation 9 with 16",
        '"warp" is not a figure',
    ):
        assert part in told
    assert "colour is not a known key" in told
    assert told.count("x.yaml") == 5


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("source: sheet}", "source: other}", '"other" is none of the documents'),
        ("source: sheet}", "source: sheet, checked: [code, rumour]}", '"rumour" is none of the checks'),
        ("source: sheet}", "source: sheet, checked: [[code]]}", "is none of the checks"),
        ("by: vendor", "by: hearsay", '"hearsay" is not vendor or third party'),
        (', date: "2026-11-21"', "", "checks: copy: date is missing"),
        ("what: a copy", "what: a copy, page: 3", "page is not a known key"),
        ("models:", "modules:", "models is missing"),
        ("memory_bandwidth", "bandwidth", "bandwidth is not a figure"),
        ('names: ["NVIDIA X1"]', "names: []", 'names "[]" is not a list'),
        ("family: X", "family: [", "cannot be read as YAML"),
        ("lines: 1-2", "page: 1", "lines is missing"),
        ("value: 2 TB/s, ", "", "value is missing"),
        ("  - model: X1", '  - {model: X0, names: ["NVIDIA X1"], figures: {}}\n  - model: X1', "names both X0 and X1"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_told_where(tmp_path, old, new, part) -> None:
    assert any(part in told for told in faults_of(tmp_path, FILE.replace(old, new, 1)))


def peak_findings(root, *peaks):
    """What the probe of peaks finds on a host of the shelf that has measured these."""
    reader = sight_of(root, recorded("h200-vm"))
    host_id, _ = fingerprint(reader.facts, root=reader.root)
    for one in peaks:
        save_peak(host_id, one)
    return check_host([PEAKS], reader).findings


def test_a_peak_far_below_its_datasheet_is_a_finding_with_its_numbers(tmp_path) -> None:
    (found,) = peak_findings(tmp_path, peak("dram", 2.0e12), peak("gemm_bf16", 700e12))
    assert (found.id, found.part, found.level, found.group) == ("peaks", "dram", "warn", "GPU")
    assert found.value == (
        "dram reached 2.00 TB/s here, 42 % of the 4.80 TB/s in the NVIDIA H200 Tensor Core GPU Datasheet "
        "[checked in other files of the vendor]"
    )
    assert found.fix.endswith("aiperf peaks dram")


def test_peaks_near_their_datasheet_and_those_without_one_are_no_findings(tmp_path) -> None:
    assert peak_findings(tmp_path / "a", peak("dram", 4.1e12), peak("cpu_stream", 1e10)) == ()


@pytest.mark.parametrize(("group", "ids"), [("", ["dram"]), ("GPU", ["dram"]), ("memory", [])])
def test_the_doctor_tells_it_after_its_probes_in_the_group_of_the_gpu(tmp_path, group, ids) -> None:
    first = sight_of(tmp_path / "root", recorded("h200-vm"))
    host_id, _ = fingerprint(first.facts, root=first.root)
    save_peak(host_id, peak("dram", 2.0e12))
    rows = examine(sight_of(tmp_path / "root2", recorded("h200-vm")), group=group).findings
    assert [row.part for row in rows if row.id == "peaks"] == ids
    assert not ids or rows[-1].id == "peaks"


def test_shipped_files_are_read_once(monkeypatch) -> None:
    monkeypatch.setattr(datasheets, "_load", lambda folder: pytest.fail("read again"))
    assert load_datasheets() is SHEETS
