"""Kinds of records, each declared once: `loomrl NOUN list`, its JSON and the console's lists are made of it."""
