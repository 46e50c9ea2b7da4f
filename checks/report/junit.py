"""JUnit XML from result rows: one test case for each (op, surface), numbers as properties."""

import re
from collections.abc import Iterable
from xml.etree import ElementTree as ET

from checks.report.wording import number, plural
from checks.results import (
    EXCLUDED,
    FAIL,
    PASS,
    STALE,
    Row,
    severity,
    summary,
    surface_order,
)

# What XML 1.0 cannot hold, even escaped: section 2.2 of its specification.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def text(rows: Iterable[Row], name: str = "gradsweep") -> str:
    """Return a JUnit document: a suite for each surface, a case for each op in it.

    A case fails if a row of it failed or is stale; it is skipped if no row passed, for exclusions
    that hold and for rows that were not run. Its properties are `samples`, `checks`, `excluded`,
    `error`, `tolerance`, `headroom`, `ulp`, `componentwise` and `evaluations`, of the worst row.
    """
    every = list(rows)
    root = ET.Element("testsuites", name=clean(name))
    totals = {"tests": 0, "failures": 0, "skipped": 0}
    for surface in surface_order(row.surface for row in every):
        suite = _suite(surface, [row for row in every if row.surface == surface])
        root.append(suite)
        for key in totals:
            totals[key] += int(suite.attrib[key])
    for key, value in totals.items():
        root.set(key, str(value))
    root.set("errors", "0")
    root.set("time", f"{summary(every).seconds:.3f}")
    ET.indent(root)
    body = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{body}\n'


def _suite(surface: str, rows: list[Row]) -> ET.Element:
    suite = ET.Element("testsuite", name=clean(surface))
    by_op: dict[str, list[Row]] = {}
    for row in rows:
        by_op.setdefault(row.op, []).append(row)
    cases = [_case(op, surface, by_op[op]) for op in sorted(by_op)]
    suite.extend(cases)
    suite.set("tests", str(len(cases)))
    suite.set("errors", "0")
    for key, tag in (("failures", "failure"), ("skipped", "skipped")):
        suite.set(key, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("time", f"{summary(rows).seconds:.3f}")
    return suite


def _case(op: str, surface: str, rows: list[Row]) -> ET.Element:
    found = summary(rows)
    case = ET.Element(
        "testcase",
        classname=f"gradsweep.{clean(surface)}",
        name=clean(op),
        time=f"{found.seconds:.3f}",
    )
    case.append(_properties(rows))
    bad = [row for row in rows if row.status in (FAIL, STALE)]
    if bad:
        worst = max(bad, key=lambda row: severity(row.headroom))
        failure = ET.SubElement(case, "failure", type=worst.status)
        failure.set(
            "message", clean(f"{plural(len(bad), 'sample')} of {len(rows)}: {_line(worst)}")
        )
        failure.text = clean("\n\n".join(map(_block, bad)))
    elif not any(row.status == PASS for row in rows):
        first = next((row for row in rows if row.status == EXCLUDED), rows[0])
        kind = "known failure" if first.status == EXCLUDED else "not run"
        ET.SubElement(case, "skipped", message=clean(f"{kind}: {first.reason}"))
    return case


def _properties(rows: list[Row]) -> ET.Element:
    found = summary(rows)
    held = sum(row.status == EXCLUDED for row in rows)
    values: dict[str, object] = {
        "samples": found.samples,
        "checks": found.checks,
        "excluded": held,
        "evaluations": sum(row.evaluations for row in rows),
    }
    if found.worst is not None:
        row = found.worst
        values |= {"dtype": row.dtype, "unit": row.unit, "worst_sample": row.sample}
        for key in ("error", "tolerance", "headroom", "ulp", "componentwise"):
            if getattr(row, key) is not None:
                values[key] = number(getattr(row, key))
    element = ET.Element("properties")
    for key, value in values.items():
        ET.SubElement(element, "property", name=key, value=clean(str(value)))
    return element


def _line(row: Row) -> str:
    """Return the first line of what is wrong with a row."""
    return (row.message or row.reason).strip().split("\n")[0]


def _block(row: Row) -> str:
    """Return all that a row says of its failure."""
    head = f"[{row.sample} {row.dtype}] {row.status}"
    if row.status == STALE:
        head += f": the exclusion no longer holds ({row.reason})"
    return "\n".join(part for part in (head, row.message, row.repro) if part)


def clean(value: str) -> str:
    """Return `value` with U+FFFD for each character that XML cannot hold."""
    return _NOT_XML.sub("\ufffd", value)
