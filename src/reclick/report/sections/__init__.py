"""The sections of the report, in its order. Each is a function of the material that gives its parts; a section without parts is left out."""
