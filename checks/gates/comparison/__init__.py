"""Two dumps, or several, against a tolerance file: figures, rows, the verdict, the six answers."""
