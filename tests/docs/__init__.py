"""The README and the documentation: everything runs, every link leads somewhere, the site works."""
