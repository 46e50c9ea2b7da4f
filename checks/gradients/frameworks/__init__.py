"""The frameworks whose functions can be checked, one module each, imported when used."""
