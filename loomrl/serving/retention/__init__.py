"""The end of what was served: from an endpoint's hub into files, out of the files, and a person's at their wish."""
