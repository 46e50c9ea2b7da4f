"""Wrong rules, each of which a named surface must catch: tests of the tester."""
