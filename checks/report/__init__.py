"""Reports of a sweep: the terminal, JSON lines, JUnit XML and one self-contained HTML page."""

from checks.report.files import Meta, Paths, read_meta, rebuild, write_all

__all__ = ["Meta", "Paths", "read_meta", "rebuild", "write_all"]
