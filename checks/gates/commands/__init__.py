"""The sub-commands of `gradsweep gate`: HELP, arguments(command) and run(given) in a module each."""
