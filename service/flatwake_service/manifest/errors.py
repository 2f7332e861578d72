"""The one error that a bad manifest gives."""

from pathlib import Path


class ManifestError(ValueError):
    """Names the file, the field and the cure; its text is meant for the person who wrote it.

    `field` is the path as it is written in the file (`spec.engine.prefillTokens`), empty when the
    fault isn't in one field.
    """

    def __init__(self, message: str, *, field: str = "", file: Path | str | None = None) -> None:
        self.message = message
        self.field = field
        self.file = file
        place = ": ".join(str(part) for part in (file, field) if part)
        super().__init__(f"{place}: {message}" if place else message)
