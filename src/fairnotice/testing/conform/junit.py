"""A report as JUnit XML, as CI systems read it: testsuites, testsuite, testcase."""

import re
import shlex
from xml.etree import ElementTree as ET

from fairnotice.testing.conform.verdict import Report, Result, Verdict

NAME = "fairnotice conform"
# What XML 1.0 has no way to say, not even escaped.
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Report) -> bytes:
    """The whole file."""
    counts = {
        "name": NAME,
        "tests": str(len(report.results)),
        "failures": str(report.count(Verdict.FAILED)),
        "errors": "0",
        "skipped": str(report.count(Verdict.NOT_ASKED)),
        "time": f"{report.seconds:.3f}",
    }
    top = ET.Element("testsuites", counts)
    suite = ET.SubElement(top, "testsuite", counts)
    properties = ET.SubElement(suite, "properties")
    command = _said(shlex.join(report.declared.command))
    ET.SubElement(properties, "property", {"name": "command", "value": command})
    for result in report.results:
        _add(suite, result)
    ET.indent(top)
    written: bytes = ET.tostring(top, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _add(suite: ET.Element, result: Result) -> None:
    names = {"classname": "conform", "name": result.situation, "time": f"{result.seconds:.3f}"}
    case = ET.SubElement(suite, "testcase", names)
    why = {"message": _said(result.why)}
    if result.verdict is Verdict.FAILED:
        failure = ET.SubElement(case, "failure", {**why, "type": "NotSurvived"})
        failure.text = why["message"]
    elif result.verdict is Verdict.NOT_ASKED:
        ET.SubElement(case, "skipped", why)
    if result.output:
        ET.SubElement(case, "system-out").text = _said(result.output)


def _said(text: str) -> str:
    return _NOT_IN_XML.sub("\ufffd", text)
