"""Tests: `test_formalities.py` runs first; the rest mirrors the packages."""
