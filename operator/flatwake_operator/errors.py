"""What can go wrong outside: the API's refusals, a lost Lease, an API that doesn't answer."""

from flatwake_operator.settings import Object


class ApiError(Exception):
    """The API server refused a call.

    status: HTTP's. reason: Kubernetes' word for it. retry_after: seconds it asked to wait, if so.
    """

    def __init__(self, status: int, body: Object, call: str, retry_after: float | None) -> None:
        self.status = status
        self.reason = str(body.get("reason", ""))
        self.message = str(body.get("message", body))
        self.retry_after = retry_after
        super().__init__(f"{call}: {status} {self.reason}: {self.message}")

    @property
    def is_about_the_object(self) -> bool:
        """Whether the object itself was refused, so that trying again changes nothing."""
        if self.status == 500:
            # What server-side apply says of a field that doesn't exist.
            return "field not declared in schema" in self.message
        admission = "admission" in self.message or "violates" in self.message
        return self.status in (400, 422) or (self.status == 403 and admission)


class UnreachableError(Exception):
    """The API server didn't answer."""


class LeaseLostError(Exception):
    """A write was held back: another process may be the leader by now."""
