"""What stands on disk: manifests, files of every known format, statistics."""
