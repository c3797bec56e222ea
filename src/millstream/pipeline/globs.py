"""Patterns with * and ?, for sources and pages."""


def glob_pattern(glob: str) -> str:
    """A regular expression, the same for Java, Python and Arrow."""
    escaped = "".join(
        {"*": ".*", "?": "."}.get(letter, letter if letter.isalnum() else f"\\{letter}")
        for letter in glob
    )
    return f"^{escaped}$"
