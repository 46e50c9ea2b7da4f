"""The commands of `gradsweep gate`: a module each, with HELP, arguments(command), run(given)."""
