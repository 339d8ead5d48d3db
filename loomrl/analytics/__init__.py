"""The record as columns: a ClickHouse in a folder or on a server, fed from LoomDB by cursor, for questions."""
