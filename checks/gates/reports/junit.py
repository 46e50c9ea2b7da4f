"""A comparison as JUnit XML: a test case for each contract tensor."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from checks.gates.comparison.questions import change_text, split_text
from checks.gates.comparison.record import FAIL, Result, TensorRow
from checks.gates.comparison.several import Comparison
from checks.gates.reports.rows import allowed
from checks.report.junit import clean


def junit(report: Result | Comparison) -> str:
    """Return a JUnit document: a suite for each candidate, a case for each contract tensor.

    A tensor that is not within its limits is a failure, with its status, figures and cause, but
    skipped where the inputs differ. Why a comparison is not valid is a case of its own for each
    reason, in error.
    """
    if isinstance(report, Result):
        suites = [_suite(Path(report.candidate).name, report)]
    else:
        suites = [_suite(n, r) for n, r in zip(report.labels, report.results, strict=True)]
    root = ET.Element("testsuites", name="gradsweep gate")
    root.extend(suites)
    for key in ("tests", "failures", "errors"):
        root.set(key, str(sum(int(s.attrib[key]) for s in suites)))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(label: str, result: Result) -> ET.Element:
    suite = ET.Element("testsuite", name=clean(f"gate {label}"))
    known = {"reference": result.reference, "candidate": result.candidate}
    known |= {"tolerances": result.contract, "inputs": result.inputs}
    properties = ET.SubElement(suite, "properties")
    for key, value in known.items():
        ET.SubElement(properties, "property", name=key, value=clean(value))
    owner = clean(f"gate.{Path(result.contract).stem}.{label}")
    cases = [*_problems(result, owner), *_rows(result, owner), *_spoken(result, owner)]
    suite.extend(cases)
    suite.set("tests", str(len(cases)))
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(sum(case.find(tag) is not None for case in cases)))
    return suite


def _problems(result: Result, owner: str) -> Iterator[ET.Element]:
    for n, problem in enumerate(result.problems):
        case = ET.Element("testcase", classname=owner, name=f"valid comparison {n + 1}")
        error = ET.SubElement(case, "error", type="invalid", message=clean(problem.what))
        error.text = clean(str(problem))
        yield case


def _rows(result: Result, owner: str) -> Iterator[ET.Element]:
    for row in result.rows:
        if not row.contract:
            continue
        case = ET.Element("testcase", classname=owner, name=clean(row.name))
        if row.failed and result.inputs == "different":  # nothing is known of the candidate
            ET.SubElement(case, "skipped", message="the inputs differ")
        elif row.failed:
            message = f"{row.status}: {row.cause.text if row.cause else 'unclassified'}"
            failure = ET.SubElement(case, "failure", type=row.status, message=clean(message))
            failure.text = clean("\n".join(_lines(row, result)))
        yield case


def _spoken(result: Result, owner: str) -> Iterator[ET.Element]:
    """What the run said otherwise, where that fails it."""
    for change in result.changes if result.transcript == FAIL else ():
        if change.spoken:
            case = ET.Element("testcase", classname=owner, name=clean(f"said: {change.source}"))
            text = clean(change_text(change))
            ET.SubElement(case, "failure", type="transcript", message=text)
            yield case


def _lines(row: TensorRow, result: Result) -> Sequence[str]:
    """What is known of a failing tensor; of the first the six answers, too."""
    lines = [f"{row.name} ({row.role}): {row.status}"]
    m, limit = row.measured, row.limit
    if m is not None and limit is not None:
        lines.append(f"max_abs {allowed(m.max_abs, limit.max_abs)} at {m.worst}")
        lines.append(f"mean_abs {allowed(m.mean_abs, limit.mean_abs)}")
    else:
        lines.append(f"shapes {row.shapes[0]} and {row.shapes[1]}")
    if row.cause is not None:
        lines.append(f"{row.cause.name}: {row.cause.text}")
    if row.three_way is not None:
        lines.append(split_text(row))
    if result.first is not None and row.name == result.first.name:
        lines += [f"{a.question} {a.text}" for a in result.answers]
    return lines
