"""The console: a web application over LoomDB, its hubs and what runs leave behind."""
