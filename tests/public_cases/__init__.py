"""Faults that users reported in public, of any library, as tests of this one."""
