"""The torch engine, in this process."""
