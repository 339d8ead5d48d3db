"""Other libraries' task collections as environments. Each adapter imports its library on first use."""
