"""What a comparison prints and writes."""
